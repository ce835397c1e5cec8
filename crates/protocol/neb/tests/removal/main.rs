//! Removal of processes: the pure state machines of operator and members, in scripts and in every order.

mod agreement;
mod script;

use stentor_fabric::ProcessId;
use stentor_neb::removal::{Answer, Ask, Ballot, Holding, Refusal, Seat};
use stentor_neb::{Config, Mode, ProcessSet};

pub(crate) fn id(process: usize) -> ProcessId {
    ProcessId(process as u16)
}

pub(crate) fn set(processes: &[usize]) -> ProcessSet {
    processes.iter().map(|process| id(*process)).collect()
}

pub(crate) fn all(n: usize) -> Config {
    Config { payload_bytes: 8, window: 4, ..Config::new(n, Mode::All, 0) }
}

/// Returns the index and the words of a value.
pub(crate) fn value(index: u64, payload: u64) -> (u64, Vec<u64>) {
    (index, vec![index, 0, 8, payload])
}

/// A member, with the values that it has of the streams of others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Member {
    pub(crate) seat: Seat,
    pub(crate) has: Vec<Holding>,
}

impl Member {
    pub(crate) fn new(config: &Config, me: usize, has: Vec<Holding>) -> Self {
        Member { seat: Seat::new(config, id(me)), has }
    }

    /// Returns this member's answer to an operator's request. Unlike a node's fence, this member's fence takes effect
    /// at once.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Answer {
        let answer = match ask {
            Ask::Stand => Ok(Answer::Standing(*self.seat.standing())),
            Ask::Leave => Ok(Answer::Left),
            Ask::Fence { ballot, base, targets } => self.fence(*ballot, *base, *targets),
            Ask::Commit { ballot, cuts } => self.seat.may_commit(*ballot, cuts).map(|()| {
                cuts.iter().for_each(|cut| {
                    self.seat.commit(cut);
                });
                Answer::Committed
            }),
        };
        answer.unwrap_or_else(Answer::Refused)
    }

    fn fence(&mut self, ballot: Ballot, base: ProcessSet, targets: ProcessSet) -> Result<Answer, Refusal> {
        self.seat.fence(ballot, base, targets)?;
        let of = |target| {
            let frozen = |has: &&Holding| matches!(has, Holding::Frozen { sender, .. } if *sender == target);
            let decided = self.seat.cut(target).map(|cut| Holding::Decided(cut.clone()));
            decided.or_else(|| self.has.iter().find(frozen).cloned())
        };
        Ok(Answer::Report { ballot, holdings: targets.iter().filter_map(of).collect() })
    }
}

pub(crate) fn frozen(sender: usize, head: u64, values: &[(u64, u64)]) -> Holding {
    let values = values.iter().map(|(index, payload)| value(*index, *payload)).collect();
    Holding::Frozen { sender: id(sender), head, ended: None, values }
}
