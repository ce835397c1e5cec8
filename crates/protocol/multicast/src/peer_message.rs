//! Letters: what members write to each other when something fails. Rare, of any length, and repeated until answered.
//!
//! | letter | from → to | says |
//! |---|---|---|
//! | `Join` | a process without memory → its group | take me in |
//! | `Elder` | member → a process without memory | your place had a process with a larger life: take a larger one |
//! | `Campaign` (1A) | candidate → its group | promise me this ballot; these lives I have heard of |
//! | `Promise` (1B) | member → candidate | promised; this is what I have processed |
//! | `Refuse` | member → candidate or leader | I have promised a larger ballot |
//! | `Install` | leader → its group | the complete state under my ballot |
//! | `Installed` | member → leader | I have it |
//! | `Behind` | member → leader, candidate → donor | what I miss is not retained any more: send the application's state |
//! | `Transfer` | donor → candidate | state with the application's |
//! | `Announce` | leader → other groups | I lead my group under this ballot |
//! | `WantBody`, `Gone` | member → member, and back | forward me that message; I have it no more |
//! | `WantBodies` | member → its leader | forward me that message, and what the client multicast after it |
//! | `Ask` | member → its leader | is this message decided? |
//! | `Decided` | leader → who asked, or another group's leader; also follower → leader | that message is decided |
//! | `Forgotten`, `Refused` | leader → another group's leader; `Forgotten` also follower → leader | that message was delivered here long ago; can never be decided |
//! | `Seek`, `Lacking` | leader → its group, and back | do you hold what is in that slot? no |
//! | `Voided` | member → its leader | I have processed that this slot is void |
//! | `Lead` | leader → member of its group | take over |
//! | `Stand` | leader → its group, and back | do you stand by this ballot, and have promised nothing larger? I do |
//! | `Begun` | member → its group | I was without memory too, until all of us were there |
//!
//! `followers send 1B also to all processes` (the notes) is not done: a promise is needed by the candidate alone. What
//! the others need is the outcome, which `Install` and `Announce` carry.

use stentor_fabric::ProcessId;

use crate::item::VERSION;
use crate::state::{State, decode_lives, encode_lives};
use crate::word_reader::{PeerMessageError, WordReader};
use crate::{Ballot, ClientId, GroupId, ids};

/// A process without memory that wants to be taken in, or that a ballot takes in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Joiner {
    /// The process.
    pub process: ProcessId,
    /// Its life. Later lives of a process are larger.
    pub life: u64,
}

/// A letter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PeerMessage {
    /// A process without memory wants to be taken in.
    Join {
        /// Its life.
        life: u64,
    },
    /// 1A.
    Campaign {
        /// The ballot.
        ballot: Ballot,
        /// See [`State::lives`].
        lives: Vec<u64>,
    },
    /// 1B.
    Promise {
        /// The promised ballot.
        ballot: Ballot,
        /// The snapshot.
        state: State,
    },
    /// The sender has promised a larger ballot.
    Refuse {
        /// What it has promised.
        promised: Ballot,
    },
    /// The complete state under a ballot.
    Install {
        /// The ballot.
        ballot: Ballot,
        /// Entries of the ballot's stream that are in the state.
        counter: u64,
        /// The state.
        state: State,
        /// Processes without memory that this ballot takes in.
        admits: Vec<Joiner>,
        /// The application's state comes with it.
        snapshot: bool,
    },
    /// The sender has the state of this ballot.
    Installed {
        /// The ballot.
        ballot: Ballot,
    },
    /// What the sender misses is not retained; it needs the application's state.
    Behind {
        /// The ballot.
        ballot: Ballot,
    },
    /// State with the application's, for a candidate that is behind.
    Transfer {
        /// The candidate's ballot.
        ballot: Ballot,
        /// The donor's state.
        state: State,
    },
    /// The sender's group is led under this ballot.
    Announce {
        /// The group.
        group: GroupId,
        /// The ballot.
        ballot: Ballot,
    },
    /// Forward the message's body.
    WantBody(MessageRef),
    /// Forward the message's body, and some of those behind it.
    WantBodies(MessageRef),
    /// The body is not held any more.
    Gone(MessageRef),
    /// Is it decided?
    Ask(MessageRef),
    /// It is decided at this vector.
    Decided {
        /// The message.
        message: MessageRef,
        /// A ballot of the receiver's group: in it, or before, the group acknowledged.
        ballot: Ballot,
        /// The vector: a time per destination group.
        times: Vec<u64>,
    },
    /// The sender's group delivered it, and has forgotten it.
    Forgotten(MessageRef),
    /// A majority of a destination group has processed that it is void.
    Refused(MessageRef),
    /// Take over the leadership.
    Lead,
    /// The sender was without memory too, until it heard that all of its group are.
    Begun {
        /// Its life.
        life: u64,
    },
    /// Does the receiver hold what is in this slot?
    Seek(SlotRef),
    /// It does not.
    Lacking(SlotRef),
    /// It has processed that the slot is void.
    NoOpProcessed(SlotRef),
    /// A leader asks whether the receiver has promised nothing larger than its ballot; or a member that has not says so.
    Probe {
        /// The leader's ballot.
        ballot: Ballot,
    },
    /// An earlier process of the receiver's place had an life above the one that it asked with.
    Elder {
        /// That life.
        life: u64,
    },
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
    /// Era of the process that multicast what is behind the slot, or what was in it.
    pub generation: u64,
}

/// The message that a letter is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageRef {
    /// Who multicast it.
    pub client: ClientId,
    /// The client's number for it.
    pub sequence: u64,
}

impl PeerMessage {
    fn kind(&self) -> u8 {
        match self {
            PeerMessage::Join { .. } => 1,
            PeerMessage::Campaign { .. } => 2,
            PeerMessage::Promise { .. } => 3,
            PeerMessage::Refuse { .. } => 4,
            PeerMessage::Install { .. } => 5,
            PeerMessage::Installed { .. } => 6,
            PeerMessage::Behind { .. } => 7,
            PeerMessage::Transfer { .. } => 8,
            PeerMessage::Announce { .. } => 9,
            PeerMessage::WantBody(_) => 10,
            PeerMessage::Gone(_) => 11,
            PeerMessage::Ask(_) => 12,
            PeerMessage::Decided { .. } => 13,
            PeerMessage::Forgotten(_) => 14,
            PeerMessage::Refused(_) => 15,
            PeerMessage::Lead => 16,
            PeerMessage::Begun { .. } => 17,
            PeerMessage::Seek(_) => 18,
            PeerMessage::Lacking(_) => 19,
            PeerMessage::NoOpProcessed(_) => 20,
            PeerMessage::WantBodies(_) => 21,
            PeerMessage::Elder { .. } => 22,
            PeerMessage::Probe { .. } => 23,
        }
    }

    /// As in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        const NAMES: [&str; 23] = [
            "join",
            "campaign",
            "promise",
            "refuse",
            "install",
            "installed",
            "behind",
            "transfer",
            "announce",
            "want-body",
            "gone",
            "ask",
            "decided",
            "forgotten",
            "refused",
            "lead",
            "begun",
            "seek",
            "lacking",
            "voided",
            "want-bodies",
            "elder",
            "stand",
        ];
        NAMES[usize::from(self.kind()) - 1]
    }

    /// The state that it carries.
    pub(crate) fn state(&self) -> Option<&State> {
        match self {
            PeerMessage::Promise { state, .. }
            | PeerMessage::Install { state, .. }
            | PeerMessage::Transfer { state, .. } => Some(state),
            _ => None,
        }
    }

    /// Whether the application's state goes with it.
    #[must_use]
    pub fn carries_snapshot(&self) -> bool {
        matches!(self, PeerMessage::Transfer { .. } | PeerMessage::Install { snapshot: true, .. })
    }

    /// The ballot for which whoever gets this letter must first fence its stream: only what the stream region of the old
    /// leader held when nobody could write it any more may count.
    #[must_use]
    pub fn fences(&self) -> Option<Ballot> {
        match self {
            PeerMessage::Campaign { ballot, .. } | PeerMessage::Install { ballot, .. } => Some(*ballot),
            _ => None,
        }
    }

    /// Appends the letter's words.
    pub fn encode(&self, out: &mut Vec<u64>) {
        out.push(u64::from(self.kind()) | u64::from(VERSION) << 8);
        match self {
            PeerMessage::Join { life } | PeerMessage::Begun { life } | PeerMessage::Elder { life } => {
                out.push(*life);
            }
            PeerMessage::Campaign { ballot, lives } => {
                out.push(ballot.to_word());
                encode_lives(lives, out);
            }
            PeerMessage::Installed { ballot } | PeerMessage::Behind { ballot } | PeerMessage::Probe { ballot } => {
                out.push(ballot.to_word());
            }
            PeerMessage::Refuse { promised } => out.push(promised.to_word()),
            PeerMessage::Promise { ballot, state } | PeerMessage::Transfer { ballot, state } => {
                out.push(ballot.to_word());
                state.encode(out);
            }
            PeerMessage::Install { ballot, counter, state, admits, snapshot } => {
                out.extend_from_slice(&[ballot.to_word(), *counter, u64::from(*snapshot), admits.len() as u64]);
                out.extend(admits.iter().flat_map(|joiner| [u64::from(joiner.process.0), joiner.life]));
                state.encode(out);
            }
            PeerMessage::Announce { group, ballot } => out.extend_from_slice(&[u64::from(group.0), ballot.to_word()]),
            PeerMessage::WantBody(subject)
            | PeerMessage::WantBodies(subject)
            | PeerMessage::Gone(subject)
            | PeerMessage::Ask(subject)
            | PeerMessage::Forgotten(subject)
            | PeerMessage::Refused(subject) => subject.encode(out),
            PeerMessage::Decided { message, ballot, times } => {
                message.encode(out);
                out.extend_from_slice(&[ballot.to_word(), times.len() as u64]);
                out.extend_from_slice(times);
            }
            PeerMessage::Lead => {}
            PeerMessage::Seek(spot) | PeerMessage::Lacking(spot) | PeerMessage::NoOpProcessed(spot) => spot.encode(out),
        }
    }

    /// Reads a letter.
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
        let letter = decode_body(kind, &mut words)?;
        words.end()?;
        Ok(letter)
    }
}

fn decode_body(kind: u8, words: &mut WordReader<'_>) -> Result<PeerMessage, PeerMessageError> {
    Ok(match kind {
        1 => PeerMessage::Join { life: words.next()? },
        2 => PeerMessage::Campaign { ballot: words.ballot()?, lives: decode_lives(words)? },
        3 => PeerMessage::Promise { ballot: words.ballot()?, state: State::decode(words)? },
        4 => PeerMessage::Refuse { promised: words.ballot()? },
        5 => decode_install(words)?,
        6 => PeerMessage::Installed { ballot: words.ballot()? },
        7 => PeerMessage::Behind { ballot: words.ballot()? },
        8 => PeerMessage::Transfer { ballot: words.ballot()?, state: State::decode(words)? },
        9 => {
            let group = u16::try_from(words.next()?).map_err(|_| PeerMessageError::Value("group"))?;
            PeerMessage::Announce { group: GroupId(group), ballot: words.ballot()? }
        }
        10 => PeerMessage::WantBody(MessageRef::decode(words)?),
        11 => PeerMessage::Gone(MessageRef::decode(words)?),
        12 => PeerMessage::Ask(MessageRef::decode(words)?),
        13 => {
            let (message, ballot) = (MessageRef::decode(words)?, words.ballot()?);
            let length = words.length()?;
            PeerMessage::Decided { message, ballot, times: words.take(length)?.to_vec() }
        }
        14 => PeerMessage::Forgotten(MessageRef::decode(words)?),
        15 => PeerMessage::Refused(MessageRef::decode(words)?),
        16 => PeerMessage::Lead,
        17 => PeerMessage::Begun { life: words.next()? },
        18 => PeerMessage::Seek(SlotRef::decode(words)?),
        19 => PeerMessage::Lacking(SlotRef::decode(words)?),
        20 => PeerMessage::NoOpProcessed(SlotRef::decode(words)?),
        21 => PeerMessage::WantBodies(MessageRef::decode(words)?),
        22 => PeerMessage::Elder { life: words.next()? },
        23 => PeerMessage::Probe { ballot: words.ballot()? },
        other => return Err(PeerMessageError::Kind(other)),
    })
}

fn decode_install(words: &mut WordReader<'_>) -> Result<PeerMessage, PeerMessageError> {
    let (ballot, counter) = (words.ballot()?, words.next()?);
    if counter >> 63 != 0 {
        return Err(PeerMessageError::Value("counter"));
    }
    let snapshot = match words.next()? {
        0 => false,
        1 => true,
        _ => return Err(PeerMessageError::Value("flag")),
    };
    let mut admits = Vec::new();
    for _ in 0..words.length()? {
        let process = u16::try_from(words.next()?).map_err(|_| PeerMessageError::Value("process"))?;
        admits.push(Joiner { process: ProcessId(process), life: words.next()? });
    }
    Ok(PeerMessage::Install { ballot, counter, admits, snapshot, state: State::decode(words)? })
}

impl SlotRef {
    fn encode(self, out: &mut Vec<u64>) {
        out.extend_from_slice(&[u64::from(self.client.0), self.slot, self.ballot.to_word(), self.generation]);
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        let client = u16::try_from(words.next()?).map_err(|_| PeerMessageError::Value("client"))?;
        let (slot, ballot, generation) = (words.next()?, words.ballot()?, words.next()?);
        if generation >= ids::GENERATIONS {
            return Err(PeerMessageError::Value("generation"));
        }
        Ok(SlotRef { client: ClientId(client), slot, ballot, generation })
    }
}

impl MessageRef {
    fn encode(self, out: &mut Vec<u64>) {
        out.extend_from_slice(&[u64::from(self.client.0), self.sequence]);
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        let client = u16::try_from(words.next()?).map_err(|_| PeerMessageError::Value("client"))?;
        Ok(MessageRef { client: ClientId(client), sequence: words.next()? })
    }
}
