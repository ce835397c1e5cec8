//! A state machine as the application of a member.

use std::io::{self, Read};
use std::sync::Arc;

use stentor_multicast::{self as multicast, Application, Delivered, RestoreError, StateReader, Topology};

use super::state_writer::StateWriter;
use crate::Group;
use crate::runtime::ClusterRuntime;
use crate::state_machine::{Context, Frozen, StateMachine};

/// The place of a command in the global order. Places are compared by time and group; the index follows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct Position {
    /// The time at which the command was ordered, nanoseconds since 1970 where the clocks of most members are right.
    pub time: u64,
    /// The group that applied it.
    pub group: Group,
    /// The number of the command in this group, from 1.
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
        let position = Position { time: delivered.timestamp.time, group: self.group, index: delivered.number };
        let sender = self.senders.get(usize::from(delivered.id.client.0)).map_or("?", String::as_str);
        self.machine.apply(&Context { position, sender }, delivered.payload);
        self.applied = Some(position);
    }

    fn freeze(&mut self) -> Box<dyn multicast::Frozen> {
        Box::new(StateWriter::begin(&self.name, self.machine.freeze()))
    }

    fn restore_from(&mut self, number: u64, state: &mut StateReader<'_>) -> Result<(), RestoreError> {
        let restored = if number == 0 {
            // The group begins here: with the value that the machine was given.
            self.machine.restore(&mut &self.first[..])
        } else {
            self.machine.restore(&mut Bytes(state))
        };
        restored.map_err(|error| RestoreError(error.to_string()))
    }
}

struct Bytes<'a, 'b>(&'a mut StateReader<'b>);

impl Read for Bytes<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(out))
    }
}
