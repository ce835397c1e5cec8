//! Two threads over libfabric's providers. Short and long messages, and the crash, are tested in every scheme, and the
//! messages also with the restrictions of EFA.

use std::time::{Duration, Instant};

use stentor_channel::{Cause, Config, EndpointConfig, Scheme};
use stentor_fabric::{Fabric, ProcessId};
use stentor_fabric_conformance::Faults;

use crate::bed::{Process, small};
use crate::hosted::{Meeting, both, both_under};

/// Number of entries of the injected completion queue. The queue overruns if more operations are outstanding.
const COMPLETIONS: u32 = 256;

fn lengths(count: usize) -> Vec<usize> {
    (0..count).map(|n| n * 7 % 900).collect()
}

/// Sends short and long messages in both directions on several connections.
fn as_it_is(provider: &str) {
    for scheme in Scheme::ALL {
        let meeting = Meeting::new("ofi");
        both(|me| meeting.ofi(me, provider), small(scheme), &lengths(200));
    }
}

/// Runs with the restrictions of EFA: only sends are ordered, all operations are signalled and complete in any order,
/// no data is inline, and the completion queue must not overrun. The scheme without tags runs with the restrictions of
/// `efa-direct`.
fn as_on_efa(provider: &str) {
    for scheme in Scheme::ALL {
        for seed in 0..4 {
            let meeting = Meeting::new("ofi-efa");
            let tags = scheme != Scheme::Counted;
            let disorders = |me: u16| Faults::efa(2 * seed + u64::from(me), COMPLETIONS, tags);
            both_under(|me| meeting.ofi(me, provider), small(scheme), &lengths(60), disorders);
        }
    }
}

fn long_messages(provider: &str) {
    let meeting = Meeting::new("ofi-long");
    let config = EndpointConfig { connections: 1, ..EndpointConfig::new(Config::default()) };
    both(|me| meeting.ofi(me, provider), config, &[0, 2 << 20, 4096, 4097, 1]);
}

/// A process crashes in the middle of the exchange. The other one fails with an error that names it, and drains.
fn a_peer_is_gone(provider: &str) {
    for scheme in Scheme::ALL {
        let meeting = Meeting::new("ofi-gone");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut process = Process::new(meeting.ofi(1, provider), small(scheme), &lengths(4000));
                until(&mut process, |process| process.talks[0].read >= 5);
            });
            let mut process = Process::new(meeting.ofi(0, provider), small(scheme), &lengths(4000));
            until(&mut process, Process::is_done);
            for talk in &process.talks {
                let error = talk.failed.expect("the peer crashes before it has read 4000 messages");
                assert!(
                    error.peer == ProcessId(1) && matches!(error.cause, Cause::Fabric(_) | Cause::Broken),
                    "{error}"
                );
                assert!(!process.endpoint.is_alive(talk.handle));
            }
        });
    }
}

fn until<F: Fabric>(process: &mut Process<F>, is_so: impl Fn(&Process<F>) -> bool) {
    let begin = Instant::now();
    while !is_so(process) {
        process.step();
        assert!(begin.elapsed() < Duration::from_secs(60), "stuck");
    }
}

macro_rules! on_providers {
    ($($module:ident $provider:literal)*) => {
        $(mod $module {
            #[test]
            #[ignore = "needs libfabric: cargo xtask test --only ofi"]
            fn short_and_long_messages_both_ways_on_several_connections() {
                super::as_it_is($provider);
            }

            #[test]
            #[ignore = "needs libfabric: cargo xtask test --only ofi"]
            fn restrictions_of_efa_suffice() {
                super::as_on_efa($provider);
            }

            #[test]
            #[ignore = "needs libfabric: cargo xtask test --only ofi"]
            fn messages_of_many_pieces() {
                super::long_messages($provider);
            }

            #[test]
            #[ignore = "needs libfabric: cargo xtask test --only ofi"]
            fn crash_of_the_peer_is_reported() {
                super::a_peer_is_gone($provider);
            }
        })*
    };
}

on_providers! {
    tcp "tcp;ofi_rxm"
    udp "udp;ofi_rxd"
    shm "shm"
    sockets "sockets"
}

/// Many connections share one queue pair.
#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn sixty_four_connections_at_once() {
    let meeting = Meeting::new("ofi-many");
    let tight = small(Scheme::Eager);
    let channel = Config { lengths: 4, pieces: 3, ..tight.channel };
    let config = EndpointConfig { channel, connections: 64, send_depth: 64, ..tight };
    both(|me| meeting.ofi(me, "tcp;ofi_rxm"), config, &[0, 5, 64, 65, 700, 1, 9]);
}
