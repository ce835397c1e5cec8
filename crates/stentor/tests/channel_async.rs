//! Channels under tokio: round trips at the speed of the event loop, and wake-ups of tasks.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stentor::{Channel, Received, Turn, WaitMode};
use stentor_testutil::{TempDir, median};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};

const PATIENCE: Duration = Duration::from_secs(30);
const TRIPS: u32 = 1000;
const ROUNDS: usize = 5;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_io().build().expect("a runtime")
}

/// The way in which both ends wait for messages.
#[derive(Clone, Copy, Debug)]
enum Way {
    Blocking,
    AsyncFd,
    Futures,
}

/// Registers a channel with tokio's event loop. The call is deprecated because a descriptor's number does not show how
/// long it stays open. A channel's descriptor stays open until the channel is dropped, and `AsyncFd` owns the channel.
#[allow(deprecated)]
fn in_loop(channel: Channel) -> AsyncFd<Channel> {
    AsyncFd::with_interest(channel, Interest::READABLE).expect("a descriptor")
}

/// Waits for a message in tokio's event loop.
async fn receive(channel: &mut AsyncFd<Channel>, message: &mut Vec<u8>) -> bool {
    loop {
        match channel.get_mut().try_recv(message).expect("the other end is there") {
            Received::Message => return true,
            Received::End => return false,
            Received::Nothing => {}
        }
        match channel.get_mut().turn().expect("the channel turns") {
            Turn::Idle(_) => channel.readable().await.expect("a descriptor").clear_ready(),
            _ => tokio::task::yield_now().await,
        }
    }
}

/// Echoes messages until the other end has finished.
fn echo(mut channel: Channel, way: Way) {
    let mut message = Vec::new();
    match way {
        Way::Blocking => {
            while channel.recv_timeout(&mut message, PATIENCE).unwrap() {
                channel.send_timeout(&message, PATIENCE).unwrap();
            }
        }
        Way::AsyncFd => runtime().block_on(async {
            let mut channel = in_loop(channel);
            while receive(&mut channel, &mut message).await {
                channel.get_mut().send(&message).await.unwrap();
            }
            channel.get_mut().close().await.unwrap();
        }),
        Way::Futures => runtime().block_on(async {
            while channel.recv(&mut message).await.unwrap() {
                channel.send(&message).await.unwrap();
            }
            channel.close().await.unwrap();
        }),
    }
}

/// Makes `trips` round trips and closes. Returns the time of one.
fn trips(mut channel: Channel, way: Way, trips: u32) -> Duration {
    let (mut message, since) = (Vec::new(), Instant::now());
    let question = [7; 64];
    let took = match way {
        Way::Blocking => {
            for _ in 0..trips {
                channel.send_timeout(&question, PATIENCE).unwrap();
                assert!(channel.recv_timeout(&mut message, PATIENCE).unwrap());
            }
            let took = since.elapsed();
            channel.finish().unwrap();
            assert!(!channel.recv_timeout(&mut message, PATIENCE).unwrap_or(false));
            took
        }
        Way::AsyncFd => runtime().block_on(async {
            let mut channel = in_loop(channel);
            for _ in 0..trips {
                channel.get_mut().send(&question).await.unwrap();
                assert!(receive(&mut channel, &mut message).await);
            }
            let took = since.elapsed();
            channel.get_mut().close().await.unwrap();
            took
        }),
        Way::Futures => runtime().block_on(async {
            for _ in 0..trips {
                channel.send(&question).await.unwrap();
                assert!(channel.recv(&mut message).await.unwrap());
            }
            let took = since.elapsed();
            channel.close().await.unwrap();
            took
        }),
    };
    assert_eq!(message, question);
    took / trips
}

fn measure(way: Way, mode: WaitMode) -> Duration {
    let directory = TempDir::new();
    let listens = Channel::listen("trips").directory(&directory).wait(mode);
    let other: JoinHandle<()> = thread::spawn(move || echo(listens.open().unwrap(), way));
    let channel = Channel::connect("trips").directory(&directory).wait(mode).open().unwrap();
    let took = trips(channel, way, TRIPS);
    other.join().unwrap();
    took
}

/// Measures the same round trips with blocking calls and in tokio's event loop, alternately. A timer's sleep in the
/// loop would be visible: it takes a millisecond.
#[test]
fn round_trips_in_tokio_take_as_long_as_blocking_ones() {
    for (name, mode) in [("adaptive", WaitMode::ADAPTIVE), ("block", WaitMode::BLOCK)] {
        let (mut by_way, ways) = ([const { Vec::new() }; 3], [Way::Blocking, Way::AsyncFd, Way::Futures]);
        for _ in 0..ROUNDS {
            for (took, way) in by_way.iter_mut().zip(ways) {
                took.push(measure(way, mode).as_secs_f64() * 1e6);
            }
        }
        let [blocking, fd, futures] = by_way.map(median);
        println!(
            "{name}: a round trip takes {blocking:.1} µs blocking, {fd:.1} µs by AsyncFd ({:.2}), {futures:.1} µs by futures ({:.2})",
            fd / blocking,
            futures / blocking
        );
        // The goal is a factor of 2. The bounds leave room for a busy machine and an unoptimised build.
        assert!(fd < 4.0 * blocking + 50.0, "{name}: {fd} µs, {blocking} µs");
        assert!(futures < 8.0 * blocking + 100.0, "{name}: {futures} µs, {blocking} µs");
    }
}

/// The fabric's descriptors are nested in the channel's descriptor, and that one in tokio's.
#[test]
fn channel_between_addresses_works_in_tokio() {
    use stentor::config::FabricKind;
    for way in [Way::AsyncFd, Way::Futures] {
        let place = format!("127.81.{}.1:7300", 1 + std::process::id() % 250);
        let listens = Channel::listen(&place).fabric(FabricKind::Roce).wait(WaitMode::BLOCK);
        let other = thread::spawn(move || echo(listens.open().unwrap(), way));
        let channel = Channel::connect(&place).fabric(FabricKind::Roce).wait(WaitMode::BLOCK).open().unwrap();
        let took = trips(channel, way, 300);
        println!("roce, {way:?}: {took:?}");
        other.join().unwrap();
        assert!(took < Duration::from_millis(3), "no task was woken: {took:?}");
    }
}

/// A message wakes a sleeping task, and so does the drop of the other end. Many channels share the thread that wakes
/// tasks.
#[test]
fn sleeping_tasks_are_woken() {
    let directory = TempDir::new();
    let mode = WaitMode { spins: 0, yields: 0, sleep: true };
    let channels: Vec<_> = (0..8).map(|n| format!("sleepy-{n}")).collect();
    let others: Vec<_> = channels.iter().map(|place| Channel::listen(place).directory(&directory).wait(mode)).collect();
    let others = thread::spawn(move || {
        let mut others: Vec<_> = others.into_iter().map(|end| end.open().unwrap()).collect();
        for number in 0..50_u8 {
            for other in &mut others {
                thread::sleep(Duration::from_micros(300));
                other.send_timeout(&[number], PATIENCE).unwrap();
            }
        }
        let mut message = Vec::new();
        for other in &mut others {
            assert!(other.recv_timeout(&mut message, PATIENCE).unwrap());
        }
    });
    let opened = channels.iter().map(|place| Channel::connect(place).directory(&directory).wait(mode).open().unwrap());
    let opened: Vec<_> = opened.collect();
    let local = tokio::task::LocalSet::new();
    let tasks: Vec<_> = opened
        .into_iter()
        .map(|mut channel| {
            local.spawn_local(async move {
                let mut message = Vec::new();
                for number in 0..50_u8 {
                    assert!(channel.recv(&mut message).await.unwrap());
                    assert_eq!(message, [number]);
                }
                channel.send(b"done").await.unwrap();
                // The other end is dropped soon after it has received this message.
                channel.recv(&mut message).await.unwrap_err().kind()
            })
        })
        .collect();
    // A task that is never woken would wait forever. The timeout reveals it.
    let done = async {
        for task in tasks {
            assert_eq!(task.await.unwrap(), stentor::ChannelErrorKind::PeerGone);
        }
    };
    let runtime = Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime");
    let done = runtime.block_on(local.run_until(async { tokio::time::timeout(PATIENCE, done).await }));
    assert!(done.is_ok(), "a task was not woken");
    others.join().unwrap();
}

/// A waker that panics on the thread that wakes tasks.
struct Panics(AtomicBool);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        if thread::current().name() == Some("stentor wakes") {
            self.0.store(true, Ordering::Release);
            panic!("a waker of a test panics");
        }
    }
}

/// Wakers are foreign code. One that panics affects no other channel of the process.
#[test]
fn tasks_are_woken_after_a_waker_has_panicked() {
    let directory = TempDir::new();
    let mode = WaitMode { spins: 0, yields: 0, sleep: true };
    let pair = |name: &str| {
        let listens = Channel::listen(name).directory(&directory).wait(mode);
        let other = thread::spawn(move || listens.open().unwrap());
        let channel = Channel::connect(name).directory(&directory).wait(mode).open().unwrap();
        (channel, other.join().unwrap())
    };
    let ((mut one, mut others_one), (mut two, mut others_two)) = (pair("panics"), pair("unharmed"));
    let panics = Arc::new(Panics(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&panics));
    let (mut message, since) = (Vec::new(), Instant::now());
    let mut receives = pin!(one.recv(&mut message));
    // Both ends need turns until the receiving one sleeps.
    while since.elapsed() < Duration::from_millis(100) {
        assert!(receives.as_mut().poll(&mut task::Context::from_waker(&waker)).is_pending());
        let _ = others_one.turn().unwrap();
    }
    others_one.send_timeout(b"first", PATIENCE).unwrap();
    while !panics.0.load(Ordering::Acquire) {
        assert!(since.elapsed() < PATIENCE, "the waker was not called");
        let _ = others_one.turn().unwrap();
    }
    let sends = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        others_two.send_timeout(b"second", PATIENCE).unwrap();
        others_two.close_timeout(PATIENCE)
    });
    let mut second = Vec::new();
    let (woken, since) = (async { tokio::time::timeout(PATIENCE, two.recv(&mut second)).await }, Instant::now());
    let runtime = Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime");
    assert!(runtime.block_on(woken).expect("the task is woken").unwrap());
    assert_eq!(second, b"second");
    // At the end of the time-out, the future is polled once more. Only the elapsed time shows that the task was woken.
    assert!(since.elapsed() < PATIENCE / 2, "only the time-out woke the task: {:?}", since.elapsed());
    drop(two);
    drop(sends.join().unwrap());
}
