//! Hands what happens in a run to the checker.

use stentor_checker as checker;
use stentor_checker::{Checker, Cluster, EventKind, Label, Report};
use stentor_fabric::ProcessId;
use stentor_multicast::{Delivered, GroupId, MemoryUse, MessageId, RemoteOp, Step, Topology};
use xxhash_rust::xxh3::xxh3_64;

/// The history of a run, judged as it grows.
pub(crate) struct History {
    checker: Checker,
    first_client: u32,
    steps: Vec<Label>,
    regions: Label,
    queues: Label,
    pub(crate) deliveries: u64,
}

impl History {
    pub(crate) fn new(topology: &Topology) -> Self {
        let mut builder = Cluster::builder().global_clock();
        for group in topology.group_ids() {
            let members = topology.members(group).enumerate().map(|(n, _)| format!("g{}.{}", group.0 + 1, n + 1));
            builder = builder.group(format!("g{}", group.0 + 1), members);
        }
        let clients = (0..topology.clients()).map(|client| format!("c{client}"));
        let mut cluster = builder.clients(clients).build().expect("names are made unique here");
        let steps = Step::ALL.iter().map(|step| cluster.label(step.name())).collect();
        let (regions, queues) = (cluster.label("regions"), cluster.label("queues"));
        let first_client = topology.all_members() as u32;
        History { checker: Checker::new(cluster), first_client, steps, regions, queues, deliveries: 0 }
    }

    fn message(&self, id: MessageId) -> checker::MessageId {
        let client = checker::Process(self.first_client + u32::from(id.client.0));
        checker::MessageId { client, sequence: id.sequence }
    }

    fn event(&mut self, t: u64, process: ProcessId, kind: EventKind) {
        let process = checker::Process(u32::from(process.0));
        self.checker.event(&checker::Event { t, process, incarnation: 1, kind });
    }

    pub(crate) fn multicast(&mut self, t: u64, me: ProcessId, id: MessageId, to: &[GroupId], payload: &[u8]) {
        let mut groups = checker::GroupSet::default();
        for group in to {
            groups.insert(checker::Group(group.0));
        }
        let (m, len, hash) = (self.message(id), payload.len() as u32, xxh3_64(payload));
        self.event(t, me, EventKind::Multicast(checker::Multicast { m, to: groups, len, hash }));
    }

    pub(crate) fn deliver(&mut self, t: u64, me: ProcessId, group: GroupId, delivered: &Delivered<'_>) {
        self.deliveries += 1;
        let (time, from) = (delivered.timestamp.time, delivered.timestamp.group);
        let deliver = checker::Deliver {
            m: self.message(delivered.id),
            group: checker::Group(group.0),
            number: delivered.number,
            ts: checker::Timestamp { time, group: checker::Group(from) },
            hash: xxh3_64(delivered.payload),
            len: Some(delivered.payload.len() as u32),
            ballot: None,
        };
        self.event(t, me, EventKind::Deliver(deliver));
    }

    pub(crate) fn operations(&mut self, t: u64, me: ProcessId, operations: &[RemoteOp]) {
        for operation in operations {
            let m = self.message(operation.message);
            let (kind, to) = (self.steps[operation.step as usize], checker::Process(u32::from(operation.to.0)));
            self.event(t, me, EventKind::RemoteOp { m, kind, to });
        }
    }

    pub(crate) fn memory(&mut self, t: u64, me: ProcessId, used: &MemoryUse) {
        let (regions, queues) = (self.regions, self.queues);
        let limit = Some(used.region_limit);
        self.event(t, me, EventKind::Memory { bytes: used.regions, limit, what: regions });
        let limit = Some(used.queue_limit);
        self.event(t, me, EventKind::Memory { bytes: used.most_queued, limit, what: queues });
    }

    /// Judges; the run has come to rest.
    pub(crate) fn finish(self) -> Report {
        self.checker.finish(true)
    }
}
