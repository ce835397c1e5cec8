//! Reads a history file line by line and checks each event.

use std::io::{BufRead, Read};

use serde::Deserialize;

use super::line::{ClusterLine, Line, Name, To};
use super::lives::Lived;
use super::{Fault, HOST_CLOCK, HistoryError, MAX_LINE_BYTES, VERSION};
use crate::cluster::{Cluster, MAX_CLOCK_NAME};
use crate::event::{Begun, Broadcast, Deliver, Event, EventKind, Multicast};
use crate::ids::{Ballot, Group, GroupSet, Label, MessageId, Process, Timestamp};

/// The beginning of the first line, as this crate writes it.
const BEGIN: &[u8] = b"{\"e\":\"cluster\"";

/// A reader of one history file, one event at a time. Its memory grows with the number of processes and of their lives,
/// but not with the number of events.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    file: String,
    line: u64,
    buffer: Vec<u8>,
    seen: Vec<Option<Seen>>,
    lives: Vec<Lived>,
    unrecorded: Vec<Process>,
    author: Option<String>,
    began: Option<u64>,
    complete: bool,
    tolerate_cut: bool,
    cut: bool,
}

/// The last event of a process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    t: u64,
    incarnation: u64,
    crashed: bool,
    /// `true` if the life has an event other than its crash, which another process may have recorded.
    acted: bool,
    /// The index of the life in `lives`.
    life: usize,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line of a file. Errors use the name `file`.
    ///
    /// # Errors
    /// Returns a [`HistoryError`] if the first line is not a valid cluster line.
    pub fn open(file: impl Into<String>, input: R) -> Result<(Self, Cluster), HistoryError> {
        let mut reader = Reader {
            input,
            file: file.into(),
            line: 0,
            buffer: Vec::new(),
            seen: Vec::new(),
            lives: Vec::new(),
            unrecorded: Vec::new(),
            author: None,
            began: None,
            complete: false,
            tolerate_cut: false,
            cut: false,
        };
        let cluster = reader.first_line().map_err(|fault| reader.error(fault))?;
        Ok((reader, cluster))
    }

    /// Accepts a cut-off last line as the end of the history, for producers that may have been killed.
    #[must_use]
    pub fn tolerate_cut_off_line(mut self) -> Self {
        self.tolerate_cut = true;
        self
    }

    /// Returns the next event, or `None` at the end. `cluster` is the one that [`open`](Reader::open) returned, or an
    /// equal one that several readers share. New clients are added to it if its list of clients is open.
    ///
    /// # Errors
    /// Returns a [`HistoryError`] if the line is not a valid event.
    pub fn next_event(&mut self, cluster: &mut Cluster) -> Result<Option<Event>, HistoryError> {
        loop {
            match self.step(cluster) {
                Ok(Step::Event(event)) => return Ok(Some(event)),
                Ok(Step::End) => return Ok(None),
                Ok(Step::Complete) => self.complete = true,
                Err(Fault::Truncated) if self.tolerate_cut => self.cut = true,
                Err(fault) => return Err(self.error(fault)),
            }
            if self.cut {
                return Ok(None);
            }
        }
    }

    /// Returns the line of the last event, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns whether a `complete` event was read, by which the producer asserts that the run had come to rest.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns whether the last line was cut off and accepted.
    #[must_use]
    pub fn was_cut_off(&self) -> bool {
        self.cut
    }

    /// Returns the file name used in errors.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Returns the process that recorded the file, if the first line names it.
    pub(super) fn author(&self) -> Option<&str> {
        self.author.as_deref()
    }

    /// Returns the time at which the author began to record, in nanoseconds, if the first line contains it.
    pub(super) fn began(&self) -> Option<u64> {
        self.began
    }

    /// Returns the processes with an `unrecorded` event so far: the rest of their events is missing.
    pub(super) fn unrecorded(&self) -> &[Process] {
        &self.unrecorded
    }

    /// Returns the lives that have events in this file so far.
    pub(super) fn lives(&self) -> &[Lived] {
        &self.lives
    }

    pub(super) fn error(&self, fault: Fault) -> HistoryError {
        HistoryError { file: self.file.clone(), line: self.line, fault }
    }

    fn first_line(&mut self) -> Result<Cluster, Fault> {
        if !self.fill()? {
            return Err(Fault::Empty);
        }
        let line: ClusterLine<'_> = match parse(&self.buffer) {
            Err(Fault::Garbage { .. }) if self.buffer.starts_with(BEGIN) && !self.buffer.ends_with(b"\n") => {
                return Err(Fault::Truncated);
            }
            parsed => parsed?,
        };
        if line.e.as_deref() != Some("cluster") {
            return Err(Fault::NotACluster);
        }
        if let Some(version) = line.version.filter(|version| *version != VERSION) {
            return Err(Fault::Version(version));
        }
        let groups = line.groups.ok_or(Fault::Missing { event: "cluster".into(), field: "groups" })?;
        let mut builder = groups.0.into_iter().fold(Cluster::builder(), |b, (id, members)| b.group(id, members));
        if let Some(clients) = line.clients {
            builder = builder.clients(clients);
        }
        builder = builder.faulty(line.faulty.unwrap_or_default()).window(line.window).memory_limit(line.memory_limit);
        match line.clock.as_deref() {
            None => {}
            Some("global") => builder = builder.global_clock(),
            Some(other) => match other.strip_prefix(HOST_CLOCK) {
                Some(name) if !name.is_empty() && name.len() <= MAX_CLOCK_NAME => builder = builder.host_clock(name),
                _ => return Err(Fault::Clock(other.chars().take(MAX_CLOCK_NAME).collect())),
            },
        }
        let mut cluster = builder.build()?;
        if let Some(author) = line.by.map(|name| name.0.into_owned()) {
            if cluster.process_or_client(&author).is_none() {
                return Err(Fault::UnknownProcess(author));
            }
            (self.author, self.began) = (Some(author), line.began);
        }
        Ok(cluster)
    }

    /// Reads the next non-blank line into the buffer. Returns `false` at the end of the file.
    fn fill(&mut self) -> Result<bool, Fault> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let read = self.input.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut self.buffer)?;
            if read == 0 {
                return Ok(false);
            }
            if read as u64 > MAX_LINE_BYTES {
                return Err(Fault::TooLong);
            }
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn step(&mut self, cluster: &mut Cluster) -> Result<Step, Fault> {
        if !self.fill()? {
            return Ok(Step::End);
        }
        let whole = self.buffer.ends_with(b"\n");
        let line: Line<'_> = match parse(&self.buffer) {
            Err(Fault::Garbage { .. }) if !whole => return Err(Fault::Truncated),
            parsed => parsed?,
        };
        let step = translate(&line, cluster)?;
        if let Step::Event(event) = &step {
            let began = self.began.filter(|_| self.author.as_deref() == Some(cluster.process_name(event.process)));
            let mut progress = Progress { seen: &mut self.seen, lives: &mut self.lives, line: self.line };
            progress.take_in(event, began, cluster)?;
            if event.kind == EventKind::Unrecorded {
                self.unrecorded.push(event.process);
            }
        }
        Ok(step)
    }
}

/// The checks across the events of each process.
struct Progress<'a> {
    seen: &'a mut Vec<Option<Seen>>,
    lives: &'a mut Vec<Lived>,
    line: u64,
}

impl Progress<'_> {
    /// Checks that neither the time nor the life of the event's process decreases, and that only a further `crash`
    /// follows a crash in the same life. `began` is the time at which the process began to record.
    fn take_in(&mut self, event: &Event, began: Option<u64>, cluster: &Cluster) -> Result<(), Fault> {
        let (index, Event { t, process, incarnation, .. }) = (event.process.index(), *event);
        if self.seen.len() <= index {
            self.seen.resize(index + 1, None);
        }
        let name = || cluster.process_name(process).to_owned();
        let (crashed, last) = (event.kind == EventKind::Crash, self.seen[index]);
        if let Some(last) = last {
            if t < last.t {
                return Err(Fault::TimeBack { process: name(), t, before: last.t });
            }
            if incarnation < last.incarnation {
                return Err(Fault::IncarnationBack { process: name(), incarnation, before: last.incarnation });
            }
            if last.crashed && incarnation == last.incarnation && !crashed {
                return Err(Fault::AfterCrash { process: name(), incarnation });
            }
        }
        let same = last.filter(|last| last.incarnation == incarnation);
        let acted = same.is_some_and(|last| last.acted) || !crashed;
        let life = same.map_or(self.lives.len(), |last| last.life);
        match self.lives.get_mut(life) {
            Some(lived) => (lived.last, lived.acted) = (t, acted),
            None => {
                // The recorded beginning is that of the process's first life in the file.
                let began = began.filter(|_| last.is_none());
                let line = self.line;
                self.lives.push(Lived { process, incarnation, line, first: t, last: t, began, acted });
            }
        }
        self.seen[index] = Some(Seen { t, incarnation, crashed, acted, life });
        Ok(())
    }
}

enum Step {
    Event(Event),
    Complete,
    End,
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
        Fault::Garbage { column: error.column(), reason }
    })
}

/// A line, with methods that return the fields that its event requires.
struct Fields<'l, 'a> {
    event: &'l str,
    line: &'l Line<'a>,
    cluster: &'l mut Cluster,
}

impl Fields<'_, '_> {
    fn need<T>(&self, field: &'static str, value: Option<T>) -> Result<T, Fault> {
        value.ok_or_else(|| Fault::Missing { event: self.event.to_owned(), field })
    }

    fn process(&mut self, name: &Name<'_>) -> Result<Process, Fault> {
        self.cluster.process_or_client(&name.0).ok_or_else(|| Fault::UnknownProcess(name.0.to_string()))
    }

    fn group(&self, name: &Name<'_>) -> Result<Group, Fault> {
        self.cluster.group(&name.0).ok_or_else(|| Fault::UnknownGroup(name.0.to_string()))
    }

    fn message(&mut self) -> Result<MessageId, Fault> {
        let (client, sequence) = self.need("m", self.line.m.as_ref())?;
        Ok(MessageId { client: self.process(client)?, sequence: sequence.0 })
    }

    fn hash(&self) -> Result<u64, Fault> {
        self.need("hash", self.line.hash).map(|hash| hash.0)
    }

    fn len(&self) -> Result<Option<u32>, Fault> {
        let narrow =
            |len| u32::try_from(len).map_err(|_| Fault::BadField { field: "len", reason: "is above 2^32 - 1" });
        self.line.len.map(narrow).transpose()
    }

    fn multicast(&mut self) -> Result<Multicast, Fault> {
        let to = match self.need("to", self.line.to.as_ref())? {
            To::Many(names) => names.iter().map(|name| self.group(name)).collect::<Result<GroupSet, Fault>>()?,
            To::One(_) => return Err(Fault::BadField { field: "to", reason: "is a list of groups here" }),
        };
        if to.is_empty() {
            return Err(Fault::BadField { field: "to", reason: "is empty: a message has at least one destination" });
        }
        let len = self.len()?;
        Ok(Multicast { m: self.message()?, to, len: self.need("len", len)?, hash: self.hash()? })
    }

    fn deliver(&mut self) -> Result<Deliver, Fault> {
        let m = self.message()?;
        let group = self.group(self.need("g", self.line.g.as_ref())?)?;
        let number = self.need("n", self.line.n)?;
        let (time, by) = self.need("ts", self.line.ts.as_ref())?;
        let ts = Timestamp { time: *time, group: self.group(by)? };
        let ballot = if self.line.ballot.is_some() { Some(self.ballot()?) } else { None };
        Ok(Deliver { m, group, number, ts, hash: self.hash()?, len: self.len()?, ballot })
    }

    fn ballot(&mut self) -> Result<Ballot, Fault> {
        let (number, by) = self.need("ballot", self.line.ballot.as_ref())?;
        Ok(Ballot { number: *number, by: self.process(by)? })
    }

    fn epoch(&mut self) -> Result<EventKind, Fault> {
        let group = self.group(self.need("g", self.line.g.as_ref())?)?;
        let Ballot { number, by } = self.ballot()?;
        let leader = self.need("leader", self.line.leader.as_ref())?;
        let (leader, carried) = (self.process(leader)?, self.line.carried);
        Ok(EventKind::Epoch { group, ballot: number, by, leader, carried })
    }

    fn begun(&mut self) -> Result<EventKind, Fault> {
        let read = |field, text: &Name<'_>| {
            let reason = "is no incarnation: a number, `-` and eight hexadecimal digits";
            text.0.parse().map_err(|()| Fault::BadField { field, reason })
        };
        let group = self.group(self.need("g", self.line.g.as_ref())?)?;
        let incarnation = read("in", self.need("in", self.line.r#in.as_ref())?)?;
        let after = self.line.after.as_ref().map(|after| read("after", after)).transpose()?;
        Ok(EventKind::Begun(Begun { group, incarnation, kept: self.need("kept", self.line.kept)?, after }))
    }

    fn carry(&mut self) -> Result<EventKind, Fault> {
        let m = self.message()?;
        let group = self.group(self.need("g", self.line.g.as_ref())?)?;
        Ok(EventKind::Carry { m, group, ballot: self.ballot()? })
    }

    fn remote_op(&mut self) -> Result<EventKind, Fault> {
        let m = self.message()?;
        let kind = self.cluster.label(&self.need("kind", self.line.kind.as_ref())?.0);
        match self.need("to", self.line.to.as_ref())? {
            To::One(name) => Ok(EventKind::RemoteOp { m, kind, to: self.process(name)? }),
            To::Many(_) => Err(Fault::BadField { field: "to", reason: "is one process here" }),
        }
    }

    fn stream(&mut self) -> Result<Process, Fault> {
        self.process(self.need("s", self.line.s.as_ref())?)
    }

    fn broadcast(&mut self) -> Result<Broadcast, Fault> {
        let (sender, index) = (self.stream()?, self.need("k", self.line.k)?);
        let len = self.need("len", self.line.len)?;
        let len = u32::try_from(len).map_err(|_| Fault::BadField { field: "len", reason: "is above 4 GiB" })?;
        Ok(Broadcast { sender, index, len, hash: self.need("hash", self.line.hash)?.0 })
    }

    fn equivocation(&mut self) -> Result<EventKind, Fault> {
        Ok(EventKind::Equivocation {
            sender: self.stream()?,
            index: self.need("k", self.line.k)?,
            hash: self.need("hash", self.line.hash)?.0,
            other: self.need("other", self.line.other)?.0,
            proven: self.line.proven.unwrap_or(false),
        })
    }

    fn skip(&mut self) -> Result<EventKind, Fault> {
        let (sender, from) = (self.stream()?, self.need("from", self.line.from)?);
        let to = match &self.line.to {
            Some(To::One(Name(digits))) => digits.parse().ok(),
            _ => None,
        };
        let to = self.need("to", to)?;
        if to < from {
            return Err(Fault::BadField { field: "to", reason: "is below `from`" });
        }
        Ok(EventKind::Skip { sender, from, to })
    }

    fn label(&mut self, field: &'static str, name: Option<&Name<'_>>) -> Result<Label, Fault> {
        Ok(self.cluster.label(&self.need(field, name)?.0))
    }

    fn channel(&mut self) -> Result<EventKind, Fault> {
        let line = self.line;
        let channel = self.label("c", line.c.as_ref())?;
        let message = |fields: &Self| {
            let (index, len) = (fields.need("k", line.k)?, fields.len()?);
            Ok::<_, Fault>((index, fields.need("len", len)?, fields.hash()?))
        };
        Ok(match self.event {
            "send" => {
                let (index, len, hash) = message(self)?;
                EventKind::Send { channel, index, len, hash }
            }
            "recv" => {
                let (index, len, hash) = message(self)?;
                EventKind::Recv { channel, index, len, hash }
            }
            "sent" => EventKind::Sent { channel, index: self.need("k", line.k)? },
            "in_flight" => {
                let (count, limit) = (self.need("n", line.n)?, self.need("limit", line.limit)?);
                EventKind::InFlight { channel, count, limit }
            }
            "fault" => EventKind::Fault { channel, what: self.label("what", line.what.as_ref())? },
            "failed" => {
                let operation = self.label("op", line.op.as_ref())?;
                let peer = self.process(self.need("peer", line.peer.as_ref())?)?;
                EventKind::Failed { channel, operation, peer, cause: self.label("cause", line.cause.as_ref())? }
            }
            _ => EventKind::Closed { channel, lent: self.need("n", line.n)? },
        })
    }

    fn removed(&mut self) -> Result<EventKind, Fault> {
        Ok(EventKind::Removed { sender: self.stream()?, upto: self.need("k", self.line.k)? })
    }

    fn memory(&mut self) -> Result<EventKind, Fault> {
        let bytes = self.need("bytes", self.line.bytes)?;
        if self.line.limit.is_none() && self.cluster.memory_limit().is_none() {
            return self.need("limit", None);
        }
        let what = self.cluster.label(self.line.what.as_ref().map_or("", |what| &what.0));
        Ok(EventKind::Memory { bytes, limit: self.line.limit, what })
    }
}

fn translate(line: &Line<'_>, cluster: &mut Cluster) -> Result<Step, Fault> {
    let Some(Name(event)) = &line.e else {
        return Err(Fault::Missing { event: "event".into(), field: "e" });
    };
    let mut fields = Fields { event, line, cluster };
    let kind = match &**event {
        "multicast" => EventKind::Multicast(fields.multicast()?),
        "synced" => EventKind::Synced(fields.multicast()?),
        "heard" => EventKind::Heard { time: fields.need("time", line.time)? },
        "deliver" => EventKind::Deliver(fields.deliver()?),
        "crash" => EventKind::Crash,
        "unrecorded" => EventKind::Unrecorded,
        "recover" => EventKind::Recover { from: fields.need("from", line.from)? },
        "begun" => fields.begun()?,
        "epoch" => fields.epoch()?,
        "carry" => fields.carry()?,
        "remote_op" => fields.remote_op()?,
        "memory" => fields.memory()?,
        "broadcast" => EventKind::Broadcast(fields.broadcast()?),
        "bdeliver" => EventKind::Bdeliver(fields.broadcast()?),
        "equivocation" => fields.equivocation()?,
        "skip" => fields.skip()?,
        "removed" => fields.removed()?,
        "complete" => return Ok(Step::Complete),
        "cluster" => return Err(Fault::SecondCluster),
        "send" | "sent" | "recv" | "in_flight" | "fault" | "failed" | "closed" => fields.channel()?,
        other => return Err(Fault::UnknownEvent(other.to_owned())),
    };
    let t = fields.need("t", line.t)?;
    let process = fields.process(fields.need("p", line.p.as_ref())?)?;
    let owner = match &kind {
        EventKind::Multicast(multicast) | EventKind::Synced(multicast) => Some(multicast.m.client),
        EventKind::Broadcast(broadcast) => Some(broadcast.sender),
        _ => None,
    };
    if let Some(owner) = owner.filter(|owner| *owner != process) {
        let [owner, process] = [owner, process].map(|process| fields.cluster.process_name(process).to_owned());
        return Err(Fault::NotItsOwn { event: kind.name(), owner, process });
    }
    match fields.need("i", line.i)? {
        0 => Err(Fault::BadField { field: "i", reason: "is 0: incarnations count from 1" }),
        incarnation => Ok(Step::Event(Event { t, process, incarnation, kind })),
    }
}
