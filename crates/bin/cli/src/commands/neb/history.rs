//! The history of one process of the broadcast.

use std::path::{Path, PathBuf};

use stentor::runtime::now_ns;
use stentor_checker::{self as checker, Author, Cluster, EventKind, HistoryWriter};
use stentor_fabric::{Fabric, ProcessId};
use stentor_neb::{Config, Evidence, Node, Notice, Value};
use stentor_support::Failure;
use stentor_support::live::{HistoryFile, unwritten};
use xxhash_rust::xxh3::xxh3_64;

/// Records the events of one process. If recording fails, the history ends there, and `news` and `check` return the
/// failure.
pub(in crate::commands) struct NebHistory {
    path: PathBuf,
    /// The writer, or `None` after an error.
    writer: Option<HistoryWriter<HistoryFile>>,
    me: checker::Process,
    regions: checker::Label,
    signed: bool,
    limit: usize,
    /// The failure that ended the history, and whether it was reported.
    failed: Option<(Failure, bool)>,
}

fn stream(process: ProcessId) -> checker::Process {
    checker::Process(u32::from(process.0))
}

impl NebHistory {
    /// Begins the history of `me` in a new file. The processes of `cluster` must be those of the broadcast, in the
    /// order of their numbers.
    pub(in crate::commands) fn new(
        path: &Path,
        mut cluster: Cluster,
        me: ProcessId,
        config: &Config,
    ) -> Result<Self, Failure> {
        let file = HistoryFile::create(path)?;
        let regions = cluster.label("regions");
        let author = Author { process: stream(me), began: now_ns() };
        let writer = HistoryWriter::of(file, &cluster, author).map_err(|error| Failure::cannot_write(path, &error))?;
        let (signed, limit) = (config.signed, config.payload_bytes);
        let (writer, me) = (Some(writer), stream(me));
        Ok(NebHistory { path: path.to_owned(), writer, me, regions, signed, limit, failed: None })
    }

    fn write(&mut self, write: impl FnOnce(&mut HistoryWriter<HistoryFile>) -> std::io::Result<()>) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = write(writer)
        {
            let last = checker::Event { t: now_ns(), process: self.me, incarnation: 1, kind: EventKind::Unrecorded };
            // If the final event finds no room either, the history ends without it.
            let _ = writer.give_up(&last);
            self.failed = Some((unwritten(&self.path, &error), false));
            self.writer = None;
        }
    }

    fn event(&mut self, t: u64, kind: EventKind) {
        let event = checker::Event { t, process: self.me, incarnation: 1, kind };
        self.write(|writer| writer.event(&event));
    }

    /// Records a broadcast of this process. `t` must precede its first write.
    pub(in crate::commands) fn broadcast(&mut self, t: u64, index: u64, payload: &[u8]) {
        let (len, hash) = (payload.len() as u32, xxh3_64(payload));
        self.event(t, EventKind::Broadcast(checker::Broadcast { sender: self.me, index, len, hash }));
    }

    /// Records a notice of the node, except [`Notice::Refused`], which a history does not contain.
    pub(in crate::commands) fn notice(&mut self, notice: &Notice<'_>) {
        let kind = match notice {
            Notice::Deliver(sender, value) => {
                let (len, hash) = (value.payload().len() as u32, xxh3_64(value.payload()));
                let (sender, index) = (stream(*sender), value.index());
                EventKind::Bdeliver(checker::Broadcast { sender, index, len, hash })
            }
            Notice::Skip(sender, index) => EventKind::Skip { sender: stream(*sender), from: *index, to: *index },
            Notice::Equivocation(evidence) => {
                let (hash, other) = self.hashes(evidence);
                let (sender, index, proven) = (stream(evidence.sender), evidence.index, evidence.proven);
                EventKind::Equivocation { sender, index, hash, other, proven }
            }
            Notice::Removed(sender, upto) => EventKind::Removed { sender: stream(*sender), upto: *upto },
            Notice::Refused(..) => return,
        };
        self.event(now_ns(), kind);
    }

    /// Returns the hashes of the two payloads or, if these are equal, of the whole values with their keys.
    fn hashes(&self, evidence: &Evidence) -> (u64, u64) {
        let hash = |words: &[u64]| {
            let value = Value::new(words, words.len() * 8, self.signed, self.limit);
            let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
            value.map_or_else(
                |_| (xxh3_64(&bytes(words)), xxh3_64(&bytes(words))),
                |value| (xxh3_64(value.payload()), xxh3_64(&bytes(value.content()))),
            )
        };
        let (ours, other) = (hash(&evidence.ours), hash(&evidence.other));
        if ours.0 == other.0 { (ours.1, other.1) } else { (ours.0, other.0) }
    }

    /// Records the size of the registered memory, and its limit.
    pub(in crate::commands) fn memory<F: Fabric>(&mut self, node: &Node<F>) {
        let (bytes, limit) = (node.registered_bytes(), Some(node.config().memory_bytes()));
        self.event(now_ns(), EventKind::Memory { bytes, limit, what: self.regions });
    }

    /// Writes all buffered events to the operating system.
    pub(in crate::commands) fn flush(&mut self) {
        self.write(HistoryWriter::flush);
    }

    /// Returns why the history ended. Returns it only once.
    pub(in crate::commands) fn news(&mut self) -> Option<&Failure> {
        let (failure, told) = self.failed.as_mut()?;
        (!std::mem::replace(told, true)).then_some(&*failure)
    }

    /// Returns an error if the history has ended.
    pub(in crate::commands) fn check(&self) -> Result<(), Failure> {
        self.failed.as_ref().map_or(Ok(()), |(failure, _)| Err(failure.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_neb::Mode;

    fn value(key: u64, payload: u64) -> Vec<u64> {
        vec![5, key, 8, payload]
    }

    fn hashes(ours: Vec<u64>, other: Vec<u64>) -> (u64, u64) {
        let path = std::env::temp_dir().join(format!("stentor-neb-history-{}-{}", std::process::id(), ours[1]));
        let cluster = Cluster::builder().group("g", ["a", "b", "c"]).build().unwrap();
        let config = Config { payload_bytes: 8, ..Config::new(3, Mode::All, 0) };
        let history = NebHistory::new(&path, cluster, ProcessId(0), &config).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (sender, witness) = (ProcessId(1), ProcessId(2));
        history.hashes(&Evidence { sender, index: 5, ours, other, witness, proven: false })
    }

    #[test]
    fn evidence_shows_the_payloads_and_each_value_once() {
        let payload = |payload: u64| xxh3_64(&payload.to_le_bytes());
        assert_eq!(hashes(value(1, 7), value(1, 8)), (payload(7), payload(8)));
        let (ours, other) = hashes(value(2, 7), value(3, 7));
        assert_ne!(ours, other);
    }
}
