//! Larger clusters, at random.
//!
//! Every run draws the speed of each channel, so that some are slow for a whole run. It uses the real senders with
//! their windows: a client multicasts when it has room, and credits arrive at random times.

use std::collections::VecDeque;

use stentor_multicast::{ClientId, GroupId, Mutant, Replica, Sender, Variant};
use stentor_testutil::SplitMix64;

use super::network::{Network, take};
use super::say;
use super::scenario::{Scenario, encode_body};
use super::store::note;
use super::verdict::{COMPLETE, Entry, Flaws, REAL_TIME_PATH, judge, names};

/// The possible next steps.
#[derive(Clone, Copy)]
enum Move {
    Submit { client: usize },
    Credit { client: usize, group: u16, member: usize, freed: u64 },
    Take { wire: usize },
}

struct Run {
    scenario: Scenario,
    network: Network,
    destined: Vec<u32>,
    replicas: Vec<Replica>,
    senders: Vec<Sender>,
    /// Messages of each client that are not multicast yet, indexed by client.
    waiting: Vec<VecDeque<usize>>,
    queues: Vec<VecDeque<Vec<u64>>>,
    /// Indexed by client and member: the slots that were credited to the client.
    credited: Vec<Vec<u64>>,
    logs: Vec<Vec<Entry>>,
    submitted: u32,
    earlier: Vec<u32>,
    random: SplitMix64,
    speeds: Vec<u64>,
    steps: u64,
}

impl Run {
    fn new(sizes: &[usize], variant: Variant, mutant: Mutant, seed: u64) -> Self {
        let mut random = SplitMix64(seed);
        let scenario = draw(sizes, variant, mutant, &mut random);
        let topology = scenario.topology();
        let network = Network::new(&topology);
        let clients = topology.clients();
        let of_client = |client: usize| {
            let messages = scenario.messages.iter().enumerate();
            messages.filter(|(_, m)| usize::from(m.client) == client).map(|(index, _)| index).collect()
        };
        Run {
            destined: scenario.destined(&topology),
            replicas: scenario.replicas(&topology),
            senders: scenario.senders(&topology),
            waiting: (0..clients).map(of_client).collect(),
            queues: vec![VecDeque::new(); network.wires.len()],
            credited: vec![vec![0; topology.all_members()]; clients],
            logs: vec![Vec::new(); topology.all_members()],
            submitted: 0,
            earlier: vec![0; scenario.messages.len()],
            speeds: (0..network.wires.len() + clients).map(|_| [1, 8, 64][random.below(3) as usize]).collect(),
            random,
            steps: 0,
            network,
            scenario,
        }
    }

    /// Runs until nothing more can happen, or a property is violated.
    fn run(&mut self) -> Flaws {
        loop {
            let Some(next) = self.draw_move() else { return self.end() };
            self.steps += 1;
            let flaws = match next {
                Move::Submit { client } => self.submit(client),
                Move::Credit { client, group, member, freed } => self.credit(client, group, member, freed),
                Move::Take { wire } => self.take(wire),
            };
            if flaws != 0 {
                return flaws;
            }
        }
    }

    /// Draws channels until one has a step. The head of a stream that waits for its body has none.
    fn draw_move(&mut self) -> Option<Move> {
        let mut moves = self.moves();
        while !moves.is_empty() {
            let mut at = self.random.below(moves.iter().map(|(_, speed)| speed).sum());
            let drawn = moves.iter().position(|(_, speed)| {
                let here = at < *speed;
                at = at.saturating_sub(*speed);
                here
            })?;
            let (next, _) = moves.swap_remove(drawn);
            match next {
                Move::Take { wire } if self.waits(wire) => {}
                _ => return Some(next),
            }
        }
        None
    }

    fn moves(&self) -> Vec<(Move, u64)> {
        let filled = self.queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty());
        let mut moves: Vec<(Move, u64)> = filled.map(|(wire, _)| (Move::Take { wire }, self.speeds[wire])).collect();
        for client in 0..self.senders.len() {
            let speed = self.speeds[self.queues.len() + client];
            if self.waiting[client].front().is_some_and(|index| self.has_room(client, *index)) {
                moves.push((Move::Submit { client }, speed));
            }
            for group in self.network.topology.group_ids() {
                for (member, process) in self.network.topology.members(group).enumerate() {
                    let freed = self.replicas[process.index()].first_held(ClientId(client as u16));
                    if freed > self.credited[client][process.index()] {
                        moves.push((Move::Credit { client, group: group.0, member, freed }, speed));
                    }
                }
            }
        }
        moves
    }

    fn has_room(&self, client: usize, index: usize) -> bool {
        let to: Vec<GroupId> = self.scenario.messages[index].to.iter().map(|group| GroupId(*group)).collect();
        self.senders[client].check(&to).is_ok()
    }

    /// Returns whether the head of a stream waits. Runs the step on a copy.
    fn waits(&self, wire: usize) -> bool {
        let name = self.network.wires[wire];
        let Some(words) = self.queues[wire].front() else { return true };
        take(&self.network, &mut self.replicas[name.receiver()].clone(), name, words).is_none()
    }

    fn submit(&mut self, client: usize) -> Flaws {
        let Some(index) = self.waiting[client].pop_front() else { return 0 };
        self.submitted |= 1 << index;
        self.earlier[index] = self.logs.iter().flatten().fold(0, |earlier, (message, _)| earlier | 1 << message);
        let message = &self.scenario.messages[index];
        let words = encode_body(&mut self.senders[client], message);
        for wire in self.network.body_wires(message.client, &message.to) {
            self.queues[wire].push_back(words.clone());
        }
        0
    }

    fn credit(&mut self, client: usize, group: u16, member: usize, freed: u64) -> Flaws {
        self.senders[client].on_freed(GroupId(group), member, freed);
        let process = self.network.topology.members(GroupId(group)).nth(member).map_or(0, |process| process.index());
        self.credited[client][process] = freed;
        0
    }

    fn take(&mut self, wire: usize) -> Flaws {
        let name = self.network.wires[wire];
        let Some(words) = self.queues[wire].pop_front() else { return 0 };
        let Some(step) = take(&self.network, &mut self.replicas[name.receiver()], name, &words) else { return 0 };
        let flaws = note(&self.scenario, &self.network, &mut self.logs[name.receiver()], &step);
        let delivered = !step.deliveries.is_empty();
        for (to, words) in step.sends {
            self.queues[to].push_back(words);
        }
        if !delivered {
            return flaws;
        }
        let logs: Vec<&[Entry]> = self.logs.iter().map(Vec::as_slice).collect();
        let judged = judge(&self.scenario, &self.destined, &logs, self.submitted, &self.earlier);
        let promised = if self.scenario.sizes.len() > 2 { !REAL_TIME_PATH.0 } else { !0 };
        flaws | judged & promised
    }

    fn end(&self) -> Flaws {
        let quiet = self.queues.iter().all(VecDeque::is_empty) && self.waiting.iter().all(VecDeque::is_empty);
        let all = self.logs.iter().zip(&self.destined).all(|(log, to)| log.len() == to.count_ones() as usize);
        if quiet && all { 0 } else { COMPLETE.0 }
    }
}

/// Draws up to twelve messages of three clients to any destination sets.
fn draw(sizes: &[usize], variant: Variant, mutant: Mutant, random: &mut SplitMix64) -> Scenario {
    let groups = sizes.len() as u64;
    let messages: Vec<(u16, Vec<u16>)> = (0..4 + random.below(9))
        .map(|_| {
            let set = 1 + random.below((1 << groups) - 1);
            let to = (0..groups as u16).filter(|group| set >> group & 1 == 1).collect();
            (random.below(3) as u16, to)
        })
        .collect();
    let messages: Vec<(u16, &[u16])> = messages.iter().map(|(client, to)| (*client, to.as_slice())).collect();
    let window = [1, 2, 4][random.below(3) as usize];
    let mut scenario = Scenario::new(sizes, &messages).window(window);
    scenario.variant = variant;
    scenario.mutant = mutant;
    scenario
}

const CLUSTERS: [&[usize]; 6] = [&[3], &[3, 3], &[2, 3], &[1, 5], &[3, 3, 3], &[1, 1, 1, 1]];

/// Runs every cluster with one variant until `steps` are done.
fn walk(variant: Variant, steps: u64) {
    for sizes in CLUSTERS {
        let (mut done, mut runs) = (0, 0_u64);
        while done < steps {
            let mut run = Run::new(sizes, variant, Mutant::None, runs);
            let flaws = run.run();
            assert_eq!(flaws, 0, "{sizes:?} {variant:?} seed {runs}: {:?}; {:?}", names(flaws), run.logs);
            (done, runs) = (done + run.steps, runs + 1);
        }
        say(&format!("walk {sizes:?} {variant:?}: {runs} runs, {done} steps"));
    }
}

#[test]
fn random_walks_of_v2() {
    walk(Variant::V2, 100_000);
}

#[test]
fn random_walks_of_v1() {
    walk(Variant::V1, 30_000);
}

/// Finds these mutants. Some of them need more than two messages or a window that wraps.
#[cfg(feature = "plants")]
#[test]
fn random_walks_find_mutants() {
    use super::verdict::{ACCEPTED, ACYCLIC, GENUINE, INTEGRITY, PREFIX, TIMESTAMPS};
    let order = PREFIX.0 | ACYCLIC.0 | TIMESTAMPS.0;
    let expected = [
        (Mutant::NoDensity, PREFIX.0),
        (Mutant::NoClockRaise, PREFIX.0),
        (Mutant::ClockAfterEntry, PREFIX.0),
        (Mutant::TiesByArrival, PREFIX.0),
        (Mutant::TentativeIgnored, PREFIX.0),
        (Mutant::SlotsFreedByOne, ACCEPTED.0),
        (Mutant::NotGenuine, GENUINE.0),
        (Mutant::AckWithoutIdentity, order | INTEGRITY.0 | COMPLETE.0),
        (Mutant::IdByHash, order | INTEGRITY.0 | COMPLETE.0),
    ];
    for (mutant, expected) in expected {
        let mut runs = (0..1000).flat_map(|seed| [(&[3, 3][..], seed), (&[1, 5], seed), (&[3, 3, 3], seed)]);
        let found = runs.find_map(|(sizes, seed)| {
            let flaws = Run::new(sizes, Variant::V2, mutant, seed).run();
            (flaws & expected != 0).then_some((sizes, seed, flaws))
        });
        let Some((sizes, seed, flaws)) = found else { panic!("{mutant:?} is not found as {:?}", names(expected)) };
        say(&format!("walk {mutant:?}: found in {sizes:?} with seed {seed}: {:?}", names(flaws)));
    }
}
