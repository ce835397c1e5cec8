//! Four processes with a quorum and a reused slot: the model of `network.rs` with a smaller state space.
//!
//! The real state machine still takes every step, once for each of its states (a *site*) and each event of that site.
//! The search itself works on numbers of sites. It is smaller than the plain search for these reasons:
//!
//! - **Symmetry.** Correct processes and their hosts run one program and start in the same state. The two values of an
//!   index are equivalent, too, because they are only compared with each other and never with those of another index.
//!   Only one of the states that are equal up to the order of the processes is searched. Each process is represented in
//!   its own frame, in which it is the first, and `mirror` is the same site with the two others exchanged. The value
//!   that is published first for an index is 1.
//! - **Late taking.** A value that a process takes from the liar has no effect on other processes before the first
//!   WRITE of that value's register is executed at a host. Inside the process nothing can happen in between, because
//!   registers are read only for published indices, and the index that used the slot before was settled. The value is
//!   therefore taken right before that execution, or never, which equals not taking it.
//! - **Immediate answers of the liar's host.** The host shows empty registers and only counts towards quorums. Its
//!   answer at once excludes no run, because the effects of a completed round on a process can also happen later.
//! - **Finished processes.** A process whose stream a conflict has ended, or that has settled the last index, never
//!   delivers again. Only its deliveries and the execution of its WRITEs matter.
//!
//! A crash equals an order in which a process and its host do nothing more, and every such order is searched. A
//! suspicion changes nothing in a site, which is asserted for each site.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use stentor_fabric::ProcessId;
use stentor_neb::{Config, FaultModel, Mode, Outcome, Replay, Seen, Value};
use stentor_testutil::SplitMix64;

/// Number of correct processes. The liar is process 0.
const CORRECT: usize = 3;
const INDICES: usize = 2;

/// A hash that spreads numbers by multiplication. No adversary chooses its input.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(SplitMix64::GOLDEN);
        self.0 ^= self.0 >> 29;
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }
}

type Fast = BuildHasherDefault<Spread>;

/// A process in its own frame, in which it is process 1 and the liar is process 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Site {
    /// `None` if the process never delivers again.
    replay: Option<Replay>,
    /// Value that the process delivered for each index. Values count from 1.
    got: [u8; INDICES],
    quit: bool,
}

/// An event of a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Event {
    /// The site takes this value for the index.
    Take { index: u8, value: u8 },
    /// The site's registers below `upto` are complete at a host: its own host, or one of the others.
    Complete { host: u8, upto: u8 },
    /// The site reads a host, which shows this for the two others: 0, or the newest index and its value.
    Read { host: u8, shows: [u8; 2] },
}

/// Returns the host in a frame in which the two others are exchanged.
fn mirrored(host: u8) -> u8 {
    (CORRECT as u8 - host) % CORRECT as u8
}

impl Event {
    fn mirror(self) -> Self {
        match self {
            Event::Take { .. } => self,
            Event::Complete { host, upto } => Event::Complete { host: mirrored(host), upto },
            Event::Read { host, shows: [a, b] } => Event::Read { host: mirrored(host), shows: [b, a] },
        }
    }
}

fn id(host: u8) -> ProcessId {
    ProcessId(1 + u16::from(host))
}

fn with_value<R>(index: u8, value: u8, use_it: impl FnOnce(&Value<'_>) -> R) -> R {
    let words = [u64::from(index), 0, 8, u64::from(value)];
    use_it(&Value::new(&words, 32, false, 8).expect("a sound value"))
}

/// Returns the index and the value as one number that is not 0.
fn shown(index: u8, value: u8) -> u8 {
    2 * index + value
}

/// All sites that were reached, and their successors.
struct Sites {
    indices: usize,
    all: Vec<Site>,
    mirrors: Vec<u32>,
    numbers: HashMap<Site, u32>,
    next: HashMap<(u32, Event), u32>,
    /// `true` if an index was delivered twice, or after a later one.
    disorder: bool,
}

impl Sites {
    fn new(config: &Config, indices: usize) -> Self {
        let replay = Some(Replay::new(config, id(0), ProcessId(0)));
        let first = Site { replay, got: [0; INDICES], quit: false };
        let numbers = HashMap::from([(first.clone(), 0)]);
        Sites { indices, all: vec![first], mirrors: vec![0], numbers, next: HashMap::new(), disorder: false }
    }

    fn number(&mut self, site: Site) -> u32 {
        if let Some(number) = self.numbers.get(&site) {
            return *number;
        }
        if let Some(replay) = &site.replay {
            let mut suspicious = replay.clone();
            (0..=CORRECT).for_each(|process| suspicious.suspect(ProcessId(process as u16)));
            assert_eq!(&suspicious, replay, "a suspicion changes nothing");
        }
        let number = self.all.len() as u32;
        self.all.push(site.clone());
        self.mirrors.push(u32::MAX);
        self.numbers.insert(site, number);
        number
    }

    /// Returns the successor of a site. The mirrored event leads to the mirrored successor.
    fn after(&mut self, site: u32, event: Event) -> u32 {
        if let Some(known) = self.next.get(&(site, event)) {
            return *known;
        }
        let other = self.mirrors[site as usize];
        let (next, reflected) = (self.step(site, event), self.step(other, event.mirror()));
        let (next, reflected) = (self.number(next), self.number(reflected));
        for (one, two) in [(next, reflected), (reflected, next)] {
            let mirror = &mut self.mirrors[one as usize];
            assert!([u32::MAX, two].contains(mirror), "a site has one mirror");
            *mirror = two;
        }
        self.next.insert((site, event), next);
        self.next.insert((other, event.mirror()), reflected);
        next
    }

    fn step(&mut self, site: u32, event: Event) -> Site {
        let mut site = self.all[site as usize].clone();
        let Some(mut replay) = site.replay.take() else { return site };
        match event {
            Event::Take { index, value } => {
                while replay.next() < u64::from(index) {
                    replay.overtaken();
                    self.settle(&mut replay, &mut site);
                }
                with_value(index, value, |value| replay.poll_bcast_bufs(value));
                if replay.hosts().contains(ProcessId(0)) {
                    replay.published(ProcessId(0), u64::from(index) + 1);
                }
            }
            Event::Complete { host, upto } => replay.published(id(host), u64::from(upto)),
            Event::Read { host, shows } => Self::read(&mut replay, id(host), shows),
        }
        self.settle(&mut replay, &mut site);
        if replay.next_round() {
            self.settle(&mut replay, &mut site);
            if replay.round().is_some() && replay.hosts().contains(ProcessId(0)) {
                Self::read(&mut replay, ProcessId(0), [0, 0]);
                self.settle(&mut replay, &mut site);
            }
        }
        site.quit = replay.ended().is_some_and(|ended| ended <= replay.head());
        site.replay = (!site.quit && replay.head() < self.indices as u64).then_some(replay);
        site
    }

    fn read(replay: &mut Replay, host: ProcessId, shows: [u8; 2]) {
        let Some(round) = replay.round() else { return };
        let (serial, index) = (round.serial, round.lo as u8);
        for (replayer, shown) in [2, 3].map(ProcessId).into_iter().zip(shows) {
            let newest = shown.saturating_sub(1) / 2;
            match shown {
                0 => replay.poll_read_cq(replayer, u64::from(index), Seen::Empty, None),
                _ if newest < index => replay.poll_read_cq(replayer, u64::from(index), Seen::Empty, None),
                _ if newest > index => replay.poll_read_cq(replayer, u64::from(index), Seen::Newer, None),
                _ => with_value(index, shown - 2 * newest, |value| {
                    replay.poll_read_cq(replayer, u64::from(index), Seen::Value(*value), None)
                }),
            };
        }
        replay.answered(host, serial);
    }

    fn settle(&mut self, replay: &mut Replay, site: &mut Site) {
        while let Some(outcome) = replay.next_outcome() {
            if let Outcome::Deliver(value) = outcome {
                let index = value.index() as usize;
                self.disorder |= site.got[index..].iter().any(|later| *later > 0);
                site.got[index] = value.words()[3] as u8;
            }
            replay.settled();
        }
    }
}

/// State of the system: sites, published values, and executed WRITEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct State {
    sites: [u32; CORRECT],
    /// `[writer][index]`: the value that the writer publishes, from 1; 0 is none.
    published: [[u8; INDICES]; CORRECT],
    /// `[host][writer]`: the number of the writer's indices whose WRITEs were executed at the host.
    executed: [[u8; CORRECT]; CORRECT],
}

impl State {
    fn pack(&self) -> u128 {
        let mut packed = 0;
        for site in self.sites {
            assert!(site < 1 << 28);
            packed = packed << 28 | u128::from(site);
        }
        for small in self.published.as_flattened().iter().chain(self.executed.as_flattened()) {
            packed = packed << 2 | u128::from(*small);
        }
        packed
    }

    fn unpack(mut packed: u128) -> Self {
        let mut state = State::default();
        for small in state.executed.as_flattened_mut().iter_mut().rev() {
            (*small, packed) = ((packed & 3) as u8, packed >> 2);
        }
        for small in state.published.as_flattened_mut().iter_mut().rev() {
            (*small, packed) = ((packed & 3) as u8, packed >> 2);
        }
        for site in state.sites.iter_mut().rev() {
            (*site, packed) = ((packed & ((1 << 28) - 1)) as u32, packed >> 28);
        }
        state
    }

    /// Returns the smallest of the six packed states that differ only in the order of the processes.
    fn canonical(&self, mirrors: &[u32]) -> u128 {
        let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]];
        let all = orders.iter().enumerate().map(|(n, order)| {
            let site = |p: usize| if n < 3 { self.sites[p] } else { mirrors[self.sites[p] as usize] };
            State {
                sites: order.map(site),
                published: order.map(|p| self.published[p]),
                executed: order.map(|host| order.map(|writer| self.executed[host][writer])),
            }
            .pack()
        });
        all.min().expect("six orders")
    }

    /// Returns the newest value that a host has of a writer.
    fn shows(&self, host: usize, writer: usize) -> u8 {
        let newest =
            (0..self.executed[host][writer]).rev().find(|index| self.published[writer][usize::from(*index)] > 0);
        newest.map_or(0, |index| shown(index, self.published[writer][usize::from(index)]))
    }

    fn pending(&self, host: usize, writer: usize) -> Option<u8> {
        let from = self.executed[host][writer];
        (from..INDICES as u8).find(|index| self.published[writer][usize::from(*index)] > 0)
    }
}

fn relative(process: usize, host: usize) -> u8 {
    ((host + CORRECT - process) % CORRECT) as u8
}

/// Result of a search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) sites: usize,
    pub(crate) violations: u64,
    /// Deliveries of the processes in every state, up to symmetry.
    pub(crate) outcomes: BTreeSet<Vec<[u8; INDICES]>>,
    pub(crate) quits: bool,
    pub(crate) skips: bool,
}

/// Normalizes deliveries with respect to the order of the processes and the names of the values.
pub(crate) fn normal(mut got: Vec<[u8; INDICES]>) -> Vec<[u8; INDICES]> {
    let flip = |got: &[[u8; INDICES]], index: usize| -> Vec<[u8; INDICES]> {
        let change = |mut one: [u8; INDICES]| {
            one[index] = [0, 2, 1][usize::from(one[index])];
            one
        };
        let mut got: Vec<_> = got.iter().copied().map(change).collect();
        got.sort_unstable();
        got
    };
    got.sort_unstable();
    let (one, two) = (flip(&got, 0), flip(&got, 1));
    let both = flip(&one, 1);
    [got, one, two, both].into_iter().min().expect("four names")
}

/// Searches until every state was visited, or until the first violation.
pub(crate) fn search(config: &Config, indices: usize) -> Found {
    let mut sites = Sites::new(config, indices);
    let mut seen: HashSet<u128, Fast> = HashSet::default();
    let mut found = Found::default();
    let mut judged: HashSet<[u32; CORRECT], Fast> = HashSet::default();
    let first = State::default().pack();
    seen.insert(first);
    let mut stack = vec![first];
    let mut steps = Vec::new();
    while let Some(packed) = stack.pop() {
        let state = State::unpack(packed);
        if judged.len() > 1 << 20 {
            judged.clear();
        }
        if judged.insert(state.sites) {
            judge(&sites, &state, &mut found);
        }
        steps.clear();
        moves(&mut sites, &state, indices, &mut steps);
        for next in &steps {
            let next = next.canonical(&sites.mirrors);
            if seen.insert(next) {
                stack.push(next);
            }
        }
        if found.violations > 0 || sites.disorder {
            break;
        }
    }
    found.violations += u64::from(sites.disorder);
    (found.states, found.sites) = (seen.len(), sites.all.len());
    found
}

fn judge(sites: &Sites, state: &State, found: &mut Found) {
    let three = state.sites.map(|site| &sites.all[site as usize]);
    for index in 0..INDICES {
        let mut got = three.iter().map(|site| site.got[index]).filter(|got| *got > 0);
        let first = got.next();
        found.violations += u64::from(got.any(|other| Some(other) != first));
    }
    found.quits |= three.iter().any(|site| site.quit);
    let past = |site: &&&Site| site.replay.as_ref().is_none_or(|replay| replay.head() > 0) && !site.quit;
    found.skips |= three.iter().filter(past).any(|site| site.got[0] == 0);
    found.outcomes.insert(normal(three.iter().map(|site| site.got).collect()));
}

fn moves(sites: &mut Sites, state: &State, indices: usize, next: &mut Vec<State>) {
    for process in 0..CORRECT {
        let site = state.sites[process];
        for host in 0..CORRECT {
            if let Some(index) = state.pending(host, process) {
                let mut state = *state;
                state.executed[host][process] = index + 1;
                let event = Event::Complete { host: relative(process, host), upto: index + 1 };
                state.sites[process] = sites.after(site, event);
                next.push(state);
            }
        }
        let Some(replay) = sites.all[site as usize].replay.as_ref() else { continue };
        let (from, room) = (replay.next() as u8, replay.has_room());
        let open = replay.round().map(|round| round.answered);
        if let Some(answered) = open {
            let asked = replay.hosts();
            for host in 0..CORRECT {
                let rel = relative(process, host);
                if answered.contains(id(rel)) || !asked.contains(id(rel)) {
                    continue;
                }
                let others = [1, 2].map(|rel| state.shows(host, (process + rel) % CORRECT));
                let mut state = *state;
                state.sites[process] = sites.after(site, Event::Read { host: rel, shows: others });
                next.push(state);
            }
        }
        for index in (from..indices as u8).filter(|_| room) {
            let new = state.published.iter().all(|published| published[usize::from(index)] == 0);
            for value in 1..=if new { 1 } else { 2 } {
                let taken = sites.after(site, Event::Take { index, value });
                // The value is taken right before its WRITE is executed at a host that has executed all older ones.
                for host in (0..CORRECT).filter(|host| state.pending(*host, process).is_none()) {
                    let mut state = *state;
                    state.published[process][usize::from(index)] = value;
                    state.executed[host][process] = index + 1;
                    let event = Event::Complete { host: relative(process, host), upto: index + 1 };
                    state.sites[process] = sites.after(taken, event);
                    next.push(state);
                }
            }
        }
    }
}

pub(crate) fn four(mode: FaultModel) -> Config {
    Config { window: 1, payload_bytes: 8, fast_path: false, ..Config::new(4, Mode::Quorum(mode), 1) }
}
