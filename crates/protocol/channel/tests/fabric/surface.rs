//! Futures and blocking calls.

use std::task::{Context, Poll, Waker};

use stentor_channel::{CallError, Cause, Channel, Endpoint, Hub, MAX_CONNECTIONS, OpenError, Scheme, WriteError};
use stentor_fabric::ProcessId;
use stentor_fabric_conformance::{FaultInjector, Faults};
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};

use crate::bed::small;

type Fabric = FaultInjector<SimFabric>;

/// Two hubs in one simulated world.
struct Both {
    world: World,
    hubs: [Hub<Fabric>; 2],
}

fn both(seed: u64) -> Both {
    let model = NetworkModel { tagged: true, ..NetworkModel::adversarial() };
    let world = World::new(SimConfig::new(2, seed, model));
    let hub = |me: u16| {
        // Odd seeds have EFA's restrictions.
        let disorders = if seed % 2 == 1 { Faults::efa(seed, 100, true) } else { Faults::completions(seed) };
        let fabric = FaultInjector::new(world.fabric(ProcessId(me)), disorders);
        Hub::new(Endpoint::new(fabric, small(Scheme::Eager), &[ProcessId(1 - me)]).unwrap())
    };
    let hubs = [hub(0), hub(1)];
    Both { world, hubs }
}

impl Both {
    fn open(&self) -> [Channel<Fabric>; 2] {
        [0, 1].map(|me: u16| self.hubs[usize::from(me)].open(ProcessId(1 - me), 0).unwrap())
    }

    /// Polls both futures in turns until both are ready.
    fn run<A, B>(&self, first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
        let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
        let (mut a, mut b) = (None, None);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..200_000 {
            self.world.advance(300);
            for hub in &self.hubs {
                hub.turn();
            }
            if a.is_none()
                && let Poll::Ready(value) = first.as_mut().poll(&mut context)
            {
                a = Some(value);
            }
            if b.is_none()
                && let Poll::Ready(value) = second.as_mut().poll(&mut context)
            {
                b = Some(value);
            }
            if a.is_some() && b.is_some() {
                break;
            }
        }
        (a.expect("the first future is not ready"), b.expect("the second future is not ready"))
    }
}

#[test]
fn messages_are_written_and_read_in_order_and_the_stream_ends() {
    for seed in 0..10 {
        let both = both(seed);
        let [mut a, mut b] = both.open();
        let messages: Vec<Vec<u8>> = (0..30_usize).map(|n| vec![n as u8; n * 29 % 700]).collect();
        let writer = async {
            for (n, message) in messages.iter().enumerate() {
                assert_eq!(a.write(message).await, Ok(n as u64));
            }
            a.flush().await.unwrap();
            a.close().await
        };
        let reader = async {
            let mut read = Vec::new();
            while let Some(message) = b.read().await {
                read.push(message.unwrap());
            }
            b.close().await.unwrap();
            read
        };
        let (closed, read) = both.run(writer, reader);
        assert_eq!((closed, &read), (Ok(()), &messages));
    }
}

#[test]
fn dropped_channel_is_aborted_and_the_peer_is_informed() {
    let both = both(3);
    let [mut a, mut b] = both.open();
    let first = async {
        assert_eq!(a.write(b"one").await, Ok(0));
        a.flush().await.unwrap();
        drop(a);
    };
    let second = async {
        assert_eq!(b.read().await, Some(Ok(b"one".to_vec())));
        b.read().await
    };
    let ((), heard) = both.run(first, second);
    let Some(Err(CallError::Failed(error))) = heard else { panic!("{heard:?}") };
    assert!(matches!(error.cause, Cause::PeerGaveUp(_)) && error.peer == ProcessId(0), "{error}");
}

#[test]
fn waiting_task_is_woken() {
    struct Flag(std::sync::atomic::AtomicU32);
    impl std::task::Wake for Flag {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let both = both(4);
    let [mut a, mut b] = both.open();
    let flag = std::sync::Arc::new(Flag(std::sync::atomic::AtomicU32::new(0)));
    let waker = Waker::from(std::sync::Arc::clone(&flag));
    assert!(b.poll_read(&mut Context::from_waker(&waker)).is_pending());
    let (written, ()) = both.run(a.write(b"x"), std::future::ready(()));
    assert_eq!(written, Ok(0));
    assert!(flag.0.load(std::sync::atomic::Ordering::Relaxed) > 0);
    let too_long = vec![0; 5000];
    let mut limited = both.hubs[0].open(ProcessId(1), 1).unwrap();
    let (refused, read) = both.run(limited.write(&too_long), b.read());
    assert_eq!(read, Some(Ok(b"x".to_vec())));
    assert_eq!(refused, Err(CallError::Refused(WriteError::TooLong { bytes: 5000, limit: 4096 })));
}

/// Each reason for a refusal is reported to the application.
#[test]
fn connections_that_cannot_be_opened_are_refused_with_the_reason() {
    let both = both(5);
    let open = |peer, number| both.hubs[0].open(ProcessId(peer), number).map(|_| "open");
    let kept = [7, 8, 9].map(|number| both.hubs[0].open(ProcessId(1), number).expect("three may be open"));
    assert_eq!(open(1, 10), Err(OpenError::TooMany { peer: ProcessId(1), limit: 3 }));
    assert_eq!(open(1, 8), Err(OpenError::InUse { number: 8, peer: ProcessId(1) }));
    assert_eq!(open(2, 8), Err(OpenError::UnknownPeer(ProcessId(2))));
    assert_eq!(open(1, MAX_CONNECTIONS), Err(OpenError::Number { number: MAX_CONNECTIONS, limit: MAX_CONNECTIONS }));
    drop(kept);
    // Wait until the receives of the aborted connections have completed.
    for _ in 0..1000 {
        both.world.advance(300);
        both.hubs[0].turn();
    }
    assert_eq!(open(1, 8), Err(OpenError::Spent { number: 8, peer: ProcessId(1) }));
    assert_eq!(open(1, 10), Ok("open"));
}
