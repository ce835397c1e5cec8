//! Tests with invalid input: the receivers ignore it, or refuse it with a named reason and no longer trust the process
//! that sent it. They continue with all others.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Actor, NetworkModel, SimConfig, World};
use stentor_neb::{Authority, BroadcastError, Config, FaultModel, Liar, Lies, Mode, Node, ProcessSet};

use crate::bed::{Process, SALT, Told, authority, payload, process};

const EACH: u64 = 20;
const BYTES: usize = 12;
/// The process that sends the invalid input.
const BAD: u16 = 3;
/// One in this many indices of a liar is invalid.
const EVERY: u64 = 4;

/// Returns a configuration of four processes, of which one may lie. A payload that is longer than agreed still fits
/// into a slot.
fn four(signed: bool) -> Config {
    let config = Config::new(4, Mode::Quorum(FaultModel::LyingHosts), 1);
    // A process that refuses everything frees nothing, so the others must time out soon.
    Config { window: 8, payload_bytes: 24, signed, patience_ns: 500_000, ..config }
}

enum Either {
    Correct(Box<Process>),
    Liar(Box<Liar<stentor_fabric_sim::SimFabric>>, World, u64),
}

impl Actor for Either {
    fn step(&mut self, now_ns: u64) -> bool {
        match self {
            Either::Correct(process) => process.step(now_ns),
            Either::Liar(liar, world, state) => {
                world.wake_at(liar.node().me(), now_ns + 1_500);
                let chance = || {
                    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    *state >> 24
                };
                liar.step(chance, &mut |_| {});
                false
            }
        }
    }
}

/// Runs three correct processes with the process that `bad` creates. Returns the notices of the three.
fn beside(config: &Config, seed: u64, bad: impl FnOnce(&World) -> Either) -> Vec<Vec<Told>> {
    let world = World::new(SimConfig::new(config.processes, seed, NetworkModel::adversarial()));
    let correct = |me| Some(Either::Correct(Box::new(process(&world, config, me, EACH, BYTES))));
    let mut actors: Vec<_> = (0..BAD).map(correct).collect();
    actors.push(Some(bad(&world)));
    world.run(&mut actors, 20_000_000, |_, _| false);
    let told = |actor| match actor {
        Either::Correct(process) => Some(process.told.into_iter().map(|(_, told)| told).collect()),
        Either::Liar(..) => None,
    };
    actors.into_iter().take(usize::from(BAD)).flatten().filter_map(told).collect()
}

/// Creates a process that differs from the others only in these arguments.
fn strange(world: &World, config: Config, salt: u64, authority: Option<Authority>) -> Either {
    let node = Node::new(world.fabric(ProcessId(BAD)), config, salt, authority).unwrap();
    let bytes = config.payload_bytes;
    let world = world.clone();
    Either::Correct(Box::new(Process {
        node,
        begun: false,
        told: vec![],
        left: EACH,
        sent: 0,
        sent_at: vec![],
        world,
        bytes,
    }))
}

fn liar(world: &World, config: Config, lies: Lies, seed: u64) -> Either {
    let fabric = world.fabric(ProcessId(BAD));

    let liar = Liar::new(fabric, config, SALT, authority(&config, BAD), lies, EACH, ProcessSet::EMPTY).unwrap();
    Either::Liar(Box::new(liar.equivocating_every(EVERY)), world.clone(), seed)
}

/// Checks that the three correct processes delivered all broadcasts of each other, and no index of the bad process at
/// or after `from`. Returns their reasons for refusing the bad process.
fn unharmed(told: &[Vec<Told>], from: u64) -> Vec<String> {
    for (me, told) in told.iter().enumerate() {
        for sender in 0..BAD {
            let got = told.iter().filter_map(|told| match told {
                Told::Deliver(from, index, key, bytes) if *from == sender => Some((*index, *key, bytes.clone())),
                _ => None,
            });
            let expected: Vec<_> = (0..EACH).map(|n| (n, 1000 + n, payload(sender, n, BYTES))).collect();
            assert_eq!(got.collect::<Vec<_>>(), expected, "p{me} of p{sender}");
        }
        let wrong = |told: &&Told| match told {
            Told::Deliver(BAD, index, ..) => *index >= from,
            Told::Refused(sender, _) | Told::Skip(sender, _) | Told::Equivocation(sender, ..) => *sender != BAD,
            Told::Removed(..) => true,
            Told::Deliver(..) => false,
        };
        assert_eq!(told.iter().find(wrong), None, "p{me}");
    }
    let refused = |told: &Told| match told {
        Told::Refused(BAD, why) => Some(why.clone()),
        _ => None,
    };
    told.iter().flatten().filter_map(refused).collect()
}

#[test]
fn too_long_payload_is_refused_and_uses_no_index() {
    let config = four(false);
    let world = World::new(SimConfig::new(config.processes, 1, NetworkModel::adversarial()));
    let mut node = Node::new(world.fabric(ProcessId(0)), config, SALT, None).unwrap();
    let refused = node.broadcast(0, 0, &[0; 25]).unwrap_err();
    assert_eq!(refused, BroadcastError::TooLong { bytes: 25, limit: 24 });
    assert_eq!(refused.to_string(), "a payload of 25 bytes: at most 24 are agreed on (`payload_bytes`)");
    assert_eq!(node.broadcast(0, 0, &[0; 24]), Ok(0));
}

#[test]
fn too_long_sealed_value_ends_its_senders_stream() {
    for (seed, signed) in [(1, false), (2, false), (3, true)] {
        let config = four(signed);
        let lies = Lies { too_long: true, ..Lies::default() };
        let refused = unharmed(&beside(&config, seed, |world| liar(world, config, lies, seed)), EVERY - 1);
        let bytes = if signed { 120 } else { 56 };
        let why = format!("a value of {bytes} bytes whose header states a payload of 25; at most 24 are agreed on");
        assert_eq!(refused, vec![why; 3]);
    }
}

#[test]
fn sender_with_a_larger_payload_limit_is_refused() {
    let config = four(false);
    let generous = Config { payload_bytes: 32, ..config };
    let refused = unharmed(&beside(&config, 1, |world| strange(world, generous, SALT, None)), 0);
    assert_eq!(refused, ["a value of 56 bytes whose header states a payload of 32; at most 24 are agreed on"; 3]);
}

#[test]
fn omitted_index_is_reported_or_blocks_its_stream() {
    let mut told_of = 0;
    for seed in 0..8 {
        let config = four(seed % 2 == 1);
        let lies = Lies { gap: true, ..Lies::default() };
        let refused = unharmed(&beside(&config, seed, |world| liar(world, config, lies, seed + 1)), EVERY - 1);
        assert!(refused.iter().all(|why| why == "index gap: index 4 lies where 3 belongs"), "{refused:?}");
        told_of += refused.len();
    }
    // About half of the omissions are permanent, which cannot be distinguished from a slow sender, so they are not
    // reported.
    assert!((4..=20).contains(&told_of), "{told_of} of 24");
}

#[test]
fn signatures_with_another_key_or_for_another_cluster_are_refused() {
    let config = four(true);
    let secret = |n: u16| [n as u8 + 1; 32];
    let public: Vec<_> = (0..4).map(|n| Authority::public_of(&secret(n))).collect();
    let cluster = Authority::new(SALT + 1, ProcessId(BAD), &secret(BAD), &public).unwrap();
    let mut others = public;
    others[usize::from(BAD)] = Authority::public_of(&[99; 32]);
    let key = Authority::new(SALT, ProcessId(BAD), &[99; 32], &others).unwrap();
    for authority in [cluster, key] {
        let refused = unharmed(&beside(&config, 1, |world| strange(world, config, SALT, Some(authority))), 0);
        assert_eq!(refused, ["the signature of index 0 is not p3's: another key or another cluster"; 3]);
    }
}

#[test]
fn records_of_another_cluster_are_ignored() {
    for signed in [false, true] {
        let config = four(signed);
        let strange = |world: &World| strange(world, config, SALT + 1, authority(&config, BAD));
        assert_eq!(unharmed(&beside(&config, 1, strange), 0), [""; 0]);
    }
}

#[test]
fn old_value_with_a_later_lap_causes_no_skip() {
    for seed in 0..8 {
        let config = Config { fast_path: false, ..four(true) };
        let lies = Lies { later_laps: true, ..Lies::default() };
        let refused = unharmed(&beside(&config, seed, |world| liar(world, config, lies, seed)), EACH);
        assert_eq!(refused, [""; 0]);
    }
}
