//! A state machine as the application of a member.

use std::io::{self, Read};
use std::sync::Arc;

use stentor_multicast::{
    self as multicast, Application, Delivered, GroupId, RestoreError, StateReader, Timestamp, Topology,
};

use super::state_writer::StateWriter;
use crate::Group;
use crate::runtime::ClusterRuntime;
use crate::state_machine::{Context, Frozen, StateMachine};

/// The place of a command in the global order, as one group applies it. Places compare as the global order does. A command has the same
/// time and the same group of its time in all groups that apply it; the index is each group's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct Position {
    /// The time at which the command was ordered, nanoseconds since 1970 where the clocks of most members are right.
    pub time: u64,
    /// The group that gave the time. Commands of two groups may have the same time, and this tells them apart.
    pub group: Group,
    /// The number of the command in the group that applies it, from 1.
    pub index: u64,
}

/// A machine, and what its group was delivered.
pub(super) struct Machine<S> {
    pub(super) machine: S,
    pub(super) applied: Option<Position>,
    name: String,
    group: Group,
    /// The names of the clients.
    senders: Vec<String>,
    /// The value with which the machine was started, written.
    first: Arc<[u8]>,
}

impl<S: StateMachine> Machine<S> {
    pub(super) fn new(machine: S, name: &str, group: Group, plan: &ClusterRuntime) -> io::Result<Self> {
        let topology: &Topology = plan.topology();
        let clients = (0..topology.clients() as u16).map(multicast::ClientId);
        let senders = clients.map(|client| plan.name(topology.client_process(client)).to_owned()).collect();
        let mut first = Vec::new();
        machine.freeze().write(&mut first)?;
        Ok(Machine { machine, applied: None, name: name.to_owned(), group, senders, first: first.into() })
    }
}

impl<S: StateMachine> Application for Machine<S> {
    #[inline]
    fn deliver(&mut self, delivered: &Delivered<'_>) {
        let Timestamp { time, group } = delivered.timestamp;
        let position = Position { time, group: Group(GroupId(group)), index: delivered.number };
        let sender = self.senders.get(usize::from(delivered.id.client.0)).map_or("?", String::as_str);
        self.machine.apply(&Context { group: self.group, position, sender }, delivered.payload);
        self.applied = Some(position);
    }

    fn freeze(&mut self) -> Box<dyn multicast::Frozen> {
        Box::new(StateWriter::begin(&self.name, self.machine.freeze()))
    }

    fn restore_from(&mut self, number: u64, state: &mut StateReader<'_>) -> Result<(), RestoreError> {
        if number == 0 {
            // The group begins here: with the value that the machine was given.
            let restored = self.machine.restore(&mut &self.first[..]);
            return restored.map_err(|error| RestoreError(format!("its own first value cannot be read: {error}")));
        }
        self.machine.restore(&mut Bytes(state)).map_err(|error| RestoreError(error.to_string()))
    }
}

struct Bytes<'a, 'b>(&'a mut StateReader<'b>);

impl Read for Bytes<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(out))
    }
}

#[cfg(test)]
mod tests {
    use stentor_multicast::{Ballot, ClientId, DestinationGroups, MessageId};

    use super::*;
    use crate::{Cluster, Stateless};

    struct Places(Vec<(Group, Position)>);

    impl StateMachine for Places {
        type Frozen = Stateless;

        fn apply(&mut self, at: &Context<'_>, _: &[u8]) {
            self.0.push((at.group(), at.position()));
        }

        fn freeze(&self) -> Stateless {
            Stateless
        }

        fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn commands_of_the_same_time_have_the_same_order_in_all_groups() {
        let members = |host: &str| ["a", "b", "c"].map(|name| (format!("{host}{name}"), format!("{host}{name}:1")));
        let cluster = Cluster::builder("c").group("g1", members("x")).group("g2", members("y")).build();
        let cluster = cluster.expect("a sound cluster");
        let groups: Vec<_> = cluster.groups().collect();
        let places = [groups[0], groups[1]].map(|group| {
            let mut machine =
                Machine::new(Places(Vec::new()), "a", group, cluster.runtime()).expect("it has nothing to write");
            for (number, group) in [(1, 0), (2, 1)] {
                machine.deliver(&Delivered {
                    id: MessageId { client: ClientId(0), sequence: number },
                    timestamp: Timestamp { time: 5, group },
                    number,
                    ballot: Ballot::default(),
                    groups: DestinationGroups::default(),
                    enveloped: false,
                    payload: &[],
                });
            }
            assert!(machine.machine.0.iter().all(|(applies, _)| *applies == group));
            [machine.machine.0[0].1, machine.machine.0[1].1]
        });
        assert!(places[1][0] < places[0][1] && places[0][0] < places[1][1], "{places:?}");
    }
}
