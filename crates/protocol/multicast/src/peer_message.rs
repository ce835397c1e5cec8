//! Peer messages: what members write to each other when something fails. Rare, of any length, and repeated until answered.
//!
//! | message | from → to | says |
//! |---|---|---|
//! | `Join` | a process without memory → its group | take me in |
//! | `Elder` | member → a process without memory | an earlier process of yours had a larger life: take a larger one |
//! | `Campaign` (1A) | candidate → its group | promise me this ballot, which goes on with, founds or resets an incarnation; these lives I have heard of |
//! | `Promise` (1B) | member → candidate | promised; this is what I have processed |
//! | `Refuse` | member → candidate or leader | I have promised a larger ballot |
//! | `Install` | leader → its group | the complete state under my ballot |
//! | `Installed` | member → leader | I have it |
//! | `Behind` | member → leader, candidate → donor | I miss entries: send the state, with the application's if I ask for it |
//! | `Transfer` | donor → candidate | state with the application's |
//! | `Announce` | leader → other groups; who knows more → who says less | that group is led under this ballot, in this incarnation |
//! | `WantBody`, `Gone` | member → member, and back | forward me that message; I have it no more |
//! | `WantBodies` | member → its leader | forward me that message, and what the client multicast after it |
//! | `Ask` | member → its leader | is this message decided? |
//! | `Decided` | leader → who asked, or another group's leader; also follower → leader | that message is decided |
//! | `Forgotten`, `Refused` | leader → another group's leader; `Forgotten` also follower → leader | that message was delivered here long ago; can never be decided |
//! | `Seek`, `Lacking` | leader → its group, and back | do you hold what is in that slot? no |
//! | `NoOpProcessed` | member → its leader | I have processed that this slot is a no-op |
//! | `Lead` | leader → member of its group | take over |
//! | `Probe` | leader → its group, and back | do you stand by this ballot, and have promised nothing larger? I do |
//! | `Remembered` | member → who wants to found its group | that process remembers an incarnation of the group |
//! | `WordProcessed` | member → its leader | I have processed where the history of that group began |
//! | `Lost` | leader → another group's leader | that message was under way to a history of my group that is over |
//! | `Open` | member → its leader | a process of a client's place wants to begin in our group |
//! | `Close`, `Closed` | leader → its group, and back | take no more of earlier processes of that place; I hold this of them |
//! | `Succeeded` | member → its leader | I have processed that a process took the place over |
//! | `Retire`, `Retired` | leader → another group's leader, and back | is all that earlier processes of that place left done? it is |
//!
//! A follower sends 1B to the candidate alone. The others need only the outcome, which `Install` and `Announce` carry.

use stentor_fabric::ProcessId;

use crate::item::VERSION;
use crate::state::State;
use crate::word_reader::{PeerMessageError, Wire, WordReader};
use crate::{Ballot, ClientId, GroupId, Incarnation, Origin, ids};

/// A process without memory that wants to be taken in, or that a ballot takes in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Joiner {
    /// The process.
    pub process: ProcessId,
    /// Its life. Later lives of a process are larger.
    pub life: u64,
}

/// A slot of a client at the own group, under a ballot of the group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotRef {
    /// Whose.
    pub client: ClientId,
    /// The slot.
    pub slot: u64,
    /// The ballot.
    pub ballot: Ballot,
    /// Generation of the process that multicast what is behind the slot, or what was in it.
    pub generation: u64,
}

/// The message that a peer message is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageRef {
    /// Who multicast it.
    pub client: ClientId,
    /// The client's number for it.
    pub sequence: u64,
}

/// A process that wants to begin in a client's place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opening {
    /// Which place.
    pub client: ClientId,
    /// The life of the process.
    pub life: u64,
    /// The generation that it was told, plus 1; 0: none yet.
    pub told: u64,
    /// The smallest generation that it may have, as far as members told it.
    pub above: u64,
}

/// What a member holds of a client's earlier processes, that is not assigned.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Closed {
    /// Which client, which generation the next process has, and the ballot in which this counts. In place of a slot: the
    /// generation below which the sender takes nothing.
    pub about: SlotRef,
    /// Slots and sequences, one after the other.
    pub held: Vec<u64>,
}

/// What a group says of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Verdict {
    /// The message.
    pub message: MessageRef,
    /// The ballot of the sender's group.
    pub ballot: Ballot,
}

/// The word of a group, under a ballot of the own one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WordRef {
    /// Of which group.
    pub group: GroupId,
    /// Where its history began.
    pub origin: Incarnation,
    /// The ballot.
    pub ballot: Ballot,
}

/// What processes of a client's place with generations below one left at a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Left {
    /// Whose.
    pub client: ClientId,
    /// Of processes with generations below this.
    pub below: u64,
    /// The ballot of the sender's group.
    pub ballot: Ballot,
}

/// Declares the messages, each with its number on the wire, its name in reports, and its fields in the order of the wire.
macro_rules! peer_messages {
    ($($(#[$doc:meta])* $kind:literal $name:literal
        $message:ident $({ $($(#[$note:meta])* $field:ident: $type:ty,)* })? $(($about:ident))?;)*) => {
        /// A message from member to member.
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

            /// The kind's name.
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
    /// A process without memory wants to be taken in.
    1 "join" Join {
        /// Its life.
        life: u64,
    };
    /// 1A.
    2 "campaign" Campaign {
        /// The ballot.
        ballot: Ballot,
        /// The incarnation of the ballot.
        incarnation: Incarnation,
        /// The incarnation that goes on as that one, or ends with it: the same, in an election; none, if the group is founded.
        ends: Incarnation,
        /// An operator ends it: a majority is enough, whether it has memory or not.
        resets: bool,
        /// See [`State::lives`].
        lives: Vec<u64>,
    };
    /// 1B.
    3 "promise" Promise {
        /// The promised ballot.
        ballot: Ballot,
        /// The snapshot.
        state: State,
    };
    /// The sender has promised a larger ballot.
    4 "refuse" Refuse {
        /// What it has promised.
        promised: Ballot,
        /// The incarnation of that.
        incarnation: Incarnation,
    };
    /// The complete state under a ballot.
    5 "install" Install {
        /// The ballot.
        ballot: Ballot,
        /// Entries of the ballot's stream that are in the state.
        counter: u64,
        /// The application's state comes with it.
        snapshot: bool,
        /// Processes without memory that this ballot takes in.
        admits: Vec<Joiner>,
        /// The state.
        state: State,
    };
    /// The sender has the state of this ballot.
    6 "installed" Installed {
        /// The ballot.
        ballot: Ballot,
    };
    /// The sender misses something; it needs the state.
    7 "behind" Behind {
        /// The ballot.
        ballot: Ballot,
        /// What it misses is not retained: it needs the application's state, too.
        snapshot: bool,
    };
    /// State with the application's, for a candidate that is behind.
    8 "transfer" Transfer {
        /// The candidate's ballot.
        ballot: Ballot,
        /// The donor's state.
        state: State,
    };
    /// The sender's group is led under this ballot.
    9 "announce" Announce {
        /// The group.
        group: GroupId,
        /// The ballot.
        ballot: Ballot,
        /// The incarnation of the ballot.
        incarnation: Incarnation,
        /// The incarnation in which the history of that began; none, if the sender was not told, and asks.
        origin: Incarnation,
    };
    /// Forward the message's body.
    10 "want-body" WantBody(MessageRef);
    /// The body is not held any more.
    11 "gone" Gone(MessageRef);
    /// Is it decided?
    12 "ask" Ask(MessageRef);
    /// It is decided at this vector.
    13 "decided" Decided {
        /// The message.
        message: MessageRef,
        /// A ballot of the receiver's group: in it, or before, the group acknowledged.
        ballot: Ballot,
        /// The vector: a time per destination group.
        times: Vec<u64>,
    };
    /// The sender's group delivered it, and has forgotten it.
    14 "forgotten" Forgotten(MessageRef);
    /// A majority of a destination group has processed that it is a no-op.
    15 "refused" Refused(Verdict);
    /// Take over the leadership.
    16 "lead" Lead;
    /// The sender does not found its group with the receiver: somebody remembers it.
    17 "remembered" Remembered {
        /// Who; the sender itself, perhaps.
        by: ProcessId,
        /// What it remembers.
        incarnation: Incarnation,
    };
    /// Does the receiver hold what is in this slot?
    18 "seek" Seek(SlotRef);
    /// It does not.
    19 "lacking" Lacking(SlotRef);
    /// It has processed that the slot is a no-op.
    20 "voided" NoOpProcessed(SlotRef);
    /// Forward the message's body, and some of those behind it.
    21 "want-bodies" WantBodies(MessageRef);
    /// An earlier process of the receiver's member had a life above the one that it asked with.
    22 "elder" Elder {
        /// That life.
        life: u64,
    };
    /// A leader asks whether the receiver has promised nothing larger than its ballot; or a member that has not says so.
    23 "stand" Probe {
        /// The leader's ballot.
        ballot: Ballot,
    };
    /// The sender has processed the word of another group.
    24 "word-processed" WordProcessed(WordRef);
    /// It was under way to a history of the sender's group that is over, and is in nothing that goes on.
    25 "lost" Lost(Verdict);
    /// A process of a client's place wants to begin.
    40 "open" Open(Opening);
    /// Take nothing more of earlier processes of a client's place.
    41 "close" Close(SlotRef);
    /// It takes nothing more.
    42 "closed" Closed(Closed);
    /// It has processed that a process took a client's place over; in place of a slot: the life of that.
    43 "succeeded" Succeeded(SlotRef);
    /// Is all done that earlier processes of a client's place left?
    44 "retire" Retire(Left);
    /// It is.
    45 "retired" Retired(Left);
}

impl PeerMessage {
    /// The state that it carries.
    pub(crate) fn state(&self) -> Option<&State> {
        match self {
            PeerMessage::Promise { state, .. }
            | PeerMessage::Install { state, .. }
            | PeerMessage::Transfer { state, .. } => Some(state),
            _ => None,
        }
    }

    /// The client that it is about, if nobody says this of a [time entry](crate::Replica::order_time): it speaks of a body, of a
    /// process, or of what cannot be delivered.
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

    /// The largest generation of a client that it names.
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

    /// Whether the application's state goes with it.
    #[must_use]
    pub fn carries_snapshot(&self) -> bool {
        matches!(self, PeerMessage::Transfer { .. } | PeerMessage::Install { snapshot: true, .. })
    }

    /// The ballot for which the receiver must first fence its stream: only what the stream region of the old leader held
    /// when nobody could write it any more may count.
    #[must_use]
    pub fn fences(&self) -> Option<Ballot> {
        match self {
            PeerMessage::Campaign { ballot, .. } | PeerMessage::Install { ballot, .. } => Some(*ballot),
            _ => None,
        }
    }

    /// Appends the message's words.
    pub fn encode(&self, out: &mut Vec<u64>) {
        out.push(u64::from(self.kind()) | u64::from(VERSION) << 8);
        self.encode_fields(out);
    }

    /// Reads a message.
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

/// Writes and reads the fields of a struct, in the order in which they are named.
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
