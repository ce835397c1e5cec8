//! Links of clients.

use stentor_fabric::{Fabric, ProcessId, Purpose, QpId, QpState, RemoteSpan, Source, Verb, WorkRequest};
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::{ClientId, GroupId, MessageId, Mutant, Step, SubmitError, Succession};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

impl Bed {
    /// Breaks the queue pair of the first client to a member, by a write that is refused.
    fn break_link_of_client(&mut self, member: u16) {
        let fabric = self.clients[0].fabric_mut();
        let region = fabric.resolve(ProcessId(member), BODY).expect("the member has granted its region to the client");
        let target = RemoteSpan { region, offset: 1 << 40 };
        let verb = Verb::Write { source: Source::Inline(&[0; 8]), target };
        let request = WorkRequest { id: u64::MAX, verb, signalled: false };
        fabric.post(QpId(u32::from(member)), request).expect("a queue pair that is ready");
        fabric.flush();
        let client = self.topology.client_process(ClientId(0));
        self.world.wake_at(client, self.world.now_ns());
    }
}

/// Purpose of the region in which a member has the ring of a client.
const BODY: Purpose = Purpose(3);
const G0: &[GroupId] = &[GroupId(0)];

#[test]
fn client_begins_and_continues_while_majorities_of_its_groups_are_connected() {
    // The second group does not run at all, and neither does one member of the first.
    let mut bed = Bed::new(&[3, 3], 1, limits(), NetworkModel::calm(), 1);
    for process in [2, 3, 4, 5].map(ProcessId) {
        bed.world.crash(process);
    }
    bed.run(2 * RECONNECTED_NS);
    assert!(bed.clients[0].is_connected(G0) && !bed.clients[0].is_connected(&[GroupId(1)]));
    assert_eq!(bed.submit(0, &[0, 1], b"early"), Err(SubmitError::NotConnected { group: 1 }));
    let id = bed.submit(0, &[0], b"first").expect("a majority is there");
    assert_eq!(id.sequence, 1, "no process used the client id before");
    bed.run(RECONNECTED_NS);
    assert_eq!((bed.delivered[0].len(), bed.delivered[1].len()), (1, 1));
    bed.world.crash(ProcessId(1));
    assert!(bed.clients[0].is_connected(G0), "nobody knows yet");
    let _ = bed.submit(0, &[0], b"breaks the link");
    bed.run(RECONNECTED_NS);
    assert!(!bed.clients[0].is_connected(G0), "one of three is no majority");
    assert_eq!(bed.submit(0, &[0], b"late"), Err(SubmitError::NotConnected { group: 0 }));
}

/// Processes of one client id follow each other while a whole group and one member of the other group are stalled. A
/// message that one of these processes multicast to both groups remains valid. A message that another one left
/// half-written becomes a no-op everywhere, even where it arrives later.
#[test]
fn processes_of_a_client_id_follow_each_other_while_another_group_is_down() {
    for seed in 0..6 {
        let mut bed = Bed::new(&[3, 3], 1, limits(), NetworkModel::uniform(1_000), seed);
        bed.run(2 * RECONNECTED_NS);
        let (client, leader) = (6, 3);
        let mut ids = vec![bed.submit(0, &[0, 1], b"whole").expect("the client is connected to all destinations")];
        bed.run(SETTLED_NS);
        // The next message reaches only the second group's leader, which is stalled then.
        for member in (0..6).filter(|member| *member != leader) {
            bed.cut(member, client, RECONNECTED_NS);
        }
        bed.run(1);
        let half = bed.submit(0, &[0, 1], b"half").expect("the client has not noticed the partition");
        bed.run(SETTLED_NS);
        assert_eq!(bed.members[3].replica().end_of_held(ClientId(0)), 2, "seed {seed}");
        for process in [3, 4, 5, 2].map(ProcessId) {
            bed.world.inject(bed.world.now_ns(), Fault::Stall { process, for_ns: 80 * RECONNECTED_NS });
        }
        for _ in 0..8 {
            bed.restart_client(0);
            bed.run(3 * RECONNECTED_NS);
            for _ in 0..3 {
                ids.push(bed.submit(0, &[0], b"alone").expect("the first group has a majority"));
            }
            bed.run(RECONNECTED_NS);
        }
        assert_eq!(bed.delivered[0].len(), 25, "seed {seed}");
        bed.run(120 * RECONNECTED_NS);
        bed.restart_client(0);
        bed.run(6 * RECONNECTED_NS);
        ids.push(bed.submit(0, &[0, 1], b"whole").expect("the client is connected to all destinations"));
        bed.run(6 * RECONNECTED_NS);
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]) && !ids.contains(&half), "seed {seed}: ids rise");
        for member in 0..6 {
            let delivered: Vec<_> = bed.delivered[member].iter().map(|(id, _)| *id).collect();
            let expected = if member < 3 { ids.clone() } else { vec![ids[0], ids[25]] };
            assert_eq!(delivered, expected, "seed {seed} member {member}");
        }
        assert!(bed.members[0].replica().is_leader() && !bed.members[0].replica().is_crowded(ClientId(0)));
    }
}

/// Groups drop records of a client id's earlier processes when all other groups have finished with those processes.
#[test]
fn records_of_earlier_processes_are_dropped_when_all_groups_are_done() {
    let mut bed = Bed::new(&[3, 3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(2 * RECONNECTED_NS);
    for round in 0..100 {
        bed.submit(0, &[0, 1], b"message").unwrap_or_else(|error| panic!("round {round}: {error}"));
        bed.run(4 * RECONNECTED_NS);
        bed.restart_client(0);
        bed.run(4 * RECONNECTED_NS);
    }
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 100));
}

#[test]
fn client_id_is_crowded_when_too_many_processes_follow_each_other_while_a_group_is_down() {
    let mut bed = Bed::new(&[1, 1], 1, limits(), NetworkModel::calm(), 1);
    bed.world.crash(ProcessId(1));
    bed.run(RECONNECTED_NS);
    for round in 0..Succession::MOST {
        bed.submit(0, &[0], b"message").unwrap_or_else(|error| panic!("round {round}: {error}"));
        bed.run(RECONNECTED_NS);
        bed.restart_client(0);
        bed.run(2 * RECONNECTED_NS);
    }
    assert!(bed.clients[0].is_crowded());
    assert_eq!(bed.submit(0, &[0], b"message"), Err(SubmitError::Crowded { client: 0, group: 0 }));
    bed.restart_member(1);
    bed.run(20 * RECONNECTED_NS);
    assert!(bed.clients[0].is_crowded() && bed.members[1].replica().is_joining(), "the other one remembers its group");
    let ends = bed.members[1].replica().reset_ends();
    bed.members[1].reset(ends, true).expect("a member without memory can reset its group");
    bed.run(20 * RECONNECTED_NS);
    assert!(!bed.clients[0].is_crowded());
    bed.submit(0, &[0, 1], b"message").expect("the other group has answered");
}

/// A member that restarted does not know where a new client begins until it has its group's state, and the client does
/// not count it. With the state it gets the messages that were multicast meanwhile.
#[test]
fn a_member_that_is_not_admitted_yet_does_not_count_for_a_new_client() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    for other in [0, 1] {
        bed.cut(2, other, 8 * RECONNECTED_NS);
    }
    bed.restart_member(2);
    bed.restart_client(0);
    bed.run(4 * RECONNECTED_NS);
    assert!(bed.members[2].replica().is_joining() && bed.clients[0].fabric().state(QpId(2)) == QpState::Ready);
    assert!(bed.clients[0].is_connected(G0) && !bed.clients[0].counts_on(ProcessId(2)));
    let id = bed.submit(0, &[0], b"now").expect("two of three are there");
    bed.run(12 * RECONNECTED_NS);
    assert!(bed.clients[0].counts_on(ProcessId(2)) && bed.members[2].replica().counts_in().is_some());
    assert!(bed.delivered.iter().all(|delivered| *delivered == [(id, b"now".to_vec())]), "{:?}", bed.delivered);
}

#[test]
fn synced_means_read_by_a_majority_of_every_destination_group() {
    let mut bed = Bed::new(&[3, 3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    // The leader of the second group does not run. So no message to that group is delivered, but its other two members
    // read the messages.
    bed.world.inject(0, Fault::Stall { process: ProcessId(3), for_ns: 40 * SETTLED_NS });
    bed.run(1_000);
    let id = bed.submit(0, &[0, 1], b"held").expect("the client is connected to all destinations");
    bed.run(5 * SETTLED_NS);
    assert_eq!(bed.clients[0].synced_up_to(), id.sequence);
    assert_eq!((bed.clients[0].delivered_up_to(), bed.delivered[0].len()), (0, 0));
    // A message that only one of three members has read is not synced.
    bed.world.inject(0, Fault::Stall { process: ProcessId(4), for_ns: 20 * SETTLED_NS });
    bed.run(1_000);
    let next = bed.submit(0, &[1], b"read by one").expect("there is room");
    bed.run(5 * SETTLED_NS);
    assert_eq!(bed.clients[0].synced_up_to(), id.sequence);
    bed.run(60 * SETTLED_NS);
    assert_eq!((bed.clients[0].synced_up_to(), bed.clients[0].delivered_up_to()), (next.sequence, next.sequence));
}

/// One member holds a message and has promised nothing since. Another member gets the message after it has promised a
/// new ballot, whose leader is not known to have learnt of the message. Together the two are a majority, but the
/// message may still be forgotten: the first member may have lost its memory by now.
#[test]
fn held_messages_count_in_one_ballot() {
    for campaigns in [false, true] {
        let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
        bed.run(RECONNECTED_NS);
        let (first, second, leader, client) = (1, 0, 2, 3);
        bed.cut(client, leader, 2 * SETTLED_NS);
        bed.cut(client, second, SETTLED_NS);
        for other in [second, leader] {
            bed.cut(first, other, 2 * SETTLED_NS);
        }
        bed.run(1000);
        let id = bed.submit(0, &[0], b"held by one").expect("the client is connected to all destinations");
        bed.run(SETTLED_NS / 4);
        if campaigns {
            bed.members[usize::from(leader)].campaign().expect("the member can campaign");
            bed.world.wake_at(ProcessId(leader), bed.world.now_ns());
        }
        bed.run(SETTLED_NS / 2);
        let promised = bed.members[usize::from(second)].replica().promised();
        assert_eq!(promised.number(), if campaigns { 2 } else { 1 });
        assert_eq!(bed.clients[0].synced_up_to(), 0);
        // The second member gets the message.
        bed.run(SETTLED_NS);
        let held = [first, second, leader].map(|n| bed.members[usize::from(n)].replica().first_held(ClientId(0)));
        assert_eq!((held, bed.delivered[0].len()), ([0, 0, 0], 0));
        assert_eq!(bed.clients[0].synced_up_to(), if campaigns { 0 } else { id.sequence });
        bed.run(10 * RECONNECTED_NS);
        assert_eq!(bed.clients[0].synced_up_to(), id.sequence);
    }
}

/// Two members hold a message in different ballots; then the first one gets the second one's ballot. Nothing is
/// delivered, so only the promise is new.
#[test]
fn client_gets_a_credit_when_a_member_promises_another_ballot() {
    let mut bed = Bed::new(&[3, 3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let (first, second, leader, client) = (0, 1, 2, 6);
    // The second group's leader does not run: no message for that group is delivered.
    bed.world.inject(0, Fault::Stall { process: ProcessId(3), for_ns: 60 * RECONNECTED_NS });
    for other in [second, leader] {
        bed.cut(first, other, 2 * SETTLED_NS);
    }
    bed.members[usize::from(leader)].campaign().expect("the member can campaign");
    bed.world.wake_at(ProcessId(leader), bed.world.now_ns());
    bed.run(SETTLED_NS);
    bed.cut(client, leader, 60 * RECONNECTED_NS);
    bed.run(1000);
    let id = bed.submit(0, &[0, 1], b"held in two ballots").expect("the client is connected to all destinations");
    bed.run(SETTLED_NS / 2);
    let promised = |bed: &Bed, member: u16| bed.members[usize::from(member)].replica().promised().number();
    assert_eq!((promised(&bed, first), promised(&bed, second), bed.clients[0].synced_up_to()), (1, 2, 0));
    bed.run(20 * RECONNECTED_NS);
    assert_eq!((promised(&bed, first), bed.delivered[0].len()), (2, 0));
    assert_eq!(bed.clients[0].synced_up_to(), id.sequence);
}

#[test]
fn returned_member_counts_again_for_a_clients_window() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let mut sent = Vec::new();
    let mut submit = |bed: &mut Bed, times: usize| {
        for _ in 0..times {
            match bed.submit(0, &[0], &[7; 20]) {
                Ok(id) => sent.push(id),
                Err(error) => assert!(matches!(error, SubmitError::Busy { .. }), "{error}"),
            }
            bed.run(SETTLED_NS);
        }
        sent.len()
    };
    // The client and one follower lose their connection with nothing in flight, except one message that breaks the
    // link.
    bed.cut(1, 3, RECONNECTED_NS);
    assert!(submit(&mut bed, 80) > 60, "two of three go on");
    // The follower that missed messages is back. It counts for flow control only after it has delivered all freed
    // messages, and does not delay the client before that.
    bed.run(3 * RECONNECTED_NS);
    let before = submit(&mut bed, 1);
    let count = submit(&mut bed, 40);
    assert_eq!((count, bed.clients[0].is_connected(G0)), (before + 40, true));
    let leader: Vec<_> = bed.delivered[0].iter().map(|(id, _)| *id).collect();
    assert_eq!((leader.len(), &leader), (count, &sent));
}

/// A member that its client reaches, and that reaches no other member, blocks the client until it stands aside. When it
/// is back, the client writes what it missed, and it counts again.
#[test]
fn a_member_that_stands_aside_is_not_waited_for_and_counts_when_it_is_back() {
    const CUT_NS: u64 = 400 * SETTLED_NS;
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let submit = |bed: &mut Bed, times: usize| {
        let mut sent = 0;
        for _ in 0..times {
            sent += usize::from(bed.submit(0, &[0], &[7; 20]).is_ok());
            bed.run(SETTLED_NS);
        }
        sent
    };
    let member = ProcessId(2);
    bed.cut(2, 0, CUT_NS);
    bed.cut(2, 1, CUT_NS);
    let window = limits().window as usize;
    let before = submit(&mut bed, 3 * window);
    assert!(before <= window + 1, "{before} messages, the window is {window}");
    bed.members[2].set_aside(true);
    let wake = |bed: &Bed| bed.world.wake_at(member, bed.world.now_ns());
    wake(&bed);
    bed.run(SETTLED_NS);
    assert!(!bed.clients[0].counts_on(member));
    assert_eq!(submit(&mut bed, 3 * window), 3 * window);
    bed.run(CUT_NS);
    bed.members[2].set_aside(false);
    wake(&bed);
    bed.run(4 * RECONNECTED_NS);
    assert_eq!(submit(&mut bed, 1), 1);
    bed.run(RECONNECTED_NS);
    assert!(bed.clients[0].counts_on(member));
    assert_eq!(bed.delivered[2].last().map(|(id, _)| *id), bed.delivered[0].last().map(|(id, _)| *id));
}

/// A client first reconnects to a member that was away and to one without memory. The client's last messages reached no
/// member, and are beyond the window of both. If the client `stands_still` meanwhile, it sees only their last credits.
/// Returns whether all members deliver everything in the end.
fn reconnecting_client_loses_nothing(stands_still: bool, mutant: Mutant) -> bool {
    const AWAY_NS: u64 = 400 * SETTLED_NS;
    let mut bed = Bed::planted(&[3], 1, limits(), NetworkModel::calm(), (1, mutant));
    bed.run(RECONNECTED_NS);
    let mut sent = Vec::new();
    let submit = |bed: &mut Bed, sent: &mut Vec<(MessageId, Vec<u8>)>, pause_ns| {
        let payload = vec![sent.len() as u8; 20];
        let id = bed.submit(0, &[0], &payload).ok();
        sent.extend(id.map(|id| (id, payload)));
        bed.run(pause_ns);
        id.is_some()
    };
    let client = 3;
    bed.cut(2, 0, AWAY_NS);
    bed.cut(2, 1, AWAY_NS);
    bed.cut(2, client, AWAY_NS / 4);
    bed.run(RECONNECTED_NS);
    for _ in 0..3 * limits().window {
        assert!(submit(&mut bed, &mut sent, SETTLED_NS));
    }
    bed.cut(client, 0, AWAY_NS);
    bed.cut(client, 1, AWAY_NS / 8);
    let under_way = (0..limits().window / 2).filter(|_| submit(&mut bed, &mut sent, 0)).count();
    assert!(under_way > 0);
    bed.cut(1, 0, AWAY_NS / 2);
    bed.cut(1, 2, AWAY_NS / 2);
    bed.restart_member(1);
    bed.run(AWAY_NS * 3 / 8);
    if stands_still {
        let process = bed.topology.client_process(ClientId(0));
        bed.world.inject(bed.world.now_ns(), Fault::Stall { process, for_ns: AWAY_NS });
    }
    bed.run(AWAY_NS * 5 / 8);
    assert!(bed.delivered[0].len() + under_way <= sent.len(), "it reached nobody");
    bed.run(AWAY_NS);
    // Members that hold messages that the leader lacks forward them, one after the other.
    submit(&mut bed, &mut sent, 100 * RECONNECTED_NS);
    bed.delivered.iter().all(|delivered| delivered.last() == sent.last()) && bed.delivered[0] == sent
}

#[test]
fn messages_refused_by_members_that_were_away_are_written_again() {
    assert!(reconnecting_client_loses_nothing(false, Mutant::None));
    #[cfg(feature = "plants")]
    assert!(!reconnecting_client_loses_nothing(false, Mutant::BeyondWindowFreed), "nobody has it");
}

/// The member refuses its client's messages, and its ring is soon full of them.
#[test]
fn member_more_than_a_window_behind_delays_nobody_and_counts_after_it_catches_up() {
    const CUT_NS: u64 = 800 * SETTLED_NS;
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let submit = |bed: &mut Bed, times: u32| {
        (0..times).for_each(|_| {
            bed.submit(0, &[0], &[7; 20]).expect("the client waits for no member");
            bed.run(SETTLED_NS);
        });
    };
    let (window, member, client) = (limits().window, ProcessId(2), 3);
    bed.cut(2, 0, CUT_NS);
    bed.cut(2, 1, CUT_NS);
    bed.cut(2, client, CUT_NS / 16);
    bed.run(RECONNECTED_NS);
    // The client reconnects to the member in the middle of these messages.
    submit(&mut bed, 20 * window);
    assert!(!bed.clients[0].counts_on(member));
    bed.run(CUT_NS);
    submit(&mut bed, 2);
    bed.run(20 * RECONNECTED_NS);
    assert!(bed.clients[0].counts_on(member));
    submit(&mut bed, 2 * window);
    assert_eq!(bed.delivered[2].last(), bed.delivered[0].last());
}

#[test]
fn a_client_that_does_not_see_that_a_record_was_refused_writes_nothing_over_it() {
    assert!(reconnecting_client_loses_nothing(true, Mutant::None));
}

/// The second process of a client id stands still while a member answers its first hello. If the member's own hello came
/// before, the process reads the answer, and replies by another hello, before it polls the completion of the first one.
/// Returns whether the process begins.
fn begins_by_a_second_hello(network: NetworkModel, seed: u64) -> bool {
    let mut bed = Bed::new(&[1], 1, limits(), network, seed);
    bed.run(RECONNECTED_NS);
    bed.submit(0, &[0], b"first").expect("all are connected");
    bed.run(SETTLED_NS);
    bed.restart_client(0);
    let hellos = |bed: &Bed| bed.clients[0].counts().writes(Step::PeerMessage);
    let end = bed.world.now_ns() + RECONNECTED_NS;
    while hellos(&bed) == 0 && bed.world.now_ns() < end {
        bed.run(100);
    }
    assert_eq!(hellos(&bed), 1, "seed {seed}");
    let process = bed.topology.client_process(ClientId(0));
    bed.world.inject(bed.world.now_ns(), Fault::Stall { process, for_ns: SETTLED_NS });
    bed.run(4 * RECONNECTED_NS);
    let second = bed.submit(0, &[0], b"second");
    bed.run(SETTLED_NS);
    second.is_ok_and(|second| bed.delivered[0].last() == Some(&(second, b"second".to_vec())))
}

#[test]
fn hello_that_waits_for_an_earlier_one_is_sent_when_that_is_complete() {
    const SEEDS: u64 = 12;
    let calm = NetworkModel::calm;
    let begin = [
        NetworkModel { ordered_writes: false, ..calm() },
        // A hello is too long to be copied while posting.
        NetworkModel { inline_bytes: 64, ..calm() },
        // The first hello fills the send queue.
        NetworkModel { max_send_depth: 1, ..calm() },
    ]
    .map(|network| (0..SEEDS).filter(|seed| begins_by_a_second_hello(network.clone(), *seed)).count());
    assert_eq!(begin, [SEEDS as usize; 3]);
}

#[test]
fn client_id_changes_hands_two_hundred_times_and_no_message_id_is_used_twice() {
    for (seed, network) in (0..).zip([NetworkModel::adversarial(), NetworkModel::unordered()]) {
        let mut bed = Bed::new(&[3, 1], 1, limits(), network, seed);
        bed.run(RECONNECTED_NS);
        let mut sent = Vec::new();
        for round in 0..100_u64 {
            for n in 0..(round % 5) {
                let to: &[u16] = if n % 2 == 0 { &[0, 1] } else { &[0] };
                if let Ok(id) = bed.submit(0, to, &[round as u8; 30]) {
                    sent.push((id, vec![round as u8; 30]));
                }
            }
            bed.run(10 * SETTLED_NS);
            bed.restart_client(0);
            bed.run(RECONNECTED_NS);
        }
        assert!(sent.len() > 150, "seed {seed}: {}", sent.len());
        assert!(sent.windows(2).all(|pair| pair[0].0 < pair[1].0), "seed {seed}: ids rise");
        for member in 0..3 {
            assert_eq!(bed.delivered[member], sent, "seed {seed} member {member}");
        }
        assert_eq!(bed.rejected(), 0);
    }
}

#[test]
fn held_messages_are_delivered_although_a_reconnected_client_overwrites_their_records() {
    let mut bed = Bed::new(&[3, 1], 1, limits(), NetworkModel::uniform(1_000), 1);
    bed.run(RECONNECTED_NS);
    // The other group does not answer, so all messages are held; then the client's connections break and are
    // re-established.
    bed.world.inject(0, Fault::Stall { process: ProcessId(3), for_ns: 20 * RECONNECTED_NS });
    bed.run(1_000);
    let mut sent = Vec::new();
    for n in 0..8_u8 {
        sent.push((bed.submit(0, &[0, 1], &[n; 200]).expect("within the window"), vec![n; 200]));
    }
    bed.run(SETTLED_NS);
    for member in 0..3 {
        bed.cut(member, 4, RECONNECTED_NS);
    }
    bed.run(3 * RECONNECTED_NS);
    // The ring has restarted, so these records overwrite those of the messages that are held.
    for n in 8..16_u8 {
        if let Ok(id) = bed.submit(0, &[0, 1], &[n; 200]) {
            sent.push((id, vec![n; 200]));
        }
        bed.run(SETTLED_NS);
    }
    bed.run(40 * RECONNECTED_NS);
    assert!(sent.len() > 8, "{}", sent.len());
    assert_eq!(bed.delivered[0], sent);
}

/// The first process of a client id dies when a single follower has its message, and that follower does not run for a
/// while. The message that it forwards later is a no-op, at both groups.
#[test]
fn message_of_an_earlier_process_held_by_a_minority_is_a_no_op() {
    let mut bed = Bed::new(&[3, 1], 1, limits(), NetworkModel::calm(), 1);
    bed.run(2 * RECONNECTED_NS);
    let (client, late) = (ProcessId(4), ProcessId(2));
    for to in [0, 1, 3].map(ProcessId) {
        bed.world.inject(bed.world.now_ns(), Fault::Cut { from: client, to, for_ns: RECONNECTED_NS });
    }
    bed.world.inject(bed.world.now_ns(), Fault::Stall { process: late, for_ns: 10 * RECONNECTED_NS });
    bed.run(1_000);
    let old = bed.submit(0, &[0, 1], b"old").expect("the client is connected to all destinations");
    bed.run(20_000);
    bed.restart_client(0);
    bed.run(4 * RECONNECTED_NS);
    let new = bed.submit(0, &[0, 1], b"new").expect("majorities are there");
    bed.run(60 * RECONNECTED_NS);
    assert!(old < new);
    for delivered in &bed.delivered {
        assert_eq!(*delivered, [(new, b"new".to_vec())]);
    }
}

#[test]
fn living_client_writes_messages_again_that_were_lost_with_its_connections() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    let client = ProcessId(3);
    bed.run(RECONNECTED_NS);
    for member in 0..3 {
        bed.cut(member, 3, 3 * RECONNECTED_NS);
    }
    bed.run(1_000);
    let breaks = bed.submit(0, &[0], b"breaks the links").expect("the client has not noticed the partition");
    // The client does not run while its queue pairs break, and does not know of that when it continues.
    bed.run(1_000);
    bed.world.inject(bed.world.now_ns(), Fault::Stall { process: client, for_ns: 2 * RECONNECTED_NS });
    bed.run(2 * RECONNECTED_NS - 1_000);
    let broken = (0..3).all(|qp| bed.clients[0].fabric().state(QpId(qp)) == QpState::Error);
    assert!(broken && bed.clients[0].is_connected(G0));
    let lost = bed.submit(0, &[0], b"lost").expect("the client has not noticed its broken queue pairs");
    bed.run(RECONNECTED_NS / 2);
    assert!(!bed.clients[0].is_connected(G0) && bed.delivered.iter().all(Vec::is_empty), "it is nowhere");
    bed.run(4 * RECONNECTED_NS);
    for delivered in &bed.delivered {
        assert_eq!(*delivered, [(breaks, b"breaks the links".to_vec()), (lost, b"lost".to_vec())]);
    }
    assert_eq!(bed.clients[0].synced_up_to(), lost.sequence);
}

/// A member without memory reads messages far ahead of the empty state that it knows, but does not hold them. While it
/// is the only connected member, no message is freed.
#[test]
fn messages_read_by_a_minority_are_written_again_to_reconnected_members() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    let client = ProcessId(3);
    bed.run(RECONNECTED_NS);
    let mut sent = Vec::new();
    for _ in 0..2 * limits().window {
        sent.push((
            bed.submit(0, &[0], b"before").expect("the client is connected to all destinations"),
            b"before".to_vec(),
        ));
        bed.run(SETTLED_NS);
    }
    for other in [0, 2] {
        bed.cut(1, other, 30 * RECONNECTED_NS);
    }
    bed.restart_member(1);
    bed.run(4 * RECONNECTED_NS);
    assert!(bed.members[1].replica().is_joining() && bed.clients[0].is_connected(G0));
    for member in [0, 2] {
        bed.cut(member, client.0, 3 * RECONNECTED_NS);
    }
    bed.run(1_000);
    sent.push((bed.submit(0, &[0], b"breaks").expect("the client has not noticed the partition"), b"breaks".to_vec()));
    bed.run(1_000);
    bed.world.inject(bed.world.now_ns(), Fault::Stall { process: client, for_ns: 2 * RECONNECTED_NS });
    bed.run(2 * RECONNECTED_NS - 1_000);
    sent.push((
        bed.submit(0, &[0], b"alone").expect("the client has not noticed its broken queue pairs"),
        b"alone".to_vec(),
    ));
    bed.run(RECONNECTED_NS / 2);
    assert!(!bed.clients[0].is_connected(G0) && bed.delivered[0].len() < sent.len() - 1, "only one has read it");
    bed.run(8 * RECONNECTED_NS);
    assert_eq!((&bed.delivered[0], &bed.delivered[2]), (&sent, &sent));
}

/// A member holds messages that the others have freed. The client has reconnected to it and continues after them, but
/// the member reads records of the next lap before it has processed the hello.
#[test]
fn messages_held_by_one_member_are_not_overwritten_when_the_others_have_freed_them() {
    let behind = ProcessId(1);
    let (mut met, mut delivers) = (0, 0);
    for wait in (0..40).map(|n| n * 500) {
        let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
        bed.run(RECONNECTED_NS);
        // Writes of the other members to this one are late.
        for from in [0, 2].map(ProcessId) {
            bed.world.inject(bed.world.now_ns(), Fault::Cut { from, to: behind, for_ns: 900_000 });
        }
        bed.run(1_000);
        let mut sent = Vec::new();
        let mut submit = |bed: &mut Bed, times: usize| {
            for _ in 0..times {
                let payload = vec![sent.len() as u8; 200];
                if let Ok(id) = bed.submit(0, &[0], &payload) {
                    sent.push((id, payload));
                }
                bed.run(10_000);
            }
            sent.clone()
        };
        let held = submit(&mut bed, 8);
        bed.run(50_000);
        bed.break_link_of_client(1);
        bed.run(wait);
        bed.world.inject(bed.world.now_ns(), Fault::Stall { process: behind, for_ns: 600_000 });
        bed.run(50_000);
        let sent = submit(&mut bed, 50);
        assert_eq!((bed.delivered[1].len(), bed.delivered[0].len()), (0, sent.len()));
        // If the client writes to all three members, some messages find no room, because the stalled member frees
        // nothing.
        met += u32::from(sent.len() < 58);
        bed.run(300_000);
        let delivered = &bed.delivered[1];
        assert!(held.starts_with(delivered) || delivered.starts_with(&held), "{wait}: {delivered:?} of {held:?}");
        delivers += u32::from(!delivered.is_empty());
        bed.run(4 * RECONNECTED_NS);
        assert_eq!((&bed.delivered[0], &bed.delivered[1]), (&sent, &sent));
    }
    assert!(delivers > 0, "a state would replace what is delivered");
    assert!(met > 0, "the client and the member have to reconnect while the member is stalled");
}

#[test]
fn a_synced_message_waits_for_what_its_client_multicast_before_it_to_other_groups() {
    let mut bed = Bed::new(&[3, 3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    // Two of the second group's three members do not run, so the message that the third one reads is not synced.
    for process in [3, 4].map(ProcessId) {
        bed.world.inject(0, Fault::Stall { process, for_ns: 20 * SETTLED_NS });
    }
    bed.run(1_000);
    bed.clients[0]
        .submit(&[GroupId(1)], b"may be lost with its client", true)
        .expect("the client is connected to all destinations");
    let synced = bed.submit(0, &[0], b"after it").expect("the client is connected to all destinations");
    bed.run(5 * SETTLED_NS);
    assert_eq!(bed.delivered[0].len(), 1);
    assert!(bed.clients[0].synced_up_to() < synced.sequence, "it is lost with the first, because there are no holes");
    bed.run(60 * SETTLED_NS);
    assert_eq!(bed.clients[0].synced_up_to(), synced.sequence);
}
