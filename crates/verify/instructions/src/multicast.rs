//! The hot path of a multicast to one group of three members, or to two such groups. One message is outstanding at a
//! time.

use std::path::Path;
use std::time::Duration;

use stentor::ClusterConfig;
use stentor::runtime::{Client, ClientId, ClusterRuntime, GroupId, Member, ShmFabric, stateless};
use stentor_fabric::ProcessId;
use stentor_testutil::TempDir;

use crate::{WARM_UP, counted_if};

/// The process whose steps are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The client's submission and its steps.
    Client,
    /// The steps of the first group's leader.
    Leader,
    /// The steps of a follower in the first group.
    Follower,
}

/// The configuration without its groups. The limits are those of `stentor bench multicast`.
const HEAD: &str = r#"
cluster = "instructions"
fabric = "shm"
[election]
kind = "heartbeat"
[limits]
clients = 1
message_bytes = 64
window = 16
body_ring_kib = 64
ring_kib = 64
"#;
const GROUP_OF: u16 = 3;
const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(1)];
const PAYLOAD: [u8; 64] = [7; 64];
/// Maximum number of rounds until a message is delivered by all members. About four are needed.
const MOST_ROUNDS: u32 = 100;

/// The members of all groups and a client, in one thread.
pub struct Cluster {
    members: Vec<Member<ShmFabric>>,
    client: Client<ShmFabric>,
    to: &'static [GroupId],
    /// The members' clock. It stops once all are connected, so no timer of a member fires.
    now: Duration,
    delivered: u64,
    _directory: TempDir,
}

fn configuration(groups: usize) -> String {
    let mut text = HEAD.to_owned();
    for group in 1..=groups {
        let process = |n: u16| format!(r#"{{ id = "g{group}.{n}", address = "127.0.0.1:7{group}0{n}" }}"#);
        let processes: Vec<_> = (1..=GROUP_OF).map(process).collect();
        text += &format!("[[group]]\nid = \"g{group}\"\nprocess = [ {} ]\n", processes.join(", "));
    }
    text
}

impl Cluster {
    /// Connects `groups` groups (one or two) and a client, and multicasts the warm-up messages.
    ///
    /// # Panics
    /// Panics if shared memory is not available on this machine.
    #[must_use]
    pub fn ready(groups: usize) -> Self {
        let directory = TempDir::new();
        let config = ClusterConfig::parse(Path::new("cluster.toml"), &configuration(groups))
            .expect("the configuration is valid");
        let plan = ClusterRuntime::new(config).expect("the configuration is possible");
        let members = 0..GROUP_OF * groups as u16;
        let members = members.map(|me| plan.member(ProcessId(me), directory.to_path_buf()).expect("the member starts"));
        let members = members.collect();
        let client = plan.client(ClientId(0), directory.to_path_buf()).expect("the client starts");
        let to = &GROUPS[..groups];
        let mut cluster = Cluster { members, client, to, now: Duration::ZERO, delivered: 0, _directory: directory };
        while !(cluster.client.is_connected(to) && cluster.members.iter().all(Member::is_connected)) {
            cluster.now += Duration::from_millis(1);
            cluster.members.iter_mut().for_each(|member| {
                member.housekeep();
            });
            cluster.client.housekeep();
            cluster.round(None);
        }
        assert!(cluster.members[0].replica().is_leader(), "the first process leads its group");
        assert!(!cluster.members[1].replica().is_leader(), "the second process follows");
        cluster.pass(None, WARM_UP);
        cluster
    }

    /// Multicasts `messages` messages, one after the other. Counts the instructions that `role` executes until all
    /// members have delivered each message and the client has learned of the delivery.
    ///
    /// # Panics
    /// Panics if a message is not delivered.
    pub fn run(&mut self, role: Role, messages: u64) {
        self.pass(Some(role), messages);
    }

    fn pass(&mut self, role: Option<Role>, messages: u64) {
        for _ in 0..messages {
            let due = self.delivered + self.members.len() as u64;
            let (client, to) = (&mut self.client, self.to);
            counted_if(role == Some(Role::Client), || client.submit(to, &PAYLOAD, true))
                .expect("the window has room for a message");
            let mut rounds = 0;
            while self.client.outstanding() > 0 || self.delivered < due {
                self.round(role);
                rounds += 1;
                assert!(rounds < MOST_ROUNDS, "a message is not delivered");
            }
        }
    }

    fn round(&mut self, role: Option<Role>) {
        let (now, delivered) = (self.now, &mut self.delivered);
        for (n, member) in self.members.iter_mut().enumerate() {
            let measured = match role {
                Some(Role::Leader) => n == 0,
                Some(Role::Follower) => n == 1,
                Some(Role::Client) | None => false,
            };
            counted_if(measured, || member.step(now, &mut stateless(|_| *delivered += 1)));
        }
        counted_if(role == Some(Role::Client), || self.client.step());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_delivered_in_one_group_and_in_two() {
        for groups in [1, 2] {
            let mut cluster = Cluster::ready(groups);
            for role in [Role::Client, Role::Leader, Role::Follower] {
                cluster.run(role, 10);
            }
        }
    }
}
