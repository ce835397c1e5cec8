//! The events of a run.

use crate::ids::{Ballot, Group, GroupSet, Incarnation, Label, MessageId, Process, Timestamp};

/// One event at one process. Processes, groups and labels are numbers of a [`Cluster`](crate::Cluster).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Time of the event, in nanoseconds. It never decreases at one process.
    pub t: u64,
    /// The process at which the event occurred.
    pub process: Process,
    /// The life of the process, from 1.
    pub incarnation: u64,
    /// The kind of the event, with its fields.
    pub kind: EventKind,
}

/// A message as its client multicast it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    /// The message.
    pub m: MessageId,
    /// Destination groups.
    pub to: GroupSet,
    /// Length of the payload, in bytes.
    pub len: u32,
    /// xxh3-64 of the payload.
    pub hash: u64,
}

/// A delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deliver {
    /// The message.
    pub m: MessageId,
    /// The group whose member delivers the message.
    pub group: Group,
    /// Number of the delivery at this process, from 1.
    pub number: u64,
    /// The message's final timestamp.
    pub ts: Timestamp,
    /// xxh3-64 of the payload.
    pub hash: u64,
    /// Length of the payload in bytes, if recorded.
    pub len: Option<u32>,
    /// The ballot of the delivering process's group under which the message was decided, as far as the process knows,
    /// if recorded.
    pub ballot: Option<Ballot>,
}

/// The beginning of a history of a group's state, because the group was founded or an operator reset it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Begun {
    /// The group.
    pub group: Group,
    /// The incarnation of the group in which the history began.
    pub incarnation: Incarnation,
    /// Number of deliveries of the previous history that are part of this one.
    pub kept: u64,
    /// The incarnation in which the previous history began, if it is part of this one.
    pub after: Option<Incarnation>,
}

/// A broadcast, or its delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broadcast {
    /// The sender.
    pub sender: Process,
    /// The index of the broadcast in the sender's stream, from 0 without gaps.
    pub index: u64,
    /// Length of the payload, in bytes.
    pub len: u32,
    /// xxh3-64 of the payload.
    pub hash: u64,
}

/// The kind of an event, with its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A client multicasts a message. The event is recorded before the first write.
    Multicast(Multicast),
    /// A synced multicast returned: a majority of every destination group holds the message.
    Synced(Multicast),
    /// A client has observed the order up to this time. The client's later multicasts name this time, and are ordered
    /// after it.
    Heard {
        /// The largest final time that a member reported to the client.
        time: u64,
    },
    /// A message was handed to the application.
    Deliver(Deliver),
    /// The process stopped. Any process may record the crash of another.
    Crash,
    /// The process records no later event, although it continues, because its file cannot be written.
    Unrecorded,
    /// The process recovered with its group's state.
    Recover {
        /// The delivery number after which the process resumes.
        from: u64,
    },
    /// The process now holds the state of this history of its group.
    Begun(Begun),
    /// Recorded by a leader, the event means that the leader is ready, because a majority of its group has installed
    /// its state. Recorded by another process, it means that the recording process has learnt of the leader.
    Epoch {
        /// The group.
        group: Group,
        /// The number of the ballot.
        ballot: u64,
        /// The process of the ballot.
        by: Process,
        /// The leader.
        leader: Process,
        /// Number of [`Carry`](EventKind::Carry) events of this ballot that the leader recorded before, if it records
        /// them.
        carried: Option<u32>,
    },
    /// The state with which a leader is about to become ready contains this message, and the leader has not delivered
    /// it.
    Carry {
        /// The message.
        m: MessageId,
        /// The group.
        group: Group,
        /// The ballot.
        ballot: Ballot,
    },
    /// The process posted an operation to a peer on behalf of a message.
    RemoteOp {
        /// The message.
        m: MessageId,
        /// The protocol step of the operation.
        kind: Label,
        /// The peer.
        to: Process,
    },
    /// A process broadcasts. The event is recorded before the first write.
    Broadcast(Broadcast),
    /// A broadcast was handed to the application.
    Bdeliver(Broadcast),
    /// A process holds two different values for one index.
    Equivocation {
        /// The sender of the stream.
        sender: Process,
        /// The index.
        index: u64,
        /// xxh3-64 of the payload that this process received.
        hash: u64,
        /// xxh3-64 of the other payload.
        other: u64,
        /// `true` if both values are signed by the sender.
        proven: bool,
    },
    /// A process skipped these indices, because it was too late to check them.
    Skip {
        /// The sender of the stream.
        sender: Process,
        /// The first skipped index.
        from: u64,
        /// The last skipped index.
        to: u64,
    },
    /// An operator removed a process from the broadcast. The stream of the removed process has ended at the recording
    /// process.
    Removed {
        /// The removed process.
        sender: Process,
        /// The first index that is no longer delivered.
        upto: u64,
    },
    /// A message is about to be written to a connection. The event is recorded before the first post.
    Send {
        /// The connection. Both ends use the same name. A reconnected connection has a new name.
        channel: Label,
        /// Number of the message at this end, from 0.
        index: u64,
        /// Length of the message, in bytes.
        len: u32,
        /// xxh3-64 of the message.
        hash: u64,
    },
    /// The application was informed that a message was sent.
    Sent {
        /// The connection.
        channel: Label,
        /// Number of the message.
        index: u64,
    },
    /// A message of a connection was handed to the application.
    Recv {
        /// The connection.
        channel: Label,
        /// Number of the message, as the protocol reports it.
        index: u64,
        /// Length of the message, in bytes.
        len: u32,
        /// xxh3-64 of the message.
        hash: u64,
    },
    /// The number of messages in flight on a connection, and the number of receives that the other end had posted.
    InFlight {
        /// The connection.
        channel: Label,
        /// Number of fabric messages in flight.
        count: u64,
        /// Number of posted receives.
        limit: u64,
    },
    /// The fabric reported an error for an operation of a connection, or its owner abandoned the connection.
    Fault {
        /// The connection.
        channel: Label,
        /// The reported error.
        what: Label,
    },
    /// The application was informed that a connection failed.
    Failed {
        /// The connection.
        channel: Label,
        /// The operation that failed.
        operation: Label,
        /// The peer of the connection.
        peer: Process,
        /// The cause of the failure.
        cause: Label,
    },
    /// The application was informed that a connection is closed.
    Closed {
        /// The connection.
        channel: Label,
        /// Number of operations that the fabric had not returned.
        lent: u64,
    },
    /// The memory in use by regions and queues.
    Memory {
        /// Memory in use, in bytes.
        bytes: u64,
        /// The limit that was printed at start, in bytes. `None` means the cluster's `memory_limit`.
        limit: Option<u64>,
        /// The part of the memory, if a process counts several.
        what: Label,
    },
}

impl EventKind {
    /// Returns the word in the field `e` of a history file.
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

    /// Returns the connection of the event.
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
