//! The processes of a broadcast run.

use std::cell::RefCell;
use std::rc::Rc;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{SimFabric, World};
use stentor_neb::removal::{Answer, Ask};
use stentor_neb::{Liar, Node, Notice, ProcessSet};

use super::history::History;
use crate::chance::Chance;

/// The state that all processes of a run share.
pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) history: RefCell<History>,
}

/// A correct process or a Byzantine one.
pub(crate) enum Actor {
    Correct(Box<Correct>),
    Liar(Box<Lying>),
}

pub(crate) struct Correct {
    pub(crate) node: Node<SimFabric>,
    pub(crate) me: ProcessId,
    pub(crate) shared: Rc<Shared>,
    pub(crate) chance: Chance,
    pub(crate) left: u64,
    pub(crate) longest: usize,
    pub(crate) pause_ns: u64,
    pub(crate) not_before_ns: u64,
    /// Number of outcomes so far, by sender.
    pub(crate) heads: Vec<u64>,
    pub(crate) refused: u64,
    pub(crate) equivocations: u64,
    /// The removed senders whose streams this process has completed.
    pub(crate) removed: ProcessSet,
}

pub(crate) struct Lying {
    pub(crate) liar: Liar<SimFabric>,
    pub(crate) me: ProcessId,
    pub(crate) shared: Rc<Shared>,
    pub(crate) chance: Chance,
    pub(crate) until_ns: u64,
}

/// Maximum time between two actions of a liar, in nanoseconds.
const LIAR_PAUSE_NS: u64 = 1_500;
/// Time after which a sender with a full window tries again, in nanoseconds.
const RETRY_NS: u64 = 20_000;

impl stentor_fabric_sim::Actor for Actor {
    fn step(&mut self, now_ns: u64) -> bool {
        match self {
            Actor::Correct(correct) => correct.step(now_ns),
            Actor::Liar(lying) => lying.step(),
        }
    }
}

impl Actor {
    /// Passes an operator's request to the process. Returns its answer.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Answer {
        match self {
            Actor::Correct(correct) => {
                let Correct { node, refused, .. } = &mut **correct;
                node.ask(ask, &mut |notice| *refused += u64::from(matches!(notice, Notice::Refused(..))))
            }
            Actor::Liar(lying) => lying.liar.node_mut().ask(ask, &mut |_| {}),
        }
    }
}

impl Correct {
    fn step(&mut self, now_ns: u64) -> bool {
        let Correct { node, me, shared, heads, refused, equivocations, removed, .. } = self;
        let mut worked = node.housekeep();
        // The clocks of processes may jump, so histories use the world's time.
        let t = shared.world.now_ns();
        worked |= node.step(&mut |notice| {
            shared.history.borrow_mut().notice(t, *me, &notice);
            let mark = match notice {
                Notice::Deliver(sender, value) => {
                    heads[sender.index()] += 1;
                    format!("deliver {sender}:{}", value.index())
                }
                Notice::Skip(sender, index) => {
                    heads[sender.index()] += 1;
                    format!("skip {sender}:{index}")
                }
                Notice::Equivocation(evidence) => {
                    *equivocations += 1;
                    format!("equivocation {}:{}", evidence.sender, evidence.index)
                }
                Notice::Refused(sender, _) => {
                    *refused += 1;
                    format!("refused {sender}")
                }
                Notice::Removed(sender, upto) => {
                    removed.insert(sender);
                    format!("removed {sender}: its stream ends at {upto}")
                }
            };
            shared.world.mark(*me, &mark);
        });
        while self.broadcast(now_ns) {
            worked = true;
        }
        worked
    }

    fn broadcast(&mut self, now_ns: u64) -> bool {
        if self.left == 0 {
            return false;
        }
        if now_ns < self.not_before_ns {
            self.wake_in(self.not_before_ns - now_ns);
            return false;
        }
        // The payload is derived from the index, so that a broadcast that has to wait is unchanged later.
        let index = self.node.own_stream().next();
        let bytes = (index * 13 + 5) as usize % (self.longest + 1);
        let payload: Vec<u8> = (0..bytes as u64).map(|at| (at * 7 + index + u64::from(self.me.0)) as u8).collect();
        if self.node.broadcast(now_ns, 500 + index, &payload).is_err() {
            self.wake_in(RETRY_NS);
            return false;
        }
        self.shared.history.borrow_mut().broadcast(self.shared.world.now_ns(), self.me, index, &payload);
        self.left -= 1;
        self.not_before_ns = now_ns + self.chance.between(0, self.pause_ns);
        true
    }

    /// Schedules a wake-up by the world's clock, since the process's own clock may jump.
    fn wake_in(&self, ns: u64) {
        self.shared.world.wake_at(self.me, self.shared.world.now_ns() + ns);
    }
}

impl Lying {
    fn step(&mut self) -> bool {
        let now_ns = self.shared.world.now_ns();
        let Lying { liar, chance, .. } = self;
        liar.step(|| chance.between(0, u64::MAX - 1), &mut |_| {});
        // Later, the liar runs only while it does work of a correct process, for which other processes may wait.
        if now_ns < self.until_ns || liar.worked() {
            self.shared.world.wake_at(self.me, now_ns + LIAR_PAUSE_NS);
        }
        // The liar can always act, so it runs only at scheduled times.
        false
    }
}
