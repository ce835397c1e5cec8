//! Messages of a group to itself, which raise the version of its application.

use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, ClientId, Head, Incarnation, MessageId, Mutant, PeerMessage, Rejected, ShortSlot};

use super::process::{Effect, Process, Recorder, TWO_GROUPS, first_campaign, led_by};

/// The client id of group 0 of [`TWO_GROUPS`] for version entries. Processes have two client ids, and each group has
/// one for its times.
const VERSION: ClientId = ClientId(4);

fn head(slot: u64) -> Head {
    Head { client: VERSION, sequence: slot + 1, slot: ShortSlot::of(slot), groups: 1 }
}

fn assign(slot: u64, counter: u64, ballot: Ballot, time: u64) -> Effect {
    Effect::Assign { head: head(slot), counter, position: 0, ballot, time }
}

impl Process {
    fn of_versions(me: u16) -> Self {
        Process::with_time_entries(TWO_GROUPS, me, Mutant::None)
    }

    fn set_goal(&mut self, goal: u32) -> (bool, Vec<Effect>) {
        let mut recorder = Recorder::default();
        let ordered = self.replica.set_version_goal(goal, &mut recorder);
        (ordered, recorder.0)
    }
}

fn delivered(effects: &[Effect]) -> Vec<MessageId> {
    let ids = effects.iter().filter_map(|effect| match effect {
        Effect::Deliver(delivery) => Some(delivery.id),
        _ => None,
    });
    ids.collect()
}

#[test]
fn leader_orders_one_version_entry_for_each_step_to_the_goal() {
    let mut leader = Process::of_versions(0);
    assert_eq!(leader.replica.ordered_version(), 1);
    for goal in [0, 1] {
        assert_eq!(leader.set_goal(goal), (false, vec![]), "{goal} is no step");
    }
    let both = vec![assign(0, 1, led_by(0), 1), assign(1, 2, led_by(0), 2)];
    assert_eq!(leader.set_goal(3), (true, both));
    for goal in [3, 2, 0] {
        assert_eq!(leader.set_goal(goal), (false, vec![]), "it does not fall to {goal}");
    }
    assert_eq!(leader.replica.ordered_version(), 3);
    let effects = leader.ack(1, head(0), 0, &[1]).expect("an acknowledgement");
    assert_eq!(delivered(&effects), [MessageId { client: VERSION, sequence: 1 }]);
    assert!(leader.set_goal(4).0);
}

/// The window has two slots.
#[test]
fn a_goal_that_is_farther_than_a_window_takes_several_turns() {
    let mut leader = Process::of_versions(0);
    assert!(leader.set_goal(9).0);
    assert_eq!(leader.replica.ordered_version(), 3);
    assert!(!leader.set_goal(9).0, "no room");
    leader.ack(1, head(0), 0, &[1]).expect("an acknowledgement");
    assert!(leader.set_goal(9).0);
    assert_eq!(leader.replica.ordered_version(), 4);
}

#[test]
fn a_follower_orders_nothing_until_it_leads_and_then_before_any_message() {
    let mut next = Process::of_versions(1);
    assert_eq!(next.set_goal(2), (false, vec![]));
    next.message(0, 1, &[(0, 0)]).expect("a body");
    let ballot = next.campaign();
    let mut other = Process::of_versions(2);
    let promised = other.peer_message(1, &first_campaign(ballot, &[0; 3])).expect("a campaign");
    for effect in promised {
        if let Effect::PeerMessage { message, .. } = effect {
            next.peer_message(2, &message).expect("the process accepts the input");
        }
    }
    let effects = next.peer_message(2, &PeerMessage::Installed { ballot }).expect("the process accepts the input");
    let assigned: Vec<ClientId> = effects
        .iter()
        .filter_map(|effect| if let Effect::Assign { head, .. } = effect { Some(head.client) } else { None })
        .collect();
    assert_eq!(assigned, [VERSION, ClientId(0)]);
    assert_eq!(next.replica.ordered_version(), 2);
}

#[test]
fn groups_that_order_no_entries_of_their_own_have_version_1() {
    let mut leader = Process::of_two_groups(0);
    assert_eq!(leader.set_goal(5), (false, vec![]));
    assert_eq!(leader.replica.ordered_version(), 1);
}

#[test]
fn follower_needs_no_body_and_refuses_entries_with_another_name() {
    let mut follower = Process::of_versions(1);
    for wrong in [Head { sequence: 2, ..head(0) }, Head { groups: 2, ..head(0) }] {
        let refused = follower.assign(wrong, 1, 0, led_by(0), 51);
        assert!(matches!(refused, Err(Rejected::OtherMessage { client: 4, .. })), "{wrong:?}: {refused:?}");
    }
    let of_another = Head { client: ClientId(5), ..head(0) };
    assert_eq!(follower.assign(of_another, 1, 0, led_by(0), 51), Err(Rejected::Client(5)), "the other group's");
    assert!(!follower.waits(head(0), 1));
    let effects = follower.assign(head(0), 1, 0, led_by(0), 51).expect("the next entry");
    assert_eq!(delivered(&effects), [MessageId { client: VERSION, sequence: 1 }]);
    assert_eq!(follower.replica.ordered_version(), 2);
}

/// A state distinguishes version entries from time entries: each kind has its own window.
#[test]
fn time_entries_and_version_entries_do_not_share_slots() {
    let mut leader = Process::of_versions(0);
    assert!(leader.replica.order_time(5, &mut Recorder::default()).is_some());
    assert!(leader.set_goal(2).0);
    let times = Head { client: ClientId(2), ..head(0) };
    let first = leader.ack(1, times, 0, &[6]).expect("an acknowledgement");
    let second = leader.ack(1, head(0), 0, &[7]).expect("an acknowledgement");
    let ids = [first, second].map(|effects| delivered(&effects));
    assert_eq!(ids, [2, 4].map(|client| vec![MessageId { client: ClientId(client), sequence: 1 }]));
    let ballot = leader.campaign();
    let next = Ballot::new(ballot.number() + 1, ProcessId(2));
    let effects = leader.peer_message(2, &first_campaign(next, &[0; 3])).expect("a campaign");
    let assigned = effects.into_iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Promise { state, .. }, .. } => {
            Some(state.clients.iter().map(|client| client.entries.len() as u64 + client.from).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(assigned, Some(vec![0, 0, 1, 1]), "two clients, times, versions");
}

#[test]
fn a_group_that_is_reset_with_a_state_keeps_its_version() {
    let mut alone = Process::with_time_entries(&[1], 0, Mutant::None);
    assert!(alone.set_goal(3).0);
    alone.set_goal(0);
    alone.replica.reset(Incarnation::FIRST, false, &mut Recorder::default()).expect("an operator's word");
    assert_eq!(alone.replica.ordered_version(), 3);
    let (_, effects) = alone.set_goal(4);
    assert_eq!(delivered(&effects), [MessageId { client: ClientId(3), sequence: (1 << 56) + 3 }]);
}
