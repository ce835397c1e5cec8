//! Processes that take over a client id, one after the other.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    AssignedSlot, Ballot, ClientId, ClientState, Closed, Destination, GroupId, GroupSet, Head, Incarnation, Left,
    MessageId, MessageRef, Mutant, Origin, PeerMessage, ReplicaConfig, SlotRef, State, Succession, Variant, Verdict,
};

use super::process::{Effect, Process, TWO_GROUPS, first_campaign, first_word, head, led_by};

const C0: ClientId = ClientId(0);

/// Returns a sequence of client 0.
fn sequence(generation: u64, count: u64) -> u64 {
    (generation << MessageId::GENERATION_BITS) + count
}

fn about(generation: u64, ballot: Ballot) -> SlotRef {
    SlotRef { client: C0, slot: 0, ballot, generation }
}

fn succeeded(generation: u64, ballot: Ballot, life: u64) -> PeerMessage {
    PeerMessage::Succeeded(SlotRef { slot: life, ..about(generation, ballot) })
}

fn closed(generation: u64, ballot: Ballot, held: &[(u64, u64)]) -> PeerMessage {
    let held = held.iter().flat_map(|(slot, sequence)| [*slot, *sequence]).collect();
    PeerMessage::Closed(Closed { about: SlotRef { slot: generation, ..about(generation, ballot) }, held })
}

fn peer_messages(effects: &[Effect]) -> Vec<(u16, PeerMessage)> {
    let message = |effect: &Effect| match effect {
        Effect::PeerMessage { to, message } => Some((*to, message.clone())),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

/// Returns the entries about successions: generation and first slot, and whether each is settled.
fn successions(effects: &[Effect]) -> Vec<(Head, bool)> {
    let entry = |effect: &Effect| match effect {
        Effect::Succeed { head, settled, .. } => Some((*head, *settled)),
        _ => None,
    };
    effects.iter().filter_map(entry).collect()
}

/// Returns member 0, which leads. Members 1 and 2 have installed its first ballot.
fn leader(sizes: &[usize], mutant: Mutant) -> Process {
    let mut leader = Process::planted(sizes, 0, mutant);
    for member in 1..3 {
        leader
            .peer_message(member, &PeerMessage::Installed { ballot: led_by(0) })
            .expect("the leader has nothing to repeat");
    }
    leader
}

/// Returns a leader whose client 0 has a process of this generation.
fn leader_of(sizes: &[usize], generation: u64, mutant: Mutant) -> Process {
    let mut leader = leader(sizes, mutant);
    leader.open(7, Some(generation), 0);
    leader
        .peer_message(1, &closed(generation, led_by(0), &[]))
        .expect("the leader accepts that the follower holds nothing");
    leader
        .peer_message(1, &succeeded(generation, led_by(0), 7))
        .expect("the leader accepts that the follower processed the succession");
    leader
}

#[test]
fn process_gets_one_generation_and_may_begin_when_a_majority_has_processed_it() {
    let mut leader = leader(&[3], Mutant::None);
    let close = PeerMessage::Close(about(0, led_by(0)));
    assert_eq!(peer_messages(&leader.open(7, None, 0)), [(1, close.clone()), (2, close)]);
    assert_eq!(leader.open(7, None, 0), [], "it is asked");
    let effects =
        leader.peer_message(1, &closed(0, led_by(0), &[])).expect("the leader accepts that the follower holds nothing");
    assert_eq!(successions(&effects), [(head(0, 0, 1), false)]);
    assert!(leader.replica.succession(C0).is_some_and(|last| !last.settled));
    assert_eq!(leader.open(8, None, 0), [], "one after the other");
    let processed = succeeded(0, led_by(0), 7);
    assert_eq!(
        successions(&leader.peer_message(2, &processed).expect("the process accepts the input")),
        [(head(0, 0, 1), true)]
    );
    let settled = Succession { generation: 0, life: 7, first: 0, after: 0, settled: true };
    assert_eq!(leader.replica.succession(C0), Some(settled));
    assert_eq!(leader.open(7, None, 0), [], "the same life");
    let next = PeerMessage::Close(about(1, led_by(0)));
    assert_eq!(leader.open(8, None, 0), [], "an outdated request");
    assert_eq!(peer_messages(&leader.open(8, None, 1))[0], (1, next), "another process, which knows of the first");
    assert_eq!(leader.replica.over_below(C0), 1);
}

#[test]
fn superseded_process_gets_no_other_generation() {
    let mut leader = leader_of(&[3], 3, Mutant::None);
    assert_eq!(leader.open(6, Some(2), 9), [], "another process came after it");
    let above = PeerMessage::Close(about(9, led_by(0)));
    assert_eq!(peer_messages(&leader.open(7, Some(3), 9))[0], (1, above), "it is the latest that its home knows");
    // A group that is not the home group assigns no generation.
    let mut other = Process::new(&[3, 3], 3, Variant::V2);
    assert_eq!(other.open(7, None, 0), []);
    assert!(!other.open(7, Some(3), 0).is_empty());
}

#[test]
fn follower_forwards_requests_and_accepts_nothing_more_of_earlier_processes() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    assert!(matches!(peer_messages(&follower.open(7, Some(2), 0))[..], [(0, PeerMessage::Open(_))]));
    follower.message(0, sequence(0, 5), &[(0, 0)]).expect("a message");
    let told = follower.peer_message(0, &PeerMessage::Close(about(2, led_by(0)))).expect("its leader asks");
    assert_eq!(peer_messages(&told), [(0, closed(2, led_by(0), &[(0, sequence(0, 5))]))]);
    assert_eq!(follower.replica.over_below(C0), 2);
    let other = PeerMessage::Close(about(3, Ballot::new(2, ProcessId(0))));
    assert_eq!(follower.peer_message(0, &other), Ok(vec![]), "of a ballot that is not installed here");
    assert_eq!(follower.replica.over_below(C0), 2);
}

/// Makes member `me` of a group of three campaign, and lead with member 2, which holds nothing.
fn lead_with_third(leader: &mut Process, me: u16) -> Ballot {
    let ballot = leader.campaign();
    let mut third = Process::new(&[3], 2, Variant::V2);
    let campaign = first_campaign(ballot, &[0; 3]);
    let promise = peer_messages(&third.peer_message(me, &campaign).expect("the member promises")).remove(0).1;
    leader.peer_message(2, &promise).expect("a majority");
    leader
        .peer_message(2, &PeerMessage::Installed { ballot })
        .expect("the candidate accepts that the member installed its state");
    ballot
}

/// Returns whether an answer counts that member 1 gave under the first ballot. Member 1 has lost its memory since, so
/// the answer does not show what it holds now.
fn counts_in_another_ballot(mutant: Mutant) -> bool {
    let mut leader = leader(&[3], mutant);
    let ballot = lead_with_third(&mut leader, 0);
    leader.open(7, Some(1), 0);
    let late = leader.peer_message(1, &closed(1, led_by(0), &[])).expect("the leader ignores the late answer");
    let now = leader.peer_message(2, &closed(1, ballot, &[])).expect("the leader accepts the answer in its ballot");
    assert!(successions(&late).is_empty() != successions(&now).is_empty());
    !successions(&late).is_empty()
}

#[test]
fn an_answer_counts_in_the_ballot_in_which_it_was_given() {
    assert!(!counts_in_another_ballot(Mutant::None));
}

/// Returns the first slot of a process that opens while a member of the majority holds messages that the leader lacks.
fn begins_behind(mutant: Mutant) -> Option<Head> {
    let mut leader = leader(&[3], mutant);
    leader.open(7, Some(1), 0);
    let effects = leader
        .peer_message(2, &closed(1, led_by(0), &[(0, 4), (2, 6)]))
        .expect("the leader accepts what the follower holds");
    if let Some((head, _)) = successions(&effects).first() {
        return Some(*head);
    }
    let wanted = |sequence| (2, PeerMessage::WantBody(MessageRef { client: C0, sequence }));
    assert_eq!(peer_messages(&effects), [wanted(4), wanted(6)]);
    let effects = leader.message(0, 4, &[(0, 0)]).expect("the forwarded message is accepted");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Assign { .. })), "it is ordered: {effects:?}");
    successions(&leader.tick().expect("time passes")).first().map(|(head, _)| *head)
}

#[test]
fn process_begins_after_the_messages_that_any_of_a_majority_held_without_a_gap() {
    assert_eq!(begins_behind(Mutant::None), Some(head(sequence(1, 0), 1, 1)), "messages after the gap become no-ops");
}

/// Member 2 holds a message and dies before it forwards it: another member's answer counts instead.
#[test]
fn member_that_does_not_forward_its_messages_does_not_count() {
    let mut leader = leader(&[3], Mutant::None);
    leader.open(7, Some(1), 0);
    leader.peer_message(2, &closed(1, led_by(0), &[(0, 4)])).expect("the leader accepts what the follower holds");
    let effects = leader.ticks(u32::from(ReplicaConfig::RETRY_TICKS));
    let close = PeerMessage::Close(about(1, led_by(0)));
    assert_eq!(peer_messages(&effects), [(1, close.clone()), (2, close)], "both are asked again");
    let effects =
        leader.peer_message(1, &closed(1, led_by(0), &[])).expect("the leader accepts that the follower holds nothing");
    assert_eq!(successions(&effects), [(head(sequence(1, 0), 0, 1), false)]);
}

#[test]
fn messages_of_an_earlier_process_are_no_ops_from_the_first_slot_on() {
    let mut leader = leader_of(TWO_GROUPS, 0, Mutant::None);
    leader.message(0, 1, &[(0, 0)]).expect("the first message");
    leader.open(8, None, 1);
    leader.peer_message(1, &closed(1, led_by(0), &[])).expect("the leader accepts that the follower holds nothing");
    assert_eq!(leader.replica.succession(C0).map(|last| (last.first, last.after)), Some((1, 1)));
    // A minority forwards a body later, and another group has a timestamp for it.
    assert_eq!(leader.message(0, 2, &[(0, 1), (1, 0)]), Ok(vec![]));
    assert_eq!(leader.replica.end_of_held(C0), 1);
    let theirs = head(2, 1, 2);
    assert_eq!(leader.timestamp(3, theirs, 1, led_by(3), 7), Ok(vec![]), "nothing is said before it is settled");
    assert_eq!(leader.ack(4, theirs, 1, &[1, 7]), Ok(vec![]));
    leader
        .peer_message(1, &succeeded(1, led_by(0), 8))
        .expect("the leader accepts that the follower processed the succession");
    let refused = PeerMessage::Refused(Verdict { message: MessageRef { client: C0, sequence: 2 }, ballot: led_by(0) });
    let told = Ok(vec![Effect::PeerMessage { to: 3, message: refused }]);
    assert_eq!(leader.timestamp(3, theirs, 1, led_by(3), 7), told);
    // The leader still refuses the message after its slot was reused. The short name of the slot then refers to another
    // message.
    for n in 1..6 {
        let effects = leader.message(0, sequence(1, n), &[(0, n)]).expect("the next process's");
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Assign { .. })), "{n}: {effects:?}");
        leader.ack(1, head(sequence(1, n), n, 1), 0, &[n + 1]).expect("the acknowledgement is accepted");
        if n == 1 {
            leader.ack(1, head(1, 0, 1), 0, &[1]).expect("the acknowledgement is accepted");
        }
    }
    assert_eq!(leader.timestamp(3, theirs, 1, led_by(3), 7), told);
}

#[test]
fn follower_drops_messages_that_became_no_ops() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    follower.message(0, 1, &[(0, 0)]).expect("the first message");
    follower.message(0, 2, &[(0, 1)]).expect("the second");
    let effects = follower.succeed(1, 1, 1, false).expect("the leader's stream");
    let processed = succeeded(1, led_by(0), 9);
    assert_eq!(effects, [Effect::Dropped { slot: 1, sequence: 2 }, Effect::PeerMessage { to: 0, message: processed }]);
    assert_eq!((follower.replica.end_of_held(C0), follower.replica.over_below(C0)), (1, 1));
    assert_eq!(follower.succeed(1, 1, 2, true), Ok(vec![]));
    assert!(follower.replica.succession(C0).is_some_and(|last| last.settled));
    follower.message(0, sequence(1, 1), &[(0, 1)]).expect("the next process's, in its place");
    assert_eq!(follower.replica.sequence_of(C0, 1), Some(sequence(1, 1)));
}

/// The leader dies after it has appended its entry and before the entry is disseminated. The next leader asks the
/// members itself, and includes the messages that it holds.
#[test]
fn unsettled_succession_ends_with_its_ballot() {
    let mut first = leader(&[3], Mutant::None);
    first.open(7, Some(1), 0);
    first.peer_message(1, &closed(1, led_by(0), &[])).expect("the leader accepts that the follower holds nothing");
    assert_eq!(first.replica.succession(C0).map(|last| last.first), Some(0));
    let mut second = Process::new(&[3], 1, Variant::V2);
    second.message(0, 1, &[(0, 0)]).expect("held, and no leader has asked for it");
    let ballot = second.campaign();
    let mut third = Process::new(&[3], 2, Variant::V2);
    let campaign = first_campaign(ballot, &[0; 3]);
    let promise = peer_messages(&third.peer_message(1, &campaign).expect("the member promises")).remove(0).1;
    let effects = second.peer_message(2, &promise).expect("a majority");
    let install = peer_messages(&effects).into_iter().find(|(to, _)| *to == 0).expect("a state").1;
    second
        .peer_message(2, &PeerMessage::Installed { ballot })
        .expect("the candidate accepts that the member installed its state");
    second.open(7, Some(1), 0);
    let effects =
        second.peer_message(2, &closed(1, ballot, &[])).expect("the leader accepts that the follower holds nothing");
    assert_eq!(successions(&effects), [(head(sequence(1, 0), 1, 1), false)], "after the messages that it holds");
    first.peer_message(1, &install).expect("the old leader installs the state");
    assert_eq!(first.replica.succession(C0), None);
}

/// Only the leader held the messages before the first slot of a process. The next leader lacks them, and lets another
/// process begin there. The state that it then promises is sound.
#[test]
fn a_process_may_begin_before_the_first_slot_of_the_one_that_it_follows() {
    let mut leader = Process::new(&[3], 1, Variant::V2);
    leader.succeed(1, 1, 1, true).expect("the first leader held slot 0");
    let ballot = lead_with_third(&mut leader, 1);
    leader.open(8, None, 2);
    let effects =
        leader.peer_message(2, &closed(2, ballot, &[])).expect("the leader accepts that the follower holds nothing");
    assert_eq!(successions(&effects), [(head(sequence(2, 0), 0, 1), false)]);
    let mut first = Process::new(&[3], 0, Variant::V2);
    first
        .peer_message(1, &PeerMessage::Refuse { promised: ballot, incarnation: Incarnation::FIRST })
        .expect("the refusal is accepted");
    let next = first.campaign();
    let promise = peer_messages(&leader.peer_message(0, &first_campaign(next, &[0; 3])).expect("the member promises"))
        .remove(0)
        .1;
    let effects = first.peer_message(1, &promise).expect("a sound state");
    assert!(effects.contains(&Effect::Begin(next)), "{effects:?}");
}

#[test]
fn messages_about_the_next_process_are_valid_while_its_succession_is_in_flight() {
    let mut follower = Process::of_two_groups(1);
    follower.message(0, 1, &[(0, 0), (1, 0)]).expect("a no-op, as others know by now");
    let next = head(sequence(1, 1), 0, 2);
    assert_eq!(follower.ack(2, next, 0, &[5, 6]), Ok(vec![]));
    let told = follower.timestamp(3, next, 1, led_by(3), 6).expect("no fault");
    let (group, first) = (GroupId(0), Incarnation::FIRST);
    let leads = PeerMessage::Announce { group, ballot: led_by(0), incarnation: first, origin: first };
    assert_eq!(peer_messages(&told), [(3, leads)], "and not that it is delivered and forgotten");
    assert!(follower.ack(2, head(2, 0, 2), 0, &[5, 6]).is_err(), "of one process no two are in one slot");
}

/// Returns the ballot after the first one, which member 1 leads.
fn second() -> Ballot {
    Ballot::new(2, ProcessId(1))
}

/// Returns a state of the second ballot, where a process of generation 1 begins at slot 0.
fn of_the_second(client: ClientState) -> State {
    let heir = Succession { generation: 1, life: 8, first: 0, after: 0, settled: client.held.is_empty() };
    let client = ClientState { successions: vec![heir], ..client };
    let clients = vec![client, ClientState::default()];
    State {
        synced: second(),
        incarnation: Incarnation::FIRST,
        origins: vec![Origin { incarnation: Incarnation::FIRST, kept: 0 }],
        counter: 3,
        clock: 9,
        known: vec![second()],
        incarnations: vec![Incarnation::FIRST],
        words: vec![first_word()],
        lives: vec![0; 3],
        clients,
        ..State::default()
    }
}

/// Returns an `Install` of the second ballot: members 1 and 2 have agreed where the next process begins, which has
/// multicast since.
fn install_of_the_second() -> PeerMessage {
    let entry = |count| {
        let destinations = vec![Destination { group: GroupId(0), slot: count - 1 }];
        let (sequence, times) = (sequence(1, count), vec![count + 5]);
        let ended = GroupSet::default();
        AssignedSlot {
            sequence,
            destinations,
            times,
            vector: true,
            decided: false,
            no_op: false,
            delivered: false,
            ended,
        }
    };
    let state = of_the_second(ClientState { entries: vec![entry(1), entry(2)], ..ClientState::default() });
    PeerMessage::Install { ballot: second(), counter: 3, state, admits: Vec::new(), snapshot: false }
}

/// Checks that a member reports the `dropped` messages, and installs the second ballot's state when it has received the
/// bodies.
fn installs_the_second(mut member: Process, dropped: &[Effect]) {
    let effects = member.peer_message(1, &install_of_the_second()).expect("the member accepts the state");
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Dropped { .. })).count(), dropped.len());
    assert!(effects.starts_with(dropped), "{effects:?}");
    let wanted = |count| (1, PeerMessage::WantBody(MessageRef { client: C0, sequence: sequence(1, count) }));
    assert_eq!(peer_messages(&effects), [wanted(1), wanted(2)]);
    for count in 1..3 {
        member.message(0, sequence(1, count), &[(0, count - 1)]).expect("the forwarded message is accepted");
    }
    assert_eq!(member.replica.ballot(), second());
    let undelivered: Vec<u64> = member.replica.undelivered().map(|id| id.sequence).collect();
    assert_eq!((member.replica.delivered(), undelivered), (2, vec![]), "the leader's word and its own are a majority");
}

#[test]
fn superseded_assignment_of_a_deposed_leader_gives_way_to_the_next_process() {
    let mut deposed = leader(&[3], Mutant::None);
    deposed.message(0, 1, &[(0, 0)]).expect("the leader accepts a message that no other member has");
    deposed.message(0, 2, &[(0, 1)]).expect("the leader accepts another one");
    let dropped = [Effect::Dropped { slot: 0, sequence: 1 }, Effect::Dropped { slot: 1, sequence: 2 }];
    installs_the_second(deposed, &dropped);
}

#[test]
fn superseded_no_op_gives_way_to_the_next_process() {
    let mut follower = Process::new(&[3], 2, Variant::V2);
    follower.no_op(head(0, 0, 1), 1, false).expect("nobody else processes it");
    installs_the_second(follower, &[]);
}

/// A follower of the second ballot's leader holds a synced message, and has not learnt yet that the succession is
/// settled.
#[test]
fn candidate_asks_for_the_held_message_in_place_of_its_own_superseded_one() {
    let mut deposed = leader(&[3], Mutant::None);
    deposed.message(0, 1, &[(0, 0)]).expect("the leader accepts a message that no other member has");
    deposed
        .peer_message(1, &PeerMessage::Refuse { promised: second(), incarnation: Incarnation::FIRST })
        .expect("the deposed leader learns of the second ballot");
    let ballot = deposed.campaign();
    assert!(ballot > second());
    let state = of_the_second(ClientState { held: vec![(0, sequence(1, 1))], ..ClientState::default() });
    let effects = deposed.peer_message(2, &PeerMessage::Promise { ballot, state }).expect("a majority");
    let wanted = PeerMessage::WantBody(MessageRef { client: C0, sequence: sequence(1, 1) });
    let dropped = Effect::Dropped { slot: 0, sequence: 1 };
    assert_eq!(effects, [dropped, Effect::PeerMessage { to: 2, message: wanted }], "it takes nothing over without it");
    let effects = deposed.message(0, sequence(1, 1), &[(0, 0)]).expect("the body");
    assert!(effects.contains(&Effect::Begin(ballot)), "{effects:?}");
}

#[test]
fn kept_successions_are_retired_when_the_other_groups_are_done() {
    let mut leader = leader_of(TWO_GROUPS, 0, Mutant::None);
    for generation in 1..4 {
        leader.open(7 + generation, None, generation);
        leader
            .peer_message(1, &closed(generation, led_by(0), &[]))
            .expect("the leader accepts that the follower holds nothing");
        leader
            .peer_message(1, &succeeded(generation, led_by(0), 7 + generation))
            .expect("the leader accepts that the follower processed the succession");
    }
    let asked = peer_messages(&leader.ticks(1));
    let retire = Left { client: C0, below: 3, ballot: led_by(0) };
    assert_eq!(asked, [(3, PeerMessage::Retire(retire))]);
    // The other group has closed nothing so far, and closes the generation now.
    let mut theirs = Process::new(TWO_GROUPS, 3, Variant::V2);
    let effects = theirs.peer_message(0, &PeerMessage::Retire(retire)).expect("the other group accepts the request");
    assert!(matches!(peer_messages(&effects)[..], [(4, PeerMessage::Close(_)), (5, PeerMessage::Close(_))]));
    theirs.peer_message(4, &closed(3, led_by(3), &[])).expect("the leader accepts that the follower holds nothing");
    assert_eq!(theirs.peer_message(0, &PeerMessage::Retire(retire)), Ok(vec![]), "not before it is settled");
    theirs
        .peer_message(4, &PeerMessage::Succeeded(about(3, led_by(3))))
        .expect("the leader accepts that the follower processed the succession");
    let effects =
        theirs.peer_message(0, &PeerMessage::Retire(retire)).expect("the other group accepts the request again");
    let retired = PeerMessage::Retired(Left { ballot: led_by(3), ..retire });
    assert_eq!(peer_messages(&effects), [(0, retired.clone())]);
    let unknown = Left { ballot: Ballot::new_in(2, 1, ProcessId(3)), ..retire };
    leader.peer_message(3, &PeerMessage::Retired(unknown)).expect("of another history");
    assert_eq!(peer_messages(&leader.ticks(100)).last(), Some(&(3, PeerMessage::Retire(retire))), "it is asked again");
    leader.peer_message(3, &retired).expect("the other group is done");
    assert_eq!(peer_messages(&leader.ticks(100)), [], "nothing more is asked");
    // The process of that generation opens there, too: it asks for that itself, and begins when a majority knows it.
    let opened = |theirs: &Process| theirs.replica.succession(C0).is_some_and(|last| theirs.replica.has_opened(&last));
    assert!(!opened(&theirs));
    assert_eq!(successions(&theirs.open(10, Some(3), 0)), [(head(sequence(3, 0), 0, 1), false)]);
    theirs.peer_message(5, &succeeded(3, led_by(3), 0)).expect("the leader ignores a report about another life");
    assert!(!opened(&theirs));
    let effects = theirs
        .peer_message(5, &succeeded(3, led_by(3), 10))
        .expect("the leader accepts that the follower processed the succession");
    assert_eq!(successions(&effects), [(head(sequence(3, 0), 0, 1), true)]);
    assert!(opened(&theirs));
}

#[cfg(feature = "plants")]
mod planted {
    use super::*;

    #[test]
    fn mutant_that_counts_answers_of_any_ballot_is_found() {
        assert!(counts_in_another_ballot(Mutant::ClosedOfOldBallot));
    }

    #[test]
    fn mutant_that_asks_for_no_missing_messages_is_found() {
        assert_eq!(begins_behind(Mutant::OwnPrefixOnly), Some(head(sequence(1, 0), 0, 1)), "the message is lost");
    }

    #[test]
    fn mutant_that_accepts_messages_after_closing_is_found() {
        let mut follower = Process::planted(&[3], 1, Mutant::ClosingForgotten);
        follower.peer_message(0, &PeerMessage::Close(about(2, led_by(0)))).expect("its leader asks");
        assert_eq!(follower.replica.over_below(C0), 0);
    }

    #[test]
    fn mutant_of_successions_that_count_unsettled_is_found() {
        let mut leader = leader(TWO_GROUPS, Mutant::SuccessionAtOnce);
        leader.open(7, Some(1), 0);
        leader.peer_message(1, &closed(1, led_by(0), &[])).expect("the leader accepts that the follower holds nothing");
        let told = leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 7).expect("the process accepts the input");
        assert!(matches!(peer_messages(&told)[..], [(3, PeerMessage::Refused(_))]), "it may be assigned later");
    }

    #[test]
    fn mutant_that_delivers_past_a_refusal_at_once_is_found() {
        let mut theirs = Process::planted(TWO_GROUPS, 3, Mutant::RefusedPassed);
        theirs.message(0, 1, &[(0, 0), (1, 0)]).expect("the message");
        theirs.message(1, 1, &[(1, 0)]).expect("another client's, after it");
        theirs.ack(4, Head { client: ClientId(1), ..head(1, 0, 1) }, 0, &[2]).expect("the process accepts the input");
        let refused =
            PeerMessage::Refused(Verdict { message: MessageRef { client: C0, sequence: 1 }, ballot: led_by(0) });
        let effects = theirs.peer_message(0, &refused).expect("the other group accepts the refusal");
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Deliver(_))), "{effects:?}");
    }
}
