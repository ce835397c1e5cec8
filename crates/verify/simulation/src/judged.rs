//! The checker that judges a run as it proceeds, and the transcript of its events.

use stentor_checker::{Checker, Cluster, Event, EventKind, Label, MessageId, Process, Report};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::Transcript;

use crate::record::Record;

/// A checker and, on request, a transcript of its events.
///
/// The transcript contains the numbers of labels instead of their texts. Labels are numbered in the order of their
/// first use. If the text matters, a note is added to the event.
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
        self.transcribe(&event);
        self.checker.event(&event);
    }

    /// Adds an event to the transcript without judging it.
    pub(crate) fn transcribe(&mut self, event: &Event) {
        if let Some(transcript) = &mut self.transcript {
            transcribe(transcript, event);
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.checker.cluster()
    }

    /// Adds to the transcript, in numbers, the facts that an event contains only as text.
    pub(crate) fn note(&mut self, word: &str, numbers: &[u64]) {
        if let Some(transcript) = &mut self.transcript {
            transcript.line(word, numbers, &[]);
        }
    }

    /// Judges the run. Returns also the transcript, if one was requested.
    pub(crate) fn finish(self, complete: bool) -> (Report, Option<Transcript>) {
        (self.checker.finish(complete), self.transcript)
    }
}

/// Converts a process id to the checker's process number.
pub(crate) fn process(process: ProcessId) -> Process {
    Process(process.0.into())
}

/// Appends the line of an event: its name, time, process, life and fields.
fn transcribe(transcript: &mut Transcript, event: &Event) {
    let head = [event.t, event.process.0.into(), event.incarnation];
    transcript.line(event.kind.name(), &[&head[..], &numbers(&event.kind)].concat(), &[]);
}

fn numbers(kind: &EventKind) -> Vec<u64> {
    let id = |m: &MessageId| [u64::from(m.client.0), m.sequence];
    match kind {
        EventKind::Multicast(said) | EventKind::Synced(said) => {
            let groups: Vec<u64> = said.to.iter().map(|group| group.0.into()).collect();
            [&id(&said.m), &[said.len.into(), said.hash], &groups[..]].concat()
        }
        EventKind::Deliver(said) => {
            let ballot = said.ballot.map_or([0; 3], |ballot| [1, ballot.number, ballot.by.0.into()]);
            let len = said.len.map_or([0; 2], |len| [1, len.into()]);
            let time = [said.group.0.into(), said.number, said.ts.time, said.ts.group.0.into(), said.hash];
            [&id(&said.m)[..], &time, &len, &ballot].concat()
        }
        EventKind::Crash | EventKind::Unrecorded => vec![],
        EventKind::Recover { from: number } | EventKind::Heard { time: number } => vec![*number],
        EventKind::Begun(said) => {
            let after = said.after.map_or([0; 2], |after| [after.number.into(), after.tag.into()]);
            let of = [said.group.0.into(), said.incarnation.number.into(), said.incarnation.tag.into(), said.kept];
            [&of[..], &after].concat()
        }
        EventKind::Epoch { group, ballot, by, leader, carried } => {
            let carried = carried.map_or([0; 2], |carried| [1, carried.into()]);
            [&[group.0.into(), *ballot, by.0.into(), leader.0.into()], &carried[..]].concat()
        }
        EventKind::Carry { m, group, ballot } => {
            [&id(m)[..], &[group.0.into(), ballot.number, ballot.by.0.into()]].concat()
        }
        EventKind::RemoteOp { m, kind, to } => [id(m), [kind.0.into(), to.0.into()]].concat(),
        EventKind::Memory { bytes, limit, what } => {
            vec![*bytes, limit.is_some().into(), limit.unwrap_or(0), what.0.into()]
        }
        EventKind::Broadcast(said) | EventKind::Bdeliver(said) => {
            vec![said.sender.0.into(), said.index, said.len.into(), said.hash]
        }
        EventKind::Equivocation { sender, index, hash, other, proven } => {
            vec![sender.0.into(), *index, *hash, *other, (*proven).into()]
        }
        EventKind::Skip { sender, from, to } => vec![sender.0.into(), *from, *to],
        EventKind::Removed { sender, upto } => vec![sender.0.into(), *upto],
        EventKind::Send { channel, index, len, hash } | EventKind::Recv { channel, index, len, hash } => {
            vec![channel.0.into(), *index, (*len).into(), *hash]
        }
        EventKind::Sent { channel, index } => vec![channel.0.into(), *index],
        EventKind::InFlight { channel, count, limit } => vec![channel.0.into(), *count, *limit],
        // The cause is in a note, because its text may change.
        EventKind::Fault { channel, .. } => vec![channel.0.into()],
        EventKind::Failed { channel, peer, .. } => vec![channel.0.into(), peer.0.into()],
        EventKind::Closed { channel, lent } => vec![channel.0.into(), *lent],
    }
}
