//! A group's clock follows the physical time of its leader, and never decreases.

use stentor_multicast::{
    Ballot, ClientState, Destination, END_OF_TIME, GroupId, Incarnation, Mutant, Origin, PeerMessage, Rejected, State,
    Variant,
};

use super::process::{BOTH, Effect, Process, first_word, head, led_by};

const BOUND: u64 = 100;

impl Process {
    fn physical(&mut self, physical: u64) {
        self.replica.set_physical(physical, BOUND).expect("a possible time");
    }

    /// Inputs a message to group 0 alone, from client 1. Returns its time.
    fn assigned(&mut self, sequence: u64) -> u64 {
        let effects = self.message(1, sequence, &[(0, sequence - 1)]).expect("a message");
        time_of(&effects).expect("the leader assigns the message")
    }
}

fn time_of(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| match effect {
        Effect::Assign { time, .. } => Some(*time),
        _ => None,
    })
}

#[test]
fn times_are_physical_where_the_clock_is_not_ahead_and_logical_elsewhere() {
    let mut leader = Process::new(&[1], 0, Variant::V2);
    assert_eq!(leader.assigned(1), 1, "there is no physical time");
    leader.physical(1_000);
    assert_eq!(leader.replica.clock(), 1, "without messages the clock does not advance");
    assert_eq!([2, 3].map(|sequence| leader.assigned(sequence)), [1_000, 1_001], "no time is assigned twice");
    leader.physical(1_001);
    assert_eq!(leader.assigned(4), 1_002);
    leader.physical(5_000);
    assert_eq!(leader.assigned(5), 5_000);
    leader.physical(4_000);
    assert_eq!(leader.assigned(6), 5_001, "a physical time that went back");
    leader.physical(0);
    assert_eq!(leader.assigned(7), 5_002);
}

#[test]
fn absurd_times_are_refused() {
    let mut leader = Process::new(&[1], 0, Variant::V2);
    for absurd in [END_OF_TIME, 1 << 63, u64::MAX] {
        assert_eq!(leader.replica.set_physical(absurd, BOUND), Err(Rejected::Time(absurd)));
    }
    assert_eq!(leader.assigned(1), 1);
    leader.replica.set_physical(END_OF_TIME - 1, u64::MAX).expect("the last one");
    assert_eq!([2, 3].map(|sequence| leader.assigned(sequence)), [END_OF_TIME - 1, END_OF_TIME]);
}

/// Two groups assign the same time. The pairs of time and group differ, and later messages have a later time.
#[test]
fn two_groups_may_assign_the_same_time() {
    let mut leader = Process::of_two_groups(0);
    leader.physical(1_000);
    assert_eq!(time_of(&leader.message(0, 1, BOTH).expect("the body")), Some(1_000));
    let vector = Effect::Vector { head: head(1, 0, 2), counter: 2, times: vec![1_000, 1_000] };
    assert_eq!(leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 1_000), Ok(vec![vector]));
    assert_eq!(leader.assigned(1), 1_001);
}

/// A message is assigned early and gets a late final time: another group is ahead within the bound. This group raises
/// its clock and does not wait.
#[test]
fn a_group_that_is_behind_raises_its_clock() {
    let mut leader = Process::of_two_groups(0);
    leader.physical(1_000);
    leader.message(0, 1, BOTH).expect("the body");
    let vector = Effect::Vector { head: head(1, 0, 2), counter: 2, times: vec![1_000, 1_000 + BOUND] };
    assert_eq!(leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 1_000 + BOUND), Ok(vec![vector]));
    assert_eq!(leader.assigned(1), 1_001 + BOUND);
    leader.physical(2_000);
    assert_eq!(leader.assigned(2), 2_000);
}

#[test]
fn a_time_beyond_the_bound_is_refused_until_the_clock_is_mended() {
    let mut leader = Process::of_two_groups(0);
    let far = 1_001 + BOUND;
    let say = |leader: &mut Process| leader.timestamp(3, head(1, 0, 2), 1, led_by(3), far);
    leader.physical(1_000);
    let refused = Err(Rejected::Clock { from: stentor_fabric::ProcessId(3), ahead: 1 });
    assert_eq!(say(&mut leader), refused, "whether its message is held or not");
    leader.message(0, 1, BOTH).expect("the body");
    assert_eq!((say(&mut leader), leader.replica.clock()), (refused, 1_000));
    leader.physical(1_001);
    let vector = Effect::Vector { head: head(1, 0, 2), counter: 2, times: vec![1_000, far] };
    assert_eq!(say(&mut leader), Ok(vec![vector]));
    // A logical clock cannot be compared with physical time, so no bound applies.
    let mut logical = Process::of_two_groups(0);
    logical.message(0, 1, BOTH).expect("the body");
    assert!(say(&mut logical).is_ok());
}

/// A process that is far ahead may still learn what was decided long ago.
#[test]
fn process_that_is_ahead_learns_a_decided_outcome() {
    let mut leader = Process::of_two_groups(0);
    leader.physical(1_000);
    leader.message(0, 1, BOTH).expect("the body");
    leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 1_001).expect("within the bound");
    for (from, position) in [(1, 0), (4, 1)] {
        leader.ack(from, head(1, 0, 2), position, &[1_000, 1_001]).expect("the process accepts the input");
    }
    let next = Ballot::new(2, stentor_fabric::ProcessId(4));
    let effects = leader.timestamp(4, head(1, 0, 2), 1, next, 9_000).expect("the leader answers the late time");
    let told = |effect: &Effect| matches!(effect, Effect::PeerMessage { to: 4, message: PeerMessage::Decided { .. } });
    assert!(effects.iter().any(told), "{effects:?}");
    assert!(leader.replica.clock() < 9_000);
}

/// Member 1 of three becomes the leader. The old leader assigned 5000, member 2 knows of 7000, and the physical time of
/// member 1 is 4000. Returns the first time that member 1 assigns.
fn first_time_of_a_new_leader(mutant: Mutant) -> u64 {
    let mut member = Process::planted(&[3], 1, mutant);
    member.message(0, 1, &[(0, 0)]).expect("the body");
    member.assign(head(1, 0, 1), 1, 0, led_by(0), 5_000).expect("the next entry");
    member.physical(4_000);
    let ballot = member.campaign();
    let state = State {
        synced: led_by(0),
        counter: 0,
        clock: 7_000,
        delivered: 0,
        incarnation: Incarnation::FIRST,
        origins: vec![Origin { incarnation: Incarnation::FIRST, kept: 0 }],
        known: vec![led_by(0)],
        incarnations: vec![Incarnation::FIRST],
        words: vec![first_word()],
        lives: vec![0; 3],
        clients: vec![ClientState::default(); 2],
    };
    let effects =
        member.peer_message(2, &PeerMessage::Promise { ballot, state }).expect("the process accepts the input");
    let repeated = effects.iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Install { state, .. }, .. } => Some(&state.clients[0].entries[0]),
        _ => None,
    });
    let repeated = repeated.expect("the candidate sends its state");
    assert_eq!(repeated.destinations, [Destination { group: GroupId(0), slot: 0 }]);
    assert_eq!(repeated.times, [5_000], "an entry that is repeated keeps its time");
    member.peer_message(2, &PeerMessage::Installed { ballot }).expect("the process accepts the input");
    assert!(member.replica.is_leader());
    member.assigned(1)
}

#[test]
fn new_leader_continues_from_the_recovered_clock() {
    assert_eq!(first_time_of_a_new_leader(Mutant::None), 7_001);
}

#[cfg(feature = "plants")]
#[test]
fn mutants_of_clocks_are_found() {
    assert_eq!(first_time_of_a_new_leader(Mutant::ClockSetBack), 4_001, "below 5000, which may be delivered");
    assert_eq!(first_time_of_a_new_leader(Mutant::PhysicalAlone), 4_000);
    let mut leader = Process::planted(super::process::TWO_GROUPS, 0, Mutant::FarTimesTaken);
    leader.physical(1_000);
    leader.message(0, 1, BOTH).expect("the body");
    leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 1 << 60).expect("the leader accepts the time");
    assert_eq!(leader.replica.clock(), 1 << 60);
}

/// A message that names a time gets a later one, even if the group's own clock is behind.
#[test]
fn a_message_gets_a_time_after_the_one_that_its_client_names() {
    let mut leader = Process::new(&[1], 0, Variant::V2);
    assert_eq!(time_of(&leader.message_after(1, 1, &[(0, 0)], 50).expect("a message")), Some(51));
    assert_eq!(time_of(&leader.message_after(1, 2, &[(0, 1)], 7).expect("a message")), Some(52));
    leader.physical(1_000);
    assert_eq!(time_of(&leader.message_after(1, 3, &[(0, 2)], 1_000 + BOUND).expect("a message")), Some(1_001 + BOUND));
}

#[test]
fn message_after_a_time_beyond_the_bound_waits_for_the_leaders_clock() {
    let mut leader = Process::new(&[1], 0, Variant::V2);
    leader.physical(1_000);
    let far = 1_001 + BOUND;
    assert_eq!(time_of(&leader.message_after(1, 1, &[(0, 0)], far).expect("a message")), None);
    assert_eq!(
        time_of(&leader.message(1, 2, &[(0, 1)]).expect("a message")),
        None,
        "a client's messages keep their order"
    );
    assert_eq!(time_of(&leader.tick().expect("the tick is accepted")), None);
    leader.physical(1_001);
    let effects = leader.tick().expect("the tick is accepted");
    let times: Vec<_> = effects.iter().filter_map(|effect| time_of(std::slice::from_ref(effect))).collect();
    assert_eq!(times, [far + 1, far + 2]);
}
