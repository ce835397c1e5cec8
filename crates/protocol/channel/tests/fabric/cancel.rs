//! Futures that are dropped after any number of polls. The peer must still read whole messages in order.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;
use stentor_channel::{CallError, Channel, Endpoint, EndpointConfig, Hub, Scheme, WriteError};
use stentor_fabric::{Fabric, ProcessId, WaitMode};
use stentor_fabric_conformance::{FaultInjector, Faults};
use stentor_fabric_sim::{NetworkModel, SimConfig, World};

use crate::bed::{message, small};
use crate::hosted::Meeting;

/// Polls a future at most `polls` times. If it is still pending, drops it and returns `None`.
async fn within<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Is pending at the first poll and ready at the second.
async fn once() {
    let mut polled = false;
    poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Numbers of dropped writes, by the fate of their messages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Fates {
    /// Number of dropped writes whose message was not sent.
    none: usize,
    /// Number of dropped writes whose message was sent nevertheless.
    sent: usize,
}

/// Writes a message. Drops the future after `polls` polls. If the message was not sent, writes it again with one poll
/// more. Between two attempts, reads at most one message, with a future that is also dropped.
async fn write_all<F: Fabric>(
    channel: &mut Channel<F>,
    (message, polls): (&[u8], usize),
    read: &mut Vec<Vec<u8>>,
    fates: &mut Fates,
) {
    let number = channel.next_number();
    for polls in polls.. {
        match within(polls, channel.write(message)).await {
            Some(written) => assert_eq!(written, Ok(number)),
            None if channel.next_number() == number => fates.none += 1,
            None => fates.sent += 1,
        }
        if channel.next_number() > number {
            return assert_eq!(channel.next_number(), number + 1);
        }
        if let Some(message) = within(polls % 3, channel.read()).await.flatten() {
            read.push(message.unwrap());
        }
        once().await;
    }
}

/// Runs one end: writes its messages, then reads until the end. Returns the messages that it read. Each future is
/// dropped after a number of polls that depends on the plan. All calls but `flush` are then repeated.
async fn end<F: Fabric>(channel: &mut Channel<F>, me: ProcessId, plan: &[(usize, usize)]) -> (Vec<Vec<u8>>, Fates) {
    let (mut read, mut fates) = (Vec::new(), Fates::default());
    for (number, (bytes, polls)) in plan.iter().enumerate() {
        let message = message(me, 0, number as u64, *bytes);
        write_all(channel, (&message, *polls), &mut read, &mut fates).await;
        if polls % 4 == 0 {
            let _ = within(*polls % 7, channel.flush()).await;
        }
    }
    // The channel may still be sending the rest of a message whose write was dropped.
    channel.finish().unwrap();
    assert_eq!(channel.write(b"late").await, Err(CallError::Refused(WriteError::Closed)));
    let polls = plan.first().map_or(1, |(_, polls)| (*polls).max(1));
    loop {
        match within(polls, channel.read()).await {
            Some(Some(message)) => read.push(message.unwrap()),
            Some(None) => break,
            None => once().await,
        }
    }
    loop {
        match within(polls, channel.close()).await {
            Some(closed) => break closed.unwrap(),
            None => once().await,
        }
    }
    assert_eq!(within(1, channel.read()).await, Some(None));
    assert_eq!(within(1, channel.flush()).await, Some(Ok(())));
    (read, fates)
}

fn expected(from: u16, plan: &[(usize, usize)]) -> Vec<Vec<u8>> {
    plan.iter().zip(0..).map(|((bytes, _), number)| message(ProcessId(from), 0, number, *bytes)).collect()
}

/// Runs both ends on the simulator. Returns the fates of the writes that each end dropped.
fn simulate(scheme: Scheme, seed: u64, plans: [&[(usize, usize)]; 2]) -> [Fates; 2] {
    let model = NetworkModel { tagged: scheme != Scheme::Counted, ..NetworkModel::adversarial() };
    let world = World::new(SimConfig::new(2, seed, model));
    let hubs = [0, 1].map(|me: u16| {
        let fabric = FaultInjector::new(world.fabric(ProcessId(me)), Faults::completions(seed + u64::from(me)));
        Hub::new(Endpoint::new(fabric, small(scheme), &[ProcessId(1 - me)]).unwrap())
    });
    let mut channels = [0, 1].map(|me: u16| hubs[usize::from(me)].open(ProcessId(1 - me), 0).unwrap());
    let [a, b] = &mut channels;
    let (mut a, mut b) = (pin!(end(a, ProcessId(0), plans[0])), pin!(end(b, ProcessId(1), plans[1])));
    let mut done = [None, None];
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..200_000 {
        world.advance(300);
        hubs.iter().for_each(|hub| _ = hub.turn());
        let [first, second] = &mut done;
        for (end, done) in [(a.as_mut() as std::pin::Pin<&mut dyn Future<Output = _>>, first), (b.as_mut(), second)] {
            if done.is_none()
                && let Poll::Ready(value) = end.poll(&mut context)
            {
                *done = Some(value);
            }
        }
        if let [Some((at_a, of_a)), Some((at_b, of_b))] = &done {
            assert_eq!((at_b, at_a), (&expected(0, plans[0]), &expected(1, plans[1])), "{scheme:?}, {plans:?}");
            return [*of_a, *of_b];
        }
    }
    panic!("{scheme:?}, seed {seed}: the run does not end: {:?}", done.map(|done| done.is_some()));
}

/// Drops the write of the second of three messages after 0, 1, 2 … polls, until the message is handed over completely
/// before the drop.
#[test]
fn dropped_write_is_sent_whole_or_not_at_all() {
    for scheme in Scheme::ALL {
        let (mut none, mut sent) = (0, 0);
        for bytes in [0, 8, 64, 65, 256, 700, 3000] {
            for polls in 0.. {
                let plan = [(100, 1000), (bytes, polls), (bytes + 1, 1000)];
                let [fates, _] = simulate(scheme, 1, [&plan, &[]]);
                none += usize::from(fates.none > 0);
                sent += fates.sent;
                if fates == Fates::default() {
                    break;
                }
            }
        }
        assert!(
            none > 0 && sent > 20,
            "{scheme:?}: of the dropped writes, {none} had no effect and {sent} were completed"
        );
    }
}

fn plan() -> impl Strategy<Value = Vec<(usize, usize)>> {
    let bytes = prop_oneof![Just(0_usize), Just(64), Just(65), Just(256), 0_usize..4096];
    prop::collection::vec((bytes, 0_usize..40), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn both_ends_drop_their_futures_at_any_time(scheme in 0_usize..3, seed in 0_u64..1000, a in plan(), b in plan()) {
        simulate(Scheme::ALL[scheme], seed, [&a, &b]);
    }
}

/// Drops futures in two threads, whose polls interleave arbitrarily.
#[test]
fn dropped_futures_over_shared_memory() {
    let meeting = Meeting::new("cancel");
    let plan = |seed: usize| -> Vec<(usize, usize)> {
        (0..200).map(|n| ((n * 37 + seed * 11) % 4096, (n * 7 + seed) % 19)).collect()
    };
    let plans = [plan(1), plan(2)];
    let run = |me: u16| {
        let endpoint = Endpoint::new(meeting.shm(me), small(Scheme::Counted), &[ProcessId(1 - me)]).unwrap();
        let hub = Hub::new(endpoint);
        let mut channel = hub.open(ProcessId(1 - me), 0).unwrap();
        hub.block_on(WaitMode::ADAPTIVE, end(&mut channel, ProcessId(me), &plans[usize::from(me)])).unwrap()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let (read, fates) = run(0);
        let (read_there, fates_there) = other.join().unwrap();
        assert_eq!((read_there, read), (expected(0, &plans[0]), expected(1, &plans[1])));
        assert!(fates.none + fates_there.none > 0 && fates.sent + fates_there.sent > 0, "{fates:?}, {fates_there:?}");
    });
}

fn hub_without_peer(config: EndpointConfig) -> Hub<impl Fabric> {
    let world = World::new(SimConfig::new(2, 1, NetworkModel { tagged: true, ..NetworkModel::adversarial() }));
    Hub::new(Endpoint::new(world.fabric(ProcessId(0)), config, &[ProcessId(1)]).unwrap())
}

/// A leaked future is never dropped, so the rest of its message is never sent, and the next write is refused.
#[test]
fn write_after_a_leaked_one_is_refused() {
    let hub = hub_without_peer(small(Scheme::Eager));
    let mut channel = hub.open(ProcessId(1), 0).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut write = channel.write(b"leaked");
    assert!(pin!(&mut write).poll(&mut context).is_pending());
    std::mem::forget(write);
    let refused = pin!(channel.write(b"next")).poll(&mut context);
    assert_eq!(refused, Poll::Ready(Err(CallError::Refused(WriteError::Busy { left: 6 }))));
    assert_eq!(channel.finish(), Err(CallError::Refused(WriteError::Busy { left: 6 })));
}

/// A waker may, while it is called, drop a task that owns a channel.
#[test]
fn a_waker_that_drops_a_channel_is_woken() {
    struct Owner(std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>);
    impl Wake for Owner {
        fn wake(self: std::sync::Arc<Self>) {
            if let Some(drop_it) = self.0.lock().unwrap().take() {
                drop_it();
            }
        }
    }
    thread_local! {
        static KEPT: std::cell::RefCell<Option<Box<dyn std::any::Any>>> = const { std::cell::RefCell::new(None) };
    }
    let world = World::new(SimConfig::new(2, 1, NetworkModel { tagged: true, ..NetworkModel::adversarial() }));
    let hubs = [0, 1].map(|me: u16| {
        Hub::new(Endpoint::new(world.fabric(ProcessId(me)), small(Scheme::Eager), &[ProcessId(1 - me)]).unwrap())
    });
    let mut channel = hubs[0].open(ProcessId(1), 0).unwrap();
    let drop_it: Box<dyn FnOnce() + Send> = Box::new(|| drop(KEPT.take()));
    let waker = Waker::from(std::sync::Arc::new(Owner(std::sync::Mutex::new(Some(drop_it)))));
    for _ in 0..100_000 {
        assert!(channel.poll_read(&mut Context::from_waker(&waker)).is_pending());
    }
    KEPT.set(Some(Box::new(channel)));
    for _ in 0..1000 {
        world.advance(300);
        hubs.iter().for_each(|hub| _ = hub.turn());
    }
    assert!(KEPT.take().is_none(), "the waker was not called");
    assert!(hubs[0].open(ProcessId(1), 0).is_err(), "the dropped channel was aborted");
}
