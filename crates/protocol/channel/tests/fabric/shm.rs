//! Two threads over shared memory, which has no tags.

use stentor_channel::{Config, Endpoint, EndpointConfig, Hub, Notice, Scheme};
use stentor_fabric::{ProcessId, WaitMode};
use stentor_fabric_conformance::Faults;
use stentor_fabric_shm::ShmFabric;

use crate::bed::{receives, small};
use crate::hosted::{Meeting, both, both_disordered, both_under};

#[test]
fn short_and_long_messages_both_ways_on_several_connections() {
    let (meeting, lengths) = (Meeting::new("small"), (0..400).map(|n| n * 7 % 900).collect::<Vec<_>>());
    both(|me| meeting.shm(me), small(Scheme::Counted), &lengths);
}

#[test]
fn completions_in_any_order() {
    let (meeting, lengths) = (Meeting::new("disorder"), (0..300).map(|n| n * 11 % 1200).collect::<Vec<_>>());
    both_disordered(|me| meeting.shm(me), small(Scheme::Counted), &lengths, 7);
}

/// Runs with the restrictions of `efa-direct`, and a completion queue with room for all receives and eight sends.
#[test]
fn restrictions_of_efa_suffice() {
    let (meeting, lengths) = (Meeting::new("efa"), (0..100).map(|n| n * 11 % 1200).collect::<Vec<_>>());
    let config = small(Scheme::Counted);
    let disorders = |me: u16| Faults::efa(7 + u64::from(me), receives(&config) + 8, false);
    both_under(|me| meeting.shm(me), config, &lengths, disorders);
}

fn long(lengths: &[usize]) {
    let meeting = Meeting::new(&format!("long-{}", lengths.len()));
    let channel = Config::with(Scheme::Counted);
    let config = EndpointConfig { connections: 1, ..EndpointConfig::new(channel) };
    both(|me| meeting.shm(me), config, lengths);
}

#[test]
fn messages_from_nothing_to_many_pieces() {
    long(&[0, 8 << 20, 0, 1, 3, 4096, 4097, 65_536, 65_537, (32 << 20) + 5, 1 << 20, 0]);
}

/// Sends the longest message in each direction, which needs 4 GiB of memory.
#[test]
#[ignore = "four gibibytes of memory, by cargo xtask nightly --only channel-long"]
fn messages_from_nothing_to_a_gibibyte() {
    long(&[0, 1 << 30, 1]);
}

#[test]
fn sixty_four_connections_at_once() {
    let meeting = Meeting::new("many");
    let config = EndpointConfig { connections: 64, send_depth: 64, ..small(Scheme::Counted) };
    both(|me| meeting.shm(me), config, &[0, 5, 64, 65, 700, 1, 3000, 0, 9]);
}

/// Uses blocking calls in two threads. One thread sends requests, and the other replies.
#[test]
fn questions_and_answers_that_block() {
    let meeting = Meeting::new("blocking");
    let config = small(Scheme::Counted);
    let hub = |me: u16| {
        let endpoint = Endpoint::new(meeting.shm(me), config, &[ProcessId(1 - me)]).unwrap();
        Hub::new(endpoint)
    };
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let hub = hub(1);
            let mut channel = hub.open(ProcessId(0), 2).unwrap();
            let answer = async {
                let mut answered = 0;
                while let Some(question) = channel.read().await {
                    let mut question = question.unwrap();
                    question.reverse();
                    channel.write(&question).await.unwrap();
                    answered += 1;
                }
                channel.close().await.unwrap();
                answered
            };
            hub.block_on(WaitMode::ADAPTIVE, answer).unwrap()
        });
        let hub = hub(0);
        let mut channel = hub.open(ProcessId(1), 2).unwrap();
        let ask = async {
            for n in 0..500_usize {
                let question: Vec<u8> = (0..n * 3 % 1000).map(|at| (at + n) as u8).collect();
                assert_eq!(channel.write(&question).await, Ok(n as u64));
                let mut answer = channel.read().await.expect("an answer").unwrap();
                answer.reverse();
                assert_eq!(answer, question);
            }
            channel.close().await
        };
        assert_eq!(hub.block_on(WaitMode::ADAPTIVE, ask).unwrap(), Ok(()));
        assert_eq!(answering.join().unwrap(), 500);
    });
}

/// An end need no longer be driven once it has met the other end.
#[test]
fn end_that_has_met_its_peer_may_stop() {
    let config = small(Scheme::Counted);
    for round in 0..20 {
        let meeting = Meeting::new(&format!("met-{round}"));
        let open = |me: u16| {
            let mut endpoint = Endpoint::new(meeting.shm(me), config, &[ProcessId(1 - me)]).unwrap();
            let handle = endpoint.open(ProcessId(1 - me), 0).unwrap();
            (endpoint, handle)
        };
        let turn = |endpoint: &mut Endpoint<ShmFabric>| {
            // Events of the control plane are polled only if `step` had no work, so data may be handled before them.
            let _ = endpoint.step() || endpoint.housekeep();
            std::iter::from_fn(|| endpoint.next_notice()).any(|(_, notice)| notice == Notice::Opened)
        };
        let ((mut stops, handle), (mut goes_on, _)) = (open(0), open(1));
        let mut opened = [false; 2];
        while !stops.has_met(handle) {
            opened[0] |= turn(&mut stops);
            // The other end sends its hello at a different time in each of four successive rounds.
            for _ in 0..round % 4 {
                opened[1] |= turn(&mut goes_on);
            }
            if round % 4 == 0 {
                std::thread::yield_now();
                opened[1] |= turn(&mut goes_on);
            }
        }
        assert!(opened[0], "the end that stops has received the other end's hello");
        let since = std::time::Instant::now();
        while !opened[1] {
            opened[1] = turn(&mut goes_on);
            assert!(
                since.elapsed() < std::time::Duration::from_secs(10),
                "round {round}: the other end does not open without the end that stopped"
            );
        }
    }
}
