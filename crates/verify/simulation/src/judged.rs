//! The checker that judges a run while it goes on, and the transcript of what it is told.

use stentor_checker::{Checker, Cluster, Event, EventKind, Label, MessageId, Process, Report};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::Transcript;

use crate::record::Record;

/// A checker and, if asked for, a transcript of its events.
///
/// A label counts as the number of its first mention, whatever it says. Where the word itself matters, a note goes with it.
pub(crate) struct Judged {
    checker: Checker,
    transcript: Option<Transcript>,
}

impl Judged {
    pub(crate) fn new(cluster: Cluster, record: Record) -> Self {
        Judged { checker: Checker::new(cluster), transcript: record.transcript() }
    }

    pub(crate) fn label(&mut self, word: &str) -> Label {
        self.checker.cluster_mut().label(word)
    }

    pub(crate) fn event(&mut self, t: u64, process: ProcessId, incarnation: u64, kind: EventKind) {
        let event = Event { t, process: self::process(process), incarnation, kind };
        if let Some(transcript) = &mut self.transcript {
            transcribe(transcript, &event);
        }
        self.checker.event(&event);
    }

    /// Adds to the transcript, in numbers, what an event names in words for people.
    pub(crate) fn note(&mut self, word: &str, numbers: &[u64]) {
        if let Some(transcript) = &mut self.transcript {
            transcript.line(word, numbers, &[]);
        }
    }

    /// Judges, and returns the transcript, too, if one was asked for.
    pub(crate) fn finish(self, complete: bool) -> (Report, Option<Transcript>) {
        (self.checker.finish(complete), self.transcript)
    }
}

/// A process as the checker numbers it.
pub(crate) fn process(process: ProcessId) -> Process {
    Process(process.0.into())
}

/// Appends the line of an event: its word, time, process, incarnation, and what else it says.
fn transcribe(transcript: &mut Transcript, event: &Event) {
    let mut line = |word: &str, more: &[u64]| {
        let head = [event.t, event.process.0.into(), event.incarnation];
        transcript.line(word, &[&head, more].concat(), &[]);
    };
    let id = |m: &MessageId| [u64::from(m.client.0), m.sequence];
    match &event.kind {
        EventKind::Multicast(said) | EventKind::Synced(said) => {
            let word = if matches!(event.kind, EventKind::Synced(_)) { "synced" } else { "multicast" };
            let groups: Vec<u64> = said.to.iter().map(|group| group.0.into()).collect();
            line(word, &[&id(&said.m), &[said.len.into(), said.hash], &groups[..]].concat());
        }
        EventKind::Deliver(said) => {
            let ballot = said.ballot.map_or([0; 3], |ballot| [1, ballot.number, ballot.by.0.into()]);
            let len = said.len.map_or([0; 2], |len| [1, len.into()]);
            let time = [said.group.0.into(), said.number, said.ts.time, said.ts.group.0.into(), said.hash];
            line("deliver", &[&id(&said.m)[..], &time, &len, &ballot].concat());
        }
        EventKind::Crash => line("crash", &[]),
        EventKind::Unrecorded => line("unrecorded", &[]),
        EventKind::Recover { from } => line("recover", &[*from]),
        EventKind::Epoch { group, ballot, by, leader, carried } => {
            let carried = carried.map_or([0; 2], |carried| [1, carried.into()]);
            line("epoch", &[&[group.0.into(), *ballot, by.0.into(), leader.0.into()], &carried[..]].concat());
        }
        EventKind::Carry { m, group, ballot } => {
            line("carry", &[&id(m)[..], &[group.0.into(), ballot.number, ballot.by.0.into()]].concat());
        }
        EventKind::RemoteOp { m, kind, to } => {
            line("remote_op", &[&id(m)[..], &[kind.0.into(), to.0.into()]].concat());
        }
        EventKind::Memory { bytes, limit, what } => {
            line("memory", &[*bytes, limit.is_some().into(), limit.unwrap_or(0), what.0.into()]);
        }
        EventKind::Broadcast(said) | EventKind::Bdeliver(said) => {
            let word = if matches!(event.kind, EventKind::Bdeliver(_)) { "bdeliver" } else { "broadcast" };
            line(word, &[said.sender.0.into(), said.index, said.len.into(), said.hash]);
        }
        EventKind::Equivocation { sender, index, hash, other, proven } => {
            line("equivocation", &[sender.0.into(), *index, *hash, *other, (*proven).into()]);
        }
        EventKind::Skip { sender, from, to } => line("skip", &[sender.0.into(), *from, *to]),
        EventKind::Removed { sender, upto } => line("removed", &[sender.0.into(), *upto]),
        other => transcribe_channel(other, line),
    }
}

/// The same for the events of channels.
fn transcribe_channel(kind: &EventKind, mut line: impl FnMut(&str, &[u64])) {
    let Some(channel) = kind.connection() else { unreachable!("all other events have been written") };
    let channel = channel.0.into();
    match kind {
        EventKind::Send { index, len, hash, .. } => line("send", &[channel, *index, (*len).into(), *hash]),
        EventKind::Sent { index, .. } => line("sent", &[channel, *index]),
        EventKind::Recv { index, len, hash, .. } => line("recv", &[channel, *index, (*len).into(), *hash]),
        EventKind::InFlight { count, limit, .. } => line("in_flight", &[channel, *count, *limit]),
        // What it is about is in a note: the words are for people.
        EventKind::Fault { .. } => line("fault", &[channel]),
        EventKind::Failed { peer, .. } => line("failed", &[channel, peer.0.into()]),
        EventKind::Closed { lent, .. } => line("closed", &[channel, *lent]),
        _ => {}
    }
}
