//! Messages of a group to itself, which advance its time.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    AssignedSlot, Ballot, ClientId, Destination, GroupId, GroupSet, Head, Incarnation, MessageId, MessageRef, Mutant,
    PeerMessage, Rejected, ShortSlot, SlotRef, State, StreamEntry,
};

use super::process::{Effect, Process, Recorder, TWO_GROUPS, led_by};

/// The client id of group 0 of [`TWO_GROUPS`] for time entries; the processes have two client ids.
const TIME: ClientId = ClientId(2);
const OTHER_GROUPS: ClientId = ClientId(3);

fn head(slot: u64) -> Head {
    Head { client: TIME, sequence: slot + 1, slot: ShortSlot::of(slot), groups: 1 }
}

impl Process {
    fn of_group_0(me: u16) -> Self {
        Process::with_time_entries(TWO_GROUPS, me, Mutant::None)
    }

    fn order_time(&mut self, not_before: u64) -> (Option<u64>, Vec<Effect>) {
        let mut recorder = Recorder::default();
        let ordered = self.replica.order_time(not_before, &mut recorder);
        assert!(ordered.is_none_or(|id| id.client == TIME));
        (ordered.map(|id| id.sequence), recorder.0)
    }

    fn state(&mut self) -> State {
        let ballot = self.campaign();
        let next = Ballot::new(ballot.number() + 1, ProcessId(2));
        let effects = self.peer_message(2, &super::process::first_campaign(next, &[0; 3])).expect("a campaign");
        effects
            .into_iter()
            .find_map(|effect| match effect {
                Effect::PeerMessage { message: PeerMessage::Promise { state, .. }, .. } => Some(state),
                _ => None,
            })
            .expect("the member promises")
    }
}

fn assign(slot: u64, counter: u64, ballot: Ballot, time: u64) -> Effect {
    Effect::Assign { head: head(slot), counter, position: 0, ballot, time }
}

fn delivers(effects: &[Effect]) -> Option<(u64, u64)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Deliver(delivery) if delivery.id.client == TIME => {
            Some((delivery.id.sequence, delivery.timestamp.time))
        }
        _ => None,
    })
}

#[test]
fn leader_orders_one_at_a_time_with_a_later_time_than_requested() {
    let mut leader = Process::of_group_0(0);
    assert_eq!(leader.order_time(50), (Some(1), vec![assign(0, 1, led_by(0), 51)]));
    let under_way = Some(MessageId { client: TIME, sequence: 1 });
    assert_eq!(leader.replica.time_entry_under_way(), under_way);
    assert_eq!(leader.order_time(60), (None, vec![]), "one is under way");
    let effects = leader.ack(1, head(0), 0, &[51]).expect("an acknowledgement");
    assert_eq!(delivers(&effects), Some((1, 51)));
    assert_eq!(leader.replica.time_entry_under_way(), None);
    assert_eq!(leader.order_time(10), (Some(2), vec![assign(1, 2, led_by(0), 52)]), "a time that has passed");
}

#[test]
fn only_a_leader_orders_a_time_entry_and_none_beyond_the_bound_of_clocks() {
    assert_eq!(Process::of_group_0(1).order_time(5), (None, vec![]));
    assert_eq!(Process::of_two_groups(0).order_time(5), (None, vec![]), "its group orders none");
    let mut leader = Process::of_group_0(0);
    assert_eq!(leader.order_time(stentor_multicast::END_OF_TIME), (None, vec![]));
    leader.replica.set_physical(1_000, 100).expect("a possible time");
    assert_eq!(leader.order_time(1_101), (None, vec![]));
    assert_eq!(leader.order_time(1_100), (Some(1), vec![assign(0, 1, led_by(0), 1_101)]));
    leader.ack(1, head(0), 0, &[1_101]).expect("an acknowledgement");
    leader.replica.set_physical(500, 100).expect("a possible time");
    assert_eq!(leader.order_time(1_101), (Some(2), vec![assign(1, 2, led_by(0), 1_102)]), "its clock is there");
}

#[test]
fn a_follower_needs_no_body() {
    let mut follower = Process::of_group_0(1);
    assert!(!follower.waits(head(0), 1));
    let effects = follower.assign(head(0), 1, 0, led_by(0), 51).expect("the next entry");
    let acks: Vec<u16> = effects
        .iter()
        .filter_map(|effect| if let Effect::Ack { to, .. } = effect { Some(*to) } else { None })
        .collect();
    assert_eq!((acks, delivers(&effects)), (vec![0, 2], Some((1, 51))), "the leader and it are two of three");
    assert_eq!(follower.replica.delivered(), 1);
    assert_eq!(follower.replica.clock(), 51);
}

/// The entry is processed by one follower of four, or by none, when the leader dies.
#[test]
fn next_leader_repeats_the_entry_or_orders_another_under_the_same_name() {
    let group = &[5, 1];
    for has_it in [true, false] {
        let member = |me| Process::with_time_entries(group, me, Mutant::None);
        let (mut next, mut others) = (member(1), [member(2), member(3)]);
        if has_it {
            others[0].assign(head(0), 1, 0, led_by(0), 51).expect("the next entry");
        }
        let ballot = next.campaign();
        let campaign = super::process::first_campaign(ballot, &[0; 5]);
        for (other, from) in others.iter_mut().zip(2..) {
            let promised = other.peer_message(1, &campaign).expect("a campaign");
            let [Effect::PeerMessage { message: promise @ PeerMessage::Promise { .. }, .. }] = &promised[..] else {
                panic!("it promises: {promised:?}")
            };
            let effects = next.peer_message(from, promise).expect("the process accepts the input");
            let wants = |effect: &&Effect| {
                matches!(
                    effect,
                    Effect::PeerMessage { message: PeerMessage::WantBody(_) | PeerMessage::Behind { .. }, .. }
                )
            };
            assert_eq!(effects.iter().find(wants), None, "there is no body to be had");
        }
        (2..4).for_each(|from| drop(next.peer_message(from, &PeerMessage::Installed { ballot })));
        assert!(next.replica.is_leader());
        let under_way = next.replica.time_entry_under_way();
        assert_eq!(under_way, has_it.then_some(MessageId { client: TIME, sequence: 1 }));
        let ordered = next.order_time(70);
        let expected = if has_it { (None, vec![]) } else { (Some(1), vec![assign(0, 1, ballot, 71)]) };
        assert_eq!(ordered, expected);
        let time = if has_it { 51 } else { 71 };
        next.ack_in(ballot, 2, head(0), 0, &[time]).expect("an acknowledgement");
        let effects = next.ack_in(ballot, 3, head(0), 0, &[time]).expect("an acknowledgement");
        assert_eq!(delivers(&effects), Some((1, time)));
    }
}

/// A deposed leader has assigned an entry that no other member has. The deposed leader holds nothing that others would
/// have to ask for.
#[test]
fn entry_that_the_next_ballot_does_not_assign_is_not_held() {
    let mut leader = Process::with_time_entries(&[3], 0, Mutant::None);
    assert_eq!(leader.order_time(50).0, Some(1));
    let mut next = Process::with_time_entries(&[3], 1, Mutant::None);
    let ballot = next.campaign();
    let effects = {
        let mut other = Process::with_time_entries(&[3], 2, Mutant::None);
        let promised = other.peer_message(1, &super::process::first_campaign(ballot, &[0; 3])).expect("a campaign");
        let promise = promised.into_iter().find_map(|effect| match effect {
            Effect::PeerMessage { message, .. } => Some(message),
            _ => None,
        });
        next.peer_message(2, &promise.expect("the member promises")).expect("the process accepts the input")
    };
    let install = effects.into_iter().find_map(|effect| match effect {
        Effect::PeerMessage { to: 0, message: message @ PeerMessage::Install { .. } } => Some(message),
        _ => None,
    });
    leader.peer_message(1, &install.expect("the candidate sends its state")).expect("the process accepts the input");
    let after = Ballot::new(ballot.number() + 1, ProcessId(2));
    let campaign = super::process::first_campaign(after, &[0; 3]);
    let effects = leader.peer_message(2, &campaign).expect("a campaign");
    let states = effects.into_iter().filter_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Promise { state, .. }, .. } => Some(state),
        _ => None,
    });
    let held: Vec<_> = states.flat_map(|state| state.clients).flat_map(|client| client.held).collect();
    assert_eq!(held, []);
}

#[test]
fn entry_with_another_name_is_refused() {
    let mut follower = Process::of_group_0(1);
    let wrong = [
        Head { sequence: 2, ..head(0) },
        Head { sequence: 1, ..head(1) },
        Head { groups: 2, ..head(0) },
        Head { sequence: 1 << 60, ..head(0) },
    ];
    for head in wrong {
        let refused = follower.assign(head, 1, 0, led_by(0), 51);
        assert!(matches!(refused, Err(Rejected::OtherMessage { client: 2, .. })), "{head:?}: {refused:?}");
    }
    let of_another = Head { client: OTHER_GROUPS, ..head(0) };
    assert_eq!(follower.assign(of_another, 1, 0, led_by(0), 51), Err(Rejected::Client(OTHER_GROUPS.0)));
    assert_eq!(follower.no_op(head(0), 1, false), Err(Rejected::Client(TIME.0)), "none is a no-op");
    let succeeds = StreamEntry::Succeed { life: 1, after: 0, retired: 0, settled: false };
    assert_eq!(follower.entry(head(0), 1, succeeds), Err(Rejected::Client(TIME.0)), "no process follows another");
    assert_eq!(follower.vector(head(0), 1, &[51]), Err(Rejected::NotHeld { client: TIME.0, slot: 0 }));
}

#[test]
fn time_entries_are_accepted_only_from_their_group() {
    let mut leader = Process::of_group_0(0);
    let refused = Err(Rejected::Client(TIME.0));
    assert_eq!(leader.message(TIME.0, 1, &[(0, 0)]), refused, "no client multicasts one");
    assert_eq!(leader.message(OTHER_GROUPS.0, 1, &[(0, 0)]), Err(Rejected::Client(OTHER_GROUPS.0)));
    assert_eq!(leader.timestamp(3, head(0), 0, led_by(3), 9), refused);
    assert_eq!(leader.ack(3, head(0), 0, &[9]), refused, "a member of another group");
    let message = MessageRef { client: TIME, sequence: 1 };
    let slot = SlotRef { client: TIME, slot: 0, ballot: led_by(0), generation: 0 };
    for message in [
        PeerMessage::WantBody(message),
        PeerMessage::WantBodies(message),
        PeerMessage::Gone(message),
        PeerMessage::Seek(slot),
        PeerMessage::Lacking(slot),
        PeerMessage::NoOpProcessed(slot),
        PeerMessage::Close(slot),
        PeerMessage::Succeeded(slot),
    ] {
        assert_eq!(leader.peer_message(1, &message), refused, "{message:?}");
    }
}

#[test]
fn state_with_invalid_time_entries_is_refused() {
    let mut member = Process::of_group_0(1);
    member.assign(head(0), 1, 0, led_by(0), 51).expect("the next entry");
    let state = member.state();
    let mut candidate = Process::of_group_0(2);
    let ballot = candidate.campaign();
    let entry = |state: &mut State, change: &dyn Fn(&mut AssignedSlot)| change(&mut state.clients[2].entries[0]);
    let changes: [&dyn Fn(&mut State); 7] = [
        &|state| entry(state, &|entry| entry.sequence = 2),
        &|state| entry(state, &|entry| entry.destinations = vec![Destination { group: GroupId(1), slot: 0 }]),
        &|state| entry(state, &|entry| entry.destinations[0].slot = 7),
        &|state| entry(state, &|entry| (entry.no_op, entry.ended) = (true, GroupSet::default())),
        &|state| state.clients[2].held.push((5, 6)),
        &|state| state.clients[2].closed = 1,
        &|state| drop(state.clients.pop()),
    ];
    for change in changes {
        let mut state = state.clone();
        change(&mut state);
        let refused = candidate.peer_message(1, &PeerMessage::Promise { ballot, state });
        assert!(matches!(refused, Err(Rejected::State(_))), "{refused:?}");
    }
    candidate.peer_message(1, &PeerMessage::Promise { ballot, state }).expect("the process accepts the input");
}

/// Followers that cannot deliver hold at most a window of entries.
#[test]
fn an_entry_beyond_the_window_waits() {
    let mut follower = Process::with_time_entries(&[5], 1, Mutant::None);
    // Two of five: nothing is decided. The window has two slots.
    for slot in 0..2 {
        assert!(!follower.waits(Head { client: ClientId(2), ..head(slot) }, slot + 1));
        follower.assign(head(slot), slot + 1, 0, led_by(0), 51 + slot).expect("the next entry");
    }
    assert!(follower.waits(head(2), 3));
    assert!(matches!(follower.assign(head(2), 3, 0, led_by(0), 60), Err(Rejected::BeyondWindow { .. })));
    assert_eq!(follower.stalled(head(2), 3, 1), [], "no member can help");
    follower.ack(2, head(0), 0, &[51]).expect("an acknowledgement");
    assert!(!follower.waits(head(2), 3));
}

/// Time entries are not messages of clients: a client alone has its whole window in progress.
#[test]
fn no_client_waits_for_its_share_because_of_time_entries() {
    let mut leader = Process::with_time_entries(&[3], 0, Mutant::None);
    for slot in 0..2 {
        assert!(leader.order_time(0).0.is_some());
        leader.ack(1, head(slot), 0, &[slot * 2 + 1]).expect("an acknowledgement");
        let effects = leader.message(0, slot + 1, &[(0, slot)]).expect("the body");
        assert!(matches!(effects[..], [Effect::Assign { .. }]));
    }
}

/// The incarnation is a part of the name, so a time entry of an old history differs from all entries of the new one.
#[test]
fn names_of_time_entries_differ_between_incarnations() {
    let mut alone = Process::with_time_entries(&[1], 0, Mutant::None);
    assert_eq!(alone.order_time(5).0, Some(1));
    alone.replica.reset(Incarnation::FIRST, false, &mut Recorder::default()).expect("an operator's word");
    let (sequence, effects) = alone.order_time(5);
    assert_eq!(sequence, Some((1 << 56) + 2));
    assert_eq!(delivers(&effects).map(|(sequence, _)| sequence), sequence);
}

#[cfg(feature = "plants")]
#[test]
fn mutant_that_ignores_the_requested_time_is_found() {
    let mut leader = Process::with_time_entries(&[3], 0, Mutant::NotBeforeIgnored);
    assert_eq!(leader.order_time(50), (Some(1), vec![assign(0, 1, led_by(0), 1)]));
}
