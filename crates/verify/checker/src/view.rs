//! The view of a finished history that the properties check, and the builder of their counter-examples.

use crate::chain::Chain;
use crate::cluster::Cluster;
use crate::event::{Event, EventKind};
use crate::history::Encoder;
use crate::ids::{Group, GroupSet, MessageId, Process};
use crate::log::{Kept, Log, Message, Origin};
use crate::order::Order;
use crate::records::Records;
use crate::report::{CounterExample, Verdict};

/// A finished history, with its indices.
pub(crate) struct View<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) log: &'a Log,
    pub(crate) chains: &'a [Chain],
    pub(crate) order: &'a Order,
    pub(crate) slots: &'a Slots,
    pub(crate) records: &'a Records<'a>,
    pub(crate) complete: bool,
    /// The artificial groups. Each stands for a history of a group's state that has ended (see `histories`).
    pub(crate) ended: GroupSet,
    /// Names of the inputs. The slice is empty if events were passed one by one.
    pub(crate) sources: &'a [String],
}

impl View<'_> {
    /// Returns whether the message was sent to an ended history of a group other than `but`. Such a message may be
    /// lost.
    pub(crate) fn may_be_lost(&self, message: &Message, but: Option<Group>) -> bool {
        destinations(message).iter().any(|group| Some(group) != but && self.ended.contains(group))
    }

    /// Returns the name of a process.
    pub(crate) fn name(&self, process: Process) -> &str {
        self.cluster.process_name(process)
    }

    /// Formats a message.
    pub(crate) fn message_text(&self, id: MessageId) -> String {
        format!("[{},{}]", self.name(id.client), id.sequence)
    }

    /// Formats a message, given its index.
    pub(crate) fn text(&self, message: u32) -> String {
        self.message_text(self.log.messages[message as usize].id)
    }

    /// Returns the verdict that the property is not judged because a record of this process is missing or ends early.
    pub(crate) fn lacks_record(&self, process: Process) -> Verdict {
        let name = self.name(process);
        if self.records.end_early(process) {
            return Verdict::Incomplete(format!(
                "the history of `{name}` ends before `{name}` did: its file had no room, or its last line is cut off"
            ));
        }
        Verdict::Incomplete(format!(
            "a history of `{name}` is missing: name the files of all processes and all their lives"
        ))
    }

    /// Returns a member of the group whose record is missing or ends early.
    pub(crate) fn lacks_member(&self, group: Group) -> Option<Process> {
        let mut members = self.cluster.members(group).iter().copied();
        members.find(|member| !self.records.would_have_deliveries(*member))
    }

    /// Returns a new counter-example.
    pub(crate) fn example(&self, summary: String) -> Example<'_> {
        Example { view: self, example: CounterExample { summary, lines: Vec::new() } }
    }

    /// Returns the verdict that these events violate a property.
    pub(crate) fn violated<'k>(&self, summary: String, events: impl IntoIterator<Item = &'k Kept>) -> Verdict {
        events.into_iter().fold(self.example(summary), Example::kept).violated()
    }
}

/// A counter-example under construction.
pub(crate) struct Example<'a> {
    view: &'a View<'a>,
    example: CounterExample,
}

impl Example<'_> {
    /// Adds an event, unless it was added before.
    pub(crate) fn event(mut self, event: &Event, origin: Origin) -> Self {
        let line = match self.view.sources.get(origin.source()) {
            Some(file) => format!("{file}:{}  {}", origin.line(), render(event, self.view.cluster)),
            None => format!("event {}  {}", origin.line(), render(event, self.view.cluster)),
        };
        if !self.example.lines.contains(&line) {
            self.example.lines.push(line);
        }
        self
    }

    /// Adds a stored event.
    pub(crate) fn kept(self, kept: &Kept) -> Self {
        self.event(&kept.event, kept.origin)
    }

    /// Adds a delivery, given its index.
    pub(crate) fn delivery(self, delivery: u32) -> Self {
        let delivery = &self.view.log.deliveries[delivery as usize];
        let (process, incarnation) = (delivery.process, delivery.incarnation);
        let event = Event { t: delivery.t, process, incarnation, kind: EventKind::Deliver(delivery.deliver) };
        self.event(&event, delivery.origin)
    }

    /// Adds the multicast of a message, given its index, if there was one.
    pub(crate) fn multicast(self, message: u32) -> Self {
        match &self.view.log.messages[message as usize].sent {
            Some(sent) => {
                let (process, incarnation) = (sent.process, sent.incarnation);
                let event = Event { t: sent.t, process, incarnation, kind: EventKind::Multicast(sent.multicast) };
                self.event(&event, sent.origin)
            }
            None => self,
        }
    }

    /// Returns the verdict with this counter-example.
    pub(crate) fn violated(self) -> Verdict {
        Verdict::Violated(self.example)
    }
}

/// Formats an event as its line in a history, without the line feed.
fn render(event: &Event, cluster: &Cluster) -> String {
    let mut line = Vec::new();
    Encoder::new(cluster).encode(event, &mut line);
    String::from_utf8_lossy(line.trim_ascii_end()).into_owned()
}

/// The consecutive numbers (slots) of all pairs of a message and one of its destination groups. A table by slot has
/// [`Slots::len`] entries.
#[derive(Debug)]
pub(crate) struct Slots {
    first: Vec<u32>,
}

impl Slots {
    pub(crate) fn new(log: &Log) -> Self {
        let mut first = Vec::with_capacity(log.messages.len() + 1);
        let mut next = 0_u32;
        first.push(0);
        for message in &log.messages {
            next += destinations(message).len() as u32;
            first.push(next);
        }
        Slots { first }
    }

    /// Returns the number of slots.
    pub(crate) fn len(&self) -> usize {
        self.first.last().map_or(0, |end| *end as usize)
    }

    /// Returns the slot of a message, given its index, at one of its destinations. Returns `None` if the group is not a
    /// destination.
    pub(crate) fn slot(&self, log: &Log, message: u32, group: Group) -> Option<usize> {
        let to = destinations(&log.messages[message as usize]);
        to.contains(group).then(|| self.first[message as usize] as usize + to.rank(group))
    }
}

/// Returns the destination groups. The set is empty if the message was not multicast.
pub(crate) fn destinations(message: &Message) -> GroupSet {
    message.sent.as_ref().map_or(GroupSet::EMPTY, |sent| sent.multicast.to)
}
