//! Peer messages: the messages that members exchange after failures, when leaders change, and when client processes
//! begin. They are rare and of any length. A request that may have been lost is repeated.
//!
//! In the table, *here* is the sender's group. A *process without memory* has lost its state or never had one.
//!
//! | message | from → to | meaning |
//! |---|---|---|
//! | `Join` | process without memory → its group | admit me |
//! | `Elder` | member → process without memory | a process of your member had a larger life; choose a larger one |
//! | `Campaign` (1A) | candidate → its group | promise this ballot |
//! | `Promise` (1B) | member → candidate | I promise; this is the state that I have processed |
//! | `Refuse` | member → candidate or leader | I have promised a larger ballot, or another history |
//! | `Install` | leader → its group | the complete state under my ballot |
//! | `Installed` | member → leader | I have installed that state |
//! | `Behind` | member → leader, candidate → donor | I lack entries; send the state |
//! | `Transfer` | donor → candidate | the state, with the application's state |
//! | `Announce` | leader → other groups, or as a correction | the group's ballot and incarnation |
//! | `WantBody`, `Gone` | member → member, and back | forward this message; I do not hold it any more |
//! | `WantBodies` | member → its leader | forward this message and some of those after it |
//! | `Ask` | member → its leader | is this message decided? |
//! | `Decided` | leader → asking process or leader, follower → leader | this message is decided |
//! | `Forgotten` | leader → other leader, follower → leader | this message was delivered here long ago |
//! | `Refused` | leader → other leader | this message can never be decided |
//! | `Seek`, `Lacking` | leader → its group, and back | do you hold the content of this slot? no |
//! | `NoOpProcessed` | member → its leader | I have processed that this slot is a no-op |
//! | `Lead` | leader → member of its group | take over the leadership |
//! | `Probe` | leader → its group, and back | is my ballot your largest promise? yes |
//! | `Remembered` | member → founder or resetting candidate | this process remembers an incarnation of the group |
//! | `WordProcessed` | member → its leader | I have processed the word of the named group |
//! | `Lost` | leader → other leader | this message was sent to an ended history of my group |
//! | `Open` | member → its leader | a process of a client id wants to begin here |
//! | `Close`, `Closed` | leader → its group, and back | refuse a client id's earlier processes; I hold these messages |
//! | `Succeeded` | member → its leader | I have processed the succession of this client id |
//! | `Retire`, `Retired` | leader → other leader, and back | are a client id's earlier processes fully settled? yes |
//!
//! `Campaign` names the incarnation of the ballot, the incarnation that it continues or ends, and the lives that the
//! candidate knows. `Behind` can request the application's state as well. `Announce` is also sent by a process that
//! knows a larger ballot or incarnation of a group than its peer.
//!
//! A follower sends 1B to the candidate alone. All other members need only the outcome, which `Install` and `Announce`
//! carry.

use stentor_fabric::ProcessId;

use crate::item::VERSION;
use crate::state::State;
use crate::word_reader::{PeerMessageError, Wire, WordReader};
use crate::{Ballot, ClientId, GroupId, Incarnation, Origin, ids};

/// A process without memory that asks to be admitted, or that a ballot admits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Joiner {
    /// The process.
    pub process: ProcessId,
    /// Life of the process. Later lives of a process are larger.
    pub life: u64,
}

/// A slot of a client at the sender's group, under a ballot of that group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotRef {
    /// The client id.
    pub client: ClientId,
    /// The slot.
    pub slot: u64,
    /// The ballot.
    pub ballot: Ballot,
    /// Generation of the process that multicast the message in the slot. If no message of the slot is known, the
    /// generation follows from the next succession or message after the slot.
    pub generation: u64,
}

/// The message that a peer message is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageRef {
    /// The client that multicast the message.
    pub client: ClientId,
    /// The client's number for the message.
    pub sequence: u64,
}

/// A process that wants to begin under a client id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opening {
    /// The client id.
    pub client: ClientId,
    /// The life of the process.
    pub life: u64,
    /// The generation that the process was assigned, plus 1; 0 if it has none yet.
    pub told: u64,
    /// The smallest generation that the process may be assigned, as far as members have reported one to it.
    pub above: u64,
}

/// The messages of a client's earlier processes that a member holds and that are not assigned.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Closed {
    /// The client id, the generation of the next process, and the ballot in which the answer counts.
    ///
    /// The field `slot` has another meaning here: the sender accepts no messages of generations below it.
    pub about: SlotRef,
    /// Pairs of slot and sequence, flattened.
    pub held: Vec<u64>,
}

/// A group's verdict on a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Verdict {
    /// The message.
    pub message: MessageRef,
    /// The ballot of the sender's group.
    pub ballot: Ballot,
}

/// The word of another group, under a ballot of the sender's group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WordRef {
    /// The group that the word is about.
    pub group: GroupId,
    /// The incarnation in which that group's history began.
    pub origin: Incarnation,
    /// The ballot.
    pub ballot: Ballot,
}

/// The messages of a client id's earlier processes. One group asks another whether all of them are settled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Left {
    /// The client id.
    pub client: ClientId,
    /// Generation below which processes of the client id count as earlier.
    pub below: u64,
    /// The ballot of the sender's group.
    pub ballot: Ballot,
}

/// Declares the messages, each with its number on the wire, its name in reports, and its fields in wire order.
macro_rules! peer_messages {
    ($($(#[$doc:meta])* $kind:literal $name:literal
        $message:ident $({ $($(#[$note:meta])* $field:ident: $type:ty,)* })? $(($about:ident))?;)*) => {
        /// A message from one member to another one.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum PeerMessage {
            $($(#[$doc])* $message $({ $($(#[$note])* $field: $type,)* })? $(($about))?,)*
        }

        impl PeerMessage {
            fn kind(&self) -> u8 {
                match self {
                    $(PeerMessage::$message { .. } => $kind,)*
                }
            }

            /// Returns the name of the message's kind.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(PeerMessage::$message { .. } => $name,)*
                }
            }

            fn encode_fields(&self, out: &mut Vec<u64>) {
                match self {
                    $(PeerMessage::$message $({ $($field,)* })? $((about @ $about { .. }))? => {
                        $($($field.encode(out);)*)?
                        $($about::encode(about, out);)?
                    })*
                }
            }

            fn decode_fields(kind: u8, words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
                Ok(match kind {
                    $($kind => PeerMessage::$message $({ $($field: Wire::decode(words)?,)* })? $(($about::decode(words)?))?,)*
                    other => return Err(PeerMessageError::Kind(other)),
                })
            }
        }
    };
}

peer_messages! {
    /// A process without memory asks to be admitted.
    1 "join" Join {
        /// The life of the process.
        life: u64,
    };
    /// Phase 1A: a candidate asks for promises.
    2 "campaign" Campaign {
        /// The ballot.
        ballot: Ballot,
        /// The incarnation of the ballot.
        incarnation: Incarnation,
        /// The incarnation that `incarnation` continues or ends. In an ordinary election, both are equal. In a
        /// founding, this is [`Incarnation::NONE`].
        ends: Incarnation,
        /// `true` if an operator resets the group. Then the promises of a majority suffice, even if some of its members
        /// have no memory.
        resets: bool,
        /// The known lives; see [`State::lives`].
        lives: Vec<u64>,
    };
    /// Phase 1B: a member promises a ballot.
    3 "promise" Promise {
        /// The promised ballot.
        ballot: Ballot,
        /// The member's state at the time of the promise.
        state: State,
    };
    /// The sender has promised a larger ballot, or another history of the group.
    4 "refuse" Refuse {
        /// The ballot that the sender has promised.
        promised: Ballot,
        /// The incarnation of that ballot.
        incarnation: Incarnation,
    };
    /// The complete state under a ballot.
    5 "install" Install {
        /// The ballot.
        ballot: Ballot,
        /// Number of entries of the ballot's stream that the state contains.
        counter: u64,
        /// `true` if the application's state is sent together with this state.
        snapshot: bool,
        /// Processes without memory that this ballot admits.
        admits: Vec<Joiner>,
        /// The state.
        state: State,
    };
    /// The sender has installed the state of this ballot.
    6 "installed" Installed {
        /// The ballot.
        ballot: Ballot,
    };
    /// The sender lacks entries and needs the state.
    7 "behind" Behind {
        /// The ballot.
        ballot: Ballot,
        /// `true` if the sender needs the application's state, too, because messages that it lacks are not retained any
        /// more.
        snapshot: bool,
    };
    /// A state with the application's state, for a candidate that is behind.
    8 "transfer" Transfer {
        /// The candidate's ballot.
        ballot: Ballot,
        /// The donor's state.
        state: State,
    };
    /// The largest ballot of a group that the sender knows.
    9 "announce" Announce {
        /// The group.
        group: GroupId,
        /// The ballot.
        ballot: Ballot,
        /// The incarnation of the ballot.
        incarnation: Incarnation,
        /// The incarnation in which the group's history began, or [`Incarnation::NONE`] if the sender does not know
        /// that incarnation and asks for it.
        origin: Incarnation,
    };
    /// The receiver is to forward the message's body.
    10 "want-body" WantBody(MessageRef);
    /// The sender does not hold the body.
    11 "gone" Gone(MessageRef);
    /// The sender asks whether the message is decided.
    12 "ask" Ask(MessageRef);
    /// The message is decided at this vector.
    13 "decided" Decided {
        /// The message.
        message: MessageRef,
        /// A ballot of the receiver's group. The group acknowledged the vector in this ballot or in an earlier one.
        ballot: Ballot,
        /// The vector: a time for each destination group.
        times: Vec<u64>,
    };
    /// The sender has delivered the message and does not retain it any more.
    14 "forgotten" Forgotten(MessageRef);
    /// The message can never be decided: a majority of the sender's group has processed that it is a no-op or void.
    15 "refused" Refused(Verdict);
    /// The receiver is to take over the leadership.
    16 "lead" Lead;
    /// The sender does not found or reset its group with the receiver, because a process remembers the group.
    17 "remembered" Remembered {
        /// The process that remembers the group; it may be the sender.
        by: ProcessId,
        /// The incarnation that the process remembers.
        incarnation: Incarnation,
    };
    /// The sender asks whether the receiver holds the content of this slot.
    18 "seek" Seek(SlotRef);
    /// The sender holds nothing in this slot.
    19 "lacking" Lacking(SlotRef);
    /// The sender has processed that the slot is a no-op.
    20 "voided" NoOpProcessed(SlotRef);
    /// The receiver is to forward the message's body and some of the bodies that follow it.
    21 "want-bodies" WantBodies(MessageRef);
    /// An earlier process of the receiver's member had a larger life than the one in the receiver's `Join`.
    22 "elder" Elder {
        /// The larger life of the earlier process.
        life: u64,
    };
    /// A leader asks whether the receiver has promised no ballot larger than the leader's. A member for which this is
    /// true sends the same message back.
    23 "stand" Probe {
        /// The leader's ballot.
        ballot: Ballot,
    };
    /// The sender has processed the word of another group.
    24 "word-processed" WordProcessed(WordRef);
    /// The message was sent to an ended history of the sender's group, and no later history contains it.
    25 "lost" Lost(Verdict);
    /// A process of a client id asks to begin at the group.
    40 "open" Open(Opening);
    /// The receiver is to accept no more messages of earlier processes of a client id.
    41 "close" Close(SlotRef);
    /// The sender accepts no more messages of earlier processes of a client id.
    42 "closed" Closed(Closed);
    /// The sender has processed the succession of a client id. The field `slot` holds the life of the new process.
    43 "succeeded" Succeeded(SlotRef);
    /// The sender asks whether the receiver's group has settled all messages of earlier processes of a client id.
    44 "retire" Retire(Left);
    /// The sender's group has settled all messages of earlier processes of a client id.
    45 "retired" Retired(Left);
}

impl PeerMessage {
    /// Returns the state that the message carries.
    pub(crate) fn state(&self) -> Option<&State> {
        match self {
            PeerMessage::Promise { state, .. }
            | PeerMessage::Install { state, .. }
            | PeerMessage::Transfer { state, .. } => Some(state),
            _ => None,
        }
    }

    /// Returns the client id that the message names, if messages of its kind are never about a [time
    /// entry](crate::Replica::order_time).
    ///
    /// Messages of these kinds are about bodies, client processes, or messages that cannot be delivered.
    pub(crate) fn place(&self) -> Option<ClientId> {
        match self {
            PeerMessage::WantBody(message) | PeerMessage::WantBodies(message) | PeerMessage::Gone(message) => {
                Some(message.client)
            }
            PeerMessage::Refused(verdict) | PeerMessage::Lost(verdict) => Some(verdict.message.client),
            PeerMessage::Seek(slot)
            | PeerMessage::Lacking(slot)
            | PeerMessage::NoOpProcessed(slot)
            | PeerMessage::Close(slot)
            | PeerMessage::Closed(Closed { about: slot, .. })
            | PeerMessage::Succeeded(slot) => Some(slot.client),
            PeerMessage::Open(opening) => Some(opening.client),
            PeerMessage::Retire(left) | PeerMessage::Retired(left) => Some(left.client),
            _ => None,
        }
    }

    /// Returns the largest generation of a client that the message names.
    fn generation(&self) -> u64 {
        match self {
            PeerMessage::Seek(slot)
            | PeerMessage::Lacking(slot)
            | PeerMessage::NoOpProcessed(slot)
            | PeerMessage::Close(slot)
            | PeerMessage::Closed(Closed { about: slot, .. })
            | PeerMessage::Succeeded(slot) => slot.generation,
            PeerMessage::Open(opening) => opening.above.max(opening.told.saturating_sub(1)),
            PeerMessage::Retire(left) | PeerMessage::Retired(left) => left.below,
            _ => 0,
        }
    }

    /// Returns whether the application's state is sent with the message.
    #[must_use]
    pub fn carries_snapshot(&self) -> bool {
        matches!(self, PeerMessage::Transfer { .. } | PeerMessage::Install { snapshot: true, .. })
    }

    /// Returns the ballot for which the receiver must fence its stream before it processes the message.
    ///
    /// After the fence, the old leader can no longer write to the stream region. An entry of its stream counts
    /// only if it reached the region before the fence.
    #[must_use]
    pub fn fences(&self) -> Option<Ballot> {
        match self {
            PeerMessage::Campaign { ballot, .. } | PeerMessage::Install { ballot, .. } => Some(*ballot),
            _ => None,
        }
    }

    /// Appends the words of the message.
    pub fn encode(&self, out: &mut Vec<u64>) {
        out.push(u64::from(self.kind()) | u64::from(VERSION) << 8);
        self.encode_fields(out);
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// See [`PeerMessageError`].
    pub fn decode(words: &[u64]) -> Result<PeerMessage, PeerMessageError> {
        let mut words = WordReader::new(words);
        let first = words.next()?;
        let (kind, version) = (first as u8, (first >> 8) as u8);
        if version != VERSION {
            return Err(PeerMessageError::Version(version));
        }
        if first >> 16 != 0 {
            return Err(PeerMessageError::Value("first word"));
        }
        let message = PeerMessage::decode_fields(kind, &mut words)?;
        words.end()?;
        match message {
            PeerMessage::Campaign { ballot, incarnation, .. }
            | PeerMessage::Refuse { promised: ballot, incarnation }
            | PeerMessage::Announce { ballot, incarnation, .. }
                if ballot.incarnation() != incarnation.number =>
            {
                Err(PeerMessageError::Value("incarnation"))
            }
            PeerMessage::Announce { incarnation, origin, .. } if origin.number > incarnation.number => {
                Err(PeerMessageError::Value("origin"))
            }
            PeerMessage::Install { counter, .. } if counter >> 63 != 0 => Err(PeerMessageError::Value("counter")),
            message if message.generation() > ids::GENERATIONS - 1 => Err(PeerMessageError::Value("generation")),
            message => Ok(message),
        }
    }
}

/// Implements [`Wire`] for a struct, with its fields in the order in which they are named.
macro_rules! fields {
    ($type:ident: $($field:ident),*) => {
        impl Wire for $type {
            fn encode(&self, out: &mut Vec<u64>) {
                $(self.$field.encode(out);)*
            }

            fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
                Ok($type { $($field: Wire::decode(words)?),* })
            }
        }
    };
}

fields!(Joiner: process, life);
fields!(Origin: incarnation, kept);
fields!(SlotRef: client, slot, ballot, generation);
fields!(MessageRef: client, sequence);
fields!(Verdict: message, ballot);
fields!(WordRef: group, origin, ballot);
fields!(Opening: client, life, told, above);
fields!(Closed: about, held);
fields!(Left: client, below, ballot);
