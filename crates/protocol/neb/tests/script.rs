//! Step-by-step scripts of the state machine, each for one rule.

use stentor_fabric::ProcessId;
use stentor_neb::{Authority, Config, Evidence, FaultModel, Mode, Outcome, Replay, Seen, Value};

const P: [ProcessId; 5] = [ProcessId(0), ProcessId(1), ProcessId(2), ProcessId(3), ProcessId(4)];
const SENDER: Mode = Mode::Quorum(FaultModel::LyingSender);
const HOSTS: Mode = Mode::Quorum(FaultModel::LyingHosts);

/// Returns the words of an unsigned value.
fn words(index: u64, byte: u64) -> [u64; 4] {
    [index, 77, 8, byte]
}

fn with<R>(index: u64, byte: u64, act: impl FnOnce(Value<'_>) -> R) -> R {
    let words = words(index, byte);
    act(Value::new(&words, 32, false, 8).unwrap())
}

/// Returns the stream of process 0 at process `me`.
fn stream(mode: Mode, n: usize, f: usize, window: u32, me: usize) -> Replay {
    let config = Config { window, payload_bytes: 8, ..Config::new(n, mode, f) };
    config.check().unwrap();
    Replay::new(&config, P[me], P[0])
}

fn take(stream: &mut Replay, byte: u64) {
    let index = stream.next();
    with(index, byte, |value| stream.poll_bcast_bufs(&value));
}

fn read(stream: &mut Replay, replayer: usize, index: u64, shown: Option<u64>) -> Option<Evidence> {
    match shown {
        None => stream.poll_read_cq(P[replayer], index, Seen::Empty, None).1,
        Some(byte) => with(index, byte, |value| stream.poll_read_cq(P[replayer], index, Seen::Value(value), None).1),
    }
}

fn answer(stream: &mut Replay, host: usize) {
    let serial = stream.round().unwrap().serial;
    stream.answered(P[host], serial);
}

fn delivered(stream: &mut Replay) -> Option<u64> {
    let byte = match stream.next_outcome()? {
        Outcome::Deliver(value) => value.words()[3],
        Outcome::Skip(_) => panic!("a skip"),
    };
    stream.settled();
    Some(byte)
}

#[test]
fn crash_of_a_correct_process_causes_no_delivery() {
    // The sender sends value 1 to p1 and p2, and value 9 to p3. p2 answers both and crashes. p1 and p3 wait for it,
    // whatever they suspect, and never deliver different values.
    let (mut one, mut three) = (stream(Mode::All, 4, 0, 4, 1), stream(Mode::All, 4, 0, 4, 3));
    take(&mut one, 1);
    take(&mut three, 9);
    assert!(one.next_round() && three.next_round());
    read(&mut one, 2, 0, Some(1));
    answer(&mut one, 2);
    read(&mut three, 2, 0, None);
    answer(&mut three, 2);
    assert!(read(&mut one, 3, 0, Some(9)).is_some());
    answer(&mut one, 3);
    for stream in [&mut one, &mut three] {
        stream.suspect(P[2]);
        stream.suspect(P[0]);
        assert_eq!(delivered(stream), None);
    }
}

#[test]
fn member_that_answers_twice_counts_once() {
    let mut stream = stream(Mode::All, 4, 0, 4, 1);
    take(&mut stream, 1);
    assert!(stream.next_round());
    for _ in 0..3 {
        read(&mut stream, 2, 0, None);
        answer(&mut stream, 2);
    }
    assert_eq!(delivered(&mut stream), None);
    answer(&mut stream, 3);
    assert_eq!(delivered(&mut stream), Some(1));
}

#[test]
fn two_processes_need_no_read() {
    let mut stream = stream(Mode::All, 2, 0, 4, 1);
    take(&mut stream, 5);
    assert!(stream.next_round());
    assert_eq!(delivered(&mut stream), Some(5));
}

#[test]
fn no_read_before_the_own_register_is_at_a_quorum() {
    let mut stream = stream(HOSTS, 4, 1, 4, 1);
    take(&mut stream, 1);
    for host in [1, 2] {
        stream.published(P[host], 1);
        assert!(!stream.next_round(), "{host} hosts of 3");
    }
    stream.published(P[3], 1);
    assert!(stream.next_round());
    assert!(!stream.next_round(), "one round at a time");
}

#[test]
fn conflict_is_sticky_and_ends_the_stream_with_evidence() {
    let mut stream = stream(SENDER, 4, 1, 4, 1);
    take(&mut stream, 1);
    take(&mut stream, 2);
    [1, 2].into_iter().for_each(|host| stream.published(P[host], 2));
    assert!(stream.next_round());
    let evidence = read(&mut stream, 3, 1, Some(8)).unwrap();
    assert_eq!((evidence.index, evidence.witness, evidence.proven), (1, P[3], false));
    assert_eq!((evidence.ours[3], evidence.other[3]), (2, 8));
    assert_eq!(read(&mut stream, 2, 1, Some(8)), None, "reported once");
    answer(&mut stream, 1);
    answer(&mut stream, 2);
    assert_eq!(delivered(&mut stream), Some(1), "what came before it is not lost");
    stream.suspect(P[3]);
    assert_eq!((delivered(&mut stream), stream.ended()), (None, Some(1)));
    assert!(!stream.has_room());
}

#[test]
fn reused_register_gives_up_only_the_old_index() {
    let mut stream = stream(Mode::All, 4, 0, 1, 1);
    take(&mut stream, 1);
    assert!(stream.next_round());
    assert!(stream.poll_read_cq(P[2], 0, Seen::Newer, None).0);
    answer(&mut stream, 2);
    assert_eq!(stream.next_outcome(), Some(Outcome::Skip(0)));
    stream.settled();
    take(&mut stream, 2);
    // The round for index 0 ends now. Its result does not apply to index 1, which reuses the slot.
    answer(&mut stream, 3);
    assert_eq!(delivered(&mut stream), None);
    assert!(stream.next_round());
    [2, 3].into_iter().for_each(|host| answer(&mut stream, host));
    assert_eq!(delivered(&mut stream), Some(2));
}

#[test]
fn torn_register_is_read_again_until_the_floor_excludes_reuse() {
    let mut stream = stream(SENDER, 4, 1, 4, 1);
    take(&mut stream, 1);
    [1, 2].into_iter().for_each(|host| stream.published(P[host], 1));
    assert!(stream.next_round());
    assert!(!stream.poll_read_cq(P[2], 0, Seen::Torn { reusable: None }, None).0);
    assert!(!stream.poll_read_cq(P[2], 0, Seen::Torn { reusable: Some(true) }, None).0);
    assert!(stream.poll_read_cq(P[2], 0, Seen::Torn { reusable: Some(false) }, None).0);
}

#[test]
fn fast_path_needs_all_replayers_and_detects_conflicts() {
    let mut stream = stream(SENDER, 4, 1, 4, 1);
    take(&mut stream, 1);
    let push = |stream: &mut Replay, replayer: usize, byte: u64| {
        with(0, byte, |value| stream.pushed(P[replayer], 0, &value, None))
    };
    assert_eq!(push(&mut stream, 2, 1), None);
    assert_eq!(push(&mut stream, 2, 1), None);
    assert_eq!(delivered(&mut stream.clone()), None, "one of two");
    let mut other = stream.clone();
    assert_eq!(push(&mut stream, 3, 1), None);
    assert_eq!(delivered(&mut stream), Some(1));
    assert!(push(&mut other, 3, 4).is_some());
    assert_eq!(delivered(&mut other), None);
}

#[test]
fn only_signed_values_of_the_sender_are_conflicts() {
    let secret = |n: usize| [n as u8 + 1; 32];
    let public: Vec<_> = (0..4).map(|n| Authority::public_of(&secret(n))).collect();
    let at = |n: usize| Authority::new(5, P[n], &secret(n), &public).unwrap();
    let signed = |by: usize, index: u64, byte: u64| {
        let mut value = words(index, byte).to_vec();
        let signature = at(by).sign(&value);
        value.extend(signature.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())));
        value
    };
    let config = Config { window: 4, payload_bytes: 8, signed: true, ..Config::new(4, HOSTS, 1) };
    let mut stream = Replay::new(&config, P[1], P[0]);
    let value = |words: &'static [u64]| Value::new(words, words.len() * 8, true, 8).unwrap();
    let leaked = |words: Vec<u64>| -> &'static [u64] { Box::leak(words.into_boxed_slice()) };
    let own = value(leaked(signed(0, 0, 1)));
    assert!(own.check(P[0], 0, Some(&at(1))).is_ok());
    assert!(own.check(P[0], 1, Some(&at(1))).unwrap_err().to_string().contains("index gap"));
    stream.poll_bcast_bufs(&own);
    [1, 2, 3].into_iter().for_each(|host| stream.published(P[host], 1));
    assert!(stream.next_round());
    let garbage = value(leaked(signed(3, 0, 7)));
    let wrong = garbage.check(P[0], 0, Some(&at(1))).unwrap_err().to_string();
    assert_eq!(wrong, "the signature of index 0 is not p0's: another key or another cluster");
    assert_eq!(stream.poll_read_cq(P[3], 0, Seen::Value(garbage), Some(&at(1))), (true, None));
    let other = value(leaked(signed(0, 0, 7)));
    let evidence = stream.poll_read_cq(P[2], 0, Seen::Value(other), Some(&at(1))).1.unwrap();
    assert!(evidence.proven);
}
