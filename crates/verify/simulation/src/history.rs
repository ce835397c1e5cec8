//! Records the events of a multicast run in the checker.

use stentor_checker as checker;
use stentor_checker::{Cluster, Event, EventKind, Label, Report};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::Transcript;
use stentor_multicast::{
    Ballot, Delivered, GroupId, Incarnation, MemoryUse, MessageId, Origin, RemoteOp, Replica, Step, Topology,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::histories::Histories;
use crate::judged::{self, Judged, process};
use crate::record::Record;

/// The history of a run, which is judged as it grows.
pub(crate) struct History {
    checker: Judged,
    first_client: u32,
    steps: Vec<Label>,
    regions: Label,
    queues: Label,
    pub(crate) deliveries: u64,
    /// The number of each process's current life.
    incarnations: Vec<u32>,
    /// For each group, the application's state after each delivery, as recorded by the first member that made it.
    digests: Vec<Vec<Option<u64>>>,
    /// Number of differing states of applications.
    pub(crate) wrong_states: u64,
    /// The events that are judged by the histories of groups, in runs in which groups may lose their memory.
    pub(crate) histories: Option<Histories>,
}

/// Position of the use count in a sequence number, above all bits that processes use. It distinguishes messages that
/// share an id.
const USES_SHIFT: u32 = 60;

impl History {
    pub(crate) fn new(topology: &Topology, record: Record) -> Self {
        let mut builder = Cluster::builder().global_clock();
        for group in topology.group_ids() {
            let members = topology.members(group).enumerate().map(|(n, _)| format!("g{}.{}", group.0 + 1, n + 1));
            builder = builder.group(format!("g{}", group.0 + 1), members);
        }
        let clients = (0..topology.clients()).map(|client| format!("c{client}"));
        let mut cluster = builder.clients(clients).build().expect("names are made unique here");
        // Recorded transcripts contain the numbers of labels, and some transcripts are older than the later steps. The
        // earlier steps must therefore keep their numbers.
        for step in Step::ALL.iter().filter(|step| **step < Step::Reply) {
            cluster.label(step.name());
        }
        let (regions, queues) = (cluster.label("regions"), cluster.label("queues"));
        let counted = Step::ALL.iter().take_while(|step| **step <= Step::Reply);
        let steps = counted.map(|step| cluster.label(step.name())).collect();
        let first_client = topology.all_members() as u32;
        History {
            incarnations: vec![1; topology.processes()],
            digests: vec![Vec::new(); topology.groups()],
            wrong_states: 0,
            histories: None,
            checker: Judged::new(cluster, record),
            first_client,
            steps,
            regions,
            queues,
            deliveries: 0,
        }
    }

    fn message(&self, id: MessageId) -> checker::MessageId {
        let client = checker::Process(self.first_client + u32::from(id.client.0));
        let uses = self.histories.as_ref().map_or(0, |histories| histories.uses(id));
        checker::MessageId { client, sequence: id.sequence | uses << USES_SHIFT }
    }

    fn ballot(&self, ballot: Ballot) -> checker::Ballot {
        checker::Ballot { number: ballot.epoch(), by: process(ballot.leader()) }
    }

    fn event(&mut self, t: u64, process: ProcessId, kind: EventKind) {
        let incarnation = self.incarnations[process.index()];
        let Some(histories) = &mut self.histories else {
            return self.checker.event(t, process, incarnation.into(), kind);
        };
        // Genuineness and memory bounds do not depend on histories.
        if matches!(kind, EventKind::RemoteOp { .. } | EventKind::Memory { .. }) {
            return self.checker.event(t, process, incarnation.into(), kind);
        }
        let event = Event { t, process: judged::process(process), incarnation: incarnation.into(), kind };
        match kind {
            EventKind::Multicast(_) => self.checker.event(t, process, incarnation.into(), kind),
            _ => self.checker.transcribe(&event),
        }
        histories.happened(&event);
    }

    /// Records that a client multicasts to groups, each with the incarnation that the client knows.
    pub(crate) fn multicast_to(&mut self, me: ProcessId, id: MessageId, to: Vec<(usize, Incarnation)>) {
        if let Some(histories) = &mut self.histories {
            histories.use_id(id);
        }
        let (m, life) = (self.message(id), self.incarnations[me.index()].into());
        if let Some(histories) = &mut self.histories {
            histories.multicast(m, to, me, life);
        }
    }

    /// Records the history of a member after a step. Returns the origins of the history if no member of the group was
    /// seen in it before.
    pub(crate) fn look(&mut self, me: ProcessId, replica: &Replica) -> Option<Vec<Origin>> {
        let histories = self.histories.as_mut()?;
        let (incarnation, origins, delivered) = (replica.incarnation(), replica.origins(), replica.delivered());
        let new = histories.look(me, incarnation, origins, delivered).map(<[Origin]>::to_vec);
        self.wrong_states += histories.compare(me);
        new
    }

    /// Describes a message that a group has not delivered but must, in runs in which groups may lose their memory.
    /// Returns `None` if there is none.
    pub(crate) fn missing(&self) -> Option<String> {
        self.histories.as_ref()?.missing(|process| self.incarnations[process.index()].into())
    }

    pub(crate) fn multicast(&mut self, t: u64, me: ProcessId, id: MessageId, to: &[GroupId], payload: &[u8]) {
        let multicast = self.message_to(id, to, payload);
        self.event(t, me, EventKind::Multicast(multicast));
    }

    pub(crate) fn synced(&mut self, t: u64, me: ProcessId, id: MessageId, to: &[GroupId], payload: &[u8]) {
        let multicast = self.message_to(id, to, payload);
        self.event(t, me, EventKind::Synced(multicast));
    }

    /// Records a crash. The next process with this number is another life.
    pub(crate) fn crash(&mut self, t: u64, process: ProcessId) {
        self.event(t, process, EventKind::Crash);
        if let Some(histories) = &mut self.histories {
            histories.crashed(process);
        }
        self.incarnations[process.index()] += 1;
    }

    /// Records that the process has its group's state after delivery `from`.
    pub(crate) fn recover(&mut self, t: u64, process: ProcessId, from: u64) {
        self.event(t, process, EventKind::Recover { from });
    }

    /// Records that a process which was up all the time installed another member's state, as if it had recovered.
    pub(crate) fn caught_up(&mut self, t: u64, process: ProcessId, from: u64) {
        self.incarnations[process.index()] += 1;
        self.recover(t, process, from);
    }

    /// Records that a leader is ready.
    pub(crate) fn epoch(&mut self, t: u64, me: ProcessId, group: GroupId, ballot: Ballot, carried: &[MessageId]) {
        let (group, number) = (checker::Group(group.0), ballot.epoch());
        let by = process(ballot.leader());
        for id in carried {
            let (m, ballot) = (self.message(*id), checker::Ballot { number, by });
            self.event(t, me, EventKind::Carry { m, group, ballot });
        }
        let carried = Some(carried.len() as u32);
        self.event(t, me, EventKind::Epoch { group, ballot: number, by, leader: by, carried });
    }

    /// Records an application's state after `number` deliveries.
    pub(crate) fn digest(&mut self, me: ProcessId, group: GroupId, number: u64, digest: u64) {
        if let Some(histories) = &mut self.histories {
            return histories.digest(me, number, digest);
        }
        let digests = &mut self.digests[usize::from(group.0)];
        let at = number as usize;
        if digests.len() <= at {
            digests.resize(at + 1, None);
        }
        self.wrong_states += u64::from(*digests[at].get_or_insert(digest) != digest);
    }

    fn message_to(&self, id: MessageId, to: &[GroupId], payload: &[u8]) -> checker::Multicast {
        let mut groups = checker::GroupSet::default();
        for group in to {
            groups.insert(checker::Group(group.0));
        }
        let (m, len, hash) = (self.message(id), payload.len() as u32, xxh3_64(payload));
        checker::Multicast { m, to: groups, len, hash }
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
            ballot: Some(self.ballot(delivered.ballot)),
        };
        self.event(t, me, EventKind::Deliver(deliver));
    }

    pub(crate) fn operations(&mut self, t: u64, me: ProcessId, operations: &[RemoteOp]) {
        for operation in operations {
            let m = self.message(operation.message);
            let (kind, to) = (self.steps[operation.step as usize], process(operation.to));
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

    /// Judges the run, which has come to rest.
    pub(crate) fn finish(self) -> (Report, Option<Transcript>) {
        let Some(histories) = self.histories else { return self.checker.finish(true) };
        let cluster = self.checker.cluster().clone();
        let (operations, transcript) = self.checker.finish(false);
        (histories.judge(&cluster, operations), transcript)
    }
}
