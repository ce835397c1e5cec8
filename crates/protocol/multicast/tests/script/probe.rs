//! A leader that learns of a larger ballot of its group campaigns above that ballot, if its group still follows the
//! leader.

use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, GroupId, Incarnation, PeerMessage, ReplicaConfig, Variant};

use super::process::{Effect, Process, first_campaign, led_by};

const FIVE: &[usize] = &[5, 1];

fn ballot(number: u64, leader: u16) -> Ballot {
    Ballot::new(number, ProcessId(leader))
}

/// Returns the probes that member 0 sends to the others of its group at a tick.
fn question() -> Vec<Effect> {
    let message = |to| Effect::PeerMessage { to, message: PeerMessage::Probe { ballot: led_by(0) } };
    (1..5).map(message).collect()
}

fn stands_by(leader: u16) -> PeerMessage {
    PeerMessage::Probe { ballot: led_by(leader) }
}

fn retry_ticks(process: &mut Process) -> Vec<Effect> {
    let effects = process.ticks(u32::from(ReplicaConfig::RETRY_TICKS));
    effects.into_iter().filter(|effect| !is_install(effect)).collect()
}

fn is_install(effect: &Effect) -> bool {
    matches!(effect, Effect::Begin(_) | Effect::PeerMessage { message: PeerMessage::Install { .. }, .. })
}

fn leader_that_knows(of: Ballot) -> Process {
    let mut leader = Process::new(FIVE, 0, Variant::V2);
    assert_eq!(retry_ticks(&mut leader), [], "no larger ballot is known");
    assert_eq!(
        leader.peer_message(
            5,
            &PeerMessage::Announce {
                group: GroupId(0),
                ballot: of,
                incarnation: Incarnation::FIRST,
                origin: Incarnation::FIRST
            }
        ),
        Ok(Vec::new())
    );
    leader
}

#[test]
fn leader_confirmed_by_a_majority_campaigns_above_the_larger_ballot() {
    let mut leader = leader_that_knows(ballot(7, 4));
    assert_eq!(retry_ticks(&mut leader), question());
    assert_eq!(leader.peer_message(1, &stands_by(0)), Ok(Vec::new()), "two of five");
    assert_eq!(leader.peer_message(1, &stands_by(0)), Ok(Vec::new()), "and the same again");
    let campaign = first_campaign(ballot(8, 0), &[0; 5]);
    let expected: Vec<Effect> = (1..5).map(|to| Effect::PeerMessage { to, message: campaign.clone() }).collect();
    assert_eq!(leader.peer_message(3, &stands_by(0)), Ok(expected));
    assert_eq!(leader.replica.promised(), ballot(8, 0));
}

#[test]
fn leader_without_a_confirming_majority_only_asks_again() {
    let mut leader = leader_that_knows(ballot(7, 4));
    for _ in 0..3 {
        assert_eq!(retry_ticks(&mut leader), question());
        assert_eq!(leader.peer_message(2, &stands_by(0)), Ok(Vec::new()));
    }
    // A member that followed the leader before may have promised the larger ballot since.
    leader
        .peer_message(2, &PeerMessage::Refuse { promised: ballot(9, 1), incarnation: Incarnation::FIRST })
        .expect("the process accepts the input");
    assert_eq!(retry_ticks(&mut leader), question());
    assert_eq!(leader.peer_message(3, &stands_by(0)), Ok(Vec::new()), "two of five");
    assert!(leader.replica.is_leader());
}

#[test]
fn member_confirms_its_ballot_unless_it_promised_a_larger_one_or_lost_its_memory() {
    let mut follower = Process::new(FIVE, 2, Variant::V2);
    let answer = vec![Effect::PeerMessage { to: 0, message: stands_by(0) }];
    assert_eq!(follower.peer_message(0, &stands_by(0)), Ok(answer));
    follower.peer_message(1, &first_campaign(ballot(2, 1), &[0; 5])).expect("the process accepts the input");
    assert_eq!(follower.peer_message(0, &stands_by(0)), Ok(Vec::new()));
    let mut forgetful = Process::joining(FIVE, 2);
    assert_eq!(forgetful.peer_message(0, &stands_by(0)), Ok(Vec::new()));
}

#[test]
fn announcement_of_a_smaller_ballot_than_is_known_is_answered() {
    let mut other = Process::new(FIVE, 5, Variant::V2);
    let announce = |number, leader| PeerMessage::Announce {
        group: GroupId(0),
        ballot: ballot(number, leader),
        incarnation: Incarnation::FIRST,
        origin: Incarnation::FIRST,
    };
    assert_eq!(other.peer_message(3, &announce(7, 3)), Ok(Vec::new()));
    let answer = vec![Effect::PeerMessage { to: 0, message: announce(7, 3) }];
    assert_eq!(other.peer_message(0, &announce(2, 0)), Ok(answer));
    assert_eq!(other.peer_message(0, &announce(8, 0)), Ok(Vec::new()));
}
