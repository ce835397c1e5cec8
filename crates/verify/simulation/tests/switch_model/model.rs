//! The model: the steps of a [`World`], as far as a budget of faults permits them.

use std::cell::RefCell;

use stateright::{Model, Property};
use stentor_fabric_roce::endpoint::Outbox;
use stentor_simulation::switch::{Host, Kind, Op, Setup, Step, World};
use stentor_switch::registers::State as SetState;
use stentor_switch::{Aggregation, Config, Mutant};

/// The number of faults of each kind that may occur.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Budget {
    /// Packets lost on links.
    pub(crate) losses: u8,
    /// Mirror copies lost.
    pub(crate) loop_losses: u8,
    /// Packets that arrive twice.
    pub(crate) repeats: u8,
    /// Packets that the next packet overtakes.
    pub(crate) delays: u8,
    /// Timeouts while a packet is in flight.
    pub(crate) early_timers: u8,
    /// Leases that expire.
    pub(crate) leases: u8,
    /// Restarts of the switch, which lose its memory.
    pub(crate) restarts: u8,
}

/// A search.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) name: &'static str,
    pub(crate) programs: Vec<Vec<Op>>,
    pub(crate) budget: Budget,
    /// `true` if timers may expire. Without timers, all work must complete once no packet is in flight (SL2).
    pub(crate) timers: bool,
    pub(crate) aggregation: Aggregation,
    pub(crate) mutant: Mutant,
    pub(crate) eager: bool,
    pub(crate) receives: u32,
    pub(crate) window: u32,
}

/// A state: the world, and the faults that may still occur.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) world: World,
    left: Budget,
}

thread_local! {
    static OUT: RefCell<Outbox> = RefCell::new(Outbox::new(16));
}

impl Search {
    pub(crate) fn new(name: &'static str, programs: Vec<Vec<Op>>) -> Search {
        Search {
            name,
            programs,
            budget: Budget::default(),
            timers: true,
            aggregation: Aggregation::ExactMin,
            mutant: Mutant::None,
            eager: false,
            receives: 16,
            window: 4,
        }
    }

    fn setup(&self) -> Setup {
        Setup {
            forward: [10, 9, 0, 1].into(),
            backward: [10, 9, 0, 2].into(),
            gid: 0,
            mtu: 256,
            words: 80,
            window: self.window,
            receives: self.receives,
            eager: self.eager,
            // The senders' PSNs wrap around.
            numbers: 0xff_fffe,
        }
    }
}

/// Returns a control packet that links these ranks.
pub(crate) fn link(ranks: &[u8]) -> Op {
    Op::Link(ranks.iter().map(|rank| Host::link(*rank, 0)).collect())
}

/// Returns a control packet that links these ranks, with addresses that begin at an offset in bytes.
pub(crate) fn link_at(ranks: &[u8], offset: u64) -> Op {
    Op::Link(ranks.iter().map(|rank| Host::link(*rank, offset)).collect())
}

pub(crate) fn write(packets: u32) -> Op {
    Op::Message { kind: Kind::Write, bytes: 256 * (packets - 1) + 4, va: 0 }
}

pub(crate) fn send() -> Op {
    Op::Message { kind: Kind::Send, bytes: 4, va: 0 }
}

pub(crate) fn write_imm() -> Op {
    Op::Message { kind: Kind::WriteImm, bytes: 4, va: 0 }
}

impl Model for Search {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let setup = self.setup();
        let config = Config { aggregation: self.aggregation, ..Config::new(setup.forward, setup.backward) };
        let config = Config { mutant: self.mutant, ..config };
        let world = OUT.with_borrow_mut(|out| World::new(setup, config, self.programs.clone(), out));
        vec![State { world: world.expect("a set"), left: self.budget }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        let (world, left) = (&state.world, &state.left);
        if !world.watch().findings().is_empty() {
            return;
        }
        let quiet = world.is_quiet();
        let (_, looping, _) = world.lengths(0);
        if looping > 0 {
            actions.push(Step::Loop);
            if left.loop_losses > 0 {
                actions.push(Step::LoseLoop);
            }
        }
        for rank in 0..world.ranks() {
            let ((up, _, down), host) = (world.lengths(rank), rank as u8);
            let both = [(up, Step::Up(host, 0)), (down, Step::Down(host, 0))];
            actions.extend(both.iter().filter(|(len, _)| *len > 0).map(|(_, step)| *step));
            let faults = [
                (up > 0 && left.losses > 0, Step::LoseUp(host)),
                (down > 0 && left.losses > 0, Step::LoseDown(host)),
                (up > 0 && left.repeats > 0, Step::RepeatUp(host)),
                (down > 0 && left.repeats > 0, Step::RepeatDown(host)),
                (up > 1 && left.delays > 0, Step::Up(host, 1)),
                (down > 1 && left.delays > 0, Step::Down(host, 1)),
                (self.timers && world.waits(rank) && (quiet || left.early_timers > 0), Step::Timer(host)),
                (self.receives < 16 && world.used_receives(rank) > 0, Step::Receives(host)),
            ];
            actions.extend(faults.iter().filter(|(may, _)| *may).map(|(_, step)| *step));
        }
        if left.leases > 0 && world.state() != SetState::Free {
            actions.push(Step::Lease);
        }
        if left.restarts > 0 {
            actions.push(Step::Restart);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut next = last.clone();
        let left = &mut next.left;
        match step {
            Step::LoseUp(_) | Step::LoseDown(_) => left.losses -= 1,
            Step::LoseLoop => left.loop_losses -= 1,
            Step::RepeatUp(_) | Step::RepeatDown(_) => left.repeats -= 1,
            Step::Up(_, 1) | Step::Down(_, 1) => left.delays -= 1,
            Step::Timer(_) if !last.world.is_quiet() => left.early_timers -= 1,
            Step::Lease => left.leases -= 1,
            Step::Restart => left.restarts -= 1,
            _ => {}
        }
        OUT.with_borrow_mut(|out| next.world.step(step, out));
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Search>> {
        macro_rules! found {
            ($($name:literal)*) => { vec![$(Property::<Search>::always($name, |_, state: &State| {
                state.world.watch().findings().iter().all(|finding| finding.property != $name)
            }),)*] };
        }
        let mut properties = found!["S1" "S2" "S3" "S4" "S5" "S6" "S7" "S8" "S9" "S10" "S11"];
        properties.push(Property::<Search>::always("SL1", |search, state| !search.timers || !search.is_stuck(state)));
        properties.push(Property::<Search>::always("SL2", |search, state| search.timers || !search.is_stuck(state)));
        properties.push(Property::<Search>::always("poisoned for a reason", |search, state| {
            let tried = state.left.leases < search.budget.leases || state.left.restarts < search.budget.restarts;
            tried || state.world.state() != SetState::Poisoned
        }));
        properties.push(Property::<Search>::sometimes("everything done", |_, state| {
            state.world.is_over() && state.world.unfinished().is_none()
        }));
        properties
    }
}

impl Search {
    /// Returns whether work is left although no packet is in flight, no timer may expire and no receive is missing, or
    /// although every host is done or gave up.
    fn is_stuck(&self, state: &State) -> bool {
        let world = &state.world;
        let gave_up = world.is_over() && world.unfinished().is_some();
        let waits = self.timers && (0..world.ranks()).any(|rank| world.waits(rank));
        let receives = self.receives < 16 && (0..world.ranks()).any(|rank| world.used_receives(rank) > 0);
        gave_up || world.is_quiet() && !waits && !receives && world.unfinished().is_some()
    }
}
