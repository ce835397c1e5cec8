//! The checker: records a history event by event, and judges it at the end.

use std::collections::HashMap;

use crate::broadcasts::Broadcasts;
use crate::chain::chains;
use crate::channels::Channels;
use crate::cluster::Cluster;
use crate::event::{Event, EventKind};
use crate::histories;
use crate::ids::GroupSet;
use crate::log::{Log, Origin};
use crate::order::Order;
use crate::properties;
use crate::properties::m7_genuineness::Genuineness;
use crate::properties::m8_memory::MemoryBounds;
use crate::records::{Given, Records};
use crate::report::{Counts, Report, Verdict};
use crate::runs;
use crate::view::{Slots, View};

/// Checks one history. Events of one process must be passed in their order. Events of different processes may be
/// interleaved arbitrarily.
///
/// Memory grows with messages and deliveries (about 120 bytes for each), and with most other events. It does not grow
/// with `memory` events, nor with `remote_op` events of known messages by their participants.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    cluster: Cluster,
    log: Log,
    broadcasts: Broadcasts,
    channels: Channels,
    genuineness: Genuineness,
    memory: MemoryBounds,
    sources: Vec<String>,
    /// The files and their gaps. `None` if the recorded events are all events of the run.
    given: Option<Given>,
    counts: Counts,
}

impl Checker {
    /// Creates a checker for histories of this cluster.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Checker { cluster, ..Checker::default() }
    }

    /// Returns the cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the cluster for changes, such as new clients or labels.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Names the file of the events that follow.
    pub fn begin_source(&mut self, file: String) {
        self.sources.push(file);
    }

    /// States that the events are from files, some of which may be missing.
    pub(crate) fn with_given(self, given: Given) -> Self {
        Checker { given: Some(given), ..self }
    }

    /// Records the next event. Counter-examples refer to it by its number, from 1.
    ///
    /// # Panics
    /// Panics if the cluster has no process with the event's number.
    pub fn event(&mut self, event: &Event) {
        self.event_at(event, self.counts.events + 1);
    }

    /// Records an event from this line of the file of the last [`begin_source`](Checker::begin_source).
    ///
    /// # Panics
    /// Panics if the cluster has no process with the event's number.
    pub fn event_at(&mut self, event: &Event, line: u64) {
        assert!(event.process.index() < self.cluster.process_count(), "{:?} is not in the cluster", event.process);
        self.counts.events += 1;
        let origin = Origin::new(self.sources.len().saturating_sub(1), line);
        match &event.kind {
            EventKind::RemoteOp { .. } => {
                self.counts.remote_ops += 1;
                self.genuineness.observe(event, origin, &mut self.log, &self.cluster);
            }
            EventKind::Memory { .. } => self.memory.observe(event, origin, &self.cluster),
            _ => {
                self.broadcasts.record(event, origin);
                self.channels.record(event, origin);
                self.log.record(event, origin);
            }
        }
    }

    /// Judges the history. With `complete`, the caller asserts that the run had come to rest: messages not delivered by
    /// now never will be.
    #[must_use]
    pub fn finish(mut self, complete: bool) -> Report {
        let deliveries = self.log.deliveries.len() as u64;
        self.log.send_times(&self.cluster);
        self.log.settle(self.given.as_ref().map_or(&HashMap::new(), |given| &given.orders));
        let mut undecided = self.given.as_ref().and_then(|given| {
            let apart = || runs::apart(&self.log, &self.cluster, &given.starts, &self.sources);
            given.unordered.clone().or_else(apart)
        });
        let mut ended = GroupSet::EMPTY;
        match histories::apart(&self.log, &self.cluster) {
            Ok(None) => {}
            Ok(Some(apart)) => {
                (self.cluster, self.log, ended) = (apart.cluster, apart.log, apart.ended);
                if let Some(given) = &mut self.given {
                    given.stand_for(&apart.stands_for);
                }
            }
            Err(why) => undecided = undecided.or(Some(why)),
        }
        let chains = chains(&self.log, &self.cluster);
        let order = Order::new(&chains, &self.log);
        let slots = Slots::new(&self.log);
        let records = Records::new(self.given.as_ref(), &self.log);
        let view = View {
            cluster: &self.cluster,
            log: &self.log,
            chains: &chains,
            order: &order,
            slots: &slots,
            records: &records,
            complete,
            ended,
            sources: &self.sources,
        };
        let mut verdicts = properties::check(&view, &self.broadcasts, &self.channels, &self.genuineness, &self.memory);
        if let Some(why) = undecided {
            // Nearly all properties depend on which life was the last and on what the group's memory contains. A
            // missing verdict is better than a wrong one.
            verdicts.values_mut().for_each(|verdict| *verdict = Verdict::Incomplete(why.clone()));
        }
        let counts = Counts {
            messages: self.log.sent_order.len() as u64,
            deliveries,
            crashes: self.log.crashes,
            broadcasts: self.broadcasts.sent_count(),
            broadcast_deliveries: self.broadcasts.count(|kind| matches!(kind, EventKind::Bdeliver(_))),
            equivocations: self.broadcasts.count(|kind| matches!(kind, EventKind::Equivocation { .. })),
            skips: self.broadcasts.count(|kind| matches!(kind, EventKind::Skip { .. })),
            sends: self.channels.sends,
            receptions: self.channels.recvs,
            ..self.counts
        };
        Report::new(verdicts, counts, complete)
    }
}
