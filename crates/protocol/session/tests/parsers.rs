//! Parsers accept any input without a panic, and every serialized value is parsed unchanged. Each property is tested
//! with 256 cases; `PROPTEST_CASES` sets another number.
#![forbid(unsafe_code)]

use proptest::collection::vec;
use proptest::prelude::*;
use stentor_multicast::{GroupId, Incarnation, Timestamp};
use stentor_session::{
    At, Body, Call, Envelope, EnvelopeError, Kind, Outcome, Pair, Position, ReadGuarantee, ReadRequest,
    ReadRequestError, Reason, RecordError, Reply, ReplyRecord, Service, SessionId, SessionKey, SessionLimits, Sessions,
    Ticket, pairs_tag,
};

struct Nothing;

impl Service for Nothing {
    fn apply(&mut self, _: Call<'_>, _: &mut Reply<'_>) {}
    fn ended(&mut self, _: SessionId) {}
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Command,
        Kind::Open,
        Kind::Renew,
        Kind::Widen,
        Kind::TakeUp,
        Kind::End,
        Kind::Resolve,
        Kind::Query,
    ])
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![
        Outcome::Applied,
        Outcome::Overflow,
        Outcome::Skipped,
        Outcome::Refused(Reason::TooLate),
        Outcome::Refused(Reason::Superseded),
        Outcome::Refused(Reason::GenerationAhead),
        Outcome::Refused(Reason::OutsideWindow),
        Outcome::Refused(Reason::Taken),
        Outcome::Refused(Reason::TimeToLive),
        Outcome::Closed,
        Outcome::Forgotten,
        Outcome::SessionNotOpen,
        Outcome::TableFull,
        Outcome::WrongPairs,
        Outcome::Halted,
        Outcome::Notification,
        Outcome::Notified,
        Outcome::Elsewhere,
        Outcome::OtherHistory,
    ])
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let parts = (any::<u128>(), 1..u64::MAX, any::<(u64, u64)>(), 1..u32::MAX, any::<u32>(), kind());
    parts.prop_map(|(session, request, (end, pairs), generation, behind, kind)| {
        let named = matches!(kind, Kind::Command | Kind::Query | Kind::Resolve);
        let behind = if named { u64::from(behind).min(request - 1) as u32 } else { 0 };
        Envelope { session: SessionId(session), request, end, pairs, generation, behind, kind }
    })
}

fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    prop::collection::btree_map(any::<u16>(), any::<(u32, u32)>(), 1..20).prop_map(|pairs| {
        let pair = |(group, (number, tag))| Pair { group: GroupId(group), incarnation: Incarnation { number, tag } };
        pairs.into_iter().map(pair).collect()
    })
}

fn written(envelope: &Envelope) -> [u8; Envelope::BYTES] {
    let mut bytes = [0; Envelope::BYTES];
    envelope.write(&mut bytes);
    bytes
}

fn guarantee() -> impl Strategy<Value = ReadGuarantee> {
    prop_oneof![
        any::<u64>().prop_map(|not_before| ReadGuarantee::Leader { not_before }),
        any::<(u64, u32, u32)>().prop_map(|(index, number, tag)| {
            ReadGuarantee::After { index, incarnation: Incarnation { number, tag } }
        }),
        any::<(u64, u16)>().prop_map(|(time, group)| ReadGuarantee::Past { timestamp: Timestamp { time, group } }),
        Just(ReadGuarantee::Local),
    ]
}

proptest! {
    #[test]
    fn read_requests_are_read_as_written(name: u64, again: bool, guarantee in guarantee(), query in vec(any::<u8>(), 0..40)) {
        let bytes = [&ReadRequest { name, again, guarantee, query: &[] }.head()[..], &query].concat();
        prop_assert_eq!(ReadRequest::parse(&bytes), Ok(ReadRequest { name, again, guarantee, query: &query }));
    }

    #[test]
    fn envelopes_are_read_as_written(envelope in envelope(), rest in vec(any::<u8>(), 0..40)) {
        let bytes = [&written(&envelope)[..], &rest].concat();
        prop_assert_eq!(Envelope::parse(&bytes), Ok((envelope, &rest[..])));
    }

    #[test]
    fn bodies_are_read_as_written(ttl: u64, word: u64, number: u32, pairs in pairs(), extra in 1..20_usize) {
        let body = Body { ttl, word, number, pairs };
        let mut bytes = Vec::new();
        body.write(&mut bytes);
        prop_assert_eq!(Body::parse(&bytes), Ok(body));
        prop_assert!(Body::parse(&bytes[..bytes.len() - extra]).is_err());
        bytes.resize(bytes.len() + extra, 0);
        prop_assert!(Body::parse(&bytes).is_err());
    }

    #[test]
    fn records_are_read_as_written(
        words in any::<(u128, u64, u64, u64, u64, u64)>(), numbers in any::<(u32, u32, u32, u16)>(),
        outcome in outcome(), answers in kind(), bytes in vec(any::<u8>(), 0..100),
    ) {
        let (session, request, time, index, applied, end) = words;
        let (generation, number, tag, group) = numbers;
        let incarnation = Incarnation { number, tag };
        let position = Position { timestamp: Timestamp { time, group }, index, incarnation };
        let session = SessionId(session);
        let record =
            ReplyRecord { session, answers, outcome, generation, request, position, applied, end, bytes: &bytes };
        let mut out = vec![1, 2, 3];
        record.write(&mut out);
        prop_assert_eq!(ReplyRecord::parse(&out), Ok(record));
        out.push(0);
        let (bytes, reply) = (out.len(), bytes.len() as u32);
        prop_assert_eq!(ReplyRecord::parse(&out), Err(RecordError::Length { bytes, reply }));
    }

    #[test]
    fn tickets_and_keys_are_read_as_written(
        session: u128, generation in 1..u32::MAX, widening: u32, words in any::<(u64, u64)>(), behind: u32,
        ahead in 1..u64::from(u32::MAX), pairs in pairs(),
    ) {
        let (session, (word, end), request) = (SessionId(session), words, u64::from(behind) + ahead);
        let key = SessionKey { session, generation, widening, pairs: pairs.clone() };
        let ticket = Ticket { session, generation, word, request, behind, end, pairs };
        let bytes = ticket.to_bytes();
        prop_assert_eq!(Ticket::from_bytes(&bytes), Ok(ticket));
        prop_assert!(SessionKey::from_bytes(&bytes).is_err());
        prop_assert!(Ticket::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        let bytes = key.to_bytes();
        prop_assert_eq!(SessionKey::from_bytes(&bytes), Ok(key));
        prop_assert!(Ticket::from_bytes(&bytes).is_err());
    }

    #[test]
    fn noise_is_refused_without_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Envelope::parse(&bytes);
        let _ = Body::parse(&bytes);
        let _ = ReplyRecord::parse(&bytes);
        let _ = ReadRequest::parse(&bytes);
        let _ = Ticket::from_bytes(&bytes);
        let _ = SessionKey::from_bytes(&bytes);
        let _ = Sessions::read(GroupId(0), SessionLimits::default(), &bytes);
    }

    #[test]
    fn tables_accept_changed_messages_without_panic(
        messages in vec((envelope(), any::<(bool, bool)>(), pairs(), any::<(u8, u8)>()), 1..20),
    ) {
        let mut sessions = Sessions::new(GroupId(0), SessionLimits { sessions: 3, ..SessionLimits::default() });
        let mut index = 0;
        let mut deliver = |payload: &[u8]| {
            index += 1;
            let (incarnation, destinations) = (Incarnation::FIRST, &[GroupId(0)]);
            let at = At { time: Timestamp { time: index, group: 0 }, index, incarnation, destinations, client: 0 };
            sessions.deliver(&at, payload, &mut Nothing).map(|delivered| {
                let outcome = ReplyRecord::parse(delivered.record).map(|record| record.outcome);
                outcome.expect("tables write valid records")
            })
        };
        for session in 0..3 {
            let open = Envelope { session: SessionId(session), generation: 1, kind: Kind::Open, ..Envelope::default() };
            prop_assert_eq!(deliver(&fitting(open)), Ok(Outcome::Applied));
        }
        for (envelope, (fits, is_first), pairs, (at, bit)) in messages {
            // There are few sessions, generations and requests, so that messages interact.
            let (session, generation) = (SessionId(envelope.session.0 % 3), if is_first { 1 } else { 2 });
            let envelope = Envelope { session, generation, ..envelope };
            let mut payload = fitting(envelope);
            if !fits {
                payload = written(&envelope).to_vec();
                Body { ttl: envelope.end, word: 0, number: 1, pairs }.write(&mut payload);
                let length = payload.len();
                payload[usize::from(at) % length] ^= bit & 1;
            }
            let _ = deliver(&payload);
        }
    }
}

/// Returns a message to group 0 of this kind, session and generation that a table may accept. Generation n begins with
/// word n.
fn fitting(envelope: Envelope) -> Vec<u8> {
    let pairs = vec![Pair { group: GroupId(0), incarnation: Incarnation::FIRST }];
    let word = u64::from(envelope.generation);
    let names_request = matches!(envelope.kind, Kind::Command | Kind::Query | Kind::Resolve);
    let request = if names_request { envelope.request % 4 + 1 } else { word };
    let tag = pairs_tag(word, pairs.iter().copied());
    let mut payload = written(&Envelope { request, behind: 0, pairs: tag, end: 1_000, ..envelope }).to_vec();
    let (word, number) = match envelope.kind {
        Kind::Widen => (word, 1),
        Kind::Resolve => (0, envelope.generation),
        _ => (0, 0),
    };
    Body { ttl: 1_000, word, number, pairs }.write(&mut payload);
    payload
}

#[test]
fn defects_of_read_requests_are_named() {
    let good =
        ReadRequest { name: 7, again: false, guarantee: ReadGuarantee::Leader { not_before: 9 }, query: &[] }.head();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        ReadRequest::parse(&bytes).map(|_| ())
    };
    assert_eq!(changed(0, 8), Ok(()));
    assert_eq!(ReadRequest::parse(&good[1..]), Err(ReadRequestError::Short(31)));
    assert_eq!(changed(25, 2), Err(ReadRequestError::Version(2)));
    for number in [0, 5, 255] {
        assert_eq!(changed(24, number), Err(ReadRequestError::Guarantee(number)));
    }
    assert_eq!(changed(24, 3), Err(ReadRequestError::Reserved), "a local read names no time");
    assert_eq!(changed(26, 1), Ok(()), "it was asked before");
    for at in (16..24).chain(26..32) {
        assert_eq!(changed(at, 2), Err(ReadRequestError::Reserved), "byte {at}");
    }
}

#[test]
fn defects_of_envelopes_are_named() {
    let good = Envelope { request: 5, generation: 1, behind: 4, ..Envelope::default() };
    let parse = |envelope: &Envelope| Envelope::parse(&written(envelope)).map(|_| ());
    assert_eq!(parse(&good), Ok(()));
    let query = Envelope { kind: Kind::Query, ..good };
    assert_eq!(parse(&query), Ok(()));
    assert_eq!(parse(&Envelope { request: 0, behind: 0, ..query }), Err(EnvelopeError::Request));
    assert_eq!(parse(&Envelope { request: 0, behind: 0, ..good }), Err(EnvelopeError::Request));
    assert_eq!(parse(&Envelope { behind: 5, ..good }), Err(EnvelopeError::Behind { request: 5, behind: 5 }));
    assert_eq!(parse(&Envelope { generation: 0, ..good }), Err(EnvelopeError::Generation));
    assert_eq!(parse(&Envelope { kind: Kind::Open, ..good }), Err(EnvelopeError::Reserved));
    let changed = |at: usize, byte: u8| {
        let mut bytes = written(&good);
        bytes[at] = byte;
        Envelope::parse(&bytes).map(|_| ())
    };
    assert_eq!(changed(48, 9), Err(EnvelopeError::Kind(9)));
    assert_eq!(changed(49, 2), Err(EnvelopeError::Version(2)));
    for at in 50..64 {
        assert_eq!(changed(at, 1), Err(EnvelopeError::Reserved), "byte {at}");
    }
    assert_eq!(Envelope::parse(&[0; 63]), Err(EnvelopeError::Short(63)));
}
