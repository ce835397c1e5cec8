//! The processes that a member had, one after the other: promises of an earlier life do not count.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ballot, ClientId, ClientState, Incarnation, Joiner, MessageRef, Origin, PeerMessage, Rejected, State, Variant,
};

use super::process::{Effect, Process, first_campaign, first_word, led_by};

const FIVE: &[usize] = &[5];
/// Smallest amount that a process adds to its life to get a larger one.
const HALF: u64 = 1 << 32;

/// Returns an empty state of a group of five, from a member that knows these lives.
fn state(lives: [u64; 5]) -> State {
    State {
        synced: led_by(0),
        incarnation: Incarnation::FIRST,
        origins: vec![Origin { incarnation: Incarnation::FIRST, kept: 0 }],
        known: vec![led_by(0)],
        incarnations: vec![Incarnation::FIRST; 1],
        words: vec![first_word(); 1],
        lives: lives.to_vec(),
        clients: vec![ClientState::default(); 2],
        ..State::default()
    }
}

/// Returns the requests for admission that a process sends to the other four of five members.
fn asks_as(me: u16, incarnation: u64) -> Vec<Effect> {
    let others = (0..5).filter(|to| *to != me);
    others.map(|to| Effect::PeerMessage { to, message: PeerMessage::Join { life: incarnation } }).collect()
}

fn takes_over(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::PeerMessage { message: PeerMessage::Install { .. }, .. }))
}

/// Returns member 4 of five, which campaigns.
fn candidate() -> (Process, Ballot) {
    let mut candidate = Process::new(FIVE, 4, Variant::V2);
    let ballot = candidate.campaign();
    (candidate, ballot)
}

#[test]
fn promise_stops_counting_when_another_promise_names_a_later_life_of_its_sender() {
    let (mut candidate, ballot) = candidate();
    let mut promise = |from, lives| {
        takes_over(
            &candidate
                .peer_message(from, &PeerMessage::Promise { ballot, state: state(lives) })
                .expect("the process accepts the input"),
        )
    };
    assert!(!promise(1, [0, 3, 0, 0, 0]), "two of five");
    assert!(!promise(2, [0, 7, 0, 0, 0]), "that is two again: the first one's third life is over");
    assert!(!promise(1, [0, 3, 0, 0, 0]), "a late message of that life does not count, either");
    assert!(promise(1, [0, 7, 0, 0, 0]), "its seventh does");
}

#[test]
fn promise_counts_although_others_know_only_earlier_lives_of_its_sender() {
    let (mut candidate, ballot) = candidate();
    let mut promise = |from, lives| {
        takes_over(
            &candidate
                .peer_message(from, &PeerMessage::Promise { ballot, state: state(lives) })
                .expect("the process accepts the input"),
        )
    };
    assert!(!promise(1, [0, 7, 5, 0, 0]));
    assert!(promise(2, [0, 3, 5, 0, 0]));
}

/// A majority had promised, but one of them has restarted before the candidate has all messages that it needs.
#[test]
fn promise_stops_counting_when_its_sender_asks_for_admission() {
    for asks in [false, true] {
        let (mut candidate, ballot) = candidate();
        let held = ClientState { held: vec![(0, 1)], ..ClientState::default() };
        let holds = State { clients: vec![held, ClientState::default()], ..state([0; 5]) };
        assert_eq!(candidate.peer_message(1, &PeerMessage::Promise { ballot, state: state([0; 5]) }), Ok(Vec::new()));
        let wanted = MessageRef { client: ClientId(0), sequence: 1 };
        let wants = vec![Effect::PeerMessage { to: 2, message: PeerMessage::WantBody(wanted) }];
        assert_eq!(candidate.peer_message(2, &PeerMessage::Promise { ballot, state: holds }), Ok(wants));
        if asks {
            assert_eq!(candidate.peer_message(1, &PeerMessage::Join { life: 5 }), Ok(Vec::new()));
        }
        let body = candidate.message(0, 1, &[(0, 0)]).expect("the body");
        assert_eq!(takes_over(&body), !asks, "two of five are left");
        let third = candidate
            .peer_message(3, &PeerMessage::Promise { ballot, state: state([0; 5]) })
            .expect("the process accepts the input");
        assert_eq!(takes_over(&third), asks);
    }
}

/// A process asks to be admitted while a ballot is being prepared. The next ballot, which follows at once, admits the
/// process. A late message from an earlier life of the member does not change that.
#[test]
fn request_for_admission_survives_a_promise_of_an_earlier_life() {
    let (mut candidate, ballot) = candidate();
    candidate.peer_message(1, &PeerMessage::Join { life: 5 }).expect("the process accepts the input");
    let promise = |lives| PeerMessage::Promise { ballot, state: state(lives) };
    assert_eq!(candidate.peer_message(1, &promise([0, 3, 0, 0, 0])), Ok(Vec::new()));
    assert_eq!(candidate.peer_message(2, &promise([0; 5])), Ok(Vec::new()));
    assert!(takes_over(&candidate.peer_message(3, &promise([0; 5])).expect("the process accepts the input")));
    assert_eq!(next_campaign(&mut candidate, ballot), Some(vec![0, 5, 0, 0, 0]));
}

#[test]
fn request_for_admission_survives_the_admission_of_an_earlier_life() {
    let mut candidate = Process::new(FIVE, 4, Variant::V2);
    candidate.peer_message(1, &PeerMessage::Join { life: 5 }).expect("the process accepts the input");
    let ballot = candidate.campaign();
    for from in [2, 3] {
        candidate
            .peer_message(from, &PeerMessage::Promise { ballot, state: state([0, 5, 0, 0, 0]) })
            .expect("the process accepts the input");
    }
    // This ballot admits life 5, which then ends.
    candidate.peer_message(1, &PeerMessage::Join { life: 9 }).expect("the process accepts the input");
    assert_eq!(candidate.peer_message(1, &PeerMessage::Installed { ballot }), Ok(Vec::new()));
    assert_eq!(next_campaign(&mut candidate, ballot), Some(vec![0, 9, 0, 0, 0]));
}

/// Makes the others install a candidate's state. Returns the lives that it knows, if it campaigns again as soon as it
/// leads.
fn next_campaign(candidate: &mut Process, ballot: Ballot) -> Option<Vec<u64>> {
    let mut done = Vec::new();
    for from in [2, 3] {
        done.extend(
            candidate.peer_message(from, &PeerMessage::Installed { ballot }).expect("the process accepts the input"),
        );
    }
    done.into_iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Campaign { ballot: next, lives, .. }, .. } if next > ballot => {
            Some(lives)
        }
        _ => None,
    })
}

#[test]
fn member_learns_lives_from_campaigns_and_names_them_in_its_next_promise() {
    let mut member = Process::new(FIVE, 2, Variant::V2);
    let asked = |number, from, lives: [u64; 5]| first_campaign(Ballot::new(number, ProcessId(from)), &lives);
    let lives = |done: Vec<Effect>| match &done[..] {
        [Effect::PeerMessage { message: PeerMessage::Promise { state, .. }, .. }] => state.lives.clone(),
        other => panic!("no promise: {other:?}"),
    };
    assert_eq!(
        lives(member.peer_message(0, &asked(2, 0, [0, 7, 0, 0, 0])).expect("the process accepts the input")),
        [0, 7, 0, 0, 0]
    );
    assert_eq!(
        lives(member.peer_message(4, &asked(2, 4, [0, 3, 0, 0, 9])).expect("the process accepts the input")),
        [0, 7, 0, 0, 9]
    );
    member.peer_message(3, &PeerMessage::Join { life: 8 }).expect("the process accepts the input");
    assert_eq!(
        lives(member.peer_message(0, &asked(3, 0, [0; 5])).expect("the process accepts the input")),
        [0, 7, 0, 8, 9]
    );
    let short = first_campaign(Ballot::new(4, ProcessId(4)), &[0; 4]);
    assert_eq!(member.peer_message(4, &short), Err(Rejected::State("another number of members")));
}

#[test]
fn installed_state_teaches_the_lives_that_it_names() {
    let mut member = Process::joining(FIVE, 2);
    let ballot = Ballot::new(3, ProcessId(1));
    let (state, admits) = (state([0, 7, 2, 0, 4]), vec![Joiner { process: ProcessId(2), life: 2 }]);
    member
        .peer_message(1, &PeerMessage::Install { ballot, counter: 0, state, admits, snapshot: false })
        .expect("the process accepts the input");
    let asked = first_campaign(Ballot::new(4, ProcessId(0)), &[0; 5]);
    let promised = member.peer_message(0, &asked).expect("the process accepts the input");
    let [Effect::PeerMessage { message: PeerMessage::Promise { state, .. }, .. }] = &promised[..] else {
        panic!("no promise: {promised:?}")
    };
    assert_eq!(state.lives, [0, 7, 2, 0, 4]);
}

/// Lives are start times, and clocks can be set back.
#[test]
fn process_that_restarts_with_a_smaller_life_adopts_a_larger_one() {
    let (mut leader, mut returns) = (Process::new(FIVE, 0, Variant::V2), Process::joining(FIVE, 1));
    leader.peer_message(1, &PeerMessage::Join { life: 40 }).expect("the process accepts the input");
    let told = leader.peer_message(1, &PeerMessage::Join { life: 2 }).expect("the process accepts the input");
    let elder = PeerMessage::Elder { life: 40 };
    assert_eq!(told, [Effect::PeerMessage { to: 1, message: elder.clone() }], "no process that may be older is let in");
    assert_eq!(returns.peer_message(0, &elder), Ok(asks_as(1, 2 + HALF)), "above 40, and its own in the lower half");
    assert_eq!(returns.peer_message(2, &elder), Ok(Vec::new()), "once");
    assert_eq!(returns.peer_message(2, &PeerMessage::Elder { life: u64::MAX }), Ok(Vec::new()), "there is none");
    let mut member = Process::new(FIVE, 3, Variant::V2);
    assert_eq!(member.peer_message(0, &elder), Ok(Vec::new()), "a process with memory keeps its life");
}

fn campaign_with_lives(number: u64, from: u16, lives: [u64; 5]) -> PeerMessage {
    first_campaign(Ballot::new(number, ProcessId(from)), &lives)
}

/// Two processes of one member may run on different hosts. A promise of the earlier one would count as the promise of
/// the later one, which has forgotten what the earlier one processed.
#[test]
fn process_that_learns_of_a_later_life_of_its_member_is_superseded() {
    let mut earlier = Process::new(FIVE, 2, Variant::V2);
    assert_eq!(
        earlier.peer_message(4, &campaign_with_lives(2, 4, [0, 7, 9, 0, 0])),
        Ok(Vec::new()),
        "it promises nothing"
    );
    assert!(earlier.replica.is_superseded());
    assert_eq!((earlier.replica.promised(), earlier.replica.counts_in()), (led_by(0), None));
    // The superseded process answers no message any more.
    let ballot = Ballot::new(3, ProcessId(1));
    let install =
        PeerMessage::Install { ballot, counter: 0, state: state([0; 5]), admits: Vec::new(), snapshot: false };
    for message in
        [campaign_with_lives(3, 1, [0; 5]), install, PeerMessage::Join { life: 5 }, PeerMessage::Elder { life: 9 }]
    {
        assert_eq!(earlier.peer_message(1, &message), Ok(Vec::new()));
    }
    assert_eq!((earlier.ticks(20), earlier.replica.ballot()), (Vec::new(), led_by(0)));
    assert_eq!(earlier.try_campaign(), Err(Rejected::Superseded));
}

#[test]
fn candidate_that_learns_of_its_successor_does_not_take_over() {
    let (mut candidate, ballot) = candidate();
    let promise = |lives| PeerMessage::Promise { ballot, state: state(lives) };
    assert_eq!(candidate.peer_message(1, &promise([0; 5])), Ok(Vec::new()));
    assert_eq!(candidate.peer_message(2, &promise([0, 0, 0, 0, 3])), Ok(Vec::new()));
    assert!(candidate.replica.is_superseded());
    assert_eq!(candidate.peer_message(3, &promise([0; 5])), Ok(Vec::new()), "three of five, but not its own");
}

#[test]
fn an_earlier_life_installs_no_state_that_names_a_later_one() {
    let mut earlier = Process::new(FIVE, 2, Variant::V2);
    let ballot = Ballot::new(3, ProcessId(1));
    let (state, admits) = (state([0, 0, 4, 0, 0]), vec![Joiner { process: ProcessId(2), life: 4 }]);
    let install = PeerMessage::Install { ballot, counter: 0, state, admits, snapshot: true };
    assert_eq!(earlier.peer_message(1, &install), Ok(Vec::new()));
    assert_eq!((earlier.replica.ballot(), earlier.replica.is_superseded()), (led_by(0), true));
}

/// The leader has learnt of the other process after it took this one in.
#[test]
fn process_admitted_by_a_leader_that_knows_a_larger_life_asks_again_with_another() {
    let mut returns = Process::started_at(FIVE, 1, 3);
    let (ballot, admits) = (Ballot::new(3, ProcessId(0)), vec![Joiner { process: ProcessId(1), life: 3 }]);
    let state = state([0, 9, 0, 0, 0]);
    let install = PeerMessage::Install { ballot, counter: 0, state, admits, snapshot: false };
    assert_eq!(returns.peer_message(0, &install), Ok(asks_as(1, HALF + 3)));
    assert!(returns.replica.is_joining() && !returns.replica.is_superseded());
}

/// Both processes were started after the clock was set back, and learn of the same earlier life. No process that the
/// third one asks knows the second one's new life.
#[test]
fn two_processes_that_learn_of_the_same_earlier_life_adopt_different_lives() {
    let elder = PeerMessage::Elder { life: 40 };
    let [mut second, mut third] = [2, 3].map(|incarnation| Process::started_at(FIVE, 1, incarnation));
    assert_eq!(second.peer_message(0, &elder), Ok(asks_as(1, HALF + 2)));
    assert_eq!(third.peer_message(0, &elder), Ok(asks_as(1, HALF + 3)));
    // A ballot admitted the second process, and its leader's message is late. That leader may rely on information that
    // the third process has forgotten.
    let ballot = Ballot::new(3, ProcessId(0));
    let install = |life| {
        let (state, admits) = (state([0, life, 0, 0, 0]), vec![Joiner { process: ProcessId(1), life }]);
        PeerMessage::Install { ballot, counter: 0, state, admits, snapshot: false }
    };
    assert_eq!((third.peer_message(0, &install(HALF + 2)), third.replica.is_joining()), (Ok(Vec::new()), true));
    third.peer_message(0, &install(HALF + 3)).expect("the process accepts the input");
    assert!(!third.replica.is_joining());
    // A process that learns of several lives keeps its lower half. Near the maximum there is no larger life.
    let twice = PeerMessage::Elder { life: 9 * HALF + 7 };
    assert_eq!(second.peer_message(0, &twice), Ok(asks_as(1, 10 * HALF + 2)));
    assert_eq!(
        second.peer_message(0, &PeerMessage::Elder { life: u64::MAX - HALF }),
        Ok(asks_as(1, u64::MAX - HALF + 3))
    );
    assert_eq!(second.peer_message(0, &PeerMessage::Elder { life: u64::MAX - HALF + 4 }), Ok(Vec::new()));
}
