//! An index of the recorded channel events, in the order in which they were recorded. The C properties read it.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, EventKind};
use crate::ids::{Label, Process};
use crate::log::{Kept, Origin};
use crate::view::View;

/// One end of a connection.
pub(crate) type End = (Label, Process);

/// The events that one end of a connection recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndLog {
    pub(crate) sends: Vec<Kept>,
    /// The `sent` events, each of which informed the application that a message was sent.
    pub(crate) sent: Vec<Kept>,
    pub(crate) recvs: Vec<Kept>,
    /// The first event with more messages in flight than credits, if there is one.
    pub(crate) beyond: Option<Kept>,
    pub(crate) counted: bool,
    pub(crate) faults: Vec<Kept>,
    pub(crate) failed: Option<Kept>,
    pub(crate) closed: Option<Kept>,
    /// The first event after the end was closed, other than a report of its counters.
    pub(crate) after: Option<Kept>,
}

/// All recorded events of channels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channels {
    pub(crate) ends: BTreeMap<End, EndLog>,
    /// The ends of each connection.
    by_connection: BTreeMap<Label, BTreeSet<Process>>,
    pub(crate) sends: u64,
    pub(crate) recvs: u64,
}

impl Channels {
    /// Records an event if it is a channel event.
    pub(crate) fn record(&mut self, event: &Event, origin: Origin) {
        let kept = Kept { event: *event, origin };
        let Some(connection) = event.kind.connection() else { return };
        self.by_connection.entry(connection).or_default().insert(event.process);
        let end = self.ends.entry((connection, event.process)).or_default();
        // An end may report its counters after it is closed.
        if end.closed.is_some() && !matches!(event.kind, EventKind::InFlight { .. }) {
            end.after.get_or_insert(kept);
        }
        match event.kind {
            EventKind::Send { .. } => {
                self.sends += 1;
                end.sends.push(kept);
            }
            EventKind::Sent { .. } => end.sent.push(kept),
            EventKind::Recv { .. } => {
                self.recvs += 1;
                end.recvs.push(kept);
            }
            EventKind::InFlight { count, limit, .. } => {
                end.counted = true;
                if count > limit {
                    end.beyond.get_or_insert(kept);
                }
            }
            EventKind::Fault { .. } => end.faults.push(kept),
            EventKind::Failed { .. } => {
                end.failed.get_or_insert(kept);
            }
            EventKind::Closed { .. } => {
                end.closed.get_or_insert(kept);
            }
            _ => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the other end of a connection.
    pub(crate) fn other(&self, (connection, process): End) -> Option<(Process, &EndLog)> {
        let ends = self.by_connection.get(&connection)?;
        let other = *ends.iter().find(|end| **end != process)?;
        self.ends.get(&(connection, other)).map(|log| (other, log))
    }

    /// Returns whether errors of a connection may have a cause outside of the protocol: a fault at an end, a crashed
    /// process, or an end without any event.
    pub(crate) fn is_disturbed(&self, view: &View<'_>, connection: Label) -> bool {
        let Some(ends) = self.by_connection.get(&connection) else { return false };
        let faulty = |end: &Process| {
            let log = self.ends.get(&(connection, *end));
            !view.log.is_up(*end) || log.is_some_and(|log| !log.faults.is_empty())
        };
        // If only one process has events of the connection, the other end is unknown.
        ends.iter().any(faulty) || ends.len() < 2
    }
}

/// A message of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    pub(crate) index: u64,
    pub(crate) len: u32,
    pub(crate) hash: u64,
}

/// Returns the message of a `send` or `recv` event.
pub(crate) fn transfer(kept: &Kept) -> Option<Transfer> {
    match kept.event.kind {
        EventKind::Send { index, len, hash, .. } | EventKind::Recv { index, len, hash, .. } => {
            Some(Transfer { index, len, hash })
        }
        _ => None,
    }
}
