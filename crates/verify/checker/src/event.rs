//! What happens in a run.

use crate::ids::{Ballot, Group, GroupSet, Incarnation, Label, MessageId, Process, Timestamp};

/// One event at one process. Names are numbers of a [`Cluster`](crate::Cluster).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, ns; never goes back at one process.
    pub t: u64,
    /// Where.
    pub process: Process,
    /// Incarnation of the process, from 1.
    pub incarnation: u64,
    /// What.
    pub kind: EventKind,
}

/// A message as its client multicast it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    /// The message.
    pub m: MessageId,
    /// Destination groups.
    pub to: GroupSet,
    /// Length of the payload, bytes.
    pub len: u32,
    /// xxh3-64 of the payload.
    pub hash: u64,
}

/// A delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deliver {
    /// The message.
    pub m: MessageId,
    /// The group as a member of which the process delivers.
    pub group: Group,
    /// Number of the delivery at this process, from 1.
    pub number: u64,
    /// The message's final timestamp.
    pub ts: Timestamp,
    /// xxh3-64 of the payload.
    pub hash: u64,
    /// Length of the payload, bytes, if recorded.
    pub len: Option<u32>,
    /// Ballot of the own group under which the message was decided, as this process knows it, if recorded.
    pub ballot: Option<Ballot>,
}

/// A history of a group's state: the group was founded, or an operator reset it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Begun {
    /// The group.
    pub group: Group,
    /// The incarnation of the group in which the history began.
    pub incarnation: Incarnation,
    /// The deliveries of the history before that are part of it.
    pub kept: u64,
    /// The incarnation in which the history before began, if it is part of this one.
    pub after: Option<Incarnation>,
}

/// A broadcast, or its delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broadcast {
    /// The sender.
    pub sender: Process,
    /// Its dense index, from 0.
    pub index: u64,
    /// Length of the payload, bytes.
    pub len: u32,
    /// xxh3-64 of the payload.
    pub hash: u64,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A client multicasts; recorded before the first write.
    Multicast(Multicast),
    /// A synced multicast returned: a majority of every destination group holds the message.
    Synced(Multicast),
    /// A client has heard of the order up to this time: what it multicasts from here on names it, and comes after it.
    Heard {
        /// The largest final time in what it was told.
        time: u64,
    },
    /// A message was handed to the application.
    Deliver(Deliver),
    /// The process stopped; anybody may record it for another.
    Crash,
    /// From here on nothing of the process is recorded, while it goes on: its file cannot be written.
    Unrecorded,
    /// The process came back with its group's state.
    Recover {
        /// The delivery number that it resumes after.
        from: u64,
    },
    /// From here on the process holds the state of a history of its group that began in an incarnation.
    Begun(Begun),
    /// At the leader itself: it is ready, a majority of its group has installed its state. At others: learnt of it.
    Epoch {
        /// The group.
        group: Group,
        /// The ballot's number.
        ballot: u64,
        /// The ballot's process.
        by: Process,
        /// The leader.
        leader: Process,
        /// How many [`Carry`](EventKind::Carry) events of this ballot the leader recorded before, if it does that.
        carried: Option<u32>,
    },
    /// The state with which a leader is about to be ready holds this message, and the leader has not delivered it.
    Carry {
        /// The message.
        m: MessageId,
        /// The group.
        group: Group,
        /// The ballot.
        ballot: Ballot,
    },
    /// The process posted an operation to another on behalf of a message.
    RemoteOp {
        /// The message.
        m: MessageId,
        /// Which step.
        kind: Label,
        /// The peer.
        to: Process,
    },
    /// A process broadcasts; recorded before the first write.
    Broadcast(Broadcast),
    /// A broadcast was handed to the application.
    Bdeliver(Broadcast),
    /// A process holds two values for one index.
    Equivocation {
        /// Whose stream.
        sender: Process,
        /// The index.
        index: u64,
        /// xxh3-64 of the payload that this process got.
        hash: u64,
        /// xxh3-64 of the other.
        other: u64,
        /// Both are signed by the sender.
        proven: bool,
    },
    /// A process was too late for these indices.
    Skip {
        /// Whose stream.
        sender: Process,
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// An operator removed a process from the broadcast; its stream has ended at this one.
    Removed {
        /// Who was removed.
        sender: Process,
        /// The first index that is not delivered any more.
        upto: u64,
    },
    /// A message is about to be written on a connection; recorded before the first post.
    Send {
        /// The connection: one name at both ends, and of one life only.
        channel: Label,
        /// Its number at this end, from 0.
        index: u64,
        /// Length, bytes.
        len: u32,
        /// xxh3-64 of it.
        hash: u64,
    },
    /// The application heard that a message was sent.
    Sent {
        /// The connection.
        channel: Label,
        /// Its number.
        index: u64,
    },
    /// A message of a connection was handed to the application.
    Recv {
        /// The connection.
        channel: Label,
        /// Its number, as the protocol has it.
        index: u64,
        /// Length, bytes.
        len: u32,
        /// xxh3-64 of it.
        hash: u64,
    },
    /// How much was sent on a connection, and how much the other end had receives for.
    InFlight {
        /// The connection.
        channel: Label,
        /// Messages of the fabric.
        count: u64,
        /// Receives.
        limit: u64,
    },
    /// The fabric reported an error for an operation of a connection, or its owner gave it up.
    Fault {
        /// The connection.
        channel: Label,
        /// What it reported.
        what: Label,
    },
    /// The application heard that a connection failed.
    Failed {
        /// The connection.
        channel: Label,
        /// What was being done.
        operation: Label,
        /// With whom.
        peer: Process,
        /// Why it failed.
        cause: Label,
    },
    /// The application heard that a connection is over.
    Closed {
        /// The connection.
        channel: Label,
        /// Operations that the fabric had not given back.
        lent: u64,
    },
    /// Memory in use by regions and queues.
    Memory {
        /// Bytes in use.
        bytes: u64,
        /// What was printed at start, bytes; `None`: the cluster's `memory_limit`.
        limit: Option<u64>,
        /// Which part, where a process counts several.
        what: Label,
    },
}

impl EventKind {
    /// The word in field `e`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Multicast(_) => "multicast",
            EventKind::Synced(_) => "synced",
            EventKind::Heard { .. } => "heard",
            EventKind::Deliver(_) => "deliver",
            EventKind::Crash => "crash",
            EventKind::Unrecorded => "unrecorded",
            EventKind::Recover { .. } => "recover",
            EventKind::Begun(_) => "begun",
            EventKind::Epoch { .. } => "epoch",
            EventKind::Carry { .. } => "carry",
            EventKind::RemoteOp { .. } => "remote_op",
            EventKind::Broadcast(_) => "broadcast",
            EventKind::Bdeliver(_) => "bdeliver",
            EventKind::Equivocation { .. } => "equivocation",
            EventKind::Skip { .. } => "skip",
            EventKind::Removed { .. } => "removed",
            EventKind::Send { .. } => "send",
            EventKind::Sent { .. } => "sent",
            EventKind::Recv { .. } => "recv",
            EventKind::InFlight { .. } => "in_flight",
            EventKind::Fault { .. } => "fault",
            EventKind::Failed { .. } => "failed",
            EventKind::Closed { .. } => "closed",
            EventKind::Memory { .. } => "memory",
        }
    }

    /// The connection that it is about.
    #[must_use]
    pub fn connection(&self) -> Option<Label> {
        match self {
            EventKind::Send { channel, .. }
            | EventKind::Sent { channel, .. }
            | EventKind::Recv { channel, .. }
            | EventKind::InFlight { channel, .. }
            | EventKind::Fault { channel, .. }
            | EventKind::Failed { channel, .. }
            | EventKind::Closed { channel, .. } => Some(*channel),
            _ => None,
        }
    }
}
