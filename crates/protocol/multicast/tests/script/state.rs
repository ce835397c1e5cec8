//! States from a process that violates the protocol, or belongs to another cluster, are refused with a reason, and
//! change nothing. An encoding that contains a wrong length is refused as no message.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    AssignedSlot, Ballot, ClientId, ClientState, Destination, GroupId, GroupSet, Incarnation, Joiner, MessageRef,
    Origin, PeerMessage, PeerMessageError, Rejected, State, Variant,
};

use super::process::{Effect, Process, first_word, led_by};

fn second() -> Ballot {
    Ballot::new(2, ProcessId(1))
}

fn entry(sequence: u64) -> AssignedSlot {
    let destinations = vec![Destination { group: GroupId(0), slot: sequence - 1 }];
    AssignedSlot {
        sequence,
        destinations,
        times: vec![sequence],
        vector: true,
        decided: false,
        no_op: false,
        delivered: false,
        ended: GroupSet::default(),
    }
}

/// Returns a state of groups of 3 and 3 with two clients: one message of client 0 is assigned.
fn state() -> State {
    let assigned = ClientState { entries: vec![entry(1)], held: vec![(1, 2)], ..ClientState::default() };
    State {
        synced: led_by(0),
        counter: 1,
        clock: 1,
        delivered: 0,
        incarnation: Incarnation::FIRST,
        origins: vec![Origin { incarnation: Incarnation::FIRST, kept: 0 }],
        known: vec![second(), led_by(3)],
        incarnations: vec![Incarnation::FIRST; 2],
        words: vec![first_word(); 2],
        lives: vec![0; 3],
        clients: vec![assigned, ClientState::default()],
    }
}

/// A change that makes a state invalid, and the reason for its refusal.
type Lie = (fn(&mut State), &'static str);

fn install(state: State) -> PeerMessage {
    PeerMessage::Install { ballot: second(), counter: 0, state, admits: Vec::new(), snapshot: false }
}

/// Returns member 2 of group 0, which has the body.
fn follower() -> Process {
    let mut follower = Process::of_two_groups(2);
    follower.message(0, 1, &[(0, 0)]).expect("the body");
    follower
}

#[test]
fn a_sound_state_is_installed() {
    let effects = follower().peer_message(1, &install(state())).expect("the process accepts the input");
    assert_eq!(
        effects.first(),
        Some(&Effect::PeerMessage { to: 1, message: PeerMessage::Installed { ballot: second() } })
    );
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Deliver(_))), "two of three votes: {effects:?}");
}

#[test]
fn state_of_another_cluster_is_refused_in_every_peer_message() {
    let numbers = "another number of groups or client ids";
    let message = "a message that is not this group's";
    let lies: [Lie; 11] = [
        (|state| state.known.truncate(1), numbers),
        (|state| state.known.push(led_by(6)), numbers),
        (|state| state.lives.truncate(2), "another number of members"),
        (|state| state.lives.push(0), "another number of members"),
        (|state| state.clients.truncate(1), numbers),
        (|state| state.clients.push(ClientState::default()), numbers),
        (|state| state.clients[0].entries[0].destinations[0].group = GroupId(1), message),
        (|state| state.clients[0].entries[0].destinations[0].group = GroupId(9), message),
        (|state| state.clients[0].entries[0].times[0] = 0, message),
        (|state| state.clients[0].entries = (1..=3).map(entry).collect(), "more messages than a window holds"),
        (|state| state.clients[0].held = vec![(2, 3)], "a message beyond the window"),
    ];
    for (lie, why) in lies {
        let mut wrong = state();
        lie(&mut wrong);
        let refused = Err(Rejected::State(why));
        assert_eq!(follower().peer_message(1, &install(wrong.clone())), refused, "{wrong:?}");
        // A promise for this member's candidacy, from a follower with such a state.
        let mut candidate = Process::new(super::process::TWO_GROUPS, 2, Variant::V2);
        let ballot = candidate.campaign();
        let promise = PeerMessage::Promise { ballot, state: wrong.clone() };
        assert_eq!(candidate.peer_message(1, &promise), refused, "{wrong:?}");
        let transfer = PeerMessage::Transfer { ballot, state: wrong };
        assert_eq!(candidate.peer_message(1, &transfer), refused);
        let sound =
            PeerMessage::Promise { ballot, state: State { clients: vec![ClientState::default(); 2], ..state() } };
        assert!(
            !candidate.peer_message(1, &sound).expect("the process accepts the input").is_empty(),
            "it still takes over"
        );
    }
    assert_eq!(Rejected::State(numbers).to_string(), format!("a state that is not one of this group: {numbers}"));
}

#[test]
fn states_from_unauthorized_senders_are_refused() {
    for (from, why) in [(3, "another group's member"), (0, "not the ballot's leader"), (6, "a client"), (9, "nobody")] {
        assert_eq!(follower().peer_message(from, &install(state())), Err(Rejected::Sender(ProcessId(from))), "{why}");
    }
    let admits = vec![Joiner { process: ProcessId(4), life: 1 }];
    let other = PeerMessage::Install { ballot: second(), counter: 0, state: state(), admits, snapshot: false };
    assert_eq!(
        follower().peer_message(1, &other),
        Err(Rejected::Sender(ProcessId(1))),
        "it takes in another group's member"
    );
}

#[test]
fn promise_counts_when_the_messages_that_its_sender_holds_are_here() {
    let mut candidate = Process::new(super::process::TWO_GROUPS, 2, Variant::V2);
    let ballot = candidate.campaign();
    let mut held = State { clients: vec![ClientState::default(); 2], ..state() };
    held.clients[0].held = vec![(0, 1)];
    let effects = candidate
        .peer_message(1, &PeerMessage::Promise { ballot, state: held })
        .expect("the process accepts the input");
    let wanted = PeerMessage::WantBody(MessageRef { client: ClientId(0), sequence: 1 });
    assert_eq!(
        effects,
        [Effect::PeerMessage { to: 1, message: wanted }],
        "a majority, but it may forget what is synced"
    );
    let effects = candidate.message(0, 1, &[(0, 0)]).expect("the body");
    let installs = |effect: &Effect| matches!(effect, Effect::PeerMessage { message: PeerMessage::Install { .. }, .. });
    assert_eq!(effects.iter().filter(|effect| installs(effect)).count(), 2, "{effects:?}");
}

/// A member with memory needs no list: it still holds each message that it was counted as holding.
#[test]
fn leader_lists_its_held_messages_to_a_restarted_member() {
    let mut candidate = Process::new(super::process::TWO_GROUPS, 1, Variant::V2);
    candidate.message(0, 1, &[(0, 0)]).expect("the body");
    candidate.peer_message(2, &PeerMessage::Join { life: 9 }).expect("the process accepts the input");
    let ballot = candidate.campaign();
    let promised = State { clients: vec![ClientState::default(); 2], ..state() };
    let effects = candidate
        .peer_message(0, &PeerMessage::Promise { ballot, state: promised })
        .expect("the process accepts the input");
    let installs = effects.iter().filter_map(|effect| match effect {
        Effect::PeerMessage { to, message: PeerMessage::Install { state, .. } } => {
            Some((*to, state.clients[0].held.clone()))
        }
        _ => None,
    });
    assert_eq!(installs.collect::<Vec<_>>(), [(0, vec![]), (2, vec![(0, 1)])], "{effects:?}");
}

#[test]
fn restarted_member_gets_the_messages_that_the_leader_holds() {
    let mut joiner = Process::joining(super::process::TWO_GROUPS, 2);
    let mut held = State { clients: vec![ClientState::default(); 2], ..state() };
    held.clients[0].held = vec![(0, 1)];
    let admits = vec![Joiner { process: ProcessId(2), life: 2 }];
    let install = PeerMessage::Install { ballot: second(), counter: 0, state: held, admits, snapshot: true };
    let wanted = PeerMessage::WantBody(MessageRef { client: ClientId(0), sequence: 1 });
    assert_eq!(
        joiner.peer_message(1, &install).expect("the process accepts the input"),
        [Effect::PeerMessage { to: 1, message: wanted }]
    );
    let effects = joiner.message(0, 1, &[(0, 0)]).expect("the body");
    let installed = Effect::PeerMessage { to: 1, message: PeerMessage::Installed { ballot: second() } };
    assert_eq!(effects.last(), Some(&installed));
    // From now on the joiner announces to the other group's members what it remembers of their group.
    let remembers = |effect: &Effect| {
        matches!(effect, Effect::PeerMessage { to: 3.., message: PeerMessage::Announce { group: GroupId(1), .. } })
    };
    assert_eq!((effects.len(), effects.iter().filter(|effect| remembers(effect)).count()), (4, 3));
}

/// Decodes every prefix of a message, the message with a trailing word, and the message with each word in turn replaced
/// by numbers that no length can be.
#[test]
fn state_with_a_wrong_length_is_no_peer_message() {
    let mut words = Vec::new();
    install(state()).encode(&mut words);
    assert!(PeerMessage::decode(&words) == Ok(install(state())));
    for end in 0..words.len() {
        assert_eq!(PeerMessage::decode(&words[..end]), Err(PeerMessageError::Truncated { words: end }), "{end} words");
    }
    let longer = [&words[..], &[0]].concat();
    assert_eq!(PeerMessage::decode(&longer), Err(PeerMessageError::Trailing(1)));
    let (mut lengths, mut members) = (0, Vec::new());
    for at in 0..words.len() {
        for lie in [1 << 32, u64::MAX / 8, u64::MAX] {
            let mut wrong = words.clone();
            wrong[at] = lie;
            match PeerMessage::decode(&wrong) {
                Err(PeerMessageError::Truncated { .. }) => lengths += 1,
                Err(_) => {}
                // The word is not a length: the message is refused or accepted, without harm.
                Ok(message) => {
                    let mut member = follower();
                    let _ = member.peer_message(1, &message);
                    let _ = member.tick();
                    members.push(member);
                }
            }
        }
    }
    // The lengths of: admitted processes, origins, groups, their incarnations and words, lives, clients, entries of
    // either client, destinations, what either client holds, and the processes of its client id.
    assert_eq!(lengths, 14 * 3, "each wrong length was detected");
    assert!(members.iter().all(|member| member.replica.delivered() <= 1));
}
