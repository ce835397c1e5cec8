//! Exhaustive search over every order of a few events, with the real tables and callers.

use stateright::{Checker, Model, Property};
use stentor_session::{CallerConfig, Mutant, SessionId, SessionLimits};

use crate::world::{TTL, World};

const CONFIG: CallerConfig = CallerConfig { window: 2, ttl: TTL, renewal_timeout: 0 };
const LIMITS: SessionLimits = SessionLimits { sessions: 4, ended: 4, window: 2, reply_bytes: 64, ttl: 2 * TTL };
const SESSION: SessionId = SessionId(1);

/// Number of times that each kind of event may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Budget {
    begins: u8,
    copies: u8,
    controls: u8,
    successors: u8,
    resolves: u8,
    lost: u8,
    voids: u8,
    passes: u8,
    renewals: u8,
    widenings: u8,
    ends: u8,
}

/// Configuration of a search.
struct Search {
    opened: &'static [u16],
    budget: Budget,
    mutant: Mutant,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    world: World,
    left: Budget,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Event {
    Deliver(usize),
    Void(usize),
    Answer(usize),
    Begin(usize, &'static [u16]),
    Again(usize, u64),
    Control(usize),
    Lose(usize, u64),
    Succeed,
    Resolve(usize, usize),
    Renew(usize),
    Widen(usize),
    End(usize),
    /// Enough time passes in a group for a session without a renewal to expire.
    Pass(usize),
}

impl Search {
    fn sends(left: &Budget, state: &State, events: &mut Vec<Event>) {
        let world = &state.world;
        for (at, process) in world.processes.iter().enumerate().filter(|(_, process)| process.alive) {
            if left.begins > 0 && process.caller.room() > 0 {
                events.extend([&[0_u16][..], &[0, 1]].map(|to| Event::Begin(at, to)));
            }
            for request in world.unsettled(at) {
                events.extend((left.copies > 0).then_some(Event::Again(at, request)));
                events.extend((left.lost > 0).then_some(Event::Lose(at, request)));
            }
            events.extend((left.controls > 0 && process.caller.message().is_some()).then_some(Event::Control(at)));
            if process.caller.is_open() {
                events.extend((left.renewals > 0).then_some(Event::Renew(at)));
                events.extend((left.widenings > 0).then_some(Event::Widen(at)));
                events.extend((left.ends > 0).then_some(Event::End(at)));
                let tickets = 0..if left.resolves > 0 { world.tickets.len() } else { 0 };
                events.extend(tickets.map(|ticket| Event::Resolve(at, ticket)));
            }
        }
    }

    fn take(state: &mut State, event: Event) -> Option<()> {
        let (world, left) = (&mut state.world, &mut state.left);
        match event {
            Event::Deliver(flight) => world.deliver(flight, 0, false),
            Event::Answer(answer) => world.answer(answer),
            Event::Void(flight) => {
                left.voids -= 1;
                world.void(flight);
            }
            Event::Begin(process, to) => {
                left.begins -= 1;
                world.begin(process, to)?;
            }
            Event::Again(process, request) => {
                left.copies -= 1;
                world.send_again(process, request);
            }
            Event::Control(process) => {
                left.controls -= 1;
                world.send_control(process);
            }
            Event::Lose(process, request) => {
                left.lost -= 1;
                world.lose(process, request);
            }
            Event::Succeed => {
                left.successors -= 1;
                world.succeed(SESSION, CONFIG, 100 + u64::from(left.successors));
            }
            Event::Resolve(process, ticket) => {
                left.resolves -= 1;
                world.resolve(process, ticket).then_some(())?;
            }
            Event::Renew(process) => {
                left.renewals -= 1;
                let sent = world.flights.len();
                world.renew(process, u64::from(left.renewals));
                (world.flights.len() > sent).then_some(())?;
            }
            Event::Widen(process) => {
                left.widenings -= 1;
                let (pairs, until) = (world.pairs(&[0, 1]), world.now() + TTL);
                world.processes[process].caller.widen(200, &pairs, until).ok()?;
                world.send_control(process);
            }
            Event::End(process) => {
                left.ends -= 1;
                world.processes[process].caller.end(300).ok()?;
                world.send_control(process);
            }
            Event::Pass(group) => {
                left.passes -= 1;
                let group = &mut world.groups[group];
                group.clock += TTL + TTL / 2;
                group.sessions.expire(group.clock, &mut group.machine);
            }
        }
        Some(())
    }
}

impl Model for Search {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let mut world = World::new(2, LIMITS, self.mutant);
        world.start(SESSION, CONFIG, self.opened);
        vec![State { world, left: self.budget }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        let (world, left) = (&state.world, &state.left);
        events.extend((0..world.flights.len()).map(Event::Deliver));
        events.extend((0..world.answers.len()).map(Event::Answer));
        let voids = 0..if left.voids > 0 { world.flights.len() } else { 0 };
        events.extend(voids.map(Event::Void));
        events.extend((left.successors > 0).then_some(Event::Succeed));
        events.extend((0..if left.passes > 0 { 2 } else { 0 }).map(Event::Pass));
        Search::sends(left, state, events);
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        if last.world.audit.fault.is_some() {
            return None;
        }
        let mut state = last.clone();
        Search::take(&mut state, event)?;
        let world = &mut state.world;
        world.seen.clear();
        // The order of the messages in flight is irrelevant, because the search chooses any of them next.
        world.flights.sort_unstable();
        world.answers.sort_unstable();
        world.answers.dedup();
        world.answers.retain(|answer| world.processes[answer.to].alive);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Search>> {
        let settles =
            |search: &Search, state: &State| state.world.audit.done.len() == usize::from(search.budget.begins);
        vec![
            Property::always("applied once, alike and as told", |_, state: &State| state.world.audit.fault.is_none()),
            Property::sometimes("requests are told as applied", settles),
        ]
    }
}

const RETRIES: Budget = Budget { begins: 1, copies: 2, resolves: 2, lost: 1, voids: 1, ..NONE };
const SUCCESSOR: Budget = Budget { begins: 2, successors: 1, resolves: 1, ..NONE };
const RIVALS: Budget = Budget { begins: 1, successors: 2, ..NONE };
const EXPIRES: Budget = Budget { begins: 1, copies: 1, passes: 1, renewals: 1, ..NONE };
const WIDENS: Budget = Budget { begins: 1, passes: 1, widenings: 1, successors: 1, ..NONE };
const ENDS: Budget = Budget { begins: 1, copies: 1, controls: 1, ends: 1, ..NONE };
const NONE: Budget = Budget {
    begins: 0,
    copies: 0,
    controls: 0,
    successors: 0,
    resolves: 0,
    lost: 0,
    voids: 0,
    passes: 0,
    renewals: 0,
    widenings: 0,
    ends: 0,
};

/// Searches all orders, shorter runs first. Returns a fault with the run that leads to it.
fn search(name: &str, opened: &'static [u16], budget: Budget, mutant: Mutant) -> Option<String> {
    let search = Search { opened, budget, mutant };
    let checker = search.checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    let reached = checker.discovery("requests are told as applied").is_some();
    let path = checker.discovery("applied once, alike and as told");
    assert!(path.is_some() || reached, "{name}: no run settles its requests");
    let path = path?;
    let fault = path.last_state().world.audit.fault.clone();
    Some(format!("{fault:?}: {:?}", path.into_actions()))
}

fn holds(name: &str, opened: &'static [u16], budget: Budget) {
    if let Some(fault) = search(name, opened, budget, Mutant::None) {
        panic!("{name}: {fault}");
    }
}

#[test]
fn retries_losses_and_questions_in_every_order() {
    holds("retries", &[0, 1], RETRIES);
}

#[test]
fn successor_in_every_order() {
    holds("successor", &[0, 1], SUCCESSOR);
}

#[test]
fn rivals_in_every_order() {
    holds("rivals", &[0, 1], RIVALS);
}

#[test]
fn expiry_in_every_order() {
    holds("expiry", &[0, 1], EXPIRES);
}

#[test]
fn widening_while_a_group_forgets_in_every_order() {
    holds("widening", &[0], WIDENS);
}

#[test]
fn ending_in_every_order() {
    holds("ending", &[0, 1], ENDS);
}

#[cfg(feature = "plants")]
#[test]
fn exhaustive_search_finds_mutants() {
    let hunts = [
        (Mutant::AppliesDuplicates, RETRIES),
        (Mutant::ClosesNothing, RETRIES),
        (Mutant::OneCopySpeaksForAll, EXPIRES),
        (Mutant::NumberAlone, SUCCESSOR),
        (Mutant::NoTombstone, ENDS),
    ];
    for (mutant, budget) in hunts {
        let found = search("mutant", &[0, 1], budget, mutant);
        println!("{mutant:?}: {}", found.unwrap_or_else(|| panic!("{mutant:?} is not found")));
    }
}
