//! In the steady state neither the caller nor the table allocates memory.
#![forbid(unsafe_code)]

use stentor_multicast::{GroupId, Incarnation, Timestamp};
use stentor_session::{
    At, Call, Caller, CallerConfig, Envelope, Event, Fate, Pair, Reply, ReplyRecord, Service, SessionId, SessionLimits,
    Sessions,
};

/// A service that answers with the command.
struct Echo;

impl Service for Echo {
    fn apply(&mut self, call: Call<'_>, reply: &mut Reply<'_>) {
        reply.extend(call.command);
    }

    fn ended(&mut self, _: SessionId) {}
}

const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(1)];

struct Pipe {
    caller: Caller,
    tables: [Sessions; 2],
    time: u64,
    payload: [u8; Envelope::BYTES + 8],
}

impl Pipe {
    /// Delivers a message in both groups. Returns whether the caller reports that all have applied it.
    fn deliver(&mut self, payload: &[u8]) -> bool {
        self.time += 1;
        let mut told = false;
        for (table, group) in self.tables.iter_mut().zip(GROUPS) {
            let time = Timestamp { time: self.time, group: 0 };
            let (incarnation, client) = (Incarnation::FIRST, 0);
            let at = At { time, index: self.time, incarnation, destinations: &GROUPS, client };
            let delivered = table.deliver(&at, payload, &mut Echo).expect("a valid message");
            let record = ReplyRecord::parse(delivered.record).expect("a valid record");
            let Some(Event::Finished(finished)) = self.caller.on_reply(group, &record) else { continue };
            let Fate::Applied(replies) = finished.fate else { panic!("{finished:?}") };
            told = replies.iter().all(|reply| reply.bytes == Some(&[7; 8][..]));
        }
        told
    }

    fn request(&mut self) {
        let request = self.caller.begin(&GROUPS).expect("the caller has room");
        let mut payload = self.payload;
        let head = payload.first_chunk_mut().expect("longer than an envelope");
        assert!(self.caller.envelope(request, head));
        assert!(self.deliver(&payload));
    }
}

#[test]
fn request_to_two_groups_allocates_nothing() {
    let mut caller = Caller::new(SessionId(1), CallerConfig { window: 4, ..CallerConfig::default() });
    let pairs = GROUPS.map(|group| Pair { group, incarnation: Incarnation::FIRST });
    caller.open(1, &pairs, 1_000_000).expect("a new caller");
    let open = caller.message().expect("a message is in progress").payload.to_vec();
    let tables = GROUPS.map(|group| Sessions::new(group, SessionLimits { window: 4, ..SessionLimits::default() }));
    let mut pipe = Pipe { caller, tables, time: 0, payload: [7; Envelope::BYTES + 8] };
    pipe.deliver(&open);
    (0..20).for_each(|_| pipe.request());
    let used = allocation_counter::measure(|| (0..1000).for_each(|_| pipe.request()));
    assert_eq!(used.count_total, 0, "{used:?}");
}
