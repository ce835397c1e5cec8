//! Processes, hosts, and the messages between them.
//!
//! A host executes a WRITE as a whole at any time after it was posted, and the WRITEs of one writer in order. The
//! writer sees the completion at that moment. This loses no behaviour, because each consequence of the completion is a
//! separate action. A READ is executed at any time after its round began. Process 0 lies.
//!
//! The model leaves out the following, because no violation depends on it:
//!
//! - A process takes a value as soon as the sender has written it into the buffer. No other process looks at that
//!   buffer, so taking it later equals writing it later. An index that is overwritten before it was taken equals an
//!   omitted index.
//! - Without the fast path a round begins as soon as possible. Its READs are separate actions, and a round that waits
//!   enables nothing that a begun round does not.
//! - A process at whose next index a conflict ends the stream never delivers again. Only its WRITEs are still executed.
//! - With four processes, the liar's host stores nothing, shows empty registers and reports every WRITE as complete.
//!   Any other behaviour would only prevent deliveries. With three processes, the liar's host executes WRITEs, and
//!   shows each reader either the written registers or empty ones.
//! - Correct processes are equivalent, so they get their first values in the order of their numbers.
//!
//! The model permits one thing that a processor cannot do: a process may see an older value at its host after a newer
//! one.

use stateright::{Model, Property};
use stentor_fabric::ProcessId;
use stentor_neb::{Config, FaultModel, Mode, Outcome, Replay, Seen, Value};

/// Number of values that the sender has for each index.
const VALUES: u64 = 2;
/// Largest number of indices that the sender sends. The window is one slot.
pub(crate) const INDICES: usize = 2;
/// Largest number of processes.
const MOST: usize = 4;
/// The Byzantine process.
const LIAR: usize = 0;

/// Configuration of a search.
#[derive(Clone, Debug)]
pub(crate) struct Broadcast {
    pub(crate) config: Config,
    /// Number of indices that the sender sends. The second reuses the slot of the first.
    pub(crate) indices: usize,
    /// Number of correct processes that may crash. The search covers every order, including those in which a process
    /// and its host do nothing more, so crashes reveal nothing that a search without them misses.
    pub(crate) crashes: u8,
    /// Maximum number of suspicions. A process may suspect any other process, crashed or not.
    pub(crate) suspicions: u8,
}

/// A state of the whole system.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    /// State of each process; `None` for the liar and for processes whose stream a conflict has ended.
    pub(crate) replays: [Option<Replay>; MOST],
    /// `true` for processes whose stream a conflict has ended.
    quit: [bool; MOST],
    up: [bool; MOST],
    /// `[writer][index]`: the value that the writer publishes, from 1; 0 is none.
    published: [[u8; INDICES]; MOST],
    /// `[host][writer]`: the number of the writer's indices whose WRITEs were executed at the host.
    executed: [[u8; MOST]; MOST],
    /// `[process][index]`: the value that the process delivered, from 1.
    pub(crate) delivered: [[u8; INDICES]; MOST],
    /// `true` if an index was delivered twice, or after a later one.
    disorder: bool,
    crashes_left: u8,
    suspicions_left: u8,
}

/// An event that may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The sender writes an index with this value into a process's buffer, and the process takes it.
    Send { process: usize, index: usize, value: u64 },
    /// A host executes the oldest WRITE of a writer.
    Execute { writer: usize, host: usize },
    /// A process sees a register in its local memory.
    Push { process: usize, writer: usize, index: usize },
    /// A process begins a round.
    Begin(usize),
    /// A host executes the READ of a round. With `hide` a liar shows empty registers.
    Read { process: usize, host: usize, hide: bool },
    /// A process crashes.
    Crash(usize),
    /// A process suspects another.
    Suspect(usize, usize),
}

fn id(process: usize) -> ProcessId {
    ProcessId(process as u16)
}

fn with_value<R>(index: usize, value: u64, use_it: impl FnOnce(&Value<'_>) -> R) -> R {
    let words = [index as u64, 0, 8, value];
    use_it(&Value::new(&words, 32, false, 8).expect("a valid value"))
}

impl State {
    /// Returns the index of a writer's oldest WRITE that a host has not executed.
    fn on_its_way(&self, writer: usize, host: usize) -> Option<usize> {
        (usize::from(self.executed[host][writer])..INDICES).find(|index| self.published[writer][*index] > 0)
    }

    /// Returns the content of a writer's register at a host for a READ of an index.
    fn shows(&self, host: usize, writer: usize, index: usize) -> Option<(usize, u64)> {
        let newest = (0..usize::from(self.executed[host][writer])).rev().find(|at| self.published[writer][*at] > 0)?;
        (newest >= index).then(|| (newest, u64::from(self.published[writer][newest])))
    }

    fn settle(&mut self, process: usize) {
        let Some(replay) = &mut self.replays[process] else { return };
        while let Some(outcome) = replay.next_outcome() {
            if let Outcome::Deliver(value) = outcome {
                let index = value.index() as usize;
                self.disorder |= self.delivered[process][index..].iter().any(|later| *later > 0);
                self.delivered[process][index] = value.words()[3] as u8;
            }
            replay.settled();
        }
        if replay.ended().is_some_and(|ended| ended <= replay.head()) {
            self.quit[process] = true;
            self.replays[process] = None;
        }
    }
}

impl Broadcast {
    fn correct(&self) -> std::ops::Range<usize> {
        1..self.config.processes
    }

    /// Returns whether the host of the liar stores what is written to it, so that a READ of that host may return it.
    /// Large configurations leave this out, and the host returns nothing.
    fn liar_keeps(&self) -> bool {
        self.config.processes < MOST
    }

    fn send(&self, state: &mut State, process: usize, (index, value): (usize, u64)) {
        while state.replays[process].as_ref().is_some_and(|replay| replay.next() < index as u64) {
            state.replays[process].as_mut().expect("the replay of a correct process").overtaken();
            state.settle(process);
        }
        let Some(replay) = &mut state.replays[process] else { return };
        with_value(index, value, |value| replay.poll_bcast_bufs(value));
        state.published[process][index] = value as u8;
        if self.config.mode == Mode::All {
            state.executed[process][process] = index as u8 + 1;
        } else if !self.liar_keeps() && replay.hosts().contains(id(LIAR)) {
            replay.published(id(LIAR), index as u64 + 1);
        }
    }

    fn read(&self, state: &mut State, process: usize, host: usize, hide: bool) {
        let shows = |writer: usize, index| if hide { None } else { state.shows(host, writer, index) };
        let Some(mut replay) = state.replays[process].clone() else { return };
        let Some(round) = replay.round() else { return };
        let (serial, lo, hi) = (round.serial, round.lo, round.hi);
        for replayer in replay.replayers_at(id(host)).iter() {
            for index in lo..hi {
                match shows(replayer.index(), index as usize) {
                    Some((newer, _)) if newer as u64 > index => {
                        replay.poll_read_cq(replayer, index, Seen::Newer, None);
                    }
                    Some((same, value)) => with_value(same, value, |value| {
                        replay.poll_read_cq(replayer, index, Seen::Value(*value), None);
                    }),
                    None => {
                        replay.poll_read_cq(replayer, index, Seen::Empty, None);
                    }
                }
            }
        }
        replay.answered(id(host), serial);
        state.replays[process] = Some(replay);
    }

    fn begin_rounds(&self, state: &mut State) {
        for process in self.correct().filter(|process| state.up[*process]).collect::<Vec<_>>() {
            if state.replays[process].as_mut().is_some_and(Replay::next_round) {
                state.settle(process);
            }
        }
    }

    /// Adds the actions that a process may take.
    fn actions_of(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let Some(replay) = state.replays[process].as_ref().filter(|_| state.up[process]) else { return };
        let fast = self.config.fast_path && self.config.mode != Mode::All;
        if fast {
            for writer in self.correct().filter(|writer| *writer != process) {
                let here = (0..usize::from(state.executed[process][writer]))
                    .filter(|index| state.published[writer][*index] > 0 && replay.snapshot(*index as u64).is_some());
                actions.extend(here.map(|index| Action::Push { process, writer, index }));
            }
            if replay.clone().next_round() {
                actions.push(Action::Begin(process));
            }
        }
        if let Some(round) = replay.round() {
            let open = replay.hosts().iter().filter(|host| !round.answered.contains(*host) && state.up[host.index()]);
            for host in open.map(ProcessId::index) {
                if host != LIAR || self.liar_keeps() {
                    actions.push(Action::Read { process, host, hide: false });
                }
                if host == LIAR {
                    actions.push(Action::Read { process, host, hide: true });
                }
            }
        }
        if state.suspicions_left > 0 {
            actions.extend((0..self.config.processes).filter(|p| *p != process).map(|p| Action::Suspect(process, p)));
        }
    }

    fn sends(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let Some(replay) = state.replays[process].as_ref().filter(|replay| replay.has_room()) else { return };
        let untouched = |process: usize| state.replays[process].as_ref().is_some_and(|replay| replay.next() == 0);
        if !state.up[process] || (process > 1 && untouched(process) && untouched(process - 1)) {
            return;
        }
        // The two values are equivalent, so the first value sent is always 1.
        let values = if self.correct().all(untouched) { 1 } else { VALUES };
        let pairs =
            (replay.next() as usize..self.indices).flat_map(|index| (1..=values).map(move |value| (index, value)));
        actions.extend(pairs.map(|(index, value)| Action::Send { process, index, value }));
    }

    fn hosts(&self) -> impl Iterator<Item = usize> {
        let liar = self.liar_keeps() && self.config.replicas(id(LIAR)).contains(id(LIAR));
        let quorum = matches!(self.config.mode, Mode::Quorum(FaultModel::LyingHosts | FaultModel::LyingSender));
        (usize::from(!liar)..self.config.processes).filter(move |_| quorum)
    }
}

impl Model for Broadcast {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let correct = self.correct();
        let replay = |process: usize| Replay::new(&self.config, id(process), id(LIAR));
        vec![State {
            replays: std::array::from_fn(|process| correct.contains(&process).then(|| replay(process))),
            quit: [false; MOST],
            up: [true; MOST],
            published: [[0; INDICES]; MOST],
            executed: [[0; MOST]; MOST],
            delivered: [[0; INDICES]; MOST],
            disorder: false,
            crashes_left: self.crashes,
            suspicions_left: self.suspicions,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for process in self.correct() {
            self.sends(state, process, actions);
            for host in self.hosts().filter(|host| state.up[*host]) {
                if state.on_its_way(process, host).is_some() {
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
        let mut settle = None;
        match action {
            Action::Send { process, index, value } => {
                self.send(&mut state, process, (index, value));
                settle = Some(process);
            }
            Action::Execute { writer, host } => {
                let index = state.on_its_way(writer, host)?;
                state.executed[host][writer] = index as u8 + 1;
                if let Some(replay) = &mut state.replays[writer] {
                    replay.published(id(host), index as u64 + 1);
                }
            }
            Action::Push { process, writer, index } => {
                let value = u64::from(state.published[writer][index]);
                let replay = state.replays[process].as_mut()?;
                with_value(index, value, |value| replay.pushed(id(writer), index as u64, value, None));
                settle = Some(process);
            }
            Action::Begin(process) => {
                state.replays[process].as_mut()?.next_round();
                settle = Some(process);
            }
            Action::Read { process, host, hide } => {
                self.read(&mut state, process, host, hide);
                settle = Some(process);
            }
            Action::Crash(process) => {
                state.up[process] = false;
                state.crashes_left -= 1;
            }
            Action::Suspect(process, other) => {
                state.suspicions_left -= 1;
                state.replays[process].as_mut()?.suspect(id(other));
                settle = Some(process);
            }
        }
        settle.into_iter().for_each(|process| state.settle(process));
        if !self.config.fast_path || self.config.mode == Mode::All {
            self.begin_rounds(&mut state);
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // B1 and B5: agreement among all correct processes, crashed or not.
            Property::<Self>::always("agreement", |model, state| {
                (0..INDICES).all(|index| {
                    let mut values = model.correct().map(|p| state.delivered[p][index]).filter(|value| *value > 0);
                    values.next().is_none_or(|first| values.all(|value| value == first))
                })
            }),
            // B3 and B4: each index is delivered at most once, and in order.
            Property::<Self>::always("once and in order", |_, state| !state.disorder),
            // The search must reach these states.
            Property::<Self>::sometimes("everybody delivers everything", |model, state| {
                model.correct().all(|process| state.delivered[process][..model.indices].iter().all(|value| *value > 0))
            }),
            Property::<Self>::sometimes("a conflict ends a stream", |_, state| state.quit.contains(&true)),
            Property::<Self>::sometimes("a slot was used again under a reader", |model, state| {
                let skipped = |process: usize| state.delivered[process][0] == 0;
                let past = |process: usize| state.replays[process].as_ref().is_some_and(|replay| replay.head() > 0);
                model.indices == 1 || (1..MOST).any(|process| skipped(process) && past(process))
            }),
        ]
    }
}
