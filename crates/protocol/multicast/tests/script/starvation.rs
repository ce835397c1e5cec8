//! A follower whose stream lacks entries that the leader has, and states that the stream has overtaken.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    AssignedSlot, Ballot, CatchUps, ClientId, ClientState, Destination, GroupId, GroupSet, Head, Incarnation, Joiner,
    MessageRef, Origin, PeerMessage, ReplicaConfig, State, Variant,
};

use super::process::{BOTH, Effect, Process, TWO_GROUPS, first_campaign, first_word, head, led_by};

/// The second message of client 0 to both groups: slot 1 at group 0, slot 2 at group 1.
const SECOND: &[(u16, u64)] = &[(0, 1), (1, 2)];

/// Number of ticks that a follower waits before it asks for its leader's state.
const RETRY_TICKS: u32 = 4 * ReplicaConfig::RETRY_TICKS as u32;

fn entry(sequence: u64, to: &[(u16, u64)], times: &[u64], decided: bool) -> AssignedSlot {
    let destinations = to.iter().map(|(group, slot)| Destination { group: GroupId(*group), slot: *slot }).collect();
    AssignedSlot {
        sequence,
        destinations,
        times: times.to_vec(),
        vector: true,
        decided,
        no_op: false,
        delivered: false,
        ended: GroupSet::default(),
    }
}

/// Returns a state of group 0 of [`TWO_GROUPS`] in its first ballot.
fn state(counter: u64, delivered: u64, clients: [ClientState; 2]) -> State {
    State {
        synced: led_by(0),
        counter,
        clock: 9,
        delivered,
        incarnation: Incarnation::FIRST,
        origins: vec![Origin { incarnation: Incarnation::FIRST, kept: 0 }],
        known: vec![led_by(0), led_by(3)],
        incarnations: vec![Incarnation::FIRST; 2],
        words: vec![first_word(); 2],
        lives: vec![0; 3],
        clients: Vec::from(clients),
    }
}

/// Returns the message with which leader 0 sends that state.
fn install(state: State, snapshot: bool) -> PeerMessage {
    PeerMessage::Install { ballot: led_by(0), counter: state.counter, state, admits: Vec::new(), snapshot }
}

fn peer_messages(effects: &[Effect]) -> Vec<(u16, PeerMessage)> {
    let message = |effect: &Effect| match effect {
        Effect::PeerMessage { to, message } => Some((*to, message.clone())),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

fn behind(effects: &[Effect]) -> usize {
    peer_messages(effects)
        .iter()
        .filter(|message| **message == (0, PeerMessage::Behind { ballot: led_by(0), snapshot: false }))
        .count()
}

/// Returns member 1 of group 0. It has processed two messages to both groups, and acknowledged them. It has received
/// none of group 1's acknowledgements, so the messages are undecided here.
fn follower_with_two() -> Process {
    let mut follower = Process::new(TWO_GROUPS, 1, Variant::V2);
    follower.message(0, 1, BOTH).expect("the first body");
    follower.message(0, 2, SECOND).expect("the second body");
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 1).expect("the first");
    follower.vector(head(1, 0, 2), 2, &[1, 5]).expect("its vector");
    follower.assign(head(2, 1, 2), 3, 0, led_by(0), 6).expect("the second");
    let effects = follower.vector(head(2, 1, 2), 4, &[6, 6]).expect("its vector");
    assert_eq!(effects.len(), 5, "acknowledged to all others: {effects:?}");
    follower
}

/// Returns the state that member 1 promises to a candidate.
fn promise(follower: &mut Process) -> State {
    let ballot = Ballot::new(2, stentor_fabric::ProcessId(2));
    let effects = follower.peer_message(2, &first_campaign(ballot, &[0; 3])).expect("the follower promises");
    match &peer_messages(&effects)[..] {
        [(2, PeerMessage::Promise { state, .. })] => state.clone(),
        other => panic!("{other:?}"),
    }
}

/// Returns a state that leader 0 took after it had delivered and freed the first message. It does not contain the
/// second message.
fn overtaken() -> State {
    let freed = ClientState { delivered: 1, from: 1, freed: 1, ..ClientState::default() };
    state(2, 1, [freed, ClientState::default()])
}

/// The state arrives together with the application's state. The leader's deliveries count as delivered. The messages
/// that this member has acknowledged since remain, so that the next leader learns of them, and the stream continues
/// after them.
#[test]
fn state_that_the_stream_has_overtaken_undoes_nothing() {
    let mut follower = follower_with_two();
    let effects = follower.peer_message(0, &install(overtaken(), true)).expect("the process accepts the input");
    let installed = Effect::PeerMessage { to: 0, message: PeerMessage::Installed { ballot: led_by(0) } };
    assert_eq!(effects, [Effect::Restore(1), installed]);
    assert_eq!(follower.replica.catch_ups(), CatchUps { overtaken: 1, starved: 0 });
    follower.message(0, 3, &[(0, 2)]).expect("the third body");
    assert!(!follower.waits(head(3, 2, 1), 5), "the next entry is the next one");
    let promised = promise(&mut follower);
    assert_eq!(promised.counter, 4);
    assert_eq!(promised.clients[0].entries.last().map(|entry| entry.sequence), Some(2), "{promised:?}");
    // The follower delivers the messages after those of the state by itself.
    let mut follower = follower_with_two();
    follower.peer_message(0, &install(overtaken(), true)).expect("the process accepts the input");
    follower.ack(3, head(2, 1, 2), 1, &[6, 6]).expect("the acknowledgement of group 1 is accepted");
    let effects = follower.ack(4, head(2, 1, 2), 1, &[6, 6]).expect("the acknowledgement of group 1 is accepted");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Deliver(delivery) if delivery.number == 2)));
}

/// Without the application's state nothing can count as delivered, so the member asks for it. Nothing is undone either.
#[test]
fn overtaken_state_is_requested_again_with_the_applications_state() {
    let mut follower = follower_with_two();
    let effects = follower.peer_message(0, &install(overtaken(), false)).expect("the process accepts the input");
    let asked = PeerMessage::Behind { ballot: led_by(0), snapshot: true };
    assert_eq!(effects, [Effect::PeerMessage { to: 0, message: asked }]);
    follower.message(0, 3, &[(0, 2)]).expect_err("no room yet");
    assert!(!follower.waits(head(2, 1, 2), 5), "meanwhile the stream continues");
    assert_eq!(promise(&mut follower).counter, 4);
}

/// After a reconnection, the leader sends the state with the missing entries. If that state is lost, no other message
/// reveals the loss, so the follower asks for the state.
#[test]
fn gap_that_no_state_fills_leads_to_a_request() {
    let mut follower = follower_with_two();
    assert!(follower.waits(head(4, 3, 1), 7));
    assert_eq!(behind(&follower.stalled(head(4, 3, 1), 7, RETRY_TICKS - 1)), 0, "a state may be on its way");
    assert_eq!(behind(&follower.stalled(head(4, 3, 1), 7, 1)), 1);
    assert_eq!(behind(&follower.stalled(head(4, 3, 1), 7, RETRY_TICKS)), 1, "the answer may be lost");
    assert_eq!(follower.replica.catch_ups().starved, 2);
    // The state fills the gap.
    let entries = vec![entry(3, &[(0, 2)], &[7], true)];
    let client = ClientState { delivered: 3, from: 2, freed: 2, entries, ..ClientState::default() };
    let effects = follower
        .peer_message(0, &install(state(6, 3, [client, ClientState::default()]), true))
        .expect("the process accepts the input");
    assert!(peer_messages(&effects).contains(&(0, PeerMessage::Installed { ballot: led_by(0) })), "{effects:?}");
    assert_eq!(follower.replica.delivered(), 3);
    assert_eq!(behind(&follower.ticks(2 * RETRY_TICKS)), 0, "it has what it asked for");
}

#[test]
fn stream_that_resumes_leads_to_no_request() {
    let mut follower = follower_with_two();
    assert_eq!(behind(&follower.stalled(head(4, 3, 1), 7, RETRY_TICKS - 1)), 0);
    follower.heard(5, Ballot::new(2, stentor_fabric::ProcessId(4))).expect("the next entry");
    assert_eq!(behind(&follower.ticks(2 * RETRY_TICKS)), 0);
    // An entry that waits for its body is no gap: its body is requested.
    let effects = follower.stalled(head(4, 3, 1), 6, 2 * RETRY_TICKS);
    assert_eq!(behind(&effects), 0);
    assert!(peer_messages(&effects).iter().any(|(_, message)| matches!(message, PeerMessage::WantBodies(_))));
}

/// `Ask` is answered by `Decided` again and again, but the entry with that vector never arrives.
#[test]
fn a_decision_that_cannot_be_used_becomes_a_request_for_the_state() {
    let mut follower = Process::new(TWO_GROUPS, 1, Variant::V2);
    follower.message(0, 1, BOTH).expect("the body");
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 1).expect("assigned, without a vector");
    let wanted = MessageRef { client: ClientId(0), sequence: 1 };
    let decided = PeerMessage::Decided { message: wanted, ballot: led_by(0), times: vec![1, 5] };
    let (mut asked, mut behinds) = (0, 0);
    for _ in 0..3 * RETRY_TICKS {
        let effects = follower.ticks(1);
        behinds += behind(&effects);
        if peer_messages(&effects).contains(&(0, PeerMessage::Ask(wanted))) {
            asked += 1;
            assert_eq!(follower.peer_message(0, &decided).expect("the process accepts the input"), []);
        }
    }
    assert!(asked > 4 && behinds == 2, "{asked} questions, {behinds} requests for the state");
    // A `Decided` from any other member proves nothing about the leader's stream.
    let mut other = Process::new(TWO_GROUPS, 1, Variant::V2);
    other.message(0, 1, BOTH).expect("the body");
    other.assign(head(1, 0, 2), 1, 0, led_by(0), 1).expect("assigned, without a vector");
    other.peer_message(2, &decided).expect("the process accepts the input");
    assert_eq!(behind(&other.ticks(2 * RETRY_TICKS)), 0);
    // The state contains what was requested.
    let client = ClientState { entries: vec![entry(1, BOTH, &[1, 5], true)], ..ClientState::default() };
    follower
        .peer_message(0, &install(state(2, 0, [client, ClientState::default()]), true))
        .expect("the process accepts the input");
    assert_eq!((follower.replica.delivered(), behind(&follower.ticks(2 * RETRY_TICKS))), (1, 0));
}

/// A candidate has delivered more than a member that promises. That member has passed a no-op that is not settled at
/// the candidate. The candidate must pass it, too. Otherwise it would ask the member for its state forever, and always
/// receive the same one.
#[test]
fn a_candidate_that_has_delivered_more_passes_what_is_a_no_op_elsewhere() {
    let mut candidate = Process::new(TWO_GROUPS, 1, Variant::V2);
    candidate.message(1, 1, BOTH).expect("client 1's message");
    candidate.no_op(head(1, 0, 1), 1, false).expect("client 0's is a no-op, which is not settled");
    let other = |slot| Head { client: ClientId(1), ..head(1, slot, 2) };
    candidate.assign(other(0), 2, 0, led_by(0), 1).expect("client 1's");
    candidate.vector(other(0), 3, &[1, 5]).expect("its vector");
    candidate.ack(3, other(0), 1, &[1, 5]).expect("the acknowledgement of group 1 is accepted");
    candidate.ack(4, other(0), 1, &[1, 5]).expect("the acknowledgement of group 1 is accepted");
    assert_eq!(candidate.replica.delivered(), 1);
    let ballot = candidate.campaign();
    let passed = ClientState { delivered: 1, from: 1, freed: 1, closed: 1, ..ClientState::default() };
    let undecided = ClientState { entries: vec![entry(1, BOTH, &[1, 5], false)], ..ClientState::default() };
    let state = state(4, 0, [passed, undecided]);
    let effects = candidate
        .peer_message(2, &PeerMessage::Promise { ballot, state: state.clone() })
        .expect("the process accepts the input");
    assert_eq!(peer_messages(&effects), [(2, PeerMessage::Behind { ballot, snapshot: true })]);
    let effects =
        candidate.peer_message(2, &PeerMessage::Transfer { ballot, state }).expect("the process accepts the input");
    let installs = |message: &&(u16, PeerMessage)| matches!(message.1, PeerMessage::Install { .. });
    assert_eq!(peer_messages(&effects).iter().filter(installs).count(), 2, "it takes over: {effects:?}");
    assert_eq!((candidate.replica.first_held(ClientId(0)), candidate.replica.delivered()), (1, 1));
}

/// An unsettled no-op blocks a client's later slots from being passed. A message after the no-op may still be
/// delivered, if it comes from another process of the client id than the message that became the no-op. A process
/// without memory takes over the application's state, which contains the delivered message.
#[test]
fn message_delivered_after_a_no_op_is_not_delivered_again_by_the_receiver_of_the_state() {
    let no_op = AssignedSlot { vector: false, no_op: true, ..entry(1, &[], &[], false) };
    let behind = |delivered| AssignedSlot { delivered, ..entry(2, &[(0, 1)], &[3], true) };
    for (delivered, again) in [(true, false), (false, true)] {
        let mut joiner = Process::joining(TWO_GROUPS, 1);
        let client = ClientState { entries: vec![no_op.clone(), behind(delivered)], ..ClientState::default() };
        let admits = vec![Joiner { process: ProcessId(1), life: 2 }];
        let state = state(3, 1, [client, ClientState::default()]);
        let install = PeerMessage::Install { ballot: led_by(0), counter: 3, state, admits, snapshot: true };
        let mut effects = joiner.peer_message(0, &install).expect("the process accepts the input");
        // The body is useless if the message is delivered.
        effects.extend(joiner.message(0, 2, &[(0, 1)]).unwrap_or_default());
        assert!(effects.contains(&Effect::Restore(1)), "{effects:?}");
        let deliveries = effects.iter().filter(|effect| matches!(effect, Effect::Deliver(..))).count();
        assert_eq!((deliveries > 0, joiner.replica.delivered() > 1), (again, again), "{delivered}: {effects:?}");
    }
}
