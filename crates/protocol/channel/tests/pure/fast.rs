//! Messages that the fast path accepts, and similar messages that it must not accept.

use stentor_channel::{Cause, Config, Connection, Kind, Notice, Op, Operation, Outcome, Recv, Scheme, Tag, Way, What};
use stentor_fabric::ProcessId;

fn config() -> Config {
    Config { lengths: 4, pieces: 4, piece_bytes: 64, eager_bytes: 16, message_bytes: 8, ..Config::with(Scheme::Eager) }
}

fn received(kind: Kind, sequence: u32, bytes: u32, words: [u64; 8]) -> Outcome {
    Outcome::Received { kind, sequence, bytes, words }
}

/// Returns the next control message of an end, and completes its send at once.
fn next_control_message(end: &mut Connection) -> [u64; 8] {
    let send = end.next_send().expect("a control message is due");
    end.completed(send.op, &Outcome::Sent);
    let What::Control(words) = send.what else { panic!("{send:?}") };
    words
}

/// Returns an end that has received the peer's hello, and its receives without the one for the hello.
fn opened() -> (Connection, Vec<Recv>) {
    let mut end = Connection::new(&config(), ProcessId(1), 5, 1);
    let mut recvs: Vec<Recv> = std::iter::from_fn(|| end.next_recv()).collect();
    let words = next_control_message(&mut end);
    let greeting =
        recvs.iter().position(|recv| recv.op.kind == Kind::Greeting).expect("a receive for the hello is posted");
    end.completed(recvs.remove(greeting).op, &received(Kind::Greeting, 1, 64, words));
    assert_eq!(end.next_notice(), Some(Notice::Opened));
    (end, recvs)
}

/// Returns the arrival of the first message, of `bytes` bytes.
fn arrival(bytes: u32) -> Outcome {
    // The first word of a message that arrives in place of its length is not a length.
    received(Kind::Length, Tag::WHOLE, bytes, [u64::MAX; 8])
}

fn failure(end: &mut Connection) -> (Operation, Cause) {
    match end.next_notice() {
        Some(Notice::Failed(error)) => (error.operation, error.cause),
        other => panic!("{other:?}"),
    }
}

#[test]
fn last_receive_of_aborted_end_may_hold_a_message() {
    let (mut end, recvs) = opened();
    end.abort();
    next_control_message(&mut end);
    let (last, others) = recvs.split_last().expect("the list has receives");
    assert_eq!(last.op.kind, Kind::Length);
    others.iter().for_each(|recv| end.completed(recv.op, &Outcome::GivenBack));
    assert!(!end.is_over());
    end.completed(last.op, &arrival(8));
    assert!(end.is_over() && end.lent() == 0);
    failure(&mut end);
    assert_eq!(end.next_notice(), Some(Notice::Closed));
}

#[test]
fn used_receive_is_not_cancelled() {
    let (mut end, recvs) = opened();
    end.completed(recvs[0].op, &arrival(8));
    end.abort();
    let back: Vec<Op> = std::iter::from_fn(|| end.next_cancel()).collect();
    assert_eq!((back.len(), back.contains(&recvs[0].op)), (recvs.len() - 1, false));
}

#[test]
fn a_whole_message_that_is_too_long_is_refused() {
    let (mut end, recvs) = opened();
    end.completed(recvs[0].op, &arrival(9));
    assert_eq!(failure(&mut end), (Operation::Read(0), Cause::TooLong { bytes: 9, limit: 8 }));
}

#[test]
fn a_message_after_the_last_one_is_refused() {
    let ((mut end, recvs), (mut other, _)) = (opened(), opened());
    other.finish().expect("no message is begun");
    end.completed(recvs[0].op, &received(Kind::Control, 0, 64, next_control_message(&mut other)));
    assert_eq!(end.error(), None);
    end.completed(recvs[1].op, &arrival(8));
    assert_eq!(failure(&mut end), (Operation::Read(0), Cause::Nonsense("it sent more messages than it announced")));
}

#[test]
fn receive_with_another_kind_is_refused() {
    let mismatch = Cause::Nonsense("it sent a message to a receive for another kind");
    for kind in [Kind::Payload, Kind::Greeting] {
        let (mut end, recvs) = opened();
        end.completed(recvs[0].op, &received(kind, 0, 64, [0; 8]));
        assert_eq!(failure(&mut end).1, mismatch, "{kind:?}");
    }
    let counted = Config { message_bytes: 8, ..Config::with(Scheme::Counted) };
    let mut end = Connection::new(&counted, ProcessId(1), 5, 1);
    let length = std::iter::from_fn(|| end.next_recv())
        .find(|recv| recv.op.kind == Kind::Length)
        .expect("the end has a receive for a length");
    end.completed(length.op, &received(Kind::Control, 0, 64, [0; 8]));
    assert_eq!(failure(&mut end).1, mismatch);
}

/// A receive for a length does not enforce the size of a control message that arrives in it. The end therefore checks
/// that size.
#[test]
fn a_control_message_of_another_size_is_refused() {
    for bytes in [0, 8, 63, 65, 72] {
        let (mut end, recvs) = opened();
        end.completed(recvs[0].op, &received(Kind::Control, 0, bytes, [0; 8]));
        let cause = Cause::Size { kind: "control", bytes: bytes.into(), expected: 64 };
        assert_eq!(failure(&mut end), (Operation::Control, cause));
    }
}

/// One end receives more control messages, one after the other, than it has receives. It posts a new receive for each,
/// and does not count these receives as credits for lengths.
#[test]
fn control_messages_do_not_use_up_the_receives_for_lengths() {
    let (mut end, mut recvs) = opened();
    let (mut other, _) = opened();
    other.finish().expect("no message is begun");
    let words = next_control_message(&mut other);
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
