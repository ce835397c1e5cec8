//! A member's side of the election: it polls for leader changes, and campaigns when it is named itself.

use std::time::Duration;

use stentor_election::{Change, Election};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{SimFabric, World};
use stentor_multicast::Member;

use crate::chance::Chance;
use crate::nemesis::Told;

/// Minimum time that a named leader waits before it tries again, in nanoseconds.
const RETRY_NS: u64 = 60_000;

pub(crate) struct Candidate {
    me: ProcessId,
    election: Told,
    /// Time of the next attempt in nanoseconds, if the election names this process.
    named: Option<u64>,
    /// Number of attempts since the process was named.
    attempts: u32,
    chance: Chance,
}

impl Candidate {
    pub(crate) fn new(me: ProcessId, election: Told, chance: Chance) -> Self {
        Candidate { me, election, named: None, attempts: 0, chance }
    }

    /// Processes leader changes, and starts a campaign of the member if it is named.
    pub(crate) fn listen(&mut self, now_ns: u64, member: &mut Member<SimFabric>) {
        while let Some(change) = self.election.poll(Duration::from_nanos(now_ns)) {
            match change {
                Change::Leader { process, .. } if process == self.me => (self.named, self.attempts) = (Some(now_ns), 0),
                Change::Leader { .. } | Change::Pending | Change::Resigned { .. } => self.named = None,
            }
        }
        let replica = member.replica();
        let leads = replica.is_leader() && replica.ballot() == replica.known(replica.group());
        if let Some(at) = self.named.filter(|at| now_ns >= *at && !leads)
            && member.campaign().is_ok()
        {
            // Exponential backoff, so that two named processes do not obstruct each other forever.
            let pause = RETRY_NS << self.attempts.min(6);
            self.attempts += 1;
            self.named = Some(at.max(now_ns) + pause + self.chance.between(0, pause));
        }
    }

    /// Schedules a wake-up at the next leader change.
    pub(crate) fn wake(&self, now_ns: u64, world: &World) {
        if let Some(at) = self.election.next_at() {
            world.wake_at(self.me, at.max(now_ns + 1));
        }
    }
}
