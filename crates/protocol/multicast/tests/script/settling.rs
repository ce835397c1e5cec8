//! Messages in flight to a group whose history has ended.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ballot, ClientId, GroupId, GroupSet, Head, Incarnation, MessageId, MessageRef, Mutant, PeerMessage, Settling,
    StreamEntry, Verdict, Word, WordRef,
};

use super::process::{BOTH, Effect, Process, TWO_GROUPS, first_campaign, head, led_by, nothing};

const C0: ClientId = ClientId(0);
const ANEW: Incarnation = Incarnation { number: 2, tag: 5 };
const MESSAGE: MessageRef = MessageRef { client: C0, sequence: 1 };
/// Returns the first ballot of group 1's new history.
fn first_ballot_of_new_history() -> Ballot {
    Ballot::new_in(ANEW.number, 1, ProcessId(3))
}

fn announce() -> PeerMessage {
    PeerMessage::Announce { group: GroupId(1), ballot: first_ballot_of_new_history(), incarnation: ANEW, origin: ANEW }
}

fn processed() -> PeerMessage {
    PeerMessage::WordProcessed(WordRef { group: GroupId(1), origin: ANEW, ballot: led_by(0) })
}

fn lost(ballot: Ballot) -> PeerMessage {
    PeerMessage::Lost(Verdict { message: MESSAGE, ballot })
}

fn delivers(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Deliver(_)))
}

fn fills(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::NoOp { .. }))
}

/// Returns a leader of group 0 that has the vector of a message to both groups.
fn with_vector(mutant: Mutant) -> Process {
    let mut leader = Process::planted(TWO_GROUPS, 0, mutant);
    leader.message(0, 1, BOTH).expect("the process accepts the input");
    let vector = leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 7).expect("the process accepts the input");
    assert!(matches!(&vector[..], [.., Effect::Vector { .. }]), "{vector:?}");
    leader
}

/// Processes a message with a vector at a leader. Returns whether it delivers the message before the word is in force.
fn decides_at_once(mutant: Mutant) -> bool {
    let mut leader = with_vector(mutant);
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    let at_once = delivers(&leader.ack(1, head(1, 0, 2), 0, &[1, 7]).expect("the process accepts the input"));
    assert_eq!(
        leader.peer_message(3, &lost(first_ballot_of_new_history())),
        Ok(vec![]),
        "a member may have delivered it"
    );
    let now = delivers(&leader.peer_message(1, &processed()).expect("the process accepts the input"));
    assert!(now != at_once, "it is delivered once");
    at_once
}

#[test]
fn message_with_a_vector_is_decided_by_the_survivors_when_the_word_is_in_force() {
    assert!(!decides_at_once(Mutant::None));
}

#[test]
fn nothing_is_decided_without_a_majority_of_the_survivors() {
    let mut leader = with_vector(Mutant::None);
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    assert!(!delivers(&leader.peer_message(1, &processed()).expect("the leader accepts the report")));
    assert!(delivers(&leader.ack(2, head(1, 0, 2), 0, &[1, 7]).expect("the process accepts the input")));
}

/// The survivors decide a message to both groups without group 1. The client's next message goes to group 0 alone.
#[test]
fn waiting_message_is_assigned_when_its_predecessor_is_decided_by_the_survivors() {
    let mut leader = with_vector(Mutant::None);
    assert_eq!(leader.message(0, 2, &[(0, 1)]), Ok(vec![]), "its client's order comes first");
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    assert_eq!(leader.ack(1, head(1, 0, 2), 0, &[1, 7]), Ok(vec![]), "the word is not in force");
    let effects = leader.peer_message(1, &processed()).expect("the leader accepts the report");
    let assigned = |effect: &Effect| matches!(effect, Effect::Assign { head, .. } if head.sequence == 2);
    assert!(delivers(&effects) && effects.iter().any(assigned), "{effects:?}");
}

#[test]
fn unsettled_message_is_reported_until_it_is_settled() {
    let mut leader = with_vector(Mutant::None);
    assert_eq!(leader.replica.settling(GroupId(1)), None, "nothing began anew");
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    let told = Settling { without_force: true, messages: 1, awaited: vec![GroupId(0)], disagreed: None };
    assert_eq!(leader.replica.settling(GroupId(1)), Some(told.clone()));
    leader.peer_message(1, &processed()).expect("the leader accepts the report");
    let told = Settling { without_force: false, ..told };
    assert_eq!(leader.replica.settling(GroupId(1)), Some(told.clone()));
    // The other members have acknowledged other times for the message, so it is not decided.
    for member in [1, 2] {
        leader.ack(member, head(1, 0, 2), 0, &[1, 8]).expect("the process accepts the input");
    }
    let told = Settling { disagreed: Some(MessageId { client: C0, sequence: 1 }), ..told };
    assert_eq!(leader.replica.settling(GroupId(1)), Some(told));
    assert!(delivers(&leader.ack(1, head(1, 0, 2), 0, &[1, 7]).expect("the process accepts the input")));
    assert_eq!(leader.replica.settling(GroupId(1)), None);
}

#[test]
fn message_without_a_vector_becomes_a_no_op_when_the_new_history_reports_it_lost() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("the process accepts the input");
    assert_eq!(
        leader.peer_message(3, &lost(first_ballot_of_new_history())),
        Ok(vec![]),
        "the word of that is not processed"
    );
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    assert_eq!(leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 7).map(|effects| effects.len()), Ok(1), "notified");
    assert!(fills(
        &leader.peer_message(3, &lost(first_ballot_of_new_history())).expect("the process accepts the input")
    ));
    assert!(
        !fills(&leader.peer_message(3, &lost(first_ballot_of_new_history())).expect("the process accepts the input")),
        "once"
    );
}

/// The time arrived before the body. No vector after the word contains that time.
#[test]
fn time_of_the_previous_history_is_forgotten_with_the_word() {
    let mut leader = Process::of_two_groups(0);
    leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 7).expect("the process accepts the input");
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    let effects = leader.message(0, 1, BOTH).expect("the process accepts the input");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Assign { .. })), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Vector { .. })), "{effects:?}");
    // A message that was multicast to the new history gets the time that the new history assigns.
    let vector =
        leader.timestamp(3, head(1, 0, 2), 1, first_ballot_of_new_history(), 9).expect("the process accepts the input");
    assert!(matches!(&vector[..], [.., Effect::Vector { times, .. }] if times[1] == 9), "{vector:?}");
}

#[test]
fn time_of_the_new_history_does_not_replace_one_in_an_older_vector() {
    let mut leader = with_vector(Mutant::None);
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    let effects =
        leader.timestamp(3, head(1, 0, 2), 1, first_ballot_of_new_history(), 9).expect("the process accepts the input");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Vector { .. })), "{effects:?}");
    leader.peer_message(1, &processed()).expect("the leader accepts the report");
    assert!(delivers(&leader.ack(1, head(1, 0, 2), 0, &[1, 7]).expect("the process accepts the input")), "as it was");
}

#[test]
fn follower_decides_ended_messages_when_the_stream_puts_the_word_in_force() {
    let mut follower = Process::of_two_groups(1);
    follower.message(0, 1, BOTH).expect("the process accepts the input");
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 1).expect("the process accepts the input");
    follower.vector(head(1, 0, 2), 2, &[1, 7]).expect("the process accepts the input");
    follower.ack(2, head(1, 0, 2), 0, &[1, 7]).expect("the process accepts the input");
    let none = Head { sequence: 0, ..head(0, 0, 1) };
    let word = |in_force| StreamEntry::Word {
        ballot: first_ballot_of_new_history(),
        incarnation: ANEW,
        origin: ANEW,
        in_force,
    };
    assert!(!delivers(&follower.entry(none, 3, word(false)).expect("the process accepts the input")));
    assert!(delivers(&follower.entry(none, 4, word(true)).expect("the process accepts the input")));
}

/// A history that began with a state has decided messages that other groups still ask for.
#[test]
fn history_that_continues_with_a_state_reports_its_decisions() {
    for behind in [0, 2] {
        let mut leader = Process::of_two_groups(1);
        leader.message(0, 1, BOTH).expect("the process accepts the input");
        leader.assign(head(1, 0, 2), 1, 0, led_by(0), 1).expect("the process accepts the input");
        leader.vector(head(1, 0, 2), 2, &[1, 7]).expect("the process accepts the input");
        for member in [4, 5] {
            leader.ack(member, head(1, 0, 2), 1, &[1, 7]).expect("the process accepts the input");
        }
        // With two later messages, the slot of the first one is reused.
        for (number, slot) in (0..behind).map(|n| (n + 2, n + 1)) {
            leader.message(0, number, &[(0, slot)]).expect("the process accepts the input");
            leader
                .assign(head(number, slot, 1), number + 1, 0, led_by(0), number + 7)
                .expect("the process accepts the input");
        }
        assert_eq!(leader.replica.delivered(), behind + 1);
        let mut effects = super::process::Recorder::default();
        let ballot = leader
            .replica
            .reset(Incarnation::FIRST, false, &mut effects)
            .expect("the reset names the incarnation that it ends");
        leader.peer_message(0, &PeerMessage::Promise { ballot, state: nothing([8, 0, 0]) }).expect("a majority");
        leader
            .peer_message(0, &PeerMessage::Installed { ballot })
            .expect("the candidate accepts that the member installed its state");
        let told = leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 7).expect("the process accepts the input");
        let says = |effect: &Effect| match effect {
            Effect::PeerMessage { to: 3, message: PeerMessage::Decided { message, times, .. } } => {
                behind == 0 && *message == MESSAGE && times[..] == [1, 7]
            }
            Effect::PeerMessage { to: 3, message: PeerMessage::Forgotten(message) } => {
                behind > 0 && *message == MESSAGE
            }
            _ => false,
        };
        assert!(told.len() == 1 && told.iter().all(says), "{behind} behind it: {told:?}");
    }
}

#[test]
fn refusal_of_the_previous_history_does_not_count_after_the_word() {
    let mut leader = with_vector(Mutant::None);
    let refused = |ballot| PeerMessage::Refused(Verdict { message: MESSAGE, ballot });
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    assert_eq!(leader.peer_message(3, &refused(led_by(3))), Ok(vec![]));
    assert!(fills(
        &with_vector(Mutant::None).peer_message(3, &refused(led_by(3))).expect("the process accepts the input")
    ));
}

/// The next leader gets the ended groups with its state.
#[test]
fn ended_groups_are_in_the_state() {
    let mut leader = with_vector(Mutant::None);
    leader.peer_message(3, &announce()).expect("the process accepts the input");
    let ballot = Ballot::new(2, ProcessId(1));
    let promised = leader.peer_message(1, &first_campaign(ballot, &[0; 3])).expect("the process accepts the input");
    let [Effect::PeerMessage { message: PeerMessage::Promise { state, .. }, .. }] = &promised[..] else {
        panic!("{promised:?}")
    };
    let ended: GroupSet = [GroupId(1)].into_iter().collect();
    assert_eq!(state.clients[0].entries[0].ended, ended);
    assert_eq!(state.words[1], Word { incarnation: ANEW, origin: ANEW, in_force: false });
    let mut words = Vec::new();
    promised.iter().for_each(|effect| {
        if let Effect::PeerMessage { message, .. } = effect {
            message.encode(&mut words);
            assert_eq!(PeerMessage::decode(&words).as_ref(), Ok(message));
        }
    });
}

/// Returns a leader of group 0 in a history that began empty.
fn begun_anew(mutant: Mutant) -> Process {
    let mut leader = Process::joining_planted(TWO_GROUPS, 2, mutant);
    let first = Incarnation::FIRST;
    leader.replica.on_greeting(ProcessId(3), first, first).expect("no contradiction");
    leader
        .peer_message(
            3,
            &PeerMessage::Announce { group: GroupId(1), ballot: led_by(3), incarnation: first, origin: first },
        )
        .expect("the process accepts the input");
    let mut effects = super::process::Recorder::default();
    let ballot = leader.replica.reset(first, true, &mut effects).expect("a member without memory can reset its group");
    leader.peer_message(0, &PeerMessage::Promise { ballot, state: nothing([8, 0, 2]) }).expect("a majority");
    leader
        .peer_message(0, &PeerMessage::Installed { ballot })
        .expect("the candidate accepts that the member installed its state");
    assert!(leader.replica.is_leader());
    leader
}

/// Returns whether a leader assigns a message of a process that has not opened in its history.
fn assigns_what_is_ended(mutant: Mutant) -> bool {
    let mut leader = begun_anew(mutant);
    leader
        .message(0, 1, BOTH)
        .expect("the process accepts the input")
        .iter()
        .any(|effect| matches!(effect, Effect::Assign { .. }))
}

#[test]
fn new_history_assigns_no_message_multicast_to_the_previous_one() {
    assert!(!assigns_what_is_ended(Mutant::None));
    let mut leader = begun_anew(Mutant::None);
    let ballot = leader.replica.ballot();
    let told = vec![Effect::PeerMessage { to: 3, message: lost(ballot) }];
    assert_eq!(leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 7), Ok(told));
    // A process that opens in the new history is accepted.
    let generation = 3;
    let about = |slot| stentor_multicast::SlotRef { client: C0, slot, ballot, generation };
    leader.open(7, Some(generation), 0);
    let closed = stentor_multicast::Closed { about: about(generation), held: vec![] };
    leader.peer_message(0, &PeerMessage::Closed(closed)).expect("the leader accepts that the follower holds nothing");
    leader
        .peer_message(0, &PeerMessage::Succeeded(about(7)))
        .expect("the leader accepts that the follower processed the succession");
    let sequence = (generation << MessageId::GENERATION_BITS) + 1;
    let first = leader.replica.succession(C0).expect("the process has opened").first;
    let effects = leader.message(0, sequence, &[(0, first), (1, 0)]).expect("the process accepts the input");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Assign { .. })), "{effects:?}");
}

#[cfg(feature = "plants")]
mod mutants {
    use super::*;

    #[test]
    fn mutant_of_words_that_count_at_once_is_found() {
        assert!(decides_at_once(Mutant::WordAtOnce), "before a majority has it");
    }

    #[test]
    fn mutant_that_assigns_ended_messages_is_found() {
        assert!(assigns_what_is_ended(Mutant::EndedAssigned), "others may have delivered it");
    }
}
