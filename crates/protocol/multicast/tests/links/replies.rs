//! Records that members send to clients.

use std::collections::BTreeMap;

use stentor_fabric::memory::Ordering;
use stentor_fabric::{Fabric, ProcessId, RegionId, SplitMix64};
use stentor_fabric_sim::{Delay, Fault, NetworkModel};
use stentor_multicast::{ClientId, Limits, Mutant, RecordSent, Step};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

/// Maximum length of a reply, in bytes.
const LONGEST: usize = 300;
const MEMBERS: u16 = 3;
/// Process id of the first client.
const CLIENT: u16 = MEMBERS;

/// Returns limits with which each ring has room for two of the longest records.
fn small() -> Limits {
    Limits { reply_bytes: LONGEST, reply_ring_bytes: 0, ..limits() }
}

/// Returns a group of three members and its clients, connected.
fn connected(clients: u16, limits: Limits, network: NetworkModel, (seed, mutant): (u64, Mutant)) -> Bed {
    let mut bed = Bed::planted(&[usize::from(MEMBERS)], clients, limits, network, (seed, mutant));
    bed.run(2 * RECONNECTED_NS);
    bed
}

fn calm(clients: u16, limits: Limits) -> Bed {
    connected(clients, limits, NetworkModel::calm(), (1, Mutant::None))
}

impl Bed {
    /// Returns the replies that a client read from one member.
    fn read_of(&self, client: u16, member: u16) -> Vec<Vec<u8>> {
        let of_member = |reply: &&(ProcessId, Vec<u8>)| reply.0 == ProcessId(member);
        self.replies[usize::from(client)].iter().filter(of_member).map(|reply| reply.1.clone()).collect()
    }

    fn take_met_clients(&mut self, member: u16) -> Vec<ClientId> {
        let mut met: Vec<_> = std::iter::from_fn(|| self.members[usize::from(member)].take_met_client()).collect();
        met.sort_unstable();
        met
    }

    fn wake_client(&mut self, client: u16) {
        self.world.wake_at(self.topology.client_process(ClientId(client)), self.world.now_ns());
    }
}

/// Returns the bytes of a record.
fn bytes_of(member: u16, client: u16, number: u64, bytes: usize) -> Vec<u8> {
    let mut random = SplitMix64(u64::from(member) << 32 | u64::from(client) << 48 | number);
    (0..bytes).map(|_| random.word() as u8).collect()
}

#[test]
fn records_arrive_as_they_were_sent_in_the_order_of_their_member() {
    let mut bed = calm(2, small());
    let lengths = [0, 1, 7, 8, 9, 40, 41, 299, LONGEST];
    let mut sent = BTreeMap::new();
    for (number, bytes) in (0..).zip(lengths) {
        for (member, client) in [(0, 0), (1, 0), (2, 0), (2, 1)] {
            let record = bytes_of(member, client, number, bytes);
            assert_eq!(bed.reply(member, client, &record), RecordSent::Sent, "{bytes} bytes");
            sent.entry((member, client)).or_insert_with(Vec::new).push(record);
        }
        bed.run(SETTLED_NS / 10);
    }
    for ((member, client), sent) in sent {
        assert_eq!(bed.read_of(client, member), sent, "member {member} client {client}");
    }
    assert_eq!((bed.read_of(1, 0).len(), bed.rejected()), (0, 0), "nothing was for it");
    assert_eq!(bed.members[2].counts().writes(Step::Reply), 2 * lengths.len() as u64);
}

#[test]
fn impossible_replies_are_refused_with_a_reason() {
    let mut bed = calm(1, small());
    assert_eq!(bed.reply(0, 0, &[7; LONGEST + 1]), RecordSent::TooLong);
    assert_eq!(bed.members[0].reply(ClientId(1), &[b"nobody"]), RecordSent::Away);
    assert!(bed.members[0].is_connected_to_client(ClientId(0)));
    assert!(!bed.members[0].is_connected_to_client(ClientId(1)));
    bed.world.crash(ProcessId(CLIENT));
    let _ = bed.reply(0, 0, b"breaks the connection");
    bed.run(RECONNECTED_NS);
    assert_eq!(bed.reply(0, 0, b"away"), RecordSent::Away);
    assert!(!bed.members[0].is_connected_to_client(ClientId(0)));
}

/// By default there are no replies: nothing more is registered, and nothing is sent.
#[test]
fn without_replies_nothing_is_registered_and_nothing_sent() {
    let (without, with) = (limits(), small());
    let mut beds = [without, with].map(|limits| calm(2, limits));
    let registered = [0, 1].map(|at: usize| beds[at].members[0].memory_use().regions);
    let more = with.member_reply_bytes(&beds[1].topology, 0);
    let inline = 2 * (64 + with.reply_ring().bytes() + with.query_ring().bytes());
    let lines = 2 * 64;
    assert_eq!(more, inline, "a credit, staging and a ring of queries for each client");
    assert_eq!(registered[1] - registered[0], inline + lines, "and a line for each follower");
    for bed in &beds {
        let used = bed.members[0].memory_use();
        assert_eq!(used.regions, used.region_limit);
    }
    assert_eq!(without.client_reply_bytes(&beds[0].topology, 0), 0);
    let each = with.reply_ring().bytes() + 64 + with.query_ring().bytes();
    assert_eq!(with.client_reply_bytes(&beds[1].topology, 0), 3 * each);
    assert_eq!(beds[0].reply(0, 0, b""), RecordSent::Away);
    assert_eq!((beds[0].take_met_clients(0), beds[1].take_met_clients(0)), (vec![], vec![ClientId(0), ClientId(1)]));
}

/// The client does not read, so the ring fills up. The member continues when the client has read the replies, and
/// learns of that by itself.
#[test]
fn a_full_ring_takes_nothing_more_until_the_client_reads() {
    let mut bed = calm(1, small());
    bed.takes_replies = false;
    let mut sent = 0;
    while bed.reply(0, 0, &bytes_of(0, 0, sent, LONGEST)) == RecordSent::Sent {
        sent += 1;
        bed.run(SETTLED_NS);
    }
    assert!((2..4).contains(&sent), "{sent} of the longest");
    bed.run(4 * SETTLED_NS);
    assert_eq!(bed.reply(0, 0, &[1; LONGEST]), RecordSent::Full);
    assert_eq!(bed.reply(1, 0, b"another member's ring is its own"), RecordSent::Sent);
    bed.takes_replies = true;
    bed.wake_client(0);
    bed.run(SETTLED_NS);
    let expected: Vec<_> = (0..sent).map(|number| bytes_of(0, 0, number, LONGEST)).collect();
    assert_eq!(bed.read_of(0, 0), expected);
    assert_eq!(bed.reply(0, 0, &[1; LONGEST]), RecordSent::Sent);
    bed.run(SETTLED_NS);
    assert_eq!((bed.read_of(0, 0).len(), bed.read_of(0, 1).len()), (expected.len() + 1, 1));
}

/// `step` reports free room to a member that had found none.
#[test]
fn member_learns_when_there_is_room_again() {
    let mut bed = calm(1, small());
    bed.takes_replies = false;
    while bed.reply(0, 0, &[1; LONGEST]) == RecordSent::Sent {}
    bed.run(8 * SETTLED_NS);
    bed.takes_replies = true;
    bed.wake_client(0);
    // The client reads everything, and the member has not run since the credit arrived.
    bed.world.inject(bed.world.now_ns(), Fault::Stall { process: ProcessId(0), for_ns: SETTLED_NS });
    bed.run(SETTLED_NS / 2);
    assert!(!bed.read_of(0, 0).is_empty());
    let mut app = stentor_multicast::stateless(|_: &stentor_multicast::Delivered<'_>| ());
    let now = std::time::Duration::from_nanos(bed.world.now_ns());
    assert!(bed.members[0].step(now, &mut app), "there is room");
    assert!(!bed.members[0].step(now, &mut app), "that was all");
}

/// 10 000 records of all lengths pass through rings with room for two of the longest ones.
fn all_arrive(network: NetworkModel, seed: u64) {
    const EACH: u64 = 5_000;
    let mut bed = connected(1, small(), network, (seed, Mutant::None));
    let mut random = SplitMix64(seed);
    let mut lengths = vec![Vec::new(); 2];
    let mut idle = 0;
    while lengths.iter().any(|sent| (sent.len() as u64) < EACH) {
        idle += 1;
        for member in 0..2_u16 {
            let sent = &mut lengths[usize::from(member)];
            while (sent.len() as u64) < EACH {
                let bytes = random.word() as usize % (LONGEST + 1);
                let record = bytes_of(member, 0, sent.len() as u64, bytes);
                if bed.reply(member, 0, &record) != RecordSent::Sent {
                    break;
                }
                sent.push(bytes);
                idle = 0;
            }
        }
        bed.run(20_000);
        assert!(idle < 1_000, "seed {seed}: stuck after {} and {}", lengths[0].len(), lengths[1].len());
    }
    bed.run(8 * RECONNECTED_NS);
    for member in 0..2_u16 {
        let expected = (0..).zip(&lengths[usize::from(member)]).map(|(n, bytes)| bytes_of(member, 0, n, *bytes));
        assert!(bed.read_of(0, member).into_iter().eq(expected), "seed {seed} member {member}");
    }
    assert_eq!(bed.members[0].counts().writes(Step::Reply), EACH);
}

#[test]
fn nothing_is_lost_or_doubled_in_small_rings() {
    all_arrive(NetworkModel::calm(), 1);
}

/// Writes overtake each other, and some are late by many laps of the ring.
#[test]
fn nothing_is_lost_or_doubled_where_writes_have_no_order() {
    all_arrive(NetworkModel { retry_ns: 50_000_000, ..NetworkModel::unordered() }, 2);
    let propagation = Delay::between(600, 1_200).with_tail(25_000, 400_000);
    all_arrive(NetworkModel { ordered_writes: false, propagation, ..NetworkModel::calm() }, 3);
}

/// One member sends far more than the others, and the client nevertheless reads the others' records soon.
#[test]
fn members_take_turns() {
    let mut bed = calm(1, Limits { reply_ring_bytes: 64 << 10, ..small() });
    bed.takes_replies = false;
    for number in 0..100 {
        assert_eq!(bed.reply(0, 0, &[number]), RecordSent::Sent);
    }
    for member in [1, 2] {
        assert_eq!(bed.reply(member, 0, b"one"), RecordSent::Sent);
    }
    bed.run(SETTLED_NS);
    let members: Vec<_> =
        (0..4).map(|_| bed.clients[0].next_reply().expect("the client has four replies").member.0).collect();
    assert_eq!((members.contains(&1), members.contains(&2)), (true, true), "{members:?}");
}

/// Only replies that were in flight when the connection broke may be missing, and none arrives twice.
#[test]
fn reconnection_restarts_the_ring() {
    let mut bed = calm(1, small());
    assert_eq!(bed.take_met_clients(0), [ClientId(0)]);
    assert_eq!(bed.reply(0, 0, b"before"), RecordSent::Sent);
    bed.run(SETTLED_NS);
    for round in 0..20_u8 {
        bed.cut(0, CLIENT, RECONNECTED_NS);
        bed.run(1);
        let _ = bed.reply(0, 0, b"lost");
        bed.run(4 * RECONNECTED_NS);
        assert_eq!(
            (bed.take_met_clients(0), bed.take_met_clients(1).len()),
            (vec![ClientId(0)], usize::from(round == 0)),
            "round {round}"
        );
        for number in 0..4 {
            assert_eq!(bed.reply(0, 0, &[round, number]), RecordSent::Sent, "round {round}");
            bed.run(SETTLED_NS);
        }
    }
    let expected = (0..20_u8).flat_map(|round| (0..4).map(move |number| vec![round, number]));
    assert_eq!(bed.read_of(0, 0), [b"before".to_vec()].into_iter().chain(expected).collect::<Vec<_>>());
}

#[test]
fn new_process_of_a_client_id_reads_only_replies_sent_to_it() {
    let mut bed = calm(1, small());
    for round in 0..10_u8 {
        bed.takes_replies = false;
        while bed.reply(0, 0, &[round; 100]) == RecordSent::Sent {}
        bed.run(SETTLED_NS);
        let life = bed.members[0].life_of_client(ClientId(0));
        bed.restart_client(0);
        bed.takes_replies = true;
        bed.run(4 * RECONNECTED_NS);
        assert!(bed.members[0].life_of_client(ClientId(0)) > life, "round {round}");
        assert_eq!((bed.replies[0].len(), bed.take_met_clients(0)), (0, vec![ClientId(0)]), "round {round}");
        for number in 0..20 {
            assert_eq!(bed.reply(0, 0, &[round, number]), RecordSent::Sent, "round {round}");
            bed.run(SETTLED_NS);
        }
        let expected: Vec<_> = (0..20).map(|number| vec![round, number]).collect();
        assert_eq!(bed.read_of(0, 0), expected, "round {round}");
    }
}

#[test]
fn new_process_of_a_member_restarts_its_ring() {
    let mut bed = calm(1, small());
    let mut expected = Vec::new();
    for round in 0..10_u8 {
        for number in 0..=round {
            assert_eq!(bed.reply(1, 0, &[round, number]), RecordSent::Sent, "round {round}");
            expected.push(vec![round, number]);
            bed.run(SETTLED_NS);
        }
        bed.restart_member(1);
        assert_eq!(bed.reply(1, 0, b"too early"), RecordSent::Away);
        bed.run(4 * RECONNECTED_NS);
        assert_eq!(bed.take_met_clients(1), [ClientId(0)]);
    }
    assert_eq!(bed.read_of(0, 1), expected);
}

/// A group that is reset sends its clients another hello on the same connection. Their rings continue.
#[test]
fn group_that_is_reset_continues_with_its_rings() {
    let mut bed = calm(1, small());
    assert_eq!(bed.reply(0, 0, b"first"), RecordSent::Sent);
    bed.run(SETTLED_NS);
    for member in [1, 2] {
        bed.restart_member(member);
    }
    bed.run(4 * RECONNECTED_NS);
    assert_eq!(bed.reply(0, 0, b"second"), RecordSent::Sent);
    bed.run(SETTLED_NS);
    let before = bed.members[0].replica().incarnation();
    let ends = bed.members[0].replica().reset_ends();
    bed.members[0].reset(ends, false).expect("a member with memory can reset its group");
    bed.world.wake_at(ProcessId(0), bed.world.now_ns());
    bed.run(8 * RECONNECTED_NS);
    assert_ne!(bed.members[0].replica().incarnation(), before);
    for number in 0..40_u8 {
        assert_eq!(bed.reply(0, 0, &[number; LONGEST]), RecordSent::Sent, "{number}");
        bed.run(SETTLED_NS);
    }
    assert_eq!(bed.read_of(0, 0).len(), 42);
}

/// The client sends another hello on the same connection, and its own ring restarts. The ring of replies does not, and
/// the client is not reported as connected.
#[test]
fn replies_continue_after_another_hello_on_the_connection() {
    let mut bed = calm(1, small());
    assert_eq!(bed.take_met_clients(2), [ClientId(0)]);
    for round in 0..20_u8 {
        for aside in [true, false] {
            assert_eq!(bed.reply(2, 0, &[round; LONGEST]), RecordSent::Sent, "round {round}");
            bed.members[2].set_aside(aside);
            bed.run(SETTLED_NS);
            assert_eq!(bed.clients[0].counts_on(ProcessId(2)), !aside, "round {round}");
        }
        assert_eq!(bed.take_met_clients(2), []);
    }
    assert_eq!(bed.read_of(0, 2), (0..40).map(|n| vec![n / 2; LONGEST]).collect::<Vec<_>>());
}

#[test]
fn a_reply_goes_out_with_the_next_step() {
    let mut bed = calm(1, small());
    let mut app = stentor_multicast::stateless(|_: &stentor_multicast::Delivered<'_>| ());
    let now = std::time::Duration::from_nanos(bed.world.now_ns());
    // Afterwards the member has nothing else to do.
    while bed.members[0].step(now, &mut app) {}
    assert!(!bed.members[0].has_unflushed());
    assert_eq!(bed.members[0].reply(ClientId(0), &[b"now"]), RecordSent::Sent);
    assert!(bed.members[0].has_unflushed());
    bed.members[0].step(now, &mut app);
    assert!(!bed.members[0].has_unflushed(), "the round was not skipped");
}

/// The bytes that pad the last word of a record could be those of another client's reply.
#[test]
fn reply_reveals_nothing_of_the_previous_one() {
    let mut bed = calm(2, small());
    assert_eq!(bed.reply(0, 0, &[0xaa; 8]), RecordSent::Sent);
    assert_eq!(bed.reply(0, 1, &[0x01]), RecordSent::Sent);
    bed.run(SETTLED_NS);
    assert_eq!(bed.read_of(1, 0), [[0x01]]);
    let region = bed.clients[1].fabric();
    let words = (0..8).map(RegionId).flat_map(|id| region.memory(id)).map(|word| word.load(Ordering::Relaxed));
    let found: Vec<_> = words.filter(|word| word >> 8 == 0xaa_aaaa_aaaa_aaaa || *word == 1).collect();
    assert!(found.contains(&1) && found.iter().all(|word| *word == 1), "{found:x?}");
}

/// Returns a record as the faulty runs send it.
fn named(member: u16, lives: (u64, u64), number: u64, bytes: usize) -> Vec<u8> {
    let mut words = vec![u64::from(member), lives.0, lives.1, number];
    words.extend((0..bytes as u64 / 8).map(|at| SplitMix64::mix(number << 8 | at)));
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The result of a run with failures.
#[derive(Default)]
struct Faulty {
    sent: u64,
    read: u64,
    /// Records that were not the sender's next ones for this process, or not complete.
    wrong: u64,
    /// Rings through which nothing arrived in the end.
    stuck: u64,
}

/// Checks the replies that a client's present process read since the last check.
fn judge(bed: &mut Bed, client: u16, last: &mut BTreeMap<(u16, u64), u64>, run: &mut Faulty) {
    let life = bed.client_lives[usize::from(client)];
    for (member, bytes) in std::mem::take(&mut bed.replies[usize::from(client)]) {
        run.read += 1;
        let word =
            |at: usize| bytes.get(8 * at..8 * at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()));
        let (sender, sent_to, number) = (word(1), word(2), word(3));
        let whole = bytes == named(member.0, (sender, sent_to), number, bytes.len().saturating_sub(32));
        let rises = last.insert((member.0, sender), number).is_none_or(|before| before < number);
        run.wrong += u64::from(!(whole && sent_to == life && rises));
    }
}

fn under_failures(seed: u64, network: NetworkModel, mutant: Mutant) -> Faulty {
    const CLIENTS: u16 = 2;
    let mut random = SplitMix64(seed);
    let mut pick = move |below: u64| random.word() % below;
    let limits = Limits { reply_ring_bytes: 1024 * pick(3), ..small() };
    let mut bed = connected(CLIENTS, limits, network, (seed, mutant));
    let mut run = Faulty::default();
    let mut last = vec![BTreeMap::new(); usize::from(CLIENTS)];
    let (mut lives, mut number) = (vec![1; usize::from(MEMBERS)], 0);
    for round in 0..160 {
        for _ in 0..pick(12) {
            let (member, client) = (pick(3) as u16, pick(2) as u16);
            let to = bed.members[usize::from(member)].life_of_client(ClientId(client)).unwrap_or(0);
            number += 1;
            let record =
                named(member, (lives[usize::from(member)], to), number, 8 * pick((LONGEST / 8 - 3) as u64) as usize);
            run.sent += u64::from(bed.reply(member, client, &record) == RecordSent::Sent);
        }
        let (member, client) = (pick(3) as u16, pick(2) as u16);
        bed.takes_replies = pick(4) > 0;
        match pick(if round < 140 { 24 } else { 1 }) {
            1 | 2 => bed.cut(member, CLIENT + client, pick(2 * RECONNECTED_NS)),
            3 => {
                let process = ProcessId(if pick(2) == 0 { member } else { CLIENT + client });
                bed.world.inject(bed.world.now_ns(), Fault::Stall { process, for_ns: pick(2 * RECONNECTED_NS) });
            }
            4 => {
                judge(&mut bed, client, &mut last[usize::from(client)], &mut run);
                last[usize::from(client)].clear();
                bed.restart_client(client);
            }
            5 => {
                bed.restart_member(usize::from(member));
                lives[usize::from(member)] = bed.incarnation;
            }
            _ => {}
        }
        bed.run(pick(SETTLED_NS) + if pick(20) == 0 { RECONNECTED_NS } else { 0 });
        (0..CLIENTS).for_each(|client| judge(&mut bed, client, &mut last[usize::from(client)], &mut run));
    }
    bed.takes_replies = true;
    (0..CLIENTS).for_each(|client| bed.wake_client(client));
    bed.run(20 * RECONNECTED_NS);
    (0..CLIENTS).for_each(|client| judge(&mut bed, client, &mut last[usize::from(client)], &mut run));
    for (member, client) in (0..MEMBERS).flat_map(|member| (0..CLIENTS).map(move |client| (member, client))) {
        let sent = bed.reply(member, client, b"at last");
        bed.run(20 * SETTLED_NS);
        let arrived = bed.replies[usize::from(client)]
            .last()
            .is_some_and(|(from, bytes)| *from == ProcessId(member) && bytes == b"at last");
        run.stuck += u64::from(sent != RecordSent::Sent || !arrived);
    }
    run
}

fn networks() -> [NetworkModel; 3] {
    let retry_ns = 200_000;
    [NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()]
        .map(|network| NetworkModel { retry_ns, ..network })
}

#[test]
fn replies_read_under_failures_are_those_sent_to_this_process_in_order() {
    let mut all = Faulty::default();
    for seed in 0..60 {
        let run = under_failures(seed, networks()[seed as usize % 3].clone(), Mutant::None);
        assert_eq!((run.wrong, run.stuck), (0, 0), "seed {seed}");
        all.sent += run.sent;
        all.read += run.read;
    }
    assert!(all.read > 10_000 && all.sent > all.read, "{} sent, {} read", all.sent, all.read);
}

/// A client waits for a record that was lost with an earlier connection, or reads where nothing is written.
#[cfg(feature = "plants")]
#[test]
fn mutant_that_keeps_a_ring_across_connections_stalls() {
    let runs = (0..12).map(|seed| under_failures(seed, networks()[seed as usize % 3].clone(), Mutant::ReplyRingKept));
    let stuck = runs.filter(|run| run.stuck > 0).count();
    assert!(stuck > 8, "{stuck} of 12 runs");
}
