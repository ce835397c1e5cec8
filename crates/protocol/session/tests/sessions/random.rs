//! Thousands of short runs, each drawn from a seed.

use std::collections::BTreeMap;

use stentor_session::{CallerConfig, Mutant, Pair, SessionId, SessionLimits, Sessions};
use stentor_testutil::{SplitMix64, number_of_environment};

use crate::world::{Answer, TTL, World, name_of};

const CONFIG: CallerConfig = CallerConfig { window: 3, ttl: TTL, renewal_timeout: 20 };
const LIMITS: SessionLimits = SessionLimits { sessions: 2, ended: 1, window: 3, reply_bytes: 64, ttl: 2 * TTL };
const SETS: [&[u16]; 7] = [&[0], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]];

/// One run. Half of all runs have resets.
struct Run {
    world: World,
    draw: SplitMix64,
    local: u64,
    sessions: u128,
    words: u64,
    resets: bool,
}

impl Run {
    fn new(seed: u64, mutant: Mutant) -> Run {
        let mut world = World::new(3, LIMITS, mutant);
        world.notifies = true;
        let draw = SplitMix64(seed);
        let mut run = Run { world, draw, local: 0, sessions: 0, words: 0, resets: seed.is_multiple_of(2) };
        run.open();
        run
    }

    fn open(&mut self) {
        self.sessions += 1;
        let groups = SETS[self.draw.index(SETS.len())];
        self.world.start(SessionId(self.sessions << 70 | self.sessions), CONFIG, groups);
    }

    fn process(&mut self) -> Option<usize> {
        let alive: Vec<usize> = (0..self.world.processes.len()).filter(|at| self.world.processes[*at].alive).collect();
        // The newest processes are the most interesting ones.
        let recent = &alive[alive.len().saturating_sub(3)..];
        (!recent.is_empty()).then(|| recent[self.draw.index(recent.len())])
    }

    fn step(&mut self) {
        self.local += self.draw.below(4);
        let Some(process) = self.process() else { return self.start_another() };
        match self.draw.below(100) {
            0..22 => self.deliver(),
            22..46 => self.answer(),
            46..60 => {
                let to = SETS[self.draw.index(SETS.len())];
                self.world.begin(process, to);
            }
            60..67 => self.touch(process),
            67..71 => self.world.send_control(process),
            71..77 => self.world.renew(process, self.local),
            77..81 => self.resolve(process),
            81..84 => self.succeed(process),
            84..87 => self.widen(process),
            87..89 => self.start_another(),
            89..91 => self.pass_time(),
            91..93 => self.lose_something(),
            93 => self.end(process),
            94 => self.snapshot(),
            95 if self.resets => {
                let group = self.draw.below(3) as u16;
                self.world.reset(group, LIMITS);
                self.world.count("reset");
            }
            _ => {}
        }
    }

    fn deliver(&mut self) {
        if !self.world.flights.is_empty() {
            let flight = self.draw.index(self.world.flights.len());
            let later = if self.draw.one_in(4) { self.draw.below(30) } else { 0 };
            let skips = self.draw.one_in(60);
            self.world.deliver(flight, later, skips);
        }
    }

    fn answer(&mut self) {
        if !self.world.answers.is_empty() {
            let answer = self.draw.index(self.world.answers.len());
            self.world.answer(answer);
        }
    }

    /// Sends a request once more, or gives it up.
    fn touch(&mut self, process: usize) {
        let unsettled = self.world.unsettled(process);
        if unsettled.is_empty() {
            return;
        }
        let request = unsettled[self.draw.index(unsettled.len())];
        match self.draw.below(3) {
            0 => self.world.lose(process, request),
            _ => self.world.send_again(process, request),
        }
    }

    fn resolve(&mut self, process: usize) {
        let session = self.world.processes[process].caller.id();
        let own = |at: &usize| self.world.tickets[*at].session == session;
        let tickets: Vec<usize> = (0..self.world.tickets.len()).filter(own).collect();
        if !tickets.is_empty() {
            let ticket = tickets[self.draw.index(tickets.len())];
            self.world.resolve(process, ticket);
        }
    }

    /// Lets another process take the session up. The earlier one crashes, or does not know of it yet.
    fn succeed(&mut self, process: usize) {
        if self.draw.one_in(2) {
            self.world.processes[process].alive = false;
        }
        let session = self.world.processes[process].caller.id();
        self.words += 1;
        self.world.succeed(session, CONFIG, self.words);
    }

    fn widen(&mut self, process: usize) {
        let pairs = self.world.pairs(SETS[self.draw.index(SETS.len())]);
        self.words += 1;
        let until = self.world.now() + TTL;
        if self.world.processes[process].caller.widen(self.words, &pairs, until).is_ok() {
            self.world.note_key(process);
            self.world.send_control(process);
        }
    }

    fn start_another(&mut self) {
        let keys: Vec<SessionId> = self.world.keys.keys().copied().collect();
        if self.draw.one_in(3) || keys.is_empty() {
            return self.open();
        }
        self.words += 1;
        let session = keys[self.draw.index(keys.len())];
        self.world.succeed(session, CONFIG, self.words);
    }

    fn pass_time(&mut self) {
        let by = self.draw.below(TTL);
        let group = self.draw.index(3);
        let group = &mut self.world.groups[group];
        group.clock += by;
        group.sessions.expire(group.clock, &mut group.machine);
    }

    fn lose_something(&mut self) {
        if !self.world.flights.is_empty() && self.draw.one_in(2) {
            let flight = self.draw.index(self.world.flights.len());
            self.world.void(flight);
        } else if !self.world.answers.is_empty() {
            let answer = self.draw.index(self.world.answers.len());
            self.world.answers.swap_remove(answer);
        }
    }

    fn end(&mut self, process: usize) {
        self.words += 1;
        if self.world.processes[process].caller.end(self.words).is_ok() {
            self.world.send_control(process);
        }
    }

    /// Writes a group's snapshot and reads it again.
    fn snapshot(&mut self) {
        let group = self.draw.index(3);
        let group = &mut self.world.groups[group];
        let mut bytes = Vec::new();
        group.sessions.write(&mut bytes);
        let read = Sessions::read(group.sessions.group(), LIMITS, &bytes).expect("the snapshot is complete").0;
        if read != group.sessions {
            self.world.audit.fail("a snapshot holds another table".into());
        }
        let mut again = Vec::new();
        read.write(&mut again);
        if again != bytes {
            self.world.audit.fail("a table that was read is written differently".into());
        }
        let mutant = self.world.mutant;
        group.sessions = read.with_mutant(mutant);
    }

    /// Delivers all messages and answers. Then each open caller resolves the remaining requests, after which its window
    /// must be free.
    fn finish(&mut self) {
        self.drain();
        for process in 0..self.world.processes.len() {
            let tickets: Vec<usize> = (0..self.world.tickets.len()).collect();
            for ticket in tickets {
                let (session, generation, request) = name_of(&self.world.tickets[ticket]);
                let caller = &self.world.processes[process].caller;
                let own = session == caller.id() && generation == caller.generation();
                if own && caller.ticket(request).is_some() && self.world.processes[process].alive {
                    self.world.resolve(process, ticket);
                }
            }
        }
        self.drain();
        for at in 0..self.world.processes.len() {
            let process = &self.world.processes[at];
            if process.alive && process.caller.is_open() && process.caller.room() != CONFIG.window {
                let left = self.world.unsettled(at);
                self.world.audit.fail(format!("process {at} cannot settle {left:?}"));
            }
        }
        self.repeat_after_reconnecting();
    }

    /// Lets each group send to each process what it would send after a new connection.
    fn repeat_after_reconnecting(&mut self) {
        for (at, group) in (0..self.world.processes.len()).flat_map(|at| (0..3).map(move |group| (at, group))) {
            let World { processes, groups, answers, audit, .. } = &mut self.world;
            let (caller, group) = (&processes[at].caller, &mut groups[group]);
            let (of, session, generation) = (group.sessions.group(), caller.id(), caller.generation());
            group.sessions.replies_of(at as u16, |record| {
                answers.push(Answer { to: at, group: of, record: record.to_vec() });
            });
            let uses = caller.key().pairs.contains(&Pair { group: of, incarnation: group.incarnation });
            let is_open = caller.is_open() && caller.end_in(of).is_some() && processes[at].alive;
            let is_own = group.sessions.generation_of(session) == Some(generation);
            let since = audit.since.get(&(session, of.0)).copied().unwrap_or_default();
            let name = (session, generation, of.0, group.incarnation, since);
            self.drain();
            if uses && is_open && is_own {
                self.world.audit.has_heard_all(at, name);
            }
        }
    }

    fn drain(&mut self) {
        while !(self.world.flights.is_empty() && self.world.answers.is_empty()) {
            self.deliver();
            self.answer();
        }
    }
}

/// Runs a seed. Returns its fault, if it has one, and adds up the counts.
fn run(seed: u64, mutant: Mutant, seen: &mut BTreeMap<&'static str, u64>) -> Option<String> {
    let mut run = Run::new(seed, mutant);
    for _ in 0..150 {
        run.step();
        if run.world.audit.fault.is_some() {
            break;
        }
    }
    run.finish();
    for (what, count) in &run.world.seen {
        *seen.entry(what).or_default() += count;
    }
    run.world.audit.fault
}

/// Events, each of which at least one of 20,000 runs must reach.
const RARE: &[&str] = &[
    "accepted",
    "closed",
    "closes",
    "dropped",
    "duplicate",
    "forgotten",
    "generation ahead",
    "missed a notification",
    "notified",
    "opening refused",
    "predates",
    "reset",
    "resolved as applied",
    "resolved as closed",
    "session not open",
    "skips",
    "superseded",
    "table full",
    "taken",
    "taken up",
    "told applied",
    "told forgotten",
    "told not applied",
    "told reset",
    "told session ended",
    "told superseded",
    "too late",
    "took up",
    "took up not everywhere",
    "uses more",
    "widened",
    "wrong pairs",
];

#[test]
fn drawn_runs_apply_each_request_once_and_report_true_fates() {
    let seeds = number_of_environment("STENTOR_SESSION_SEEDS", 20_000);
    let first = number_of_environment("STENTOR_SESSION_SEED", 0);
    let mut seen = BTreeMap::new();
    for seed in first..first + seeds {
        if let Some(fault) = run(seed, Mutant::None, &mut seen) {
            panic!("{fault}\nREPRODUCE WITH STENTOR_SESSION_SEED={seed} STENTOR_SESSION_SEEDS=1");
        }
    }
    println!("{seen:#?}");
    let missing: Vec<_> = RARE.iter().filter(|what| seeds >= 20_000 && !seen.contains_key(*what)).collect();
    assert!(missing.is_empty(), "no run reached {missing:?}: {seen:#?}");
}

#[cfg(feature = "plants")]
#[test]
fn drawn_runs_find_each_mutant() {
    // These mutants need situations that drawn runs do not look for; `script.rs` and `ends.rs` find them.
    let scripted = [
        Mutant::ForgetsOnTakeUp,
        Mutant::PairsUnchecked,
        Mutant::OpensLate,
        Mutant::RenewsAnother,
        Mutant::OpensAnew,
        Mutant::EndsAtItsEnd,
        Mutant::NeverExpires,
        Mutant::EndsAfterApply,
    ];
    // Drawn runs set no timers. Tests in `src/timers.rs` find these.
    let of_timers =
        [Mutant::FiresEarly, Mutant::FiresById, Mutant::FiresTwice, Mutant::FiredKept, Mutant::TimersLeftOut];
    let scripted = [&scripted[..], &of_timers].concat();
    let mut missed = Vec::new();
    for &mutant in Mutant::ALL.iter().filter(|mutant| !scripted.contains(mutant)) {
        let found = (0..20_000).find_map(|seed| Some((seed, run(seed, mutant, &mut BTreeMap::new())?)));
        match found {
            Some((seed, fault)) => println!("{mutant:?}: seed {seed}: {fault}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
