//! Hands what happens in a run of the channel to the checker.

use stentor_channel::ChannelError;
use stentor_checker as checker;
use stentor_checker::{Checker, Cluster, EventKind, Label, Report};
use stentor_fabric::ProcessId;
use xxhash_rust::xxh3::xxh3_64;

use super::watch::EndLife;

/// The history of a run, judged as it grows.
pub(crate) struct History {
    checker: Checker,
}

impl History {
    pub(crate) fn new(processes: u16) -> Self {
        let members = (0..processes).map(|process| ProcessId(process).to_string());
        let builder = Cluster::builder().global_clock().group("n", members);
        History { checker: Checker::new(builder.build().expect("names are made unique here")) }
    }

    fn label(&mut self, word: &str) -> Label {
        self.checker.cluster_mut().label(word)
    }

    /// A connection's name: the same at both ends.
    fn connection(&mut self, (me, peer, number, life): EndLife) -> Label {
        let (a, b) = (me.min(peer), me.max(peer));
        self.label(&format!("{a}-{b}/{number}#{life}"))
    }

    fn event(&mut self, t: u64, process: ProcessId, kind: EventKind) {
        let process = checker::Process(u32::from(process.0));
        self.checker.event(&checker::Event { t, process, incarnation: 1, kind });
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

    pub(crate) fn fault(&mut self, t: u64, end: EndLife, what: &str) {
        let (channel, what) = (self.connection(end), self.label(what));
        self.event(t, end.0, EventKind::Fault { channel, what });
    }

    pub(crate) fn failed(&mut self, t: u64, end: EndLife, error: &ChannelError) {
        let channel = self.connection(end);
        let operation = self.label(&error.operation.to_string());
        let cause = self.label(&error.cause.to_string());
        let peer = checker::Process(u32::from(error.peer.0));
        self.event(t, end.0, EventKind::Failed { channel, operation, peer, cause });
    }

    pub(crate) fn closed(&mut self, t: u64, end: EndLife, lent: u64) {
        let channel = self.connection(end);
        self.event(t, end.0, EventKind::Closed { channel, lent });
    }

    pub(crate) fn crashed(&mut self, t: u64, process: ProcessId) {
        self.event(t, process, EventKind::Crash);
    }

    pub(crate) fn finish(self) -> Report {
        self.checker.finish(true)
    }
}
