//! Tests of both ends of a control socket.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use stentor_host::Beside;
use stentor_testutil::TempDir;

use super::control::{Asks as _, Control, ask, ask_within, is_listened_to, receive, send};
use super::question::{Answer, Question};

fn said(stream: &UnixStream) -> String {
    match receive(stream, Question::LONGEST).unwrap() {
        Answer::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn questions_are_answered_and_nonsense_is_refused() {
    let place = TempDir::new();
    assert_eq!(ask(&[place.join("x.ctl")], &Question::Show).unwrap(), None, "nobody is there");
    let control: Control<Question> = Control::listen(&Beside::from(place.join("x.ctl")), || {}).unwrap();
    let lines = ["\n".to_owned(), "{}\n".into(), "\"show\" 7\n".into(), "\u{ff}\n".into()];
    for line in lines.iter().chain([&"x".repeat(Question::LONGEST as usize + 9)]) {
        let stream = UnixStream::connect(place.join("x.ctl")).unwrap();
        // The control may close the connection before it has read the whole line.
        let _ = (&stream).write_all(line.as_bytes());
        assert!(said(&stream).starts_with("no question: "), "{line}");
    }
    drop(UnixStream::connect(place.join("x.ctl")).unwrap());
    let path = place.join("x.ctl");
    let asking = std::thread::spawn(move || ask(&[path], &Question::Move { to: "g1.2".to_owned() }).unwrap());
    let asked = loop {
        if let Some(asked) = control.next() {
            break asked;
        }
        std::thread::yield_now();
    };
    assert_eq!(asked.question, Question::Move { to: "g1.2".to_owned() });
    asked.answer(Answer::Moving);
    assert_eq!(asking.join().unwrap(), Some(Answer::Moving));
}

#[test]
fn status_of_the_largest_cluster_arrives() {
    // All processes, with names of 24 bytes in quotation marks, and an entry for each of 256 groups.
    let long = Answer::Refused("x".repeat(256 * 64 * (24 + 3) + 256 * 200));
    let (ours, theirs) = UnixStream::pair().unwrap();
    let answering = std::thread::spawn(move || send(&theirs, &long).map(|()| long));
    let heard: Answer = receive(&ours, Question::LONGEST).unwrap();
    assert_eq!(heard, answering.join().unwrap().unwrap());
}

#[test]
fn a_question_is_withdrawn_when_its_asker_hangs_up() {
    let place = TempDir::new();
    let control: Control<Question> = Control::listen(&Beside::from(place.join("x.ctl")), || {}).unwrap();
    let ask = || {
        let stream = UnixStream::connect(place.join("x.ctl")).unwrap();
        send(&stream, &Question::Stop).unwrap();
        stream
    };
    let taken = |control: &Control<Question>| {
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(500) {
            if let Some(asked) = control.next() {
                return Some(asked.question);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    };
    let waits = ask();
    assert_eq!(taken(&control), Some(Question::Stop), "the question of an asker that waits is found");
    drop(waits);
    drop(ask());
    assert_eq!(taken(&control), None);
}

#[test]
fn a_removed_socket_is_recreated() {
    let place = TempDir::new();
    let _control: Control<Question> = Control::listen(&Beside::from(place.join("x.ctl")), || {}).unwrap();
    std::fs::remove_file(place.join("x.ctl")).unwrap();
    let since = Instant::now();
    while UnixStream::connect(place.join("x.ctl")).is_err() {
        assert!(since.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The test observes the thread through a second name of its socket: connections to it succeed until the thread ends.
#[test]
fn a_dropped_control_removes_its_socket_and_ends_its_thread() {
    let place = TempDir::new();
    let [path, other] = ["x.ctl", "other"].map(|name| place.join(name));
    let control: Control<Question> = Control::listen(&Beside::from(path.clone()), || {}).unwrap();
    std::fs::hard_link(&path, &other).unwrap();
    drop(UnixStream::connect(&other).expect("the control socket listens"));
    drop(control);
    assert!(!path.exists());
    let since = Instant::now();
    while UnixStream::connect(&other).is_ok() {
        assert!(since.elapsed() < Duration::from_secs(20), "the thread goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
    // This is longer than the interval at which a removed socket is recreated.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!path.exists());
    let again: Control<Question> = Control::listen(&Beside::from(path), || {}).expect("its path is free");
    drop(again);
}

#[test]
fn a_question_wakes_the_loop_which_finds_it() {
    let place = TempDir::new();
    let path = place.join("x.ctl");
    let (wake, woken) = std::sync::mpsc::channel();
    let control: Control<Question> =
        Control::listen(&Beside::from(path.clone()), move || wake.send(()).unwrap()).unwrap();
    for _ in 0..100 {
        let paths = [path.clone()];
        let asking = std::thread::spawn(move || ask(&paths, &Question::Show).unwrap());
        woken.recv_timeout(Duration::from_secs(20)).expect("the loop is woken");
        control.next().expect("the question is there when the loop is woken").answer(Answer::Done);
        assert_eq!(asking.join().unwrap(), Some(Answer::Done));
        assert!(control.next().is_none());
    }
}

/// The listener accepts no connection, as a stopped process.
#[test]
fn asking_a_stopped_process_with_a_full_queue_times_out() {
    let place = TempDir::new();
    let path = place.join("x.ctl");
    let address = SocketAddrUnix::new(&path).unwrap();
    let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let stopped = socket(SocketFlags::empty());
    bind(&stopped, &address).unwrap();
    listen(&stopped, 1).unwrap();
    let mut queued = Vec::new();
    loop {
        let another = socket(SocketFlags::NONBLOCK);
        if connect(&another, &address).is_err() {
            break;
        }
        queued.push(another);
    }
    let (asked, answered) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let answer = ask_within(std::slice::from_ref(&path), &Question::Show, Duration::from_millis(100));
        asked.send((answer, is_listened_to(&path))).unwrap();
    });
    let (answer, is_there) = answered.recv_timeout(Duration::from_secs(20)).expect("no call waits for ever");
    let error = answer.unwrap_err();
    assert_eq!((error.kind(), &*error.to_string()), (std::io::ErrorKind::WouldBlock, "no answer for 100ms"));
    assert!(is_there);
}
