//! Passing on that a process wants to begin in a client's place.
//!
//! A process greets the members of the groups that it wants to multicast to. Each member passes that on to its leader, and repeats
//! it until the group has agreed on the first slot (`replica/succession.rs`). So one connected member suffices.

use stentor_fabric::Fabric;

use super::Member;
use crate::node::app::Application;
use crate::{ClientId, Opening};

/// The most ticks after which a member says it again.
const AGAIN: u32 = 32;

impl<F: Fabric> Member<F> {
    /// Tells the leader that the process that has a client's place wants to begin, if it does.
    pub(super) fn ask_to_open<A: Application>(&mut self, client: ClientId, app: &mut A) {
        let body = &self.bodies[usize::from(client.0)];
        let is_home = self.topology.home(client) == self.replica.group();
        let Some(life) = body.ring.life().filter(|_| body.settling && !body.begun) else { return };
        if body.generation.is_none() && !is_home {
            // It has to ask its home first.
            return;
        }
        let told = body.generation.map_or(0, |generation| generation + 1);
        let asked = Opening { client, life, told, above: body.above };
        self.with_replica(app, |replica, out| replica.open(asked, out));
    }

    /// Time passes: tells the leader again.
    pub(super) fn ask_to_open_again<A: Application>(&mut self, app: &mut A) {
        for client in (0..self.bodies.len() as u16).map(ClientId) {
            let body = &mut self.bodies[usize::from(client.0)];
            if !(body.settling && self.links[body.ring.credit.link].is_met()) {
                continue;
            }
            body.ticks += 1;
            if body.ticks.is_power_of_two() || body.ticks.is_multiple_of(AGAIN) {
                self.ask_to_open(client, app);
            }
        }
    }
}
