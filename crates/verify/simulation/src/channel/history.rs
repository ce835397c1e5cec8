//! Records the events of a channel run in the checker.

use stentor_channel::{Cause, ChannelError, Operation};
use stentor_checker::{Cluster, EventKind, Label, Report};
use stentor_fabric::{PostError, ProcessId, Status};
use stentor_fabric_sim::Transcript;
use xxhash_rust::xxh3::xxh3_64;

use super::watch::EndLife;
use crate::judged::{Judged, process};
use crate::record::Record;

/// The history of a run, which is judged as it grows.
pub(crate) struct History {
    checker: Judged,
}

impl History {
    pub(crate) fn new(processes: u16, record: Record) -> Self {
        let members = (0..processes).map(|process| ProcessId(process).to_string());
        let builder = Cluster::builder().global_clock().group("n", members);
        let cluster = builder.build().expect("names are made unique here");
        History { checker: Judged::new(cluster, record) }
    }

    fn label(&mut self, word: &str) -> Label {
        self.checker.label(word)
    }

    /// Returns a connection's name, which is the same at both ends.
    fn connection(&mut self, (me, peer, number, life): EndLife) -> Label {
        let (a, b) = (me.min(peer), me.max(peer));
        self.label(&format!("{a}-{b}/{number}#{life}"))
    }

    fn event(&mut self, t: u64, process: ProcessId, kind: EventKind) {
        self.checker.event(t, process, 1, kind);
    }

    pub(crate) fn send(&mut self, t: u64, end: EndLife, index: u64, message: &[u8]) {
        let (channel, len, hash) = (self.connection(end), message.len() as u32, xxh3_64(message));
        self.event(t, end.0, EventKind::Send { channel, index, len, hash });
    }

    pub(crate) fn sent(&mut self, t: u64, end: EndLife, index: u64) {
        let channel = self.connection(end);
        self.event(t, end.0, EventKind::Sent { channel, index });
    }

    pub(crate) fn recv(&mut self, t: u64, end: EndLife, index: u64, message: &[u8]) {
        let (channel, len, hash) = (self.connection(end), message.len() as u32, xxh3_64(message));
        self.event(t, end.0, EventKind::Recv { channel, index, len, hash });
    }

    pub(crate) fn in_flight(&mut self, t: u64, end: EndLife, count: u64, limit: u64) {
        let channel = self.connection(end);
        self.event(t, end.0, EventKind::InFlight { channel, count, limit });
    }

    /// Records an error of the fabric.
    pub(crate) fn fault(&mut self, t: u64, end: EndLife, status: Status) {
        let (channel, what) = (self.connection(end), self.label(&format!("{status:?}")));
        self.checker.note("status", &[status as u64]);
        self.event(t, end.0, EventKind::Fault { channel, what });
    }

    /// Records that an end was aborted by its owner.
    pub(crate) fn given_up(&mut self, t: u64, end: EndLife) {
        let (channel, what) = (self.connection(end), self.label("given up"));
        self.checker.note("given-up", &[]);
        self.event(t, end.0, EventKind::Fault { channel, what });
    }

    pub(crate) fn failed(&mut self, t: u64, end: EndLife, error: &ChannelError) {
        let channel = self.connection(end);
        let operation = self.label(&error.operation.to_string());
        let cause = self.label(&error.cause.to_string());
        let peer = process(error.peer);
        self.checker.note("operation", &operation_numbers(error.operation));
        self.checker.note("cause", &cause_numbers(&error.cause));
        self.event(t, end.0, EventKind::Failed { channel, operation, peer, cause });
    }

    pub(crate) fn closed(&mut self, t: u64, end: EndLife, lent: u64) {
        let channel = self.connection(end);
        self.event(t, end.0, EventKind::Closed { channel, lent });
    }

    pub(crate) fn crashed(&mut self, t: u64, process: ProcessId) {
        self.event(t, process, EventKind::Crash);
    }

    pub(crate) fn finish(self) -> (Report, Option<Transcript>) {
        self.checker.finish(true)
    }
}

/// Returns an operation as numbers that are stable across versions.
fn operation_numbers(operation: Operation) -> [u64; 2] {
    match operation {
        Operation::Open => [1, 0],
        Operation::Write(message) => [2, message],
        Operation::Read(message) => [3, message],
        Operation::Control => [4, 0],
        Operation::Close => [5, 0],
    }
}

/// Returns a cause as numbers that are stable across versions, without its text.
fn cause_numbers(cause: &Cause) -> [u64; 4] {
    match *cause {
        Cause::Fabric(status) => [1, status as u64, 0, 0],
        Cause::Broken => [2, 0, 0, 0],
        Cause::Refused(refusal) => [3, refusal_number(&refusal.0), 0, 0],
        Cause::Disagree { ours, theirs, .. } => [4, ours, theirs, 0],
        Cause::Version { ours, theirs } => [5, ours.into(), theirs.into(), 0],
        Cause::TooLong { bytes, limit } => [6, bytes, limit, 0],
        Cause::Sequence { sequence, expected, window, .. } => [7, sequence.into(), expected.into(), window.into()],
        Cause::Size { bytes, expected, .. } => [8, bytes, expected, 0],
        Cause::Nonsense(_) => [9, 0, 0, 0],
        Cause::PeerGaveUp(reason) => [10, reason as u64, 0, 0],
        Cause::Aborted => [11, 0, 0, 0],
        Cause::TimedOut(after) => [12, after.as_nanos() as u64, 0, 0],
    }
}

/// Returns the number of a fabric's reason to refuse a post.
fn refusal_number(error: &PostError) -> u64 {
    match error {
        PostError::UnknownQp(_) => 1,
        PostError::NotReady { .. } => 2,
        PostError::SendQueueFull { .. } => 3,
        PostError::RecvQueueFull { .. } => 4,
        PostError::NotReached { .. } => 5,
        PostError::InlineTooLong { .. } => 6,
        PostError::OutOfLocalRegion { .. } => 7,
        PostError::TooLong { .. } => 8,
        PostError::Misaligned { .. } => 9,
        PostError::NotRegistered { .. } => 10,
        PostError::Unsupported(_) => 11,
    }
}
