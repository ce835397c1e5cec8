//! Messages that are taken in one step, and those that look like them and must not be.

use stentor_channel::{Cause, Config, Connection, Kind, Notice, Op, Operation, Outcome, Recv, Scheme, Tag, Way, What};
use stentor_fabric::ProcessId;

fn config() -> Config {
    Config { lengths: 4, pieces: 4, piece_bytes: 64, eager_bytes: 16, message_bytes: 8, ..Config::with(Scheme::Eager) }
}

fn received(kind: Kind, sequence: u32, bytes: u32, words: [u64; 8]) -> Outcome {
    Outcome::Received { kind, sequence, bytes, words }
}

/// The next thing that an end says, which the fabric is done with at once.
fn said(end: &mut Connection) -> [u64; 8] {
    let send = end.next_send().expect("it has something to say");
    end.completed(send.op, &Outcome::Sent);
    let What::Control(words) = send.what else { panic!("{send:?}") };
    words
}

/// An end that was greeted, and its receives but that for the greeting.
fn opened() -> (Connection, Vec<Recv>) {
    let mut end = Connection::new(&config(), ProcessId(1), 5, 1);
    let mut recvs: Vec<Recv> = std::iter::from_fn(|| end.next_recv()).collect();
    let words = said(&mut end);
    let greeting = recvs.iter().position(|recv| recv.op.kind == Kind::Greeting).expect("a receive for it");
    end.completed(recvs.remove(greeting).op, &received(Kind::Greeting, 1, 64, words));
    assert_eq!(end.next_notice(), Some(Notice::Opened));
    (end, recvs)
}

/// The first message, of so many bytes.
fn whole(bytes: u32) -> Outcome {
    // What is in front of a whole message is nobody's length.
    received(Kind::Length, Tag::WHOLE, bytes, [u64::MAX; 8])
}

fn failure(end: &mut Connection) -> (Operation, Cause) {
    match end.next_notice() {
        Some(Notice::Failed(error)) => (error.operation, error.cause),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_receive_of_who_gave_up_may_have_taken_a_message() {
    let (mut end, recvs) = opened();
    end.abort();
    said(&mut end);
    let (last, others) = recvs.split_last().expect("some");
    assert_eq!(last.op.kind, Kind::Length);
    others.iter().for_each(|recv| end.completed(recv.op, &Outcome::GivenBack));
    assert!(!end.is_over());
    end.completed(last.op, &whole(8));
    assert!(end.is_over() && end.lent() == 0);
    failure(&mut end);
    assert_eq!(end.next_notice(), Some(Notice::Closed));
}

#[test]
fn what_was_taken_is_not_asked_back() {
    let (mut end, recvs) = opened();
    end.completed(recvs[0].op, &whole(8));
    end.abort();
    let back: Vec<Op> = std::iter::from_fn(|| end.next_cancel()).collect();
    assert_eq!((back.len(), back.contains(&recvs[0].op)), (recvs.len() - 1, false));
}

#[test]
fn a_whole_message_that_is_too_long_is_refused() {
    let (mut end, recvs) = opened();
    end.completed(recvs[0].op, &whole(9));
    assert_eq!(failure(&mut end), (Operation::Read(0), Cause::TooLong { bytes: 9, limit: 8 }));
}

#[test]
fn a_message_after_the_last_one_is_refused() {
    let ((mut end, recvs), (mut other, _)) = (opened(), opened());
    other.finish().expect("nothing is handed over in part");
    end.completed(recvs[0].op, &received(Kind::Control, 0, 64, said(&mut other)));
    assert_eq!(end.error(), None);
    end.completed(recvs[1].op, &whole(8));
    assert_eq!(failure(&mut end), (Operation::Read(0), Cause::Nonsense("it sent more than it says")));
}

#[test]
fn a_receive_takes_only_what_it_was_posted_for() {
    let mismatch = Cause::Nonsense("a receive took what it was not posted for");
    for kind in [Kind::Payload, Kind::Greeting] {
        let (mut end, recvs) = opened();
        end.completed(recvs[0].op, &received(kind, 0, 64, [0; 8]));
        assert_eq!(failure(&mut end).1, mismatch, "{kind:?}");
    }
    let counted = Config { message_bytes: 8, ..Config::with(Scheme::Counted) };
    let mut end = Connection::new(&counted, ProcessId(1), 5, 1);
    let length = std::iter::from_fn(|| end.next_recv()).find(|recv| recv.op.kind == Kind::Length).expect("one");
    end.completed(length.op, &received(Kind::Control, 0, 64, [0; 8]));
    assert_eq!(failure(&mut end).1, mismatch);
}

/// In a receive for a length, which is longer or shorter: it is said that it was a control message.
#[test]
fn a_control_message_of_another_size_is_refused() {
    for bytes in [0, 8, 63, 65, 72] {
        let (mut end, recvs) = opened();
        end.completed(recvs[0].op, &received(Kind::Control, 0, bytes, [0; 8]));
        let cause = Cause::Size { kind: "control", bytes: bytes.into(), expected: 64 };
        assert_eq!(failure(&mut end), (Operation::Control, cause));
    }
}

/// More than there are receives for, one after the other: each is answered with a receive, and none with credits for lengths.
#[test]
fn control_messages_do_not_use_up_the_receives_for_lengths() {
    let (mut end, mut recvs) = opened();
    let (mut other, _) = opened();
    other.finish().expect("nothing is handed over in part");
    let words = said(&mut other);
    let all = recvs.len();
    for sequence in 0..100 {
        let op = recvs.remove(0).op;
        assert_eq!((op.way, op.kind), (Way::Recv, Kind::Length));
        end.completed(op, &received(Kind::Control, sequence, 64, words));
        recvs.extend(std::iter::from_fn(|| end.next_recv()));
        assert_eq!((end.error(), recvs.len()), (None, all));
        while let Some(send) = end.next_send() {
            let What::Control(words) = send.what else { panic!("{send:?}") };
            assert_eq!(words[3], 4, "credits for lengths");
            end.completed(send.op, &Outcome::Sent);
        }
    }
}
