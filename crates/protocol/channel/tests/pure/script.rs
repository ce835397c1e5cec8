//! Step-by-step behaviour of one end, including its behaviour with a peer that violates the protocol.

use stentor_channel::{
    Cause, Config, Connection, Kind, Notice, Op, Operation, Outcome, Reason, Scheme, Tag, Way, What, WriteError,
};
use stentor_fabric::{PostError, ProcessId, QpId};

use crate::pair::{Action, Content, Pair, cause};
use crate::random::run;

fn small(scheme: Scheme) -> Config {
    Config { lengths: 4, pieces: 4, piece_bytes: 64, eager_bytes: 16, message_bytes: 1 << 20, ..Config::with(scheme) }
        .normal()
}

/// Returns the hello of the other end.
fn greeting(scheme: Scheme) -> [u64; 8] {
    let mut other = Connection::new(&small(scheme), ProcessId(0), 5, 1);
    while other.next_recv().is_some() {}
    match other.next_send().expect("a hello").what {
        What::Control(words) => words,
        what => panic!("{what:?}"),
    }
}

/// Returns the tags of the lengths and pieces that an end sends if the peer's hello is the only message that it has
/// received.
fn tags(scheme: Scheme, messages: &[u64]) -> Vec<(Kind, u32)> {
    let mut end = Connection::new(&small(scheme), ProcessId(1), 5, 1);
    while end.next_recv().is_some() {}
    let words = greeting(scheme);
    let first = Op { way: Way::Recv, kind: Kind::Greeting, place: 0 };
    end.completed(first, &Outcome::Received { kind: Kind::Greeting, sequence: 1, bytes: 64, words });
    assert_eq!(end.next_notice(), Some(Notice::Opened));
    let mut tags = Vec::new();
    for bytes in messages {
        end.begin(*bytes).expect("the previous message was handed over");
        tags.extend(std::iter::from_fn(|| end.next_send()).map(|send| (send.tag.kind, send.tag.sequence)));
    }
    tags.retain(|(kind, _)| matches!(kind, Kind::Length | Kind::Payload));
    tags
}

#[test]
fn length_payload_scheme_uses_one_id_for_both() {
    use Kind::{Length, Payload};
    let expected = [(Length, 0), (Payload, 0), (Length, 1), (Payload, 1), (Length, 2), (Payload, 2)];
    assert_eq!(tags(Scheme::LengthPayload, &[8, 0, 64]), expected);
    let long = [(Length, 0), (Payload, 0), (Payload, 1), (Payload, 2), (Length, 3), (Payload, 3)];
    assert_eq!(tags(Scheme::LengthPayload, &[129, 1]), long);
}

#[test]
fn a_short_message_is_one_message_of_the_fabric() {
    use Kind::Length;
    // The peer posts receives for the pieces of the long message when the length arrives.
    let expected = [(Length, Tag::WHOLE), (Length, Tag::WHOLE | 1), (Length, 2)];
    assert_eq!(tags(Scheme::Eager, &[8, 0, 65]), expected);
}

/// A message of one piece is sent without a length once the peer has a receive for it. A message of two pieces still
/// has a length in front.
#[test]
fn a_message_of_one_piece_is_one_message_of_the_fabric() {
    let sent = |messages: &[u64]| {
        let mut pair = Pair::new(&small(Scheme::Eager), [messages, &[]], true);
        let mut sent = Vec::new();
        while let Some(action) = pair.actions().first().copied() {
            if let Action::Arrive(1, 0) = action {
                let tag = pair.ends[0].first_tag();
                sent.extend((!matches!(tag.kind, Kind::Control | Kind::Greeting)).then_some((tag.kind, tag.sequence)));
            }
            pair.act(action);
        }
        assert_eq!((pair.wrong.take(), pair.unfinished()), (None, None));
        sent
    };
    let alone = |message: u32, piece| (Kind::Payload, Tag::WHOLE | message << 16 | piece);
    let expected = [(Kind::Length, 0), (Kind::Payload, 0), alone(1, 1), alone(2, 2), (Kind::Length, Tag::WHOLE | 3)];
    assert_eq!(sent(&[17, 18, 64, 16]), expected);
    let expected = [(Kind::Length, 0), (Kind::Payload, 0), (Kind::Payload, 1), alone(1, 2), (Kind::Length, 2)];
    assert_eq!(sent(&[65, 17, 65])[..5], expected);
}

#[test]
fn several_receives_are_posted_before_the_hello() {
    let mut end = Connection::new(&small(Scheme::Eager), ProcessId(1), 0, 1);
    assert_eq!(end.next_send(), None, "the hello must wait, because its credits represent posted receives");
    let recvs: Vec<_> = std::iter::from_fn(|| end.next_recv()).collect();
    let count = |kind| recvs.iter().filter(|recv| recv.op.kind == kind).count();
    assert_eq!((count(Kind::Length), count(Kind::Payload), count(Kind::Control)), (4 + 16, 0, 0));
    let takes = |recv: &stentor_channel::Recv, kind, sequence| {
        let tag = Tag { connection: 0, kind, sequence };
        (tag.bits() ^ recv.tag.bits()) & !recv.ignore == 0
    };
    for recv in &recvs {
        let of_length = recv.op.kind == Kind::Length;
        for kind in Kind::ALL {
            let fits = kind == recv.op.kind || of_length && kind == Kind::Control;
            assert_eq!(takes(recv, kind, recv.tag.sequence), fits, "{recv:?} {kind:?}");
            assert_eq!(takes(recv, kind, recv.tag.sequence + 9), fits && of_length, "{recv:?} {kind:?}");
        }
    }
    assert!(matches!(end.next_send().map(|send| send.what), Some(What::Control(_))));
    assert_eq!(end.lent(), 22);
}

#[test]
fn nothing_is_sent_without_credits() {
    let mut end = Connection::new(&small(Scheme::Eager), ProcessId(1), 0, 1);
    while end.next_recv().is_some() {}
    assert!(end.next_send().is_some(), "the greeting");
    assert_eq!(end.begin(5), Ok(0));
    assert_eq!(end.next_send(), None);
    assert_eq!(end.begin(5), Err(WriteError::Busy { left: 5 }));
    assert_eq!(end.finish(), Err(WriteError::Busy { left: 5 }));
}

#[test]
fn message_beyond_the_limit_is_refused() {
    let mut end = Connection::new(&small(Scheme::Eager), ProcessId(1), 0, 1);
    let limit = 1 << 20;
    assert_eq!(end.begin(limit + 1), Err(WriteError::TooLong { bytes: limit + 1, limit }));
    assert_eq!(end.begin(limit), Ok(0));
}

#[test]
fn refused_post_fails_the_connection_by_name() {
    let mut end = Connection::new(&small(Scheme::Eager), ProcessId(3), 9, 1);
    let recv = end.next_recv().expect("a receive");
    end.refused(recv.op, PostError::UnknownQp(QpId(7)));
    let Some(Notice::Failed(error)) = end.next_notice() else { panic!("no failure") };
    assert_eq!((error.peer, error.connection, error.operation), (ProcessId(3), 9, Operation::Open));
    assert!(error.to_string().contains("connection 9 with p3: opening"), "{error}");
    assert_eq!(end.next_notice(), Some(Notice::Closed), "no other operation was posted");
    assert_eq!(end.begin(1), Err(WriteError::Closed));
}

#[test]
fn both_ends_may_finish_at_any_time_and_read_what_is_left() {
    let mut pair = Pair::new(&small(Scheme::Eager), [&[1, 2, 300, 0], &[]], true);
    run(&mut pair, &[]);
    assert_eq!((pair.wrong.take(), pair.unfinished()), (None, None));
}

#[test]
fn a_gigabyte_goes_in_pieces() {
    let config = Config { piece_bytes: 1 << 20, pieces: 4, ..Config::default() };
    let mut pair = Pair::new(&config, [&[1 << 30, 0], &[]], true);
    pair.eager_readers = true;
    let steps = run(&mut pair, &[]);
    assert_eq!((pair.wrong.take(), pair.unfinished()), (None, None));
    assert!(steps > 2048, "1024 pieces were sent and received in {steps} steps");
}

#[test]
fn different_parameters_are_reported_at_both_ends() {
    let config = small(Scheme::Eager);
    let other = Config { pieces: 3, ..config };
    let mut pair = Pair::of([config, other], [&[5], &[]], true);
    run(&mut pair, &[]);
    let expected = |ours, theirs| Some(Cause::Disagree { what: "the number of pieces in flight", ours, theirs });
    let [a, b] = &pair.ends;
    assert!(a.closed && b.closed);
    // One end may receive the other's abort before it compares the parameters.
    let gave_up = Some(Cause::PeerGaveUp(Reason::Error));
    assert!(cause(a) == expected(4, 3) || cause(a) == gave_up, "{:?}", cause(a));
    assert!(cause(b) == expected(3, 4) || cause(b) == gave_up, "{:?}", cause(b));
    assert!(cause(a) != gave_up || cause(b) != gave_up);
}

/// Returns the cause with which an end fails when an adversary sends it these messages.
fn forged(scheme: Scheme, forged: &[(Kind, u32, Content)]) -> Cause {
    let mut pair = Pair::new(&small(scheme), [&[], &[5]], true);
    for (kind, sequence, content) in forged {
        pair.ends[0].forge(Tag { connection: 5, kind: *kind, sequence: *sequence }, *content);
    }
    for step in 0.. {
        if cause(&pair.ends[1]).is_some() {
            break;
        }
        assert!(step < 1000, "the violation is not detected: {forged:?}");
        let action =
            pair.actions().into_iter().find(|action| matches!(action, Action::Arrive(1, _) | Action::Tell(..)));
        // If no other event is left, the end detects the violation when it reads.
        pair.act(action.unwrap_or(Action::Read(1)));
    }
    let error = pair.ends[1].failed.unwrap();
    assert_eq!(error.peer, ProcessId(0));
    error.cause
}

#[test]
fn each_protocol_violation_has_its_own_cause() {
    let length = |bytes, inline| Content::Length { message: 0, bytes, inline };
    let too_long = forged(Scheme::Eager, &[(Kind::Length, 0, length(1 << 40, 0))]);
    assert_eq!(too_long, Cause::TooLong { bytes: 1 << 40, limit: 1 << 20 });
    let longer = forged(Scheme::Eager, &[(Kind::Length, 0, length(900, 2))]);
    assert_eq!(longer, Cause::Size { kind: "length", bytes: 10, expected: 8 });
    let longer = forged(Scheme::Counted, &[(Kind::Length, 0, length(9, 20))]);
    assert_eq!(longer, Cause::Size { kind: "length", bytes: 28, expected: 17 });
    let alone = forged(Scheme::Eager, &[(Kind::Length, 0, length(9, 0))]);
    assert_eq!(alone, Cause::Nonsense("it sent the length of a message that is sent in place of its length"));
    let eager = u64::from(small(Scheme::Eager).eager_bytes);
    let whole = |number| (Kind::Length, Tag::WHOLE | number, length(1, 1));
    let long = forged(Scheme::Eager, &[(Kind::Length, Tag::WHOLE, length(eager + 1, eager as u32 + 1))]);
    assert_eq!(long, Cause::Size { kind: "whole message", bytes: eager + 1, expected: eager });
    let far = forged(Scheme::Eager, &[whole(77)]);
    assert_eq!(far, Cause::Sequence { kind: "length", sequence: 77, expected: 0, window: 5 });
    let twice = forged(Scheme::Eager, &[whole(1), whole(1)]);
    assert!(matches!(twice, Cause::Sequence { sequence: 1, .. }), "{twice:?}");
    let control = forged(Scheme::Eager, &[(Kind::Control, 3, Content::Control([9; 8]))]);
    assert_eq!(control, Cause::Version { ours: 3, theirs: 9 });
    let piece = Content::Piece { message: 0, offset: 0, bytes: 3 };
    let size = forged(Scheme::LengthPayload, &[(Kind::Length, 0, length(9, 0)), (Kind::Payload, 0, piece)]);
    assert_eq!(size, Cause::Size { kind: "payload", bytes: 3, expected: 9 });
}
