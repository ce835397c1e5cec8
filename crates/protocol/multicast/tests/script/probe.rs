//! A leader is told of a larger ballot of its group than its own: it campaigns above it, if its group stands by it.

use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, GroupId, Incarnation, PeerMessage, ReplicaConfig, Variant};

use super::process::{Effect, Process, first_campaign, led_by};

const FIVE: &[usize] = &[5, 1];

fn ballot(number: u64, leader: u16) -> Ballot {
    Ballot::new(number, ProcessId(leader))
}

/// What member 0 asks the others of its group when time passes.
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

fn told(of: Ballot) -> Process {
    let mut leader = Process::new(FIVE, 0, Variant::V2);
    assert_eq!(retry_ticks(&mut leader), [], "nobody knows more");
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
fn a_leader_that_a_majority_stands_by_campaigns_above_what_it_was_told_of() {
    let mut leader = told(ballot(7, 4));
    assert_eq!(retry_ticks(&mut leader), question());
    assert_eq!(leader.peer_message(1, &stands_by(0)), Ok(Vec::new()), "two of five");
    assert_eq!(leader.peer_message(1, &stands_by(0)), Ok(Vec::new()), "and the same again");
    let campaign = first_campaign(ballot(8, 0), &[0; 5]);
    let expected: Vec<Effect> = (1..5).map(|to| Effect::PeerMessage { to, message: campaign.clone() }).collect();
    assert_eq!(leader.peer_message(3, &stands_by(0)), Ok(expected));
    assert_eq!(leader.replica.promised(), ballot(8, 0));
}

#[test]
fn a_leader_that_no_majority_stands_by_only_asks_again() {
    let mut leader = told(ballot(7, 4));
    for _ in 0..3 {
        assert_eq!(retry_ticks(&mut leader), question());
        assert_eq!(leader.peer_message(2, &stands_by(0)), Ok(Vec::new()));
    }
    // Who stood by it before it was told of this one may have promised it since.
    leader
        .peer_message(2, &PeerMessage::Refuse { promised: ballot(9, 1), incarnation: Incarnation::FIRST })
        .expect("sound");
    assert_eq!(retry_ticks(&mut leader), question());
    assert_eq!(leader.peer_message(3, &stands_by(0)), Ok(Vec::new()), "two of five");
    assert!(leader.replica.is_leader());
}

#[test]
fn who_stands_by_a_ballot_says_so_and_who_has_promised_a_larger_one_or_forgotten_does_not() {
    let mut follower = Process::new(FIVE, 2, Variant::V2);
    let answer = vec![Effect::PeerMessage { to: 0, message: stands_by(0) }];
    assert_eq!(follower.peer_message(0, &stands_by(0)), Ok(answer));
    follower.peer_message(1, &first_campaign(ballot(2, 1), &[0; 5])).expect("sound");
    assert_eq!(follower.peer_message(0, &stands_by(0)), Ok(Vec::new()));
    let mut forgetful = Process::joining(FIVE, 2);
    assert_eq!(forgetful.peer_message(0, &stands_by(0)), Ok(Vec::new()));
}

#[test]
fn who_announces_a_smaller_ballot_of_its_group_than_is_known_is_told_so() {
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
