//! Genuine atomic multicast over one-sided writes: messages to any subset of groups, in one global order.
//!
//! The protocol is a successor of RamCast. [`Variant`] selects one of the protocol's two versions. [`Replica`] and
//! [`Sender`] are pure state machines. A `Replica` writes its output to [`Effects`]; a `Sender` returns it. They do no
//! I/O, read no clock and use no randomness. [`Member`] and [`Client`] run them on any
//! [`Fabric`](stentor_fabric::Fabric).
//!
//! # The path of a message
//! 1. A client writes the sealed message into its ring at every process of every destination group ([`Client`]).
//! 2. Each destination group's leader assigns its next timestamp to the message. It writes the timestamp to its
//!    followers' stream and to the leaders of the other destination groups (2A, `replica/leader.rs`).
//! 3. A leader that has the timestamps of all destination groups raises its clock to their maximum, *then* appends the
//!    whole vector to its stream (`replica/leader.rs`). A message to one group needs no such entry: its timestamp is
//!    its vector.
//! 4. A follower that has processed the stream through the vector acknowledges the message to all other destination
//!    processes (2B, `replica/follower.rs`).
//! 5. A message is decided when every destination group has a majority that acknowledged one vector, the members of
//!    each majority in one ballot of their group (`replica/votes.rs`). It is delivered when no other message can
//!    precede it any more (`replica/agreement.rs`).
#![forbid(unsafe_code)]

mod destination_groups;
mod ids;
mod item;
mod limits;
mod message;
mod mutant;
mod node;
mod origin;
mod peer_message;
mod physical_clock;
mod replica;
mod sender;
mod slot_table;
mod state;
mod topology;
mod word_reader;

pub use destination_groups::DestinationGroups;
pub use ids::{Ballot, ClientId, GroupId, GroupSet, Incarnation, MessageId, Timestamp};
pub use item::{Ack, Head, Item, ItemError, ItemKind, RemoteTimestamp, ShortSlot, StreamEntry, StreamItem, Times};
pub use limits::{Limits, LimitsError, MemoryPlan, MemoryUse};
pub use message::{Destination, Header, MessageError, NOT_BEFORE_BYTES};
#[doc(hidden)]
pub use mutant::Mutant;
pub use node::{
    Application, CLIENT_TIMEOUT, Client, ClockCounts, Counts, Delivered, EXPEL_AFTER, Frozen, GivenUp, HeartbeatCell,
    INBOX_BYTES, Member, NodeError, Query, Readiness, RecordSent, RemoteOp, Reply, RestoreError, StateReader,
    Stateless, Step, SubmitError, Submitted, TransferOutcome, TransferReport, TransferRole, Wants, stateless,
};
#[doc(hidden)]
pub use node::{Received, forged_hello};
pub use origin::Origin;
pub use peer_message::{Closed, Joiner, Left, MessageRef, Opening, PeerMessage, SlotRef, Verdict, WordRef};
pub use physical_clock::{ClockError, END_OF_TIME, PhysicalClock, SLEW_PPM};
pub use replica::{
    CatchUps, Contradiction, Delivery, Effects, Hindrance, ReadBarrier, ReadProgress, Rejected, Replica, ReplicaConfig,
    Settlements, Settling, TotalLoss, Variant,
};
pub use sender::{Sender, WindowFull};
pub use state::{AssignedSlot, ClientState, State, Succession, Word};
pub use topology::{ProcessRole, Topology, TopologyError};
pub use word_reader::PeerMessageError;
