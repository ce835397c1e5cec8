//! The word that announces that another group's history began anew.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ballot, GroupId, Head, Incarnation, PeerMessage, ReplicaConfig, ShortSlot, StreamEntry, Word, WordRef,
};

use super::process::{BOTH, Effect, Process, first_campaign, head, led_by};

const FIRST: Incarnation = Incarnation::FIRST;
const ANEW: Incarnation = Incarnation { number: 2, tag: 5 };
const OTHER: GroupId = GroupId(1);

fn ballot(number: u64) -> Ballot {
    Ballot::new_in(ANEW.number, number, ProcessId(3))
}

fn announce(incarnation: Incarnation, origin: Incarnation) -> PeerMessage {
    PeerMessage::Announce { group: OTHER, ballot: ballot(1), incarnation, origin }
}

fn processed(origin: Incarnation, ballot: Ballot) -> PeerMessage {
    PeerMessage::WordProcessed(WordRef { group: OTHER, origin, ballot })
}

fn words(effects: &[Effect]) -> Vec<Word> {
    let word = |effect: &Effect| match effect {
        Effect::Word { word, .. } => Some(*word),
        _ => None,
    };
    effects.iter().filter_map(word).collect()
}

fn word(origin: Incarnation, in_force: bool) -> Word {
    Word { incarnation: ANEW, origin, in_force }
}

#[test]
fn a_word_is_in_force_when_a_majority_has_processed_it() {
    let mut leader = Process::of_two_groups(0);
    let told = leader.peer_message(3, &announce(ANEW, ANEW)).expect("the process accepts the input");
    assert_eq!(words(&told), [word(ANEW, false)]);
    assert_eq!(
        words(&leader.peer_message(3, &announce(ANEW, ANEW)).expect("the process accepts the input")),
        [],
        "once"
    );
    assert_eq!(words(&leader.ticks(u32::from(ReplicaConfig::RETRY_TICKS))), [word(ANEW, false)], "and again");
    for other in [processed(FIRST, led_by(0)), processed(ANEW, Ballot::new(2, ProcessId(0)))] {
        assert_eq!(leader.peer_message(1, &other), Ok(vec![]), "of another history, or of another ballot");
    }
    let now = leader.peer_message(1, &processed(ANEW, led_by(0))).expect("the process accepts the input");
    assert_eq!(words(&now), [word(ANEW, true)]);
    assert_eq!(leader.peer_message(2, &processed(ANEW, led_by(0))), Ok(vec![]));
    assert_eq!(words(&leader.ticks(20)), []);
}

/// A repeated word would be sent with a ballot of another incarnation.
#[test]
fn a_word_is_not_repeated_when_a_larger_incarnation_is_known() {
    let mut leader = Process::of_two_groups(0);
    leader.peer_message(3, &announce(ANEW, ANEW)).expect("the process accepts the input");
    let later = Incarnation { number: 3, tag: 8 };
    leader.replica.on_greeting(ProcessId(3), later, Incarnation::NONE).expect("no contradiction");
    assert_eq!(words(&leader.ticks(u32::from(ReplicaConfig::RETRY_TICKS))), []);
}

/// A leader that moved above another history of its group continues its own.
#[test]
fn incarnation_that_continues_a_history_needs_no_majority() {
    let mut leader = Process::of_two_groups(0);
    let told = leader.peer_message(3, &announce(ANEW, FIRST)).expect("the process accepts the input");
    assert_eq!(words(&told), [word(FIRST, true)]);
}

#[test]
fn nothing_of_an_incarnation_counts_before_its_origin_is_known() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("the process accepts the input");
    leader.replica.on_greeting(ProcessId(3), ANEW, Incarnation::NONE).expect("no contradiction");
    let none = PeerMessage::Announce {
        group: OTHER,
        ballot: Ballot::new_in(ANEW.number, 0, ProcessId(3)),
        incarnation: ANEW,
        origin: Incarnation::NONE,
    };
    let asks = vec![Effect::PeerMessage { to: 3, message: none }];
    let timestamp = |leader: &mut Process| leader.timestamp(3, head(1, 0, 2), 1, ballot(1), 9);
    assert_eq!(timestamp(&mut leader), Ok(asks), "it asks");
    assert_eq!(
        words(&leader.peer_message(3, &announce(ANEW, ANEW)).expect("the process accepts the input")),
        [word(ANEW, false)]
    );
    let vector = timestamp(&mut leader).expect("the process accepts the input");
    assert!(matches!(&vector[..], [.., Effect::Vector { .. }]), "{vector:?}");
    // The process that is asked answers.
    let mut asked = Process::of_two_groups(3);
    let unknown =
        PeerMessage::Announce { group: OTHER, ballot: led_by(3), incarnation: FIRST, origin: Incarnation::NONE };
    let says = PeerMessage::Announce { group: OTHER, ballot: led_by(3), incarnation: FIRST, origin: FIRST };
    assert_eq!(asked.peer_message(0, &unknown), Ok(vec![Effect::PeerMessage { to: 0, message: says }]));
}

#[test]
fn follower_reports_that_it_processed_a_word_and_keeps_it_when_it_leads() {
    let mut follower = Process::of_two_groups(1);
    let none = Head { client: stentor_multicast::ClientId(0), sequence: 0, slot: ShortSlot::of(0), groups: 1 };
    let entry = |in_force| StreamEntry::Word { ballot: ballot(1), incarnation: ANEW, origin: ANEW, in_force };
    let says = |ballot: Ballot| Effect::PeerMessage { to: ballot.leader().0, message: processed(ANEW, ballot) };
    assert_eq!(follower.entry(none, 1, entry(false)), Ok(vec![says(led_by(0))]));
    // The next leader begins with the word, and a word that a follower gets with its state counts as processed.
    let next = follower.campaign();
    let mut other = Process::of_two_groups(2);
    let promised = other.peer_message(1, &first_campaign(next, &[0; 3])).expect("the process accepts the input");
    let [Effect::PeerMessage { message: promise, .. }] = &promised[..] else { panic!("{promised:?}") };
    let took_over = follower.peer_message(2, promise).expect("a majority");
    let install = took_over.iter().find_map(|effect| match effect {
        Effect::PeerMessage { to: 2, message: message @ PeerMessage::Install { .. } } => Some(message.clone()),
        _ => None,
    });
    let installed = other.peer_message(1, &install.expect("a state")).expect("the process accepts the input");
    assert!(installed.contains(&says(next)), "{installed:?}");
    let in_force = follower.peer_message(2, &processed(ANEW, next)).expect("the process accepts the input");
    assert_eq!(words(&in_force), [word(ANEW, true)]);
}
