//! The messages between an operator and a process, as JSON.

use serde::{Deserialize, Serialize};
use stentor::operator::Asks;
use stentor_fabric::ProcessId;
use stentor_neb::ProcessSet;
use stentor_neb::removal::{self, Ballot, Holding, Kept, Standing};

/// A question. Only an operator with the same configuration may ask it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    pub(super) fingerprint: u64,
    pub(super) ask: Ask,
}

/// JSON form of [`removal::Ask`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Ask {
    Stand,
    Leave,
    Fence { round: u64, operator: u64, base: Vec<u16>, targets: Vec<u16> },
    Commit { round: u64, operator: u64, cuts: Vec<Cut> },
}

/// JSON form of [`removal::Cut`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Cut {
    sender: u16,
    upto: u64,
    values: Vec<Kept>,
}

/// JSON form of [`removal::Answer`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Standing { round: u64, operator: u64, fenced: Vec<u16>, removed: Vec<u16> },
    Left,
    Fencing,
    Report { round: u64, operator: u64, holdings: Vec<Held> },
    Committed,
    Refused(String),
}

/// JSON form of [`Holding`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Held {
    Frozen { sender: u16, head: u64, ended: Option<u64>, values: Vec<Kept> },
    Decided(Cut),
}

impl Asks for Question {
    type Answer = Answer;
    // Enough for the values of a full window as decimal numbers.
    const LONGEST: u64 = 256 << 20;

    fn refuse(why: String) -> Answer {
        Answer::Refused(why)
    }
}

fn list(set: ProcessSet) -> Vec<u16> {
    set.iter().map(|process| process.0).collect()
}

fn set(list: &[u16]) -> ProcessSet {
    list.iter().map(|process| ProcessId(*process)).collect()
}

impl Cut {
    fn of(cut: &removal::Cut) -> Self {
        Cut { sender: cut.sender.0, upto: cut.upto, values: cut.values.clone() }
    }

    fn meant(&self) -> removal::Cut {
        removal::Cut { sender: ProcessId(self.sender), upto: self.upto, values: self.values.clone() }
    }
}

impl Ask {
    pub(super) fn of(ask: &removal::Ask) -> Self {
        match ask {
            removal::Ask::Stand => Ask::Stand,
            removal::Ask::Leave => Ask::Leave,
            removal::Ask::Fence { ballot: Ballot { round, operator }, base, targets } => {
                Ask::Fence { round: *round, operator: *operator, base: list(*base), targets: list(*targets) }
            }
            removal::Ask::Commit { ballot: Ballot { round, operator }, cuts } => {
                Ask::Commit { round: *round, operator: *operator, cuts: cuts.iter().map(Cut::of).collect() }
            }
        }
    }

    pub(super) fn meant(&self) -> removal::Ask {
        match self {
            Ask::Stand => removal::Ask::Stand,
            Ask::Leave => removal::Ask::Leave,
            Ask::Fence { round, operator, base, targets } => {
                let ballot = Ballot { round: *round, operator: *operator };
                removal::Ask::Fence { ballot, base: set(base), targets: set(targets) }
            }
            Ask::Commit { round, operator, cuts } => {
                let ballot = Ballot { round: *round, operator: *operator };
                removal::Ask::Commit { ballot, cuts: cuts.iter().map(Cut::meant).collect() }
            }
        }
    }
}

impl Held {
    fn of(holding: Holding) -> Self {
        match holding {
            Holding::Frozen { sender, head, ended, values } => Held::Frozen { sender: sender.0, head, ended, values },
            Holding::Decided(cut) => Held::Decided(Cut::of(&cut)),
        }
    }

    fn meant(self) -> Holding {
        match self {
            Held::Frozen { sender, head, ended, values } => {
                Holding::Frozen { sender: ProcessId(sender), head, ended, values }
            }
            Held::Decided(cut) => Holding::Decided(cut.meant()),
        }
    }
}

impl Answer {
    pub(super) fn of(answer: removal::Answer) -> Self {
        match answer {
            removal::Answer::Standing(Standing { promised: Ballot { round, operator }, fenced, removed }) => {
                Answer::Standing { round, operator, fenced: list(fenced), removed: list(removed) }
            }
            removal::Answer::Left => Answer::Left,
            removal::Answer::Fencing => Answer::Fencing,
            removal::Answer::Report { ballot: Ballot { round, operator }, holdings } => {
                Answer::Report { round, operator, holdings: holdings.into_iter().map(Held::of).collect() }
            }
            removal::Answer::Committed => Answer::Committed,
            removal::Answer::Refused(refusal) => Answer::Refused(refusal.to_string()),
        }
    }

    /// Returns the answer, or the text of a refusal, which programs do not parse.
    pub(super) fn meant(self) -> Result<removal::Answer, String> {
        Ok(match self {
            Answer::Standing { round, operator, fenced, removed } => {
                let promised = Ballot { round, operator };
                removal::Answer::Standing(Standing { promised, fenced: set(&fenced), removed: set(&removed) })
            }
            Answer::Left => removal::Answer::Left,
            Answer::Fencing => removal::Answer::Fencing,
            Answer::Report { round, operator, holdings } => {
                let holdings = holdings.into_iter().map(Held::meant).collect();
                removal::Answer::Report { ballot: Ballot { round, operator }, holdings }
            }
            Answer::Committed => removal::Answer::Committed,
            Answer::Refused(why) => return Err(why),
        })
    }
}
