//! Simulated NICs, with completions in any order.

use stentor_channel::{
    Cause, Config, ConfigError, Endpoint, EndpointConfig, EndpointError, OpenError, Scheme, WriteError,
};
use stentor_fabric::{ProcessId, Purpose};
use stentor_fabric_conformance::{FaultInjector, Faults};
use stentor_fabric_sim::{Actor, NetworkModel, SimConfig, SimFabric, World};

use crate::bed::{OTHER, Process, small};

pub(crate) type Disordered = Process<FaultInjector<SimFabric>>;

impl Actor for Disordered {
    fn step(&mut self, _: u64) -> bool {
        let worked = Process::step(self);
        let wait = std::time::Duration::from_micros(20);
        worked | (self.endpoint.fabric_mut().wait_for(wait))
    }
}

trait WaitFor {
    fn wait_for(&mut self, time: std::time::Duration) -> bool;
}

impl<F: stentor_fabric::Fabric> WaitFor for F {
    fn wait_for(&mut self, time: std::time::Duration) -> bool {
        self.wait(time) == Ok(stentor_fabric::Wake::Notified)
    }
}

fn world(seed: u64, scheme: Scheme) -> World {
    let model = NetworkModel { tagged: scheme != Scheme::Counted, ..NetworkModel::adversarial() };
    World::new(SimConfig::new(2, seed, model))
}

pub(crate) fn processes(
    world: &World,
    config: EndpointConfig,
    disorders: Faults,
    lengths: &[usize],
) -> Vec<Option<Disordered>> {
    let make = |me| Process::new(FaultInjector::new(world.fabric(ProcessId(me)), disorders), config, lengths);
    vec![Some(make(0)), Some(make(1))]
}

pub(crate) const LENGTHS: [usize; 12] = [0, 1, 8, 64, 65, 256, 257, 1000, 5, 0, 2000, 7];

/// The call fails at once. The peer has not opened its end, so no part could be sent in any case.
#[test]
fn message_with_another_length_than_begun_is_refused() {
    let world = world(1, Scheme::Eager);
    let mut end = Endpoint::new(world.fabric(ProcessId(0)), small(Scheme::Eager), &[ProcessId(1)]).unwrap();
    let handle = end.open(ProcessId(1), 0).unwrap();
    assert_eq!(end.begin(handle, 100), Ok(0));
    let refused = Err(WriteError::OtherLength { begun: 100, given: 99 });
    assert_eq!((end.hand_over(handle, &[7; 99]), end.detach(handle, &[7; 99])), (refused, refused));
    assert_eq!(end.hand_over(handle, &[7; 100]), Ok(false));
}

/// A process that reads after an idle step, and then waits without another step, would leave the peer without credits.
#[test]
fn read_makes_a_connection_due_until_the_next_step() {
    for scheme in Scheme::ALL {
        let world = world(1, scheme);
        let mut config = small(scheme);
        (config.channel.lengths, config.channel.pieces) = (1, 1);
        let mut ends =
            [0, 1].map(|me| Endpoint::new(world.fabric(ProcessId(me)), config, &[OTHER[me as usize]]).unwrap());
        let handles = [0, 1].map(|me: usize| ends[me].open(OTHER[me], 0).unwrap());
        let settle = |ends: &mut [Endpoint<SimFabric>; 2]| {
            let mut quiet = 0;
            while quiet < 1000 {
                world.advance(300);
                let worked = ends.iter_mut().fold(false, |worked, end| worked | end.housekeep() | end.step());
                quiet = if worked { 0 } else { quiet + 1 };
            }
        };
        settle(&mut ends);
        let (mut read, mut sent) = (0, 0);
        for _ in 0..100 {
            if ends[0].left(handles[0]).is_none() {
                ends[0].begin(handles[0], 300).unwrap();
            }
            sent += u32::from(ends[0].hand_over(handles[0], &[7; 300]).unwrap());
            settle(&mut ends);
            let mut message = Vec::new();
            assert!(!ends[1].step() && !ends[1].is_due());
            let before = ends[1].incoming(handles[1]);
            read += u32::from(ends[1].read(handles[1], &mut message));
            let some = !message.is_empty();
            assert!(before.is_some() || !some);
            assert_eq!(ends[1].is_due(), some, "{scheme:?}");
            assert_eq!((ends[1].step(), ends[1].is_due()), (some, false), "{scheme:?}");
        }
        assert!(sent >= 20 && read >= 20, "{scheme:?}: {sent} sent, {read} read");
    }
}

#[test]
fn messages_of_all_lengths_in_every_scheme() {
    for scheme in Scheme::ALL {
        for seed in 0..30 {
            let world = world(seed, scheme);
            let arrivals = seed % 2 == 1;
            let disorders = Faults { arrivals, ..Faults::completions(seed) };
            let mut actors = processes(&world, small(scheme), disorders, &LENGTHS);
            let mut done = [false; 2];
            let finished = world.run(&mut actors, 100_000_000, |who, process| {
                done[who.index()] = process.is_done();
                done == [true; 2]
            });
            assert!(finished, "{scheme:?}, seed {seed}: the run has not ended after {} ns", world.now_ns());
            actors.iter().flatten().for_each(Process::assert_ok);
            let overtaken: u64 = actors.iter().flatten().map(|process| process.endpoint.fabric().overtaken()).sum();
            assert!(overtaken > 0, "no completion overtook another one");
        }
    }
}

/// Kills one process at a time that depends on the seed. The other process fails with an error that names the killed
/// one, and drains.
#[test]
fn a_peer_that_is_killed() {
    for scheme in Scheme::ALL {
        for seed in 0..20 {
            let world = world(seed, scheme);
            let disorders = match seed % 2 {
                0 => Faults::completions(seed),
                _ => Faults::efa(seed, 100, scheme != Scheme::Counted),
            };
            let mut actors = processes(&world, small(scheme), disorders, &LENGTHS);
            let mut steps = 0;
            world.run(&mut actors, 100_000_000, |_, _| {
                steps += 1;
                steps > 60 + seed * 5
            });
            world.crash(ProcessId(1));
            actors[1] = None;
            let finished = world.run(&mut actors, 200_000_000, |_, process| process.is_done());
            assert!(finished, "{scheme:?}, seed {seed}");
            let process = actors[0].as_ref().expect("the process is alive");
            for talk in process.talks.iter().filter(|talk| talk.failed.is_some()) {
                let error = talk.failed.expect("the connection failed");
                assert_eq!(error.peer, OTHER[0]);
                assert!(matches!(error.cause, Cause::Fabric(_) | Cause::Broken), "{error}");
                assert!(!process.endpoint.is_alive(talk.handle));
            }
            assert!(
                process.talks.iter().any(|talk| talk.failed.is_some()),
                "the process was killed after all connections had closed"
            );
        }
    }
}

#[test]
fn impossible_configurations_are_refused_by_name() {
    let world = world(1, Scheme::Counted);
    let peers = [ProcessId(1)];
    let make = |config| Endpoint::new(world.fabric(ProcessId(0)), config, &peers).map(|_| ()).unwrap_err();
    let no_tags = make(small(Scheme::Eager));
    assert!(matches!(no_tags, EndpointError::Config(ConfigError::NoTags { scheme: "eager", fabric: "sim" })));
    let many = EndpointConfig { connections: 4000, ..small(Scheme::Counted) };
    assert!(make(many).to_string().contains("receives posted at a time"), "{}", make(many));
    let late = EndpointConfig { first_purpose: Purpose(u16::MAX - 2), ..small(Scheme::Counted) };
    assert!(make(late).to_string().contains("the last purpose: 65536 requested"), "{}", make(late));
    let bad =
        EndpointConfig { channel: Config { pieces: 0, ..small(Scheme::Counted).channel }, ..small(Scheme::Counted) };
    assert!(make(bad).to_string().contains("pieces in flight is 0"));

    let mut endpoint = Endpoint::new(world.fabric(ProcessId(0)), small(Scheme::Counted), &peers).unwrap();
    assert_eq!(endpoint.open(ProcessId(5), 0), Err(OpenError::UnknownPeer(ProcessId(5))));
    assert_eq!(endpoint.open(ProcessId(1), 3), Err(OpenError::Number { number: 3, limit: 3 }));
    let handle = endpoint.open(ProcessId(1), 0).unwrap();
    assert_eq!(endpoint.open(ProcessId(1), 0), Err(OpenError::InUse { number: 0, peer: ProcessId(1) }));
    endpoint.abort(handle);
    assert!(!endpoint.is_alive(handle), "no hello was sent, and no operation is outstanding");
    assert_eq!(endpoint.open(ProcessId(1), 0), Err(OpenError::Spent { number: 0, peer: ProcessId(1) }));
}
