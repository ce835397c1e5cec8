//! Runs with EFA's restrictions: unordered writes, all completions in any order, no inline data, and a completion queue
//! that fails when more operations are outstanding than it holds.

use stentor_channel::{Cause, ChannelError, EndpointConfig, Scheme};
use stentor_fabric::ProcessId;
use stentor_fabric_conformance::Faults;
use stentor_fabric_sim::{NetworkModel, SimConfig, World};

use crate::bed::{Process, receives, small};
use crate::sim::{LENGTHS, processes};

/// Result of a run of two processes.
struct Ended {
    world: World,
    errors: Vec<ChannelError>,
    overtaken: u64,
}

/// Runs until both processes are done, or one process has a failed connection and all its connections are over. Also
/// stops if the fabric refuses an operation, because the process then cannot send the peer the notice of its failure.
fn run(config: EndpointConfig, seed: u64, disorders: Faults) -> Ended {
    let tagged = config.channel.scheme != Scheme::Counted;
    let world = World::new(SimConfig::new(2, seed, NetworkModel { tagged, ..NetworkModel::unordered() }));
    let mut actors = processes(&world, config, disorders, &LENGTHS);
    let (mut done, scheme) = ([false; 2], config.channel.scheme);
    let finished = world.run(&mut actors, 200_000_000, |who, process| {
        done[who.index()] = process.is_done();
        let mut errors = process.talks.iter().filter_map(|talk| talk.failed).peekable();
        let failed = errors.peek().is_some();
        let refused = errors.any(|error| matches!(error.cause, Cause::Refused(_)));
        done == [true; 2] || refused || failed && process.is_done()
    });
    assert!(finished, "{scheme:?}, seed {seed}: the run has not ended after {} ns", world.now_ns());
    let talks = actors.iter().flatten().flat_map(|process| &process.talks);
    let errors: Vec<_> = talks.filter_map(|talk| talk.failed).collect();
    if errors.is_empty() {
        actors.iter().flatten().for_each(Process::assert_ok);
    }
    let overtaken = actors.iter().flatten().map(|process| process.endpoint.fabric().overtaken()).sum();
    Ended { world, errors, overtaken }
}

#[test]
fn messages_of_all_lengths_in_every_scheme() {
    for scheme in Scheme::ALL {
        let mut overtaken = 0;
        for seed in 0..18 {
            let config = small(scheme);
            // Completion queue entries for all receives, and for one send, some sends or all sends.
            let places = receives(&config) + [1, 4, 64][seed as usize % 3];
            let ended = run(config, seed, Faults::efa(seed, places, scheme != Scheme::Counted));
            assert_eq!(ended.errors, [], "{scheme:?}, seed {seed}");
            overtaken += ended.overtaken;
            let writes = ended.world.process_counts(ProcessId(0)).total().posts();
            assert!(writes > LENGTHS.len() as u64);
        }
        assert!(overtaken > 0, "{scheme:?}: no completion overtook another one");
    }
}

#[cfg(feature = "plants")]
mod planted {
    use stentor_channel::{Config, Mutant};
    use stentor_fabric::{PostError, Status};

    use super::*;

    /// Returns the failures that a mutant causes, in all schemes.
    fn errors(mutant: Mutant, disorders: impl Fn(u32, bool) -> Faults) -> Vec<ChannelError> {
        let schemes = Scheme::ALL.into_iter();
        let errors = schemes.flat_map(|scheme| {
            let config = small(scheme);
            let config = EndpointConfig { channel: Config { mutant, ..config.channel }, ..config };
            run(config, 5, disorders(receives(&config) + 1, scheme != Scheme::Counted)).errors
        });
        errors.collect()
    }

    fn efa(places: u32, tags: bool) -> Faults {
        Faults::efa(5, places, tags)
    }

    #[test]
    fn overrun_of_the_completion_queue_is_reported_by_name() {
        for mutant in [Mutant::QueueOverrun, Mutant::SilentUncounted] {
            let errors = errors(mutant, efa);
            assert!(errors.len() >= Scheme::ALL.len(), "{mutant:?}: {errors:?}");
            let overran = |error: &ChannelError| error.cause == Cause::Fabric(Status::QueueOverrun);
            assert!(errors.iter().any(overran), "{mutant:?}: {errors:?}");
            assert!(
                errors.iter().all(|error| overran(error) || error.cause == Cause::Broken),
                "{mutant:?}: {errors:?}"
            );
        }
    }

    /// The mutant `SilentUncounted` has an effect only if unsignalled operations occupy entries of the completion
    /// queue.
    #[test]
    fn unsignalled_operations_are_harmless_without_a_queue_entry() {
        let selective = |places, tags| Faults { all_complete: false, ..efa(places, tags) };
        assert_eq!(errors(Mutant::SilentUncounted, selective), []);
    }

    #[test]
    fn inline_data_is_refused_by_fabrics_without_it() {
        let errors = errors(Mutant::InlineAnyway, efa);
        let refused = |error: &ChannelError| matches!(error.cause, Cause::Refused(refusal) if matches!(refusal.0, PostError::InlineTooLong { limit: 0, .. }));
        assert!(errors.len() >= Scheme::ALL.len() && errors.iter().all(refused), "{errors:?}");
    }
}
