//! Slots that dead clients wrote at only some of the members, or at none.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ballot, ClientId, Head, MessageRef, PeerMessage, Rejected, ReplicaConfig, SlotRef, Variant, Verdict,
};

use super::process::{Effect, Process, TWO_GROUPS, first_campaign, head, led_by};

const GENERATION: u64 = 1 << stentor_multicast::MessageId::GENERATION_BITS;

/// Returns a reference to a slot of client 0 in the ballot of this leader.
fn slot_ref(slot: u64, leader: u16) -> SlotRef {
    SlotRef { client: ClientId(0), slot, ballot: led_by(leader), generation: 0 }
}

/// Returns the number of ticks that a leader waits before it looks for a missing message.
fn retry_ticks() -> u32 {
    4 * u32::from(ReplicaConfig::RETRY_TICKS)
}

fn peer_messages(effects: &[Effect]) -> Vec<(u16, PeerMessage)> {
    let message = |effect: &Effect| match effect {
        Effect::PeerMessage { to, message } => Some((*to, message.clone())),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

fn no_ops(effects: &[Effect]) -> Vec<(Head, bool)> {
    let no_op = |effect: &Effect| match effect {
        Effect::NoOp { head, settled, .. } => Some((*head, *settled)),
        _ => None,
    };
    effects.iter().filter_map(no_op).collect()
}

/// Returns the leader of a group of three, which holds the second message of a client and not the first.
fn leader_before_a_gap(sizes: &[usize]) -> Process {
    let mut leader = Process::new(sizes, 0, Variant::V2);
    for member in 1..3 {
        leader
            .peer_message(member, &PeerMessage::Installed { ballot: led_by(0) })
            .expect("the leader has nothing to repeat");
    }
    leader.message(0, 2, &[(0, 1)]).expect("the second message");
    leader
}

#[test]
fn gap_of_a_live_client_is_not_filled() {
    let mut leader = leader_before_a_gap(&[3]);
    assert_eq!(peer_messages(&leader.ticks(2 * retry_ticks())), []);
    leader.replica.end_client(ClientId(0), 0);
    // The message is of generation 0, which has ended. The message of the second leader is of the next generation.
    assert!(!leader.ticks(retry_ticks()).is_empty());
    let mut leader = Process::new(&[3], 0, Variant::V2);
    for member in 1..3 {
        leader
            .peer_message(member, &PeerMessage::Installed { ballot: led_by(0) })
            .expect("the leader has nothing to repeat");
    }
    leader.replica.end_client(ClientId(0), 0);
    leader.message(0, GENERATION + 2, &[(0, 1)]).expect("the second message of the process that has begun");
    assert_eq!(peer_messages(&leader.ticks(2 * retry_ticks())), []);
}

#[test]
fn held_messages_count_in_no_ballot_once_another_is_promised() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    assert_eq!(follower.replica.counts_in(), Some(led_by(0)));
    let ballot = Ballot::new(2, ProcessId(2));
    follower.peer_message(2, &first_campaign(ballot, &[0; 3])).expect("the member promises");
    assert_eq!(follower.replica.counts_in(), None);
}

#[test]
fn leader_knows_which_process_left_a_gap() {
    let mut leader = leader_before_a_gap(&[3]);
    assert_eq!(leader.replica.gap_left_by(ClientId(0)), Some((0, 0)), "the first slot, of the first process");
    assert_eq!(leader.replica.gap_left_by(ClientId(1)), None);
    leader.message(0, 1, &[(0, 0)]).expect("the first message");
    assert_eq!(leader.replica.gap_left_by(ClientId(0)), None);
    // A follower does not report the gap, because its leader reports it.
    let mut follower = Process::new(&[3], 1, Variant::V2);
    follower.message(0, GENERATION + 2, &[(0, 1)]).expect("the second message");
    assert_eq!(follower.replica.gap_left_by(ClientId(0)), None);
}

#[test]
fn members_that_gave_a_client_up_look_for_its_gap_and_report_it_missing() {
    let mut leader = leader_before_a_gap(&[3]);
    leader.replica.end_client(ClientId(0), 0);
    assert_eq!(peer_messages(&leader.ticks(retry_ticks())), [1, 2].map(|to| (to, PeerMessage::Seek(slot_ref(0, 0)))));
    let mut follower = Process::new(&[3], 1, Variant::V2);
    follower.replica.end_client(ClientId(0), 0);
    assert_eq!(
        answer(&mut follower, slot_ref(0, 0)),
        [Effect::PeerMessage { to: 0, message: PeerMessage::Lacking(slot_ref(0, 0)) }]
    );
    let later = SlotRef { generation: 1, ..slot_ref(0, 0) };
    assert_eq!(answer(&mut follower, later), [], "of a process that came after it");
    // Giving up an earlier generation changes nothing.
    follower.replica.end_client(ClientId(0), 4);
    follower.replica.end_client(ClientId(0), 2);
    assert_eq!(follower.replica.over_below(ClientId(0)), 5);
}

#[test]
fn closed_generation_has_ended() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    follower.no_op(head(0, 0, 1), 1, false).expect("a no-op");
    assert_eq!((follower.replica.over_below(ClientId(0)), follower.replica.closed_below(ClientId(0))), (1, 1));
    assert_eq!((follower.replica.over_below(ClientId(1)), follower.replica.closed_below(ClientId(1))), (0, 0));
}

#[test]
fn a_gap_is_filled_when_a_majority_lacks_it_and_counts_when_a_majority_has_processed_that() {
    let mut leader = leader_before_a_gap(&[3]);
    leader.replica.end_client(ClientId(0), 0);
    let asked = peer_messages(&leader.ticks(retry_ticks()));
    assert_eq!(asked, [1, 2].map(|to| (to, PeerMessage::Seek(slot_ref(0, 0)))));
    let effects = leader
        .peer_message(1, &PeerMessage::Lacking(slot_ref(0, 0)))
        .expect("the leader accepts that the follower lacks the message");
    // The name of the missing message is not known. The next message is of the same process, so both slots become
    // no-ops.
    assert_eq!(no_ops(&effects), [(head(0, 0, 1), false), (head(2, 1, 1), false)]);
    assert_eq!(leader.replica.first_held(ClientId(0)), 0);
    let effects = leader
        .peer_message(2, &PeerMessage::NoOpProcessed(slot_ref(0, 0)))
        .expect("the leader accepts that the follower processed the no-op");
    assert_eq!(no_ops(&effects), [(head(0, 0, 1), true)]);
    assert_eq!(leader.replica.first_held(ClientId(0)), 1);
    // The late message is refused, and messages of the next process are accepted.
    assert_eq!(leader.message(0, 1, &[(0, 0)]), Ok(vec![]));
    leader
        .peer_message(1, &PeerMessage::NoOpProcessed(slot_ref(1, 0)))
        .expect("the leader accepts that the follower processed the no-op");
    let effects = leader.message(0, GENERATION + 1, &[(0, 2)]).expect("the next process's first");
    assert!(matches!(effects[..], [Effect::Assign { time: 1, .. }]), "{effects:?}");
}

#[test]
fn member_forwards_a_message_that_the_leader_looks_for() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    let silent = follower.peer_message(0, &PeerMessage::Seek(slot_ref(0, 0)));
    assert_eq!(silent, Ok(vec![]), "as far as it knows, the process lives, and may still write here");
    follower.replica.end_client(ClientId(0), 0);
    let later = SlotRef { generation: 1, ..slot_ref(0, 0) };
    assert_eq!(follower.peer_message(0, &PeerMessage::Seek(later)), Ok(vec![]), "of the process that has begun");
    assert_eq!(
        follower.peer_message(0, &PeerMessage::Seek(slot_ref(0, 0))).map(|did| peer_messages(&did)),
        Ok(vec![(0, PeerMessage::Lacking(slot_ref(0, 0)))])
    );
    follower.message(0, 1, &[(0, 0)]).expect("the first message");
    assert_eq!(follower.peer_message(0, &PeerMessage::Seek(slot_ref(0, 0))), Ok(vec![Effect::Body { to: 0, slot: 0 }]));
    let other = SlotRef { ballot: Ballot::new(2, ProcessId(0)), ..slot_ref(1, 0) };
    assert_eq!(
        follower.peer_message(0, &PeerMessage::Seek(other)),
        Ok(vec![]),
        "of a ballot that is not installed here"
    );
}

/// Returns the answer of a follower of a group of three to its leader, which looks for the message in a slot.
fn answer(follower: &mut Process, slot_ref: SlotRef) -> Vec<Effect> {
    follower.peer_message(0, &PeerMessage::Seek(slot_ref)).expect("the leader may ask")
}

#[test]
fn follower_reports_no_message_as_missing_that_may_arrive_or_was_delivered() {
    let lacking = |slot_ref| vec![Effect::PeerMessage { to: 0, message: PeerMessage::Lacking(slot_ref) }];
    let later = SlotRef { generation: 1, ..slot_ref(0, 0) };
    // Only the first generation has ended.
    let mut follower = Process::new(&[3], 1, Variant::V2);
    follower.replica.end_client(ClientId(0), 0);
    assert_eq!(answer(&mut follower, later), []);
    assert_eq!(answer(&mut follower, slot_ref(0, 0)), lacking(slot_ref(0, 0)));
    // Another client id is independent.
    let other = SlotRef { client: ClientId(1), ..slot_ref(0, 0) };
    assert_eq!(answer(&mut follower, other), []);
    assert_eq!(answer(&mut follower, SlotRef { client: ClientId(2), ..other }), [], "there is no such client id");
    // A delivered message is not lacking, although its body is dropped after some time.
    follower.message(0, 1, &[(0, 0)]).expect("the first message");
    follower.assign(head(1, 0, 1), 1, 0, led_by(0), 1).expect("the follower accepts the assignment");
    assert_eq!(follower.replica.delivered(), 1);
    assert_eq!(answer(&mut follower, slot_ref(0, 0)), [Effect::Body { to: 0, slot: 0 }]);
    for slot in 1..3 {
        follower.message(0, slot + 1, &[(0, slot)]).expect("a message");
        follower
            .assign(head(slot + 1, slot, 1), slot + 1, 0, led_by(0), slot + 1)
            .expect("the follower accepts the assignment");
    }
    assert_eq!(answer(&mut follower, slot_ref(0, 0)), [], "delivered, and another message has its slot");
    // The follower no longer answers in this ballot after it has promised another one.
    follower.replica.end_client(ClientId(0), 0);
    assert_eq!(answer(&mut follower, slot_ref(3, 0)), lacking(slot_ref(3, 0)));
    let ballot = Ballot::new(2, ProcessId(2));
    follower.peer_message(2, &first_campaign(ballot, &[0; 3])).expect("the member promises");
    assert_eq!(answer(&mut follower, slot_ref(3, 0)), [], "that leader is deposed");
    let early = PeerMessage::Seek(SlotRef { ballot, ..slot_ref(3, 0) });
    assert_eq!(follower.peer_message(2, &early), Ok(vec![]), "its state is not installed here");
}

#[test]
fn process_without_memory_reports_nothing_as_missing() {
    let mut follower = Process::joining(&[3], 1);
    follower.replica.end_client(ClientId(0), 0);
    for ballot in [Ballot::NONE, led_by(0)] {
        assert_eq!(answer(&mut follower, SlotRef { ballot, ..slot_ref(0, 0) }), []);
    }
}

#[test]
fn a_follower_passes_a_no_op_when_it_is_settled() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    let effects = follower.no_op(head(0, 0, 1), 1, false).expect("a no-op");
    assert_eq!(effects, [Effect::PeerMessage { to: 0, message: PeerMessage::NoOpProcessed(slot_ref(0, 0)) }]);
    assert_eq!(follower.replica.first_held(ClientId(0)), 0);
    assert_eq!(follower.no_op(head(0, 0, 1), 2, true), Ok(vec![]));
    assert_eq!(follower.replica.first_held(ClientId(0)), 1);
    // The leader repeats the entry for another member.
    assert_eq!(follower.no_op(head(0, 0, 1), 3, false).map(|did| peer_messages(&did).len()), Ok(1));
    let beyond = Err(Rejected::BeyondWindow { client: 0, slot: 3, end: 3 });
    assert_eq!(follower.no_op(head(0, 3, 1), 4, false), beyond);
}

#[test]
fn unsettled_no_op_ends_with_its_ballot() {
    let mut leader = leader_before_a_gap(&[3]);
    leader.replica.end_client(ClientId(0), 0);
    leader.ticks(retry_ticks());
    leader
        .peer_message(1, &PeerMessage::Lacking(slot_ref(0, 0)))
        .expect("the leader accepts that the follower lacks the message");
    // Member 1 leads now. It holds the message and has not learnt of the no-op.
    let mut other = Process::new(&[3], 1, Variant::V2);
    other.message(0, 1, &[(0, 0)]).expect("the first message");
    let ballot = other.campaign();
    let mut third = Process::new(&[3], 2, Variant::V2);
    let promise = peer_messages(&third.peer_message(1, &first_campaign(ballot, &[0; 3])).expect("the member promises"))
        .remove(0)
        .1;
    let effects = other.peer_message(2, &promise).expect("a majority");
    let install = peer_messages(&effects).into_iter().find(|(to, _)| *to == 0).expect("a state").1;
    leader.peer_message(1, &install).expect("the old leader installs the state");
    assert_eq!((leader.replica.ballot(), leader.replica.first_held(ClientId(0))), (ballot, 0));
    leader.message(0, 1, &[(0, 0)]).expect("the message may be held again");
    leader.replica.on_begin(ProcessId(1), ballot).expect("the stream of the new ballot");
    let effects = leader.assign(head(1, 0, 1), 1, 0, ballot, 1).expect("assigned under the new ballot");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Deliver(_))), "{effects:?}");
}

#[test]
fn another_group_learns_of_a_settled_no_op_and_fills_its_slot() {
    let mut leader = leader_before_a_gap(TWO_GROUPS);
    leader.replica.end_client(ClientId(0), 0);
    leader.ticks(retry_ticks());
    leader
        .peer_message(1, &PeerMessage::Lacking(slot_ref(0, 0)))
        .expect("the leader accepts that the follower lacks the message");
    let theirs = head(1, 0, 2);
    assert_eq!(leader.timestamp(3, theirs, 1, led_by(3), 7), Ok(vec![]), "not yet");
    leader
        .peer_message(1, &PeerMessage::NoOpProcessed(slot_ref(0, 0)))
        .expect("the leader accepts that the follower processed the no-op");
    let refused =
        PeerMessage::Refused(Verdict { message: MessageRef { client: ClientId(0), sequence: 1 }, ballot: led_by(0) });
    let told = leader.timestamp(3, theirs, 1, led_by(3), 7);
    assert_eq!(told, Ok(vec![Effect::PeerMessage { to: 3, message: refused.clone() }]));

    let mut theirs = Process::new(TWO_GROUPS, 3, Variant::V2);
    theirs.message(0, 1, &[(0, 0), (1, 0)]).expect("the message");
    theirs.message(1, 1, &[(1, 0)]).expect("another client's, after it");
    let decided = theirs.ack(4, Head { client: ClientId(1), ..head(1, 0, 1) }, 0, &[2]);
    assert_eq!(decided, Ok(vec![]), "the first can still come before it");
    let effects = theirs.peer_message(0, &refused).expect("the other group accepts the refusal");
    assert_eq!(no_ops(&effects), [(head(1, 0, 2), false)]);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Deliver(_))), "{effects:?}");
    let processed = PeerMessage::NoOpProcessed(slot_ref(0, 3));
    let effects = theirs
        .peer_message(4, &processed)
        .expect("the other group's leader accepts that its follower processed the no-op");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Deliver(_))), "{effects:?}");
    // The client's next message also becomes a no-op, because its delivery would leave a gap.
    assert_eq!(theirs.message(0, 2, &[(1, 1)]).map(|did| no_ops(&did)), Ok(vec![(head(2, 1, 1), false)]));
}

#[test]
fn followers_learn_of_a_ballot_before_a_time_given_in_it() {
    let mut leader = Process::new(TWO_GROUPS, 0, Variant::V2);
    leader.message(0, 1, &[(0, 0), (1, 0)]).expect("the message");
    let newer = Ballot::new(2, ProcessId(4));
    let effects = leader.timestamp(4, head(1, 0, 2), 1, newer, 9).expect("their new leader's");
    assert_eq!(effects[0], Effect::RemoteBallot { counter: 2, ballot: newer });
    assert!(matches!(effects[1], Effect::Vector { counter: 3, .. }), "{effects:?}");

    let mut follower = Process::new(TWO_GROUPS, 1, Variant::V2);
    follower.message(0, 1, &[(0, 0), (1, 0)]).expect("the message");
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 1).expect("the follower accepts the assignment");
    assert_eq!(follower.heard(2, newer), Ok(vec![]));
    follower.vector(head(1, 0, 2), 3, &[1, 9]).expect("the vector");
    // The follower leads now. The old leader, which does not know that it is deposed, assigns its own time.
    let ballot = follower.campaign();
    let mut third = Process::new(TWO_GROUPS, 2, Variant::V2);
    let promise = peer_messages(&third.peer_message(1, &first_campaign(ballot, &[0; 3])).expect("the member promises"))
        .remove(0)
        .1;
    follower.peer_message(2, &promise).expect("a majority");
    follower
        .peer_message(2, &PeerMessage::Installed { ballot })
        .expect("the candidate accepts that the member installed its state");
    assert!(follower.replica.is_leader());
    let effects = follower.timestamp(3, head(1, 0, 2), 1, led_by(3), 5).expect("an old one");
    assert!(
        matches!(peer_messages(&effects)[..], [(3, PeerMessage::Announce { ballot, .. })] if ballot == newer),
        "{effects:?}"
    );
}
