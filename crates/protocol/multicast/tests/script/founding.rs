//! A group without memory is founded by all of its members, while no process remembers it.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ballot, Contradiction, GroupId, Hindrance, Incarnation, Joiner, Mutant, Origin, PeerMessage, ReplicaConfig, State,
};

use super::process::{Effect, Process, first_campaign, head, led_by, nothing};

/// Members 0 to 2, of which 0 is the founder; another group's member 3; clients 4 and 5.
const GROUPS: &[usize] = &[3, 1];
const OTHER: u16 = 3;
const CLIENT: u16 = 4;
const LATER: Incarnation = Incarnation { number: 7, tag: 9 };

fn wait(process: &mut Process) -> Vec<Effect> {
    process.ticks(u32::from(ReplicaConfig::FOUNDING_TICKS))
}

fn joins(life: u64) -> PeerMessage {
    PeerMessage::Join { life }
}

/// Returns the foundings among these effects, with the receivers.
fn foundings(effects: &[Effect]) -> Vec<(u16, PeerMessage)> {
    let one = |effect: &Effect| match effect {
        Effect::PeerMessage { to, message: message @ PeerMessage::Campaign { ends: Incarnation::NONE, .. } } => {
            Some((*to, message.clone()))
        }
        _ => None,
    };
    effects.iter().filter_map(one).collect()
}

/// Returns the founder, which has waited, and the message that it sends when the last of the others has joined.
fn founder() -> (Process, PeerMessage) {
    let mut founder = Process::started_at(GROUPS, 0, 2);
    wait(&mut founder);
    assert_eq!(founder.peer_message(1, &joins(3)), Ok(Vec::new()));
    let asked = foundings(&founder.peer_message(2, &joins(4)).expect("the process accepts the input"));
    assert_eq!(asked.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [1, 2]);
    (founder, asked[0].1.clone())
}

fn parts(founding: &PeerMessage) -> (Ballot, Incarnation) {
    let PeerMessage::Campaign { ballot, incarnation, .. } = founding else { panic!("no campaign: {founding:?}") };
    (*ballot, *incarnation)
}

fn founding(number: u32, tag: u32, lives: [u64; 3]) -> PeerMessage {
    PeerMessage::Campaign {
        ballot: Ballot::new_in(number, 1, ProcessId(0)),
        incarnation: Incarnation { number, tag },
        ends: Incarnation::NONE,
        resets: false,
        lives: lives.to_vec(),
    }
}

fn install(ballot: Ballot, incarnation: Incarnation, lives: [u64; 3], admits: Vec<Joiner>) -> PeerMessage {
    let known = vec![ballot, Ballot::new_in(0, 0, ProcessId(3))];
    let state = State {
        synced: ballot,
        incarnation,
        origins: vec![Origin { incarnation, kept: 0 }],
        known,
        incarnations: vec![incarnation, Incarnation::NONE],
        ..nothing(lives)
    };
    PeerMessage::Install { ballot, counter: 0, snapshot: false, admits, state }
}

fn is_promise(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::PeerMessage { message: PeerMessage::Promise { .. }, .. }])
}

#[test]
fn a_group_is_founded_when_all_its_members_have_promised_and_led_when_a_majority_has_the_state() {
    let (mut founder, founding) = founder();
    let (ballot, incarnation) = parts(&founding);
    assert_eq!((ballot, incarnation.number), (Ballot::new_in(1, 1, ProcessId(0)), 1));
    assert!(incarnation.tag != 0 && founder.replica.is_joining());
    let promise = |lives| PeerMessage::Promise { ballot, state: nothing(lives) };
    assert_eq!(founder.peer_message(1, &promise([2, 3, 4])), Ok(Vec::new()), "a majority is not enough");
    assert!(founder.replica.is_joining());
    let done = founder.peer_message(2, &promise([2, 3, 4])).expect("the process accepts the input");
    let installs = |effect: &&Effect| matches!(effect, Effect::PeerMessage { message: PeerMessage::Install { admits, .. }, .. } if admits.len() == 2);
    assert_eq!(done.iter().filter(installs).count(), 2);
    assert_eq!((founder.replica.incarnation(), founder.replica.is_leader()), (incarnation, false));
    assert!(done.contains(&Effect::BeginHistory), "even if its application had a state");
    assert!(!founder.replica.was_remembered(), "nobody has lost anything");
    founder.peer_message(1, &PeerMessage::Installed { ballot }).expect("the process accepts the input");
    assert!(founder.replica.is_leader());
    assert_eq!(founder.replica.counts_in(), Some(ballot));
}

#[test]
fn founder_waits_for_possible_witnesses_and_for_all_members() {
    let mut founder = Process::started_at(GROUPS, 0, 2);
    assert_eq!(founder.replica.hindrance(), Some(Hindrance::Missing(ProcessId(1))));
    founder.peer_message(1, &joins(3)).expect("the process accepts the input");
    founder.peer_message(2, &joins(4)).expect("the process accepts the input");
    assert_eq!(founder.replica.hindrance(), None);
    assert!(foundings(&founder.ticks(u32::from(ReplicaConfig::FOUNDING_TICKS) - 1)).is_empty());
    assert_eq!(foundings(&founder.ticks(1)).len(), 2);
    // The founder asks for promises of the lives that it knows. A new life of a member is asked again, in another
    // incarnation.
    let again = foundings(&founder.peer_message(1, &joins(5)).expect("the process accepts the input"));
    assert_eq!(parts(&again[0].1).1.number, 2);
}

#[test]
fn founder_waits_while_a_connected_process_remembers_the_group() {
    for (from, own, yours) in
        [(OTHER, Incarnation::FIRST, LATER), (CLIENT, Incarnation::NONE, LATER), (1, LATER, LATER)]
    {
        let (mut founder, _) = founder();
        assert_eq!(founder.replica.on_greeting(ProcessId(from), own, yours), Ok(()));
        let hindrance = Hindrance::Remembered { by: ProcessId(from), incarnation: LATER };
        assert_eq!(founder.replica.hindrance(), Some(hindrance));
        assert!(foundings(&founder.ticks(20)).is_empty(), "it withdraws its founding");
        founder.replica.on_disconnected(ProcessId(from));
        let asked = foundings(&founder.ticks(20));
        assert_eq!(parts(&asked[0].1).1.number, 8, "above what it has heard of");
    }
    // A process that itself has no memory only repeats what it has learnt.
    let (mut founder, _) = founder();
    assert_eq!(founder.replica.on_greeting(ProcessId(OTHER), Incarnation::NONE, LATER), Ok(()));
    assert_eq!(founder.replica.hindrance(), None);
}

#[test]
fn member_names_a_process_that_remembers_the_group_to_the_founder() {
    let mut member = Process::started_at(GROUPS, 1, 3);
    member.replica.on_greeting(ProcessId(OTHER), Incarnation::FIRST, LATER).expect("no contradiction");
    let asked = founding(1, 5, [2, 3, 4]);
    let remembered = PeerMessage::Remembered { by: ProcessId(OTHER), incarnation: LATER };
    let named = Effect::PeerMessage { to: 0, message: remembered.clone() };
    assert_eq!(member.peer_message(0, &asked), Ok(vec![named]));
    member.replica.on_disconnected(ProcessId(OTHER));
    assert!(is_promise(&member.peer_message(0, &asked).expect("the process accepts the input")));
    let (mut founder, _) = founder();
    founder.peer_message(1, &remembered).expect("the process accepts the input");
    let hindrance = Hindrance::Remembered { by: ProcessId(OTHER), incarnation: LATER };
    assert_eq!(founder.replica.hindrance(), Some(hindrance));
    assert!(!foundings(&founder.ticks(5)).is_empty(), "it asks whether that is still so");
    founder.ticks(20);
    assert_eq!(founder.replica.hindrance(), None, "nobody says so any more");
}

#[test]
fn member_with_memory_informs_a_founder() {
    let mut member = Process::new(GROUPS, 1, stentor_multicast::Variant::V2);
    let said = PeerMessage::Remembered { by: ProcessId(1), incarnation: Incarnation::FIRST };
    let asked = founding(9, 5, [2, 0, 4]);
    assert_eq!(member.peer_message(0, &asked), Ok(vec![Effect::PeerMessage { to: 0, message: said.clone() }]));
    let (mut founder, _) = founder();
    founder.peer_message(1, &said).expect("the process accepts the input");
    assert!(foundings(&founder.ticks(20)).is_empty());
    // The founder no longer waits when that member has lost its memory, too.
    assert!(!foundings(&founder.peer_message(1, &joins(9)).expect("the process accepts the input")).is_empty());
}

#[test]
fn a_member_promises_a_founding_of_its_own_life_by_its_founder_and_none_below_what_it_promised() {
    let mut member = Process::started_at(GROUPS, 1, 3);
    let mut ask =
        |from, message: &PeerMessage| member.peer_message(from, message).expect("the process accepts the input");
    assert_eq!(ask(0, &founding(2, 5, [2, 0, 4])), [], "it does not know this life");
    assert!(is_promise(&ask(0, &founding(2, 5, [2, 3, 4]))));
    assert!(is_promise(&ask(0, &founding(2, 5, [2, 3, 4]))), "it may be lost");
    let refuse = PeerMessage::Refuse {
        promised: Ballot::new_in(2, 0, ProcessId(0)),
        incarnation: Incarnation { number: 2, tag: 5 },
    };
    assert_eq!(ask(0, &founding(2, 6, [2, 3, 4])), [Effect::PeerMessage { to: 0, message: refuse.clone() }]);
    assert_eq!(ask(0, &founding(9, 6, [1, 3, 4])), [], "that life of the founder is over");
    assert!(is_promise(&ask(0, &founding(3, 6, [5, 3, 4]))));
    let (mut founder, _) = founder();
    let above = foundings(&founder.peer_message(1, &refuse).expect("the process accepts the input"));
    assert_eq!(parts(&above[0].1).1.number, 3);
}

#[test]
fn member_that_promised_a_founding_accepts_an_older_state_only_from_a_leader_in_its_last_life() {
    let mut member = Process::started_at(GROUPS, 1, 3);
    assert!(is_promise(&member.peer_message(0, &founding(2, 5, [2, 3, 4])).expect("the process accepts the input")));
    let (ballot, me) = (Ballot::new(5, ProcessId(2)), Joiner { process: ProcessId(1), life: 3 });
    let state = |life| install(ballot, Incarnation::FIRST, [1, 3, life], vec![me]);
    assert_eq!(member.peer_message(2, &state(3)), Ok(Vec::new()), "its fourth life is without memory");
    assert!(member.replica.is_joining());
    member.peer_message(2, &state(4)).expect("the process accepts the input");
    assert_eq!((member.replica.is_joining(), member.replica.incarnation()), (false, Incarnation::FIRST));
}

#[test]
fn process_that_promised_a_founding_is_a_member_when_it_promises_a_later_ballot_of_it() {
    let mut member = Process::started_at(GROUPS, 1, 3);
    // Before, it promised a reset, of which no process has a state when the group is founded.
    let (ballot, ends) = (Ballot::new_in(1, 1, ProcessId(2)), Incarnation { number: 9, tag: 9 });
    let (incarnation, lives) = (Incarnation { number: 1, tag: 4 }, vec![2, 3, 4]);
    let resets = PeerMessage::Campaign { ballot, incarnation, ends, resets: true, lives };
    assert!(is_promise(&member.peer_message(2, &resets).expect("the process accepts the input")));
    member.peer_message(0, &founding(2, 5, [2, 3, 4])).expect("the process accepts the input");
    let founded = Incarnation { number: 2, tag: 5 };
    let later = |incarnation| PeerMessage::Campaign {
        ballot: Ballot::new_in(2, 2, ProcessId(2)),
        incarnation,
        ends: incarnation,
        resets: false,
        lives: vec![2, 3, 4],
    };
    assert_eq!(member.peer_message(2, &later(Incarnation { number: 2, tag: 6 })), Ok(Vec::new()));
    let begins = member.peer_message(2, &later(founded)).expect("the process accepts the input");
    assert!(matches!(&begins[..], [Effect::BeginHistory, promise @ ..] if is_promise(promise)), "{begins:?}");
    assert!(!member.replica.is_joining());
    let said = PeerMessage::Remembered { by: ProcessId(1), incarnation: founded };
    let answer = member.peer_message(0, &founding(3, 5, [2, 3, 4])).expect("the process accepts the input");
    assert_eq!(answer, [Effect::PeerMessage { to: 0, message: said }]);
    // The member may lead, although no process has a state of the founding: the history began with the founding.
    let ballot = member.campaign();
    assert_eq!(ballot, Ballot::new_in(2, 3, ProcessId(1)));
    let promise = PeerMessage::Promise { ballot, state: nothing([2, 3, 4]) };
    let effects = member.peer_message(2, &promise).expect("a majority");
    let begun = effects.iter().find_map(|effect| match effect {
        Effect::PeerMessage { to: 2, message: PeerMessage::Install { state, .. } } => Some(state.origins.clone()),
        _ => None,
    });
    assert_eq!(begun, Some(vec![Origin { incarnation: founded, kept: 0 }]));
}

#[test]
fn incarnation_with_another_tag_counts_nowhere() {
    let mut member = Process::new(GROUPS, 1, stentor_multicast::Variant::V2);
    let other = Incarnation { number: 1, tag: 8 };
    let ballot = Ballot::new(3, ProcessId(2));
    let campaign = PeerMessage::Campaign { ballot, incarnation: other, ends: other, resets: false, lives: vec![0; 3] };
    let refuse = PeerMessage::Refuse { promised: Ballot::new(1, ProcessId(0)), incarnation: Incarnation::FIRST };
    assert_eq!(member.peer_message(2, &campaign), Ok(vec![Effect::PeerMessage { to: 2, message: refuse }]));
    assert!(is_promise(
        &member.peer_message(2, &first_campaign(ballot, &[0; 3])).expect("the process accepts the input")
    ));
    let known = member.replica.known(GroupId(1));
    let announce = PeerMessage::Announce {
        group: GroupId(1),
        ballot: Ballot::new(9, ProcessId(OTHER)),
        incarnation: other,
        origin: other,
    };
    assert_eq!(member.peer_message(OTHER, &announce), Ok(Vec::new()));
    assert_eq!(member.replica.known(GroupId(1)), known);
    let later = Ballot::new(9, ProcessId(2));
    let refuse = PeerMessage::Refuse { promised: ballot, incarnation: Incarnation::FIRST };
    let state = install(later, other, [0; 3], vec![]);
    assert_eq!(member.peer_message(2, &state), Ok(vec![Effect::PeerMessage { to: 2, message: refuse }]));
    let why = Contradiction { group: GroupId(1), known: Incarnation::FIRST, said: other };
    assert_eq!(member.replica.contradiction(), Some(why));
    assert_eq!(member.replica.on_greeting(ProcessId(OTHER), other, Incarnation::FIRST), Err(why));
    let why = Contradiction { group: GroupId(0), known: Incarnation::FIRST, said: other };
    assert_eq!(member.replica.on_greeting(ProcessId(CLIENT), Incarnation::NONE, other), Err(why));
}

/// A follower has its own group's majority for a message to both groups. The other group is announced in incarnation
/// `other`, and acknowledges in its first one. Returns whether the message is delivered.
fn is_delivered_by_acknowledgements_of_the_first(mutant: Mutant, other: Incarnation) -> bool {
    let mut follower = Process::planted(GROUPS, 1, mutant);
    let subject = head(1, 0, 2);
    follower.message(0, 1, &[(0, 0), (1, 0)]).expect("the process accepts the input");
    follower.assign(subject, 1, 0, led_by(0), 1).expect("the process accepts the input");
    follower.vector(subject, 2, &[1, 2]).expect("the process accepts the input");
    let ballot = Ballot::new_in(other.number, 1, ProcessId(OTHER));
    let announce = PeerMessage::Announce { group: GroupId(1), ballot, incarnation: other, origin: other };
    follower.peer_message(OTHER, &announce).expect("the process accepts the input");
    let effects = follower.ack_in(led_by(OTHER), OTHER, subject, 1, &[1, 2]).expect("the process accepts the input");
    effects.iter().any(|effect| matches!(effect, Effect::Deliver(_)))
}

#[test]
fn acknowledgements_of_an_old_history_do_not_count() {
    assert!(is_delivered_by_acknowledgements_of_the_first(Mutant::None, Incarnation::FIRST));
    assert!(!is_delivered_by_acknowledgements_of_the_first(Mutant::None, LATER));
}

#[cfg(feature = "plants")]
#[test]
fn mutant_that_counts_acknowledgements_of_an_old_history_is_found() {
    assert!(is_delivered_by_acknowledgements_of_the_first(Mutant::IncarnationIgnored, LATER));
}

#[test]
fn messages_written_before_the_founding_are_dropped() {
    let mut founder = Process::started_at(GROUPS, 0, 2);
    founder.message(0, 1, &[(0, 0)]).expect("nobody knows of which history");
    wait(&mut founder);
    founder.peer_message(1, &joins(3)).expect("the process accepts the input");
    let effects = founder.peer_message(2, &joins(4)).expect("the process accepts the input");
    assert!(effects.contains(&Effect::Dropped { slot: 0, sequence: 1 }), "{effects:?}");
    founder.message(0, 1, &[(0, 0), (1, 0)]).expect("the ids of what was lost are used again");
}
