//! Letters: what members write to each other when something fails. Rare, of any length, and repeated until answered.
//!
//! | letter | from → to | says |
//! |---|---|---|
//! | `Join` | a process without memory → its group | take me in |
//! | `Elder` | member → a process without memory | your place had a process with a larger incarnation: take a larger one |
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
use crate::words::{LetterError, Words};
use crate::{Ballot, ClientId, GroupId, ids};

/// A process that is taken in by a ballot: its id, and its incarnation. Those of a place rise.
pub type Admitted = (ProcessId, u64);

/// A letter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Letter {
    /// A process without memory wants to be taken in.
    Join {
        /// Its incarnation.
        incarnation: u64,
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
        admits: Vec<Admitted>,
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
    WantBody(Subject),
    /// Forward the message's body, and some of those behind it.
    WantBodies(Subject),
    /// The body is not held any more.
    Gone(Subject),
    /// Is it decided?
    Ask(Subject),
    /// It is decided at this vector.
    Decided {
        /// The message.
        subject: Subject,
        /// A ballot of the receiver's group: in it, or before, the group acknowledged.
        ballot: Ballot,
        /// The vector: a time per destination group.
        times: Vec<u64>,
    },
    /// The sender's group delivered it, and has forgotten it.
    Forgotten(Subject),
    /// A majority of a destination group has processed that it is void.
    Refused(Subject),
    /// Take over the leadership.
    Lead,
    /// The sender was without memory too, until it heard that all of its group are.
    Begun {
        /// Its incarnation.
        incarnation: u64,
    },
    /// Does the receiver hold what is in this slot?
    Seek(Spot),
    /// It does not.
    Lacking(Spot),
    /// It has processed that the slot is void.
    Voided(Spot),
    /// A leader asks whether the receiver has promised nothing larger than its ballot; or a member that has not says so.
    Stand {
        /// The leader's ballot.
        ballot: Ballot,
    },
    /// An earlier process of the receiver's place had an incarnation above the one that it asked with.
    Elder {
        /// That incarnation.
        incarnation: u64,
    },
}

/// A slot of a client at the own group, under a ballot of the group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spot {
    /// Whose.
    pub client: ClientId,
    /// The slot.
    pub slot: u64,
    /// The ballot.
    pub ballot: Ballot,
    /// Era of the process that multicast what is behind the slot, or what was in it.
    pub era: u64,
}

/// The message that a letter is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Subject {
    /// Who multicast it.
    pub client: ClientId,
    /// The client's number for it.
    pub sequence: u64,
}

impl Letter {
    fn kind(&self) -> u8 {
        match self {
            Letter::Join { .. } => 1,
            Letter::Campaign { .. } => 2,
            Letter::Promise { .. } => 3,
            Letter::Refuse { .. } => 4,
            Letter::Install { .. } => 5,
            Letter::Installed { .. } => 6,
            Letter::Behind { .. } => 7,
            Letter::Transfer { .. } => 8,
            Letter::Announce { .. } => 9,
            Letter::WantBody(_) => 10,
            Letter::Gone(_) => 11,
            Letter::Ask(_) => 12,
            Letter::Decided { .. } => 13,
            Letter::Forgotten(_) => 14,
            Letter::Refused(_) => 15,
            Letter::Lead => 16,
            Letter::Begun { .. } => 17,
            Letter::Seek(_) => 18,
            Letter::Lacking(_) => 19,
            Letter::Voided(_) => 20,
            Letter::WantBodies(_) => 21,
            Letter::Elder { .. } => 22,
            Letter::Stand { .. } => 23,
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

    /// Whether the application's state goes with it.
    #[must_use]
    pub fn carries_snapshot(&self) -> bool {
        matches!(self, Letter::Transfer { .. } | Letter::Install { snapshot: true, .. })
    }

    /// The ballot for which whoever gets this letter must first fence its stream: only what the stream region of the old
    /// leader held when nobody could write it any more may count.
    #[must_use]
    pub fn fences(&self) -> Option<Ballot> {
        match self {
            Letter::Campaign { ballot, .. } | Letter::Install { ballot, .. } => Some(*ballot),
            _ => None,
        }
    }

    /// Appends the letter's words.
    pub fn encode(&self, out: &mut Vec<u64>) {
        out.push(u64::from(self.kind()) | u64::from(VERSION) << 8);
        match self {
            Letter::Join { incarnation } | Letter::Begun { incarnation } | Letter::Elder { incarnation } => {
                out.push(*incarnation);
            }
            Letter::Campaign { ballot, lives } => {
                out.push(ballot.to_word());
                encode_lives(lives, out);
            }
            Letter::Installed { ballot } | Letter::Behind { ballot } | Letter::Stand { ballot } => {
                out.push(ballot.to_word());
            }
            Letter::Refuse { promised } => out.push(promised.to_word()),
            Letter::Promise { ballot, state } | Letter::Transfer { ballot, state } => {
                out.push(ballot.to_word());
                state.encode(out);
            }
            Letter::Install { ballot, counter, state, admits, snapshot } => {
                out.extend_from_slice(&[ballot.to_word(), *counter, u64::from(*snapshot), admits.len() as u64]);
                for (process, incarnation) in admits {
                    out.extend_from_slice(&[u64::from(process.0), *incarnation]);
                }
                state.encode(out);
            }
            Letter::Announce { group, ballot } => out.extend_from_slice(&[u64::from(group.0), ballot.to_word()]),
            Letter::WantBody(subject)
            | Letter::WantBodies(subject)
            | Letter::Gone(subject)
            | Letter::Ask(subject)
            | Letter::Forgotten(subject)
            | Letter::Refused(subject) => subject.encode(out),
            Letter::Decided { subject, ballot, times } => {
                subject.encode(out);
                out.extend_from_slice(&[ballot.to_word(), times.len() as u64]);
                out.extend_from_slice(times);
            }
            Letter::Lead => {}
            Letter::Seek(spot) | Letter::Lacking(spot) | Letter::Voided(spot) => spot.encode(out),
        }
    }

    /// Reads a letter.
    ///
    /// # Errors
    /// See [`LetterError`].
    pub fn decode(words: &[u64]) -> Result<Letter, LetterError> {
        let mut words = Words::new(words);
        let first = words.next()?;
        let (kind, version) = (first as u8, (first >> 8) as u8);
        if version != VERSION {
            return Err(LetterError::Version(version));
        }
        if first >> 16 != 0 {
            return Err(LetterError::Value("first word"));
        }
        let letter = decode_body(kind, &mut words)?;
        words.end()?;
        Ok(letter)
    }
}

fn decode_body(kind: u8, words: &mut Words<'_>) -> Result<Letter, LetterError> {
    Ok(match kind {
        1 => Letter::Join { incarnation: words.next()? },
        2 => Letter::Campaign { ballot: words.ballot()?, lives: decode_lives(words)? },
        3 => Letter::Promise { ballot: words.ballot()?, state: State::decode(words)? },
        4 => Letter::Refuse { promised: words.ballot()? },
        5 => decode_install(words)?,
        6 => Letter::Installed { ballot: words.ballot()? },
        7 => Letter::Behind { ballot: words.ballot()? },
        8 => Letter::Transfer { ballot: words.ballot()?, state: State::decode(words)? },
        9 => {
            let group = u16::try_from(words.next()?).map_err(|_| LetterError::Value("group"))?;
            Letter::Announce { group: GroupId(group), ballot: words.ballot()? }
        }
        10 => Letter::WantBody(Subject::decode(words)?),
        11 => Letter::Gone(Subject::decode(words)?),
        12 => Letter::Ask(Subject::decode(words)?),
        13 => {
            let (subject, ballot) = (Subject::decode(words)?, words.ballot()?);
            let length = words.length()?;
            Letter::Decided { subject, ballot, times: words.take(length)?.to_vec() }
        }
        14 => Letter::Forgotten(Subject::decode(words)?),
        15 => Letter::Refused(Subject::decode(words)?),
        16 => Letter::Lead,
        17 => Letter::Begun { incarnation: words.next()? },
        18 => Letter::Seek(Spot::decode(words)?),
        19 => Letter::Lacking(Spot::decode(words)?),
        20 => Letter::Voided(Spot::decode(words)?),
        21 => Letter::WantBodies(Subject::decode(words)?),
        22 => Letter::Elder { incarnation: words.next()? },
        23 => Letter::Stand { ballot: words.ballot()? },
        other => return Err(LetterError::Kind(other)),
    })
}

fn decode_install(words: &mut Words<'_>) -> Result<Letter, LetterError> {
    let (ballot, counter) = (words.ballot()?, words.next()?);
    if counter >> 63 != 0 {
        return Err(LetterError::Value("counter"));
    }
    let snapshot = match words.next()? {
        0 => false,
        1 => true,
        _ => return Err(LetterError::Value("flag")),
    };
    let mut admits = Vec::new();
    for _ in 0..words.length()? {
        let process = u16::try_from(words.next()?).map_err(|_| LetterError::Value("process"))?;
        admits.push((ProcessId(process), words.next()?));
    }
    Ok(Letter::Install { ballot, counter, admits, snapshot, state: State::decode(words)? })
}

impl Spot {
    fn encode(self, out: &mut Vec<u64>) {
        out.extend_from_slice(&[u64::from(self.client.0), self.slot, self.ballot.to_word(), self.era]);
    }

    fn decode(words: &mut Words<'_>) -> Result<Self, LetterError> {
        let client = u16::try_from(words.next()?).map_err(|_| LetterError::Value("client"))?;
        let (slot, ballot, era) = (words.next()?, words.ballot()?, words.next()?);
        if era >= ids::ERAS {
            return Err(LetterError::Value("era"));
        }
        Ok(Spot { client: ClientId(client), slot, ballot, era })
    }
}

impl Subject {
    fn encode(self, out: &mut Vec<u64>) {
        out.extend_from_slice(&[u64::from(self.client.0), self.sequence]);
    }

    fn decode(words: &mut Words<'_>) -> Result<Self, LetterError> {
        let client = u16::try_from(words.next()?).map_err(|_| LetterError::Value("client"))?;
        Ok(Subject { client: ClientId(client), sequence: words.next()? })
    }
}
