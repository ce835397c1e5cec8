//! Processes, hosts, and what is on its way between them.
//!
//! A WRITE is executed whole at a host at any time after it was posted, those of one writer at one host in their order; a
//! completion is known at once, which loses nothing: what follows from it is an action of its own. What the processor of
//! the host sees of it comes later still. A READ is executed at any time after its round began. Process 0 lies.
//!
//! Three things are left out because they change nothing that anybody could see:
//!
//! - A process takes what the sender writes into its buffer at once. Nobody else looks at that buffer, so whatever is
//!   taken later is the same as written later; an index that is overwritten before it was taken is one that was left out.
//! - Without the fast path a round begins as soon as it can. Its READs are actions of their own, and a round that waits
//!   can do nothing that one which has begun cannot.
//! - A process that has seen a conflict reads no more: no outcome can follow.

use stateright::{Model, Property};
use stentor_fabric::ProcessId;
use stentor_neb::{Config, Mode, Outcome, Replay, Seen, Value};

/// The values that the sender has for each index.
const VALUES: u64 = 2;
/// Indices that it sends; the window is one slot.
const INDICES: u64 = 2;

pub(crate) type Register = Option<(u64, u64)>;

/// What a search is about.
#[derive(Clone, Debug)]
pub(crate) struct Broadcast {
    pub(crate) config: Config,
    /// Correct processes that may crash.
    pub(crate) crashes: u8,
    /// Suspicions of processes that are up.
    pub(crate) suspicions: u8,
}

/// A state of everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    /// By process; none at 0.
    pub(crate) replays: Vec<Option<Replay>>,
    up: Vec<bool>,
    /// `[host][writer]`: as the NIC has it.
    registers: Vec<Vec<Register>>,
    /// `[host][writer]`: as the processor sees it.
    seen: Vec<Vec<Register>>,
    /// `[writer][host]`: posted and not executed.
    writes: Vec<Vec<Vec<(u64, u64)>>>,
    /// By process: what it delivered, by index.
    pub(crate) delivered: Vec<Vec<(u64, u64)>>,
    pub(crate) skipped: bool,
    crashes_left: u8,
    suspicions_left: u8,
}

/// Something that may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The sender writes an index into a process's buffer, with this value, and the process takes it.
    Send { process: usize, index: u64, value: u64 },
    /// A host executes the oldest WRITE of a writer.
    Execute { writer: usize, host: usize },
    /// A host's processor sees what its NIC has.
    Land { host: usize, writer: usize },
    /// A process looks at a register in its own memory.
    Push { process: usize, writer: usize },
    /// A process begins a round.
    Begin(usize),
    /// A host executes the READ of a round; `hide`: a liar shows empty registers.
    Read { process: usize, host: usize, hide: bool },
    /// A process crashes.
    Crash(usize),
    /// A process takes another for dead.
    Suspect(usize, usize),
}

fn id(process: usize) -> ProcessId {
    ProcessId(process as u16)
}

/// The words of a value.
fn words(index: u64, value: u64) -> [u64; 4] {
    [index, 0, 8, 100 + value]
}

fn with_value<R>(index: u64, value: u64, use_it: impl FnOnce(&Value<'_>) -> R) -> R {
    let words = words(index, value);
    use_it(&Value::new(&words, 32, false, 8).expect("a sound value"))
}

impl Broadcast {
    fn correct(&self) -> impl Iterator<Item = usize> + use<> {
        1..self.config.processes
    }

    fn send(&self, state: &mut State, process: usize, (index, value): (u64, u64)) {
        while state.replays[process].as_ref().is_some_and(|replay| replay.next() < index) {
            state.replays[process].as_mut().expect("a correct process").overtaken();
            Self::settle(state, process);
        }
        let Some(replay) = &mut state.replays[process] else { return };
        with_value(index, value, |value| replay.poll_bcast_bufs(value));
        if self.config.mode == Mode::All {
            state.registers[process][process] = Some((index, value));
            return;
        }
        for host in replay.hosts().iter() {
            state.writes[process][host.index()].push((index, value));
        }
    }

    fn read(&self, state: &mut State, process: usize, host: usize, hide: bool) {
        let State { replays, registers, .. } = state;
        let Some(replay) = &mut replays[process] else { return };
        let Some(round) = replay.round() else { return };
        let (serial, lo, hi) = (round.serial, round.lo, round.hi);
        for replayer in replay.replayers_at(id(host)).iter() {
            for index in lo..hi {
                match registers[host][replayer.index()].filter(|_| !hide) {
                    Some((newer, _)) if newer > index => replay.poll_read_cq(replayer, index, Seen::Newer, None),
                    Some((same, value)) if same == index => with_value(index, value, |value| {
                        replay.poll_read_cq(replayer, index, Seen::Value(*value), None)
                    }),
                    _ => replay.poll_read_cq(replayer, index, Seen::Empty, None),
                };
            }
        }
        replay.answered(id(host), serial);
    }

    fn settle(state: &mut State, process: usize) {
        let Some(replay) = &mut state.replays[process] else { return };
        while let Some(outcome) = replay.next_outcome() {
            match outcome {
                Outcome::Deliver(value) => {
                    state.delivered[process].push((value.index(), value.words()[3]));
                }
                Outcome::Skip(_) => state.skipped = true,
            }
            replay.settled();
        }
    }

    fn begin_rounds(&self, state: &mut State) {
        for process in self.correct().filter(|process| state.up[*process]).collect::<Vec<_>>() {
            let began = state.replays[process].as_mut().is_some_and(Replay::next_round);
            if began {
                Self::settle(state, process);
            }
        }
    }

    /// What a process may do.
    fn actions_of(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let Some(replay) = state.replays[process].as_ref().filter(|_| state.up[process]) else { return };
        if self.config.mode != Mode::All && self.config.fast_path {
            for writer in self.correct().filter(|writer| *writer != process) {
                let shown = state.seen[process][writer];
                if shown.is_some_and(|(index, _)| replay.snapshot(index).is_some()) {
                    actions.push(Action::Push { process, writer });
                }
                if state.seen[process][writer] != state.registers[process][writer] {
                    actions.push(Action::Land { host: process, writer });
                }
            }
        }
        if self.config.fast_path && replay.clone().next_round() {
            actions.push(Action::Begin(process));
        }
        let open = replay.round().filter(|round| replay.ended().is_none_or(|ended| ended > round.lo));
        if let Some(round) = open {
            let open = replay.hosts().iter().filter(|host| !round.answered.contains(*host) && state.up[host.index()]);
            for host in open.map(ProcessId::index) {
                actions.push(Action::Read { process, host, hide: false });
                if host == 0 {
                    actions.push(Action::Read { process, host, hide: true });
                }
            }
        }
        if state.suspicions_left > 0 {
            actions.extend((0..self.config.processes).filter(|p| *p != process).map(|p| Action::Suspect(process, p)));
        }
    }
}

impl Model for Broadcast {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let n = self.config.processes;
        let replay = |process: usize| (process > 0).then(|| Replay::new(&self.config, id(process), id(0)));
        vec![State {
            replays: (0..n).map(replay).collect(),
            up: vec![true; n],
            registers: vec![vec![None; n]; n],
            seen: vec![vec![None; n]; n],
            writes: vec![vec![Vec::new(); n]; n],
            delivered: vec![Vec::new(); n],
            skipped: false,
            crashes_left: self.crashes,
            suspicions_left: self.suspicions,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let nothing_sent = state.replays.iter().flatten().all(|replay| replay.next() == 0);
        for process in self.correct() {
            let replay = state.replays[process].as_ref().filter(|replay| replay.has_room() && state.up[process]);
            if let Some(replay) = replay {
                // Which of two values comes first makes no difference.
                let values = if nothing_sent { 1 } else { VALUES };
                let pairs = (replay.next()..INDICES).flat_map(|index| (0..values).map(move |value| (index, value)));
                actions.extend(pairs.map(|(index, value)| Action::Send { process, index, value }));
            }
            for host in (0..self.config.processes).filter(|host| state.up[*host]) {
                if !state.writes[process][host].is_empty() {
                    actions.push(Action::Execute { writer: process, host });
                }
            }
            self.actions_of(state, process, actions);
            if state.crashes_left > 0 && state.up[process] {
                actions.push(Action::Crash(process));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Send { process, index, value } => {
                self.send(&mut state, process, (index, value));
                Self::settle(&mut state, process);
            }
            Action::Execute { writer, host } => {
                let (index, value) = state.writes[writer][host].remove(0);
                state.registers[host][writer] = Some((index, value));
                if let Some(replay) = &mut state.replays[writer] {
                    replay.published(id(host), index + 1);
                }
            }
            Action::Land { host, writer } => state.seen[host][writer] = state.registers[host][writer],
            Action::Push { process, writer } => {
                let (index, value) = state.seen[process][writer]?;
                let replay = state.replays[process].as_mut()?;
                with_value(index, value, |value| replay.pushed(id(writer), index, value, None));
                Self::settle(&mut state, process);
            }
            Action::Begin(process) => {
                state.replays[process].as_mut()?.next_round();
                Self::settle(&mut state, process);
            }
            Action::Read { process, host, hide } => {
                self.read(&mut state, process, host, hide);
                Self::settle(&mut state, process);
            }
            Action::Crash(process) => {
                state.up[process] = false;
                state.crashes_left -= 1;
            }
            Action::Suspect(process, other) => {
                state.suspicions_left -= 1;
                state.replays[process].as_mut()?.suspect(id(other));
                Self::settle(&mut state, process);
            }
        }
        if !self.config.fast_path {
            self.begin_rounds(&mut state);
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn at(state: &State, process: usize, index: u64) -> Option<u64> {
            state.delivered[process].iter().find(|(delivered, _)| *delivered == index).map(|(_, value)| *value)
        }
        vec![
            // B1 and B5: among all that do not lie, crashed or not.
            Property::<Self>::always("agreement", |model, state| {
                (0..INDICES).all(|index| {
                    let mut values = model.correct().filter_map(|process| at(state, process, index));
                    values.next().is_none_or(|first| values.all(|value| value == first))
                })
            }),
            // B3 and B4.
            Property::<Self>::always("once and in order", |_, state| {
                state.delivered.iter().all(|delivered| delivered.is_sorted_by(|a, b| a.0 < b.0))
            }),
            // The search reaches what it is about.
            Property::<Self>::sometimes("everybody delivers everything", |model, state| {
                model.correct().all(|process| state.delivered[process].len() as u64 == INDICES)
            }),
            Property::<Self>::sometimes("a conflict ends a stream", |model, state| {
                model.correct().any(|process| state.replays[process].as_ref().is_some_and(|r| r.ended().is_some()))
            }),
            Property::<Self>::sometimes("a slot was used again under a reader", |_, state| state.skipped),
        ]
    }
}
