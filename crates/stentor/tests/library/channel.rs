//! Channels: the ways to call, the ways to stop, and errors.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use stentor::config::FabricKind;
use stentor::{Channel, ChannelBuilder, ChannelErrorKind, Cluster, Received, Turn, WaitMode};
use stentor_testutil::{SplitMix64, TempDir};

/// Time limit; reached only if a test hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// A mode in which every idle round sleeps, so a future is pending whenever there is nothing to do.
const DROWSY: WaitMode = WaitMode { spins: 0, yields: 0, sleep: true };

fn ends(directory: &TempDir) -> [ChannelBuilder; 2] {
    [Channel::listen("here"), Channel::connect("here")].map(|end| end.directory(directory).wait(DROWSY))
}

/// Opens both ends in this thread.
fn pair(directory: &TempDir) -> [Channel; 2] {
    let mut both = ends(directory).map(|end| end.start().expect("the end of the channel starts"));
    let since = Instant::now();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let open = both.each_mut().map(|end| pin!(end.ready()).poll(&mut context).is_ready());
        if open == [true; 2] {
            return both;
        }
        assert!(since.elapsed() < PATIENCE);
    }
}

fn bytes(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (number.wrapping_mul(31) + at * 7) as u8).collect()
}

fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Polls until the future is ready. The other end has a turn after each poll.
fn run<T>(other: &mut Channel, future: impl Future<Output = T>) -> T {
    let (mut future, since) = (pin!(future), Instant::now());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        let _ = other.turn().expect("the other end turns");
        assert!(since.elapsed() < PATIENCE, "it hangs");
    }
}

#[test]
fn messages_of_all_lengths_arrive_in_order_both_ways() {
    let directory = TempDir::new();
    let [listens, connects] = ends(&directory);
    let lengths = [0, 1, 8, 4095, 4096, 4097, 65_536, 65_537, 3 << 20, 5];
    let echo = thread::spawn(move || {
        let (mut channel, mut message) = (listens.open().unwrap(), Vec::new());
        while channel.recv_timeout(&mut message, PATIENCE).unwrap() {
            channel.send_timeout(&message, PATIENCE).unwrap();
        }
        channel.close_timeout(PATIENCE).unwrap();
        channel.sent()
    });
    let (mut channel, mut message) = (connects.open().unwrap(), Vec::new());
    for (number, length) in (0..).zip(lengths) {
        let sent = bytes(number, length);
        channel.send_timeout(&sent, PATIENCE).unwrap();
        assert!(channel.recv_timeout(&mut message, PATIENCE).unwrap());
        assert!(message == sent, "message {number} of {length} bytes");
    }
    channel.flush_timeout(PATIENCE).unwrap();
    channel.finish().unwrap();
    assert!(!channel.recv_timeout(&mut message, PATIENCE).unwrap());
    channel.close_timeout(PATIENCE).unwrap();
    assert_eq!((channel.sent(), echo.join().unwrap()), (10, 10));
    assert_eq!(channel.send_timeout(b"late", PATIENCE).unwrap_err().kind(), ChannelErrorKind::Finished);
}

#[test]
fn full_window_refuses_and_accepted_messages_arrive() {
    let directory = TempDir::new();
    let [mut from, mut to] = pair(&directory);
    for length in [100, 200_000] {
        for end in [&mut to, &mut from] {
            // Exchanges the credits for the messages that have been read.
            while end.turn().unwrap() == Turn::Busy {}
        }
        let (begun, mut refused) = (from.sent(), false);
        for number in begun..begun + 1000 {
            if !from.try_send(&bytes(number, length)).unwrap() {
                assert_eq!(from.sent(), number, "what is refused is not sent");
                refused = true;
                break;
            }
        }
        assert!(refused && from.sent() > begun, "{} messages of {length} bytes found room", from.sent() - begun);
        let (expected, mut message) = (from.sent(), Vec::new());
        for number in begun..expected {
            assert!(run(&mut from, to.recv(&mut message)).unwrap());
            assert!(message == bytes(number, length), "message {number}");
        }
        let _ = to.turn().unwrap();
        assert_eq!(to.try_recv(&mut message).unwrap(), Received::Nothing);
        assert!(message == bytes(expected - 1, length), "the buffer is as it was");
    }
}

/// Drops futures after various numbers of polls, many times.
#[test]
fn dropped_futures_send_whole_messages_or_none() {
    let directory = TempDir::new();
    let [mut from, mut to] = pair(&directory);
    let mut random = SplitMix64(7);
    let (mut sent, mut read, mut message) = (0, 0, Vec::new());
    let (mut dropped, mut sent_by_drop) = (0, 0);
    let expected = |number: u64| bytes(number, [10, 5000, 300_000, 2_500_000][number as usize % 4]);
    while read < 200 {
        if sent < 200 {
            let (data, polls) = (expected(sent), random.word() % 4);
            let (before, mut is_done) = (from.sent(), false);
            {
                let mut sending = pin!(from.send(&data));
                for _ in 0..polls {
                    if let Poll::Ready(done) = sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        done.unwrap();
                        is_done = true;
                        break;
                    }
                    let _ = to.turn().unwrap();
                }
            }
            let is_sent = from.sent() == before + 1;
            assert!(is_sent || from.sent() == before);
            assert!(is_sent || !is_done, "it was ready, so it is sent");
            sent_by_drop += u64::from(is_sent && !is_done);
            dropped += u64::from(!is_sent);
            sent += u64::from(is_sent);
        }
        for _ in 0..random.word() % 4 {
            if poll_once(to.recv(&mut message)).is_some_and(|received| received.unwrap()) {
                assert!(message == expected(read), "message {read}");
                read += 1;
            }
        }
        let _ = poll_once(from.flush());
        let _ = poll_once(from.ready());
        let _ = from.turn().unwrap();
    }
    assert!(dropped > 10 && sent_by_drop > 10, "{dropped} had no effect, {sent_by_drop} were sent by the channel");
    run(&mut to, from.flush()).unwrap();
    assert!(poll_once(from.close()).is_none(), "the other end has not finished");
    assert!(!run(&mut from, to.recv(&mut message)).unwrap(), "a dropped close has finished");
    assert!(poll_once(to.close()).is_none());
    let other = thread::spawn(move || to.close_timeout(PATIENCE).unwrap());
    from.close_timeout(PATIENCE).unwrap();
    other.join().unwrap();
}

#[test]
fn dropped_end_is_noticed_in_any_state() {
    type Act = fn(&mut Channel);
    let acts: [(&str, Act); 5] = [
        ("at once", |_| ()),
        ("with a message sent", |end| assert!(end.try_send(&[1; 3000]).unwrap())),
        ("in the middle of a message", |end| assert!(end.try_send(&vec![1; 4 << 20]).unwrap())),
        ("in the middle of a future", |end| assert!(poll_once(end.send(&vec![1; 4 << 20])).is_none())),
        ("while it waits", |end| assert!(poll_once(end.recv(&mut Vec::new())).is_none())),
    ];
    for (when, act) in acts {
        let directory = TempDir::new();
        let [mut goes, mut stays] = pair(&directory);
        act(&mut goes);
        drop(goes);
        let (since, mut message) = (Instant::now(), Vec::new());
        let error = loop {
            match stays.recv_timeout(&mut message, PATIENCE) {
                Ok(received) => assert!(received, "{when}: it did not finish"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ChannelErrorKind::PeerGone, "{when}: {error}");
        assert!(error.to_string().contains("open another channel"), "{error}");
        assert!(since.elapsed() < Duration::from_secs(10), "{when}");
        for kind in [
            stays.send_timeout(b"x", PATIENCE).unwrap_err().kind(),
            stays.flush_timeout(PATIENCE).unwrap_err().kind(),
            stays.close_timeout(PATIENCE).unwrap_err().kind(),
        ] {
            assert_eq!(kind, ChannelErrorKind::PeerGone, "{when}");
        }
    }
}

#[test]
fn finished_and_closed_ends_can_be_dropped() {
    let directory = TempDir::new();
    let [mut goes, mut stays] = pair(&directory);
    goes.finish().unwrap();
    goes.finish().unwrap();
    let mut message = Vec::new();
    assert!(!stays.recv_timeout(&mut message, PATIENCE).unwrap());
    let closes = thread::spawn(move || stays.close_timeout(PATIENCE).map(|()| stays));
    goes.close_timeout(PATIENCE).unwrap();
    let stays = closes.join().unwrap().unwrap();
    drop(goes);
    drop(stays);
    drop(ends(&directory).map(|end| end.start().expect("the place is free")));
}

#[test]
fn waits_respect_their_timeouts() {
    let directory = TempDir::new();
    let [listens, _] = ends(&directory);
    let since = Instant::now();
    let error = listens.clone().patience(Duration::from_millis(50)).open().unwrap_err();
    assert_eq!(error.kind(), ChannelErrorKind::PeerAbsent);
    assert_eq!(
        error.to_string(),
        "channel at here, which listens: the other end was not open within 0.05 s; one end listens and one connects, both at \
         the same place, on the same fabric, in the same directory; start the other one, or set a longer `patience`"
    );
    let mut alone = listens.start().unwrap();
    assert!(poll_once(alone.ready()).is_none());
    let short = Duration::from_millis(30);
    let mut message = Vec::new();
    for mode in [WaitMode::POLL, WaitMode::YIELD, WaitMode::ADAPTIVE] {
        let place = TempDir::new();
        let mut awake = Channel::listen("here").directory(&place).wait(mode).start().unwrap();
        assert_eq!(awake.recv_timeout(&mut message, short).unwrap_err().kind(), ChannelErrorKind::TimedOut, "{mode:?}");
    }
    let late = alone.recv_timeout(&mut message, short).unwrap_err();
    assert_eq!(late.kind(), ChannelErrorKind::TimedOut);
    assert!(late.to_string().contains("receiving took longer than 0.03 s"), "{late}");
    assert_eq!(alone.close_timeout(short).unwrap_err().kind(), ChannelErrorKind::TimedOut);
    assert!(since.elapsed() < Duration::from_secs(10));

    let directory = TempDir::new();
    let [mut from, mut to] = pair(&directory);
    while from.try_send(&[7; 4000]).unwrap() {}
    let sent = from.sent();
    assert_eq!(from.send_timeout(&[8; 4000], short).unwrap_err().kind(), ChannelErrorKind::TimedOut);
    assert_eq!(from.sent(), sent, "what ran out of time is not sent");
    assert!(to.recv_timeout(&mut message, PATIENCE).unwrap(), "the channel goes on");
}

#[test]
fn too_long_messages_are_refused_and_the_channel_works_on() {
    let directory = TempDir::new();
    let [mut from, mut to] =
        ends(&directory).map(|end| end.message_bytes(1000).start().expect("the end of the channel starts"));
    let error = from.try_send(&[0; 1001]).unwrap_err();
    assert_eq!(error.kind(), ChannelErrorKind::TooLong);
    assert!(
        error.to_string().contains("a message of 1001 bytes is longer than the limit of 1000 bytes; send it in parts"),
        "{error}"
    );
    run(&mut to, from.send(&[1; 1000])).unwrap();
    let mut message = Vec::new();
    assert!(run(&mut from, to.recv(&mut message)).unwrap());
    assert_eq!(message, [1; 1000]);
}

#[test]
fn mismatched_ends_get_an_error() {
    let directory = TempDir::new();
    let [listens, connects] = ends(&directory);
    let other = thread::spawn(move || connects.message_bytes(77).patience(PATIENCE).open().map(|_| ()).unwrap_err());
    let error = listens.patience(PATIENCE).open().map(|_| ()).unwrap_err();
    let kinds = [error.kind(), other.join().unwrap().kind()];
    assert!(kinds.contains(&ChannelErrorKind::Mismatch), "{kinds:?}: {error}");
}

fn cluster(directory: &TempDir) -> Cluster {
    let members = [("a", "127.0.0.1:7101"), ("b", "127.0.0.2:7101"), ("c", "127.0.0.3:7101")];
    Cluster::builder("front").group("g1", members).directory(directory).build().expect("a valid cluster")
}

#[test]
fn each_pair_of_a_cluster_has_a_channel() {
    let directory = TempDir::new();
    let cluster = cluster(&directory);
    let pairs = [("a", "b"), ("c", "a"), ("b", "c")];
    let mut open = pairs.map(|(me, peer)| {
        let other = cluster.channel(peer, me);
        let other = thread::spawn(move || other.open().unwrap());
        let mut own = cluster.channel(me, peer).open().unwrap();
        own.send_timeout(me.as_bytes(), PATIENCE).unwrap();
        (own, other.join().unwrap())
    });
    let mut message = Vec::new();
    for ((_, other), (me, _)) in open.iter_mut().zip(pairs) {
        assert!(other.recv_timeout(&mut message, PATIENCE).unwrap());
        assert_eq!(message, me.as_bytes());
    }
    let error = cluster.channel("a", "b").start().unwrap_err();
    assert!(error.to_string().contains("this end is open already"), "{error}");
    assert_eq!(error.kind(), ChannelErrorKind::NotStarted);
}

#[test]
fn invalid_channels_are_refused_with_a_remedy() {
    let directory = TempDir::new();
    let cluster = cluster(&directory);
    let roce = |place: &str| Channel::connect(place).fabric(FabricKind::Roce);
    let cases = [
        (Channel::listen(""), "a place has at least one letter; name one"),
        (cluster.channel("a", "a"), "`a` is both ends; name two processes"),
        (cluster.channel("a", "z"), "there is no process `z`"),
        (cluster.channel("client-0", "a"), "there is no process"),
        (Channel::listen("x").fabric(FabricKind::Verbs), "there are no channels on fabric `verbs`; use `shm`"),
        (Channel::listen("x").fabric(FabricKind::Sim), "there are no channels on fabric `sim`; use `shm`"),
        (roce("nowhere"), "not an address"),
        (roce("127.0.0.1:7199").bind("::1".parse().unwrap()), "packets do not go from IPv4 to IPv6"),
        (roce("192.0.2.1:7199").bind("127.0.0.1".parse().unwrap()), "there is no key"),
        (Channel::listen("x").message_bytes(2 << 30), "the longest message (bytes) is"),
    ];
    for (builder, expected) in cases {
        let error = builder.directory(&directory).start().map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.kind(), ChannelErrorKind::NotStarted);
        assert!(error.to_string().ends_with(&error.remedy()) && !error.remedy().is_empty());
    }
}

/// One loop drives both ends, like a program with its own event loop.
#[test]
fn descriptor_is_readable_for_messages_and_due_turns() {
    let directory = TempDir::new();
    let [mut from, mut to] = pair(&directory);
    let settle = |end: &mut Channel| {
        let since = Instant::now();
        while end.turn().unwrap() == Turn::Busy {
            assert!(since.elapsed() < PATIENCE);
        }
    };
    let readable = |end: &Channel, longest: i64| {
        let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: longest };
        let mut of = [rustix::event::PollFd::new(end, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut of, Some(&time)).unwrap() == 1
    };
    let (mut slept, mut woken, mut message) = (0, 0, Vec::new());
    for number in 0..100_u64 {
        settle(&mut to);
        // The next turn may become due first, after 5 ms. On an idle machine that hardly happens.
        let sleeps = !readable(&to, 0);
        assert!(from.try_send(&bytes(number, 64)).unwrap());
        slept += u32::from(sleeps);
        woken += u32::from(sleeps && readable(&to, 0));
        assert!(readable(&to, 900_000_000), "message {number} wakes nobody");
        let since = Instant::now();
        while to.try_recv(&mut message).unwrap() != Received::Message {
            assert!(since.elapsed() < PATIENCE);
        }
        assert_eq!(message, bytes(number, 64));
        settle(&mut from);
    }
    assert!(slept > 50 && woken > slept / 2, "of {slept} messages {woken} woke the other end at once");
    settle(&mut to);
    assert!(readable(&to, 900_000_000), "the time to look is told as well");
}

/// The other end of the test below, in its own process.
#[test]
#[ignore = "the child of another test"]
fn child_that_echoes() {
    let Ok(directory) = std::env::var("STENTOR_TEST_DIRECTORY") else { return };
    let mut channel = Channel::listen("child").directory(directory).open().unwrap();
    let mut message = Vec::new();
    while channel.recv_timeout(&mut message, PATIENCE).unwrap() {
        channel.send_timeout(&message, PATIENCE).unwrap();
    }
}

#[test]
fn killed_process_is_noticed_and_a_new_channel_meets_its_successor() {
    let directory = TempDir::new();
    let mut message = Vec::new();
    for life in 0..3_u8 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "channel::child_that_echoes", "--ignored"])
            .env("STENTOR_TEST_DIRECTORY", &*directory)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut channel = Channel::connect("child").directory(&directory).patience(PATIENCE).open().unwrap();
        channel.send_timeout(&[life; 100], PATIENCE).unwrap();
        assert!(channel.recv_timeout(&mut message, PATIENCE).unwrap());
        assert_eq!(message, [life; 100]);
        child.kill().unwrap();
        child.wait().unwrap();
        let since = Instant::now();
        let error = channel.recv_timeout(&mut message, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ChannelErrorKind::PeerGone, "{error}");
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    }
}

/// Exchanges messages between two addresses of this host.
pub(crate) fn talk([listens, connects]: [ChannelBuilder; 2]) {
    let echo = thread::spawn(move || {
        let (mut channel, mut message) = (listens.open().unwrap(), Vec::new());
        while channel.recv_timeout(&mut message, PATIENCE).unwrap() {
            channel.send_timeout(&message, PATIENCE).unwrap();
        }
        channel.close_timeout(PATIENCE).unwrap();
    });
    let (mut channel, mut message) = (connects.open().unwrap(), Vec::new());
    for length in [5, 100_000, 0, 1 << 20] {
        channel.send_timeout(&bytes(3, length), PATIENCE).unwrap();
        assert!(channel.recv_timeout(&mut message, PATIENCE).unwrap());
        assert!(message == bytes(3, length));
    }
    channel.close_timeout(PATIENCE).unwrap();
    echo.join().unwrap();
}

/// One end dies without closing, and the other one gets an error.
pub(crate) fn miss([listens, connects]: [ChannelBuilder; 2]) {
    let other = thread::spawn(move || {
        let mut channel = listens.open().unwrap();
        assert!(channel.recv_timeout(&mut Vec::new(), PATIENCE).unwrap());
    });
    let mut channel = connects.open().unwrap();
    channel.send_timeout(b"die", PATIENCE).unwrap();
    let since = Instant::now();
    let error = channel.recv_timeout(&mut Vec::new(), PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ChannelErrorKind::PeerGone, "{error}");
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    other.join().unwrap();
}

/// Returns an address that no concurrent test uses.
pub(crate) fn address(test: u8) -> String {
    format!("127.{test}.{}.1:7300", 1 + std::process::id() % 250)
}

pub(crate) fn at(place: &str, fabric: FabricKind) -> [ChannelBuilder; 2] {
    [Channel::listen(place), Channel::connect(place)].map(|end| end.fabric(fabric).patience(PATIENCE))
}

#[test]
fn packets_between_addresses_carry_a_channel() {
    talk(at(&address(77), FabricKind::Roce));
}

#[test]
fn death_between_addresses_is_noticed() {
    miss(at(&address(79), FabricKind::Roce));
}

#[test]
fn literal_key_is_refused_and_not_shown() {
    for key in ["a secret of these words", "env:", "file:", "url:secret"] {
        let [listens, _] = at("127.0.0.1:1", FabricKind::Roce);
        let error = listens.key(key).start().map(drop).unwrap_err();
        assert_eq!(error.kind(), ChannelErrorKind::NotStarted);
        assert!(error.remedy().contains("`env:NAME` or `file:PATH`"), "{}", error.remedy());
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn wrong_key_fails_before_the_timeout() {
    let directory = TempDir::new();
    let [mut listens, mut connects] = at(&address(80), FabricKind::Roce);
    let key = |name: &str| {
        let path = directory.join(name);
        std::fs::write(&path, format!("{name} is the key of this end")).unwrap();
        format!("file:{}", path.display())
    };
    (listens, connects) = (listens.key(&key("one")), connects.key(&key("another")));
    let other = thread::spawn(move || listens.patience(Duration::from_secs(8)).open().map(|_| ()).unwrap_err());
    let since = Instant::now();
    let error = connects.open().map(|_| ()).unwrap_err();
    let errors = [error, other.join().unwrap()];
    assert!(errors.iter().any(|error| error.kind() == ChannelErrorKind::Mismatch), "{errors:?}");
    assert!(errors.iter().all(|error| !error.to_string().contains("is the key")), "{errors:?}");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}
