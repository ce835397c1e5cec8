//! Records the events of a broadcast run in the checker.

use stentor_checker as checker;
use stentor_checker::{Cluster, EventKind, Label, Report};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::Transcript;
use stentor_neb::{Notice, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::scenario::Scenario;
use crate::judged::{Judged, process};
use crate::record::Record;

/// The history of a run, which is judged as it grows.
pub(crate) struct History {
    checker: Judged,
    regions: Label,
    signed: bool,
    limit: usize,
    pub(crate) outcomes: u64,
}

impl History {
    pub(crate) fn new(scenario: &Scenario, record: Record) -> Self {
        let config = &scenario.config;
        let name = |process: ProcessId| process.to_string();
        let members = config.everybody().iter().map(name);
        let faulty = scenario.liars.iter().map(|(liar, _)| name(*liar));
        let builder = Cluster::builder().global_clock().group("n", members).faulty(faulty);
        let mut cluster = builder.window(u64::from(config.window)).build().expect("names are made unique here");
        let regions = cluster.label("regions");
        let (signed, limit) = (config.signed, config.payload_bytes);
        History { checker: Judged::new(cluster, record), regions, signed, limit, outcomes: 0 }
    }

    fn event(&mut self, t: u64, process: ProcessId, kind: EventKind) {
        self.checker.event(t, process, 1, kind);
    }

    pub(crate) fn broadcast(&mut self, t: u64, me: ProcessId, index: u64, payload: &[u8]) {
        let sender = process(me);
        let (len, hash) = (payload.len() as u32, xxh3_64(payload));
        self.event(t, me, EventKind::Broadcast(checker::Broadcast { sender, index, len, hash }));
    }

    pub(crate) fn notice(&mut self, t: u64, me: ProcessId, notice: &Notice<'_>) {
        let kind = match notice {
            Notice::Deliver(sender, value) => {
                self.outcomes += 1;
                let (index, payload) = (value.index(), value.payload());
                let (len, hash) = (payload.len() as u32, xxh3_64(payload));
                EventKind::Bdeliver(checker::Broadcast { sender: process(*sender), index, len, hash })
            }
            Notice::Equivocation(evidence) => {
                let hash = |words: &[u64]| {
                    let value = Value::new(words, words.len() * 8, self.signed, self.limit);
                    // Words that are no valid value need a hash, too.
                    value.map_or_else(
                        |_| words.iter().fold(1, |hash, word| hash ^ word),
                        |v| xxh3_64(v.payload()) ^ v.key(),
                    )
                };
                let (sender, index, proven) = (process(evidence.sender), evidence.index, evidence.proven);
                let (hash, other) = (hash(&evidence.ours), hash(&evidence.other));
                EventKind::Equivocation { sender, index, hash, other, proven }
            }
            Notice::Skip(sender, index) => {
                self.outcomes += 1;
                EventKind::Skip { sender: process(*sender), from: *index, to: *index }
            }
            Notice::Removed(sender, upto) => EventKind::Removed { sender: process(*sender), upto: *upto },
            Notice::Refused(..) => return,
        };
        self.event(t, me, kind);
    }

    pub(crate) fn crashed(&mut self, t: u64, process: ProcessId) {
        self.event(t, process, EventKind::Crash);
    }

    pub(crate) fn memory(&mut self, t: u64, me: ProcessId, bytes: u64, limit: u64) {
        let what = self.regions;
        self.event(t, me, EventKind::Memory { bytes, limit: Some(limit), what });
    }

    pub(crate) fn finish(self, complete: bool) -> (Report, Option<Transcript>) {
        self.checker.finish(complete)
    }
}
