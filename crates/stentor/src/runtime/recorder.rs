//! Records the events of one process as a history for the checker.

use std::io::{self, Write};

use stentor_checker as checker;
use stentor_checker::{Author, Cluster, EventKind, HistoryWriter};
use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, ClientId, Delivered, GroupId, Incarnation, MemoryUse, MessageId, Origin, RemoteOp};
use xxhash_rust::xxh3::xxh3_64;

use super::{ClusterRuntime, clock_name, now_ns};

fn ballot_of(ballot: Ballot) -> checker::Ballot {
    checker::Ballot { number: ballot.epoch(), by: checker::Process(u32::from(ballot.leader().0)) }
}

impl ClusterRuntime {
    /// Returns the cluster in the form of histories. Process numbers are those of the process table.
    #[must_use]
    pub fn history_cluster(&self) -> Cluster {
        let mut builder = Cluster::builder().window(u64::from(self.config().limits().window));
        if let Some(name) = clock_name() {
            builder = builder.host_clock(name);
        }
        for group in self.config().groups() {
            builder = builder.group(group.id(), group.members().iter().map(|member| member.id()));
        }
        let topology = self.topology();
        let clients = (0..topology.clients() as u16)
            .map(|client| self.name(topology.client_process(ClientId(client))).to_owned());
        builder.clients(clients).build().expect("a checked configuration names groups and processes once")
    }
}

/// Writes the history of one process. The caller provides the times, so recording adds no clock reading to a polling
/// loop.
pub struct Recorder<W: Write> {
    writer: HistoryWriter<W>,
    me: checker::Process,
    incarnation: u64,
    group: Option<checker::Group>,
    first_client: u32,
    labels: Vec<checker::Label>,
    /// Labels of regions and of queues.
    memory: [checker::Label; 2],
}

impl<W: Write> Recorder<W> {
    /// Starts the history of process `me`. Its first line names the process and the time of the start.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn new(plan: &ClusterRuntime, me: ProcessId, output: W) -> io::Result<Self> {
        let mut cluster: Cluster = plan.history_cluster();
        let labels = stentor_multicast::Step::ALL.iter().map(|step| cluster.label(step.name())).collect();
        let memory = ["regions", "queues"].map(|what| cluster.label(what));
        let process = checker::Process(u32::from(me.0));
        Ok(Recorder {
            writer: HistoryWriter::of(output, &cluster, Author { process, began: now_ns() })?,
            me: process,
            incarnation: 1,
            group: cluster.group_of(process),
            first_client: plan.topology().all_members() as u32,
            labels,
            memory,
        })
    }

    /// Sets the number of this process's life, from 1. It must differ after every restart. If lives are not numbered,
    /// use [`life_now`](super::life_now). Lives are ordered by their times.
    #[must_use]
    pub fn in_life(self, incarnation: u64) -> Self {
        Recorder { incarnation, ..self }
    }

    fn message(&self, id: MessageId) -> checker::MessageId {
        checker::MessageId {
            client: checker::Process(self.first_client + u32::from(id.client.0)),
            sequence: id.sequence,
        }
    }

    fn event(&mut self, t: u64, kind: EventKind) -> io::Result<()> {
        self.writer.event(&checker::Event { t, process: self.me, incarnation: self.incarnation, kind })
    }

    /// Records that a client multicasts a message. `t` is a time before the first write: read the clock before
    /// `submit`.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn multicast(&mut self, t: u64, id: MessageId, to: &[GroupId], payload: &[u8]) -> io::Result<()> {
        let mut groups = checker::GroupSet::default();
        for group in to {
            groups.insert(checker::Group(group.0));
        }
        let m = self.message(id);
        let (len, hash) = (payload.len() as u32, xxh3_64(payload));
        self.event(t, EventKind::Multicast(checker::Multicast { m, to: groups, len, hash }))
    }

    /// Records that a client has learned of the order up to `time`, which its later messages name.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn heard(&mut self, t: u64, time: u64) -> io::Result<()> {
        self.event(t, EventKind::Heard { time })
    }

    /// Records that a member delivers a message. `t` is a time at or after the delivery: read the clock in the call,
    /// not once per round.
    ///
    /// # Errors
    /// Returns the error of the writer, or an error if this process is not a member of a group.
    pub fn deliver(&mut self, t: u64, delivered: &Delivered<'_>) -> io::Result<()> {
        let Some(group) = self.group else { return Err(io::Error::other("a client does not deliver")) };
        let ts =
            checker::Timestamp { time: delivered.timestamp.time, group: checker::Group(delivered.timestamp.group) };
        let deliver = checker::Deliver {
            m: self.message(delivered.id),
            group,
            number: delivered.number,
            ts,
            hash: xxh3_64(delivered.payload),
            len: Some(delivered.payload.len() as u32),
            ballot: Some(ballot_of(delivered.ballot)),
        };
        self.event(t, EventKind::Deliver(deliver))
    }

    /// Records that this process leads its group, and is ready. `t` is a time at or after that.
    ///
    /// # Errors
    /// Returns the error of the writer, or an error if this process is not a member of a group.
    pub fn epoch(&mut self, t: u64, ballot: Ballot) -> io::Result<()> {
        let Some(group) = self.group else { return Err(io::Error::other("a client does not lead")) };
        let checker::Ballot { number: ballot, by } = ballot_of(ballot);
        self.event(t, EventKind::Epoch { group, ballot, by, leader: by, carried: None })
    }

    /// Records that this process has recovered its group's state, which contains `from` deliveries.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn recover(&mut self, t: u64, from: u64) -> io::Result<()> {
        self.event(t, EventKind::Recover { from })
    }

    /// Records that this process now holds the state of a history of its group. `origins` are the beginnings of that
    /// history, the oldest first.
    ///
    /// # Errors
    /// Returns the error of the writer, or an error if this process is not a member of a group.
    pub fn begun(&mut self, t: u64, origins: &[Origin]) -> io::Result<()> {
        let Some(group) = self.group else { return Err(io::Error::other("a client has no group")) };
        let Some((last, before)) = origins.split_last() else { return Ok(()) };
        let of = |Incarnation { number, tag }| checker::Incarnation { number, tag };
        let after = before.last().map(|before| of(before.incarnation));
        let begun = checker::Begun { group, incarnation: of(last.incarnation), kept: last.kept, after };
        self.event(t, EventKind::Begun(begun))
    }

    /// Records that another process was killed in its life `incarnation`.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn crash(&mut self, t: u64, process: ProcessId, incarnation: u64) -> io::Result<()> {
        let process = checker::Process(u32::from(process.0));
        self.writer.event(&checker::Event { t, process, incarnation, kind: EventKind::Crash })
    }

    /// Records that later events of the process are missing in the history, although the process continues. This is the
    /// last event. Lines that were not written are lost.
    ///
    /// # Errors
    /// Returns the error of the writer. The history then ends without this event.
    pub fn give_up(&mut self, t: u64) -> io::Result<()> {
        let (process, incarnation) = (self.me, self.incarnation);
        self.writer.give_up(&checker::Event { t, process, incarnation, kind: EventKind::Unrecorded })
    }

    /// Records remote operations on behalf of messages.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn operations(&mut self, t: u64, operations: &[RemoteOp]) -> io::Result<()> {
        for operation in operations {
            let m = self.message(operation.message);
            let kind = self.labels[operation.step as usize];
            let to = checker::Process(u32::from(operation.to.0));
            self.event(t, EventKind::RemoteOp { m, kind, to })?;
        }
        Ok(())
    }

    /// Records the memory of the regions, the largest memory of the queues so far, and the limits of both that were
    /// announced at start.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn memory(&mut self, t: u64, used: &MemoryUse) -> io::Result<()> {
        let parts = [(used.regions, used.region_limit), (used.most_queued, used.queue_limit)];
        for (what, (bytes, limit)) in self.memory.into_iter().zip(parts) {
            self.event(t, EventKind::Memory { bytes, limit: Some(limit), what })?;
        }
        Ok(())
    }

    /// Records that the run has ended: messages that are undelivered by now will never be delivered.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn complete(&mut self) -> io::Result<()> {
        self.writer.complete()
    }

    /// Passes all buffered lines to the operating system.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
