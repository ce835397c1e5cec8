//! Two threads over RoCEv2 in user space, which has no tags and may lose packets.

use std::time::{Duration, Instant};

use stentor_channel::{Cause, Config, Endpoint, EndpointConfig, Hub, Operation, Scheme};
use stentor_fabric::{ProcessId, WaitMode};
use stentor_fabric_roce::driver::Chances;

use crate::bed::{Process, small};
use crate::hosted::{Meeting, both, both_disordered};

const GOOD: Chances = Chances { drop: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, delay: 0 };
const BAD: Chances = Chances { drop: 0.02, duplicate: 0.02, reorder: 0.02, corrupt: 0.002, delay: 0 };

fn lengths(count: usize) -> Vec<usize> {
    (0..count).map(|n| n * 7 % 900).collect()
}

#[test]
fn short_and_long_messages_both_ways_on_several_connections() {
    let meeting = Meeting::new("roce");
    both(|me| meeting.roce(me, GOOD), small(Scheme::Counted), &lengths(200));
}

#[test]
fn packets_are_lost_repeated_reordered_and_damaged() {
    let meeting = Meeting::new("roce-bad");
    both(|me| meeting.roce(me, BAD), small(Scheme::Counted), &lengths(60));
}

#[test]
fn completions_in_any_order() {
    let meeting = Meeting::new("roce-disorder");
    both_disordered(|me| meeting.roce(me, GOOD), small(Scheme::Counted), &lengths(100), 3);
}

#[test]
fn completions_in_any_order_on_a_bad_network() {
    let meeting = Meeting::new("roce-both");
    both_disordered(|me| meeting.roce(me, BAD), small(Scheme::Counted), &lengths(40), 5);
}

#[test]
fn messages_of_many_pieces() {
    let meeting = Meeting::new("roce-long");
    let config = EndpointConfig { connections: 1, ..EndpointConfig::new(Config::with(Scheme::Counted)) };
    both(|me| meeting.roce(me, GOOD), config, &[0, 2 << 20, 4096, 4097, 1]);
}

#[test]
fn sixty_four_connections_at_once() {
    let meeting = Meeting::new("roce-many");
    let config = EndpointConfig { connections: 64, send_depth: 64, ..small(Scheme::Counted) };
    both(|me| meeting.roce(me, GOOD), config, &[0, 5, 64, 65, 700, 1, 9]);
}

/// A process whose peer never opens its end times out by its own clock, with an error that names the peer.
#[test]
fn missing_peer_times_out() {
    let meeting = Meeting::new("roce-alone");
    let endpoint = Endpoint::new(meeting.roce(1, GOOD), small(Scheme::Counted), &[ProcessId(0)]).unwrap();
    let hub = Hub::new(endpoint);
    let mut channel = hub.open(ProcessId(0), 2).unwrap();
    let (since, patience) = (Instant::now(), Duration::from_millis(200));
    let late = hub.block_on_until(WaitMode::ADAPTIVE, channel.read(), || since.elapsed() > patience).unwrap();
    assert_eq!(late, None, "the peer never opened its end");
    channel.time_out(patience);
    let error =
        hub.block_on(WaitMode::ADAPTIVE, channel.read()).unwrap().expect("the peer has not finished").unwrap_err();
    let stentor_channel::CallError::Failed(error) = error else { panic!("{error}") };
    assert_eq!((error.connection, error.peer, error.operation), (2, ProcessId(0), Operation::Open));
    assert_eq!(error.cause, Cause::TimedOut(patience));
    assert_eq!(error.to_string(), "connection 2 with p0: opening: the peer did not respond for 200ms");
    assert!(hub.block_on(WaitMode::ADAPTIVE, channel.close()).unwrap().is_err(), "the connection has drained");
}

/// A process crashes in the middle of the exchange. The other one fails with an error that names it, and drains.
#[test]
fn crash_of_the_peer_is_reported() {
    let meeting = Meeting::new("roce-gone");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut process = Process::new(meeting.roce(1, GOOD), small(Scheme::Counted), &lengths(400));
            let begin = Instant::now();
            while process.talks[0].read < 5 {
                process.step();
                assert!(begin.elapsed() < Duration::from_secs(60), "stuck");
            }
        });
        let mut process = Process::new(meeting.roce(0, GOOD), small(Scheme::Counted), &lengths(400));
        let begin = Instant::now();
        while !process.is_done() {
            process.step();
            assert!(begin.elapsed() < Duration::from_secs(60), "the crash was not detected");
        }
        for talk in &process.talks {
            let error = talk.failed.expect("the peer crashes before it has read 400 messages");
            assert!(error.peer == ProcessId(1) && matches!(error.cause, Cause::Fabric(_) | Cause::Broken), "{error}");
            assert!(!process.endpoint.is_alive(talk.handle));
        }
    });
}
