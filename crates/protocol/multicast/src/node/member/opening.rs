//! Forwards requests of client processes that want to start multicasting.
//!
//! A process sends a hello to the members of the groups to which it wants to multicast. Each member forwards the
//! request to its leader, and repeats it until the group has agreed on the process's first slot
//! (`replica/succession.rs`). So the request reaches the leader if the process is connected to one member.

use stentor_fabric::Fabric;

use super::Member;
use crate::node::app::Application;
use crate::{ClientId, Opening};

/// Maximum number of ticks between two repetitions of a request.
const AGAIN: u32 = 32;

impl<F: Fabric> Member<F> {
    /// Forwards the request of the process with this client id to the leader, if it still waits for an answer.
    pub(super) fn ask_to_open<A: Application>(&mut self, client: ClientId, app: &mut A) {
        let body = &self.bodies[usize::from(client.0)];
        let is_home = self.topology.home(client) == self.replica.group();
        let Some(life) = body.ring.life().filter(|_| body.settling && !body.begun) else { return };
        if body.generation.is_none() && !is_home {
            // The process must first get its generation from its home group.
            return;
        }
        let told = body.generation.map_or(0, |generation| generation + 1);
        let asked = Opening { client, life, told, above: body.above };
        self.with_replica(app, |replica, out| replica.open(asked, out));
    }

    /// Repeats pending requests, less often as they grow older.
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
