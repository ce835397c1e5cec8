//! One process, input by input: its stream and what it publishes.

use std::time::Duration;

use stentor_election::{Beat, Change, Election, HandOverError, Heartbeat, HeartbeatConfig, Life};
use stentor_fabric::ProcessId;

use crate::world::claim;

const P: [ProcessId; 3] = [ProcessId(0), ProcessId(1), ProcessId(2)];

/// A process of three, with the others' memories.
struct One {
    heartbeat: Heartbeat,
    me: usize,
    now: Duration,
    beats: [Beat; 3],
}

impl One {
    fn new(me: usize) -> Self {
        let config = HeartbeatConfig::new(P[me], &P, Duration::from_micros(1));
        let beat = Beat { incarnation: 1, counter: 0, claim: 0, doubt: 0, stands: 1, sees: 7 };
        One { heartbeat: Heartbeat::new(config).unwrap(), me, now: Duration::ZERO, beats: [beat; 3] }
    }

    /// So many microseconds in which these others beat; all changes.
    fn run(&mut self, steps: u32, beating: &[usize]) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..steps {
            self.now += Duration::from_micros(1);
            for (n, beat) in self.beats.iter_mut().enumerate().filter(|(n, _)| *n != self.me) {
                beat.counter += u64::from(beating.contains(&n));
                self.heartbeat.observe(P[n], beat).unwrap();
            }
            changes.extend(std::iter::from_fn(|| self.heartbeat.poll(self.now)));
        }
        changes
    }
}

fn leader(epoch: u64, process: usize) -> Change {
    Change::Leader { epoch, process: P[process] }
}

#[test]
fn the_first_member_leads_once_it_has_heard_everybody() {
    let mut one = One::new(0);
    assert_eq!(one.run(1, &[1]), [Change::Pending]);
    assert_eq!(one.run(30, &[1]), []);
    assert_eq!(one.run(3, &[1, 2]), [leader(1, 0)]);
    assert_eq!(one.heartbeat.beat().claim, claim(1, 0));
}

#[test]
fn it_waits_for_the_longest_timeout_and_no_longer() {
    let mut one = One::new(0);
    assert_eq!(one.run(64, &[1]), [Change::Pending]);
    assert_eq!(one.run(3, &[1]), [leader(1, 0)]);
}

#[test]
fn a_larger_claim_deposes_a_leader_and_smaller_ones_do_not() {
    let mut one = One::new(0);
    one.run(20, &[1, 2]);
    one.beats[1].claim = claim(1, 0);
    assert_eq!(one.run(20, &[1, 2]), []);
    one.beats[2].claim = claim(1, 2);
    assert_eq!(one.run(20, &[1, 2]), [Change::Resigned { epoch: 1 }, leader(1, 2)]);
    one.beats[1].claim = claim(1, 1);
    assert_eq!(one.run(20, &[1, 2]), []);
}

#[test]
fn a_doubted_leader_is_replaced_by_the_first_that_lives() {
    let mut one = One::new(1);
    one.beats[0].claim = claim(4, 0);
    assert_eq!(one.run(20, &[0, 2]), [leader(4, 0)]);
    // It doubts alone: nothing happens.
    assert_eq!(one.run(50, &[2]), []);
    let doubt = one.heartbeat.beat().doubt;
    assert_eq!(doubt, !claim(4, 0));
    one.beats[2].doubt = doubt;
    assert_eq!(one.run(1, &[2]), [leader(5, 1)]);
    assert_eq!((one.heartbeat.beat().claim, one.heartbeat.beat().doubt), (claim(5, 1), 0));
}

#[test]
fn a_doubt_that_was_wrong_brings_back_the_same_reign() {
    let mut one = One::new(2);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 1]);
    one.beats[1].doubt = !claim(4, 0);
    assert_eq!(one.run(20, &[1]), [Change::Pending]);
    one.beats[1].doubt = 0;
    assert_eq!(one.run(10, &[0, 1]), [leader(4, 0)]);
}

#[test]
fn broken_connection_is_believed_at_once_and_after_a_mistake_with_a_little_silence() {
    let mut one = One::new(1);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 2]);
    let timeout = one.heartbeat.timeout(P[0]);
    one.heartbeat.unreachable(P[0]);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected));
    one.run(2, &[0, 2]);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected), "two beats are not yet trusted");
    one.run(1, &[0, 2]);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive));
    assert_eq!(one.heartbeat.timeout(P[0]), timeout, "no silence was misjudged");
    one.heartbeat.unreachable(P[0]);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive), "it was wrong a moment ago");
    one.run(20, &[0, 2]);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive), "it beats on");
    one.heartbeat.unreachable(P[0]);
    one.run(40, &[2]);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected));
}

#[test]
fn death_is_believed_whatever_was_wrong_before() {
    let mut one = One::new(1);
    one.run(20, &[0, 2]);
    for _ in 0..9 {
        // A hint that is wrong.
        one.heartbeat.unreachable(P[0]);
        one.run(3, &[0, 2]);
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive));
        one.heartbeat.died(P[0]);
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected));
        one.run(3, &[0, 2]);
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive));
    }
}

/// Nobody else has to doubt it. That it is told twice, or falsely and often, costs a change each time, and no more.
#[test]
fn a_leader_whose_death_is_told_is_replaced_at_once_by_the_first_that_stands() {
    let mut one = One::new(1);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 2]);
    one.heartbeat.died(P[0]);
    one.heartbeat.died(P[0]);
    assert_eq!(one.run(1, &[2]), [leader(5, 1)]);
    one.heartbeat.died(P[0]);
    assert_eq!(one.run(60, &[2]), [], "it leads no more");
    // The last in order leaves it to the other one, and follows it.
    let mut one = One::new(2);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 1]);
    one.heartbeat.died(P[0]);
    assert_eq!(one.run(2, &[1]), [Change::Pending]);
    one.beats[1].claim = claim(5, 1);
    assert_eq!(one.run(1, &[1]), [leader(5, 1)]);
}

#[test]
fn a_death_that_is_none_deposes_once_and_is_forgotten_after_three_beats() {
    let mut one = One::new(1);
    let mut epoch = 4;
    one.beats[0].claim = claim(epoch, 0);
    one.run(20, &[0, 2]);
    for _ in 0..9 {
        one.heartbeat.died(P[0]);
        assert_eq!(one.run(1, &[0, 2]).last(), Some(&leader(epoch + 1, 1)));
        one.run(5, &[0, 2]);
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive));
        // It leads again, for whatever reason, and is left alone.
        epoch += 2;
        one.beats[0].claim = claim(epoch, 0);
        assert_eq!(one.run(60, &[0, 2]).last(), Some(&leader(epoch, 0)));
    }
    // A silence that the others do not hear deposes it no more than if no death had been told.
    assert_eq!(one.run(60, &[2]), []);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected));
}

/// The next life has another incarnation, and has not died.
#[test]
fn who_died_and_came_back_is_not_dead() {
    let mut one = One::new(2);
    one.beats[1].claim = claim(4, 1);
    one.run(20, &[0, 1]);
    one.heartbeat.died(P[1]);
    (one.beats[1].incarnation, one.beats[1].counter) = (one.beats[1].incarnation + 1, 1);
    one.beats[1].claim = claim(6, 1);
    assert_eq!(one.run(20, &[0, 1]), [leader(6, 1)], "what it claims holds from its first beat on");
    assert_eq!(one.run(60, &[0, 1]), []);
}

#[test]
fn hand_over_is_refused_with_a_reason_or_done() {
    let mut one = One::new(0);
    assert_eq!(one.heartbeat.hand_over(P[1]), Err(HandOverError::NotLeader));
    one.run(70, &[1]);
    assert_eq!(one.heartbeat.hand_over(ProcessId(9)), Err(HandOverError::NotAMember { process: ProcessId(9) }));
    assert_eq!(one.heartbeat.hand_over(P[2]), Err(HandOverError::NotReady { process: P[2] }));
    one.beats[1].stands = 0;
    one.run(5, &[1]);
    assert_eq!(one.heartbeat.hand_over(P[1]), Err(HandOverError::NotReady { process: P[1] }));
    one.beats[1].stands = 1;
    one.run(5, &[1]);
    assert_eq!((one.heartbeat.hand_over(P[0]), one.run(5, &[1])), (Ok(()), vec![]));
    assert_eq!(one.heartbeat.hand_over(P[1]), Ok(()));
    assert_eq!(one.run(1, &[1]), [Change::Resigned { epoch: 1 }, Change::Pending]);
    one.beats[1].claim = claim(3, 1);
    assert_eq!(one.run(1, &[1]), [leader(3, 1)]);
}

#[test]
fn a_nominee_that_does_not_come_forward_is_passed_over() {
    let mut one = One::new(0);
    one.run(20, &[1, 2]);
    one.heartbeat.hand_over(P[2]).unwrap();
    assert_eq!(one.run(60, &[1, 2]).len(), 2);
    one.run(10, &[1, 2]);
    one.beats[1].doubt = one.heartbeat.beat().doubt;
    assert_ne!(one.beats[1].doubt, 0);
    assert_eq!(one.run(2, &[1, 2]), [leader(3, 0)]);
}

#[test]
fn a_leader_that_does_not_stand_is_replaced_unless_nobody_else_does() {
    let mut one = One::new(1);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 2]);
    (one.beats[0].stands, one.beats[2].stands) = (0, 0);
    one.heartbeat.stand(false);
    assert_eq!(one.run(20, &[0, 2]), []);
    one.heartbeat.stand(true);
    one.beats[2].doubt = !claim(4, 0);
    assert_eq!(one.run(2, &[0, 2]), [leader(5, 1)]);
}

#[test]
fn a_ballot_met_elsewhere_raises_the_epoch() {
    let mut one = One::new(0);
    one.heartbeat.witness(7, P[2]);
    assert_eq!(one.run(20, &[1, 2])[1..], [leader(8, 0)]);
    one.heartbeat.witness(7, P[1]);
    assert_eq!(one.run(20, &[1, 2]), []);
    one.heartbeat.witness(8, P[1]);
    assert_eq!(one.run(20, &[1, 2]), [leader(9, 0)]);
}

#[test]
fn clocks_that_jump_are_no_silence() {
    let mut one = One::new(1);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 2]);
    for to in [Duration::from_secs(1 << 40), Duration::from_secs(3), Duration::MAX, Duration::ZERO] {
        one.now = to.saturating_sub(Duration::from_micros(10));
        assert_eq!(one.run(10, &[0, 2]), [], "{to:?}");
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive));
    }
}

#[test]
fn a_reset_after_a_long_cut_deposes_nobody_whom_others_see() {
    let mut one = One::new(1);
    one.beats[0].claim = claim(4, 0);
    one.beats[2].claim = claim(4, 0);
    one.run(20, &[0, 2]);
    // Only this member does not see the leader.
    one.run(2000, &[2]);
    one.heartbeat.died(P[0]);
    let changes = one.run(3, &[2]);
    assert!(
        !changes.iter().any(|change| matches!(change, Change::Leader { process, .. } if *process == P[1])),
        "{changes:?}"
    );
}

#[test]
fn a_leader_that_dies_unheard_is_doubted_at_once() {
    let mut one = One::new(1);
    one.heartbeat.died(P[0]);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected));
}

#[test]
fn alone_in_its_group_a_process_leads_at_once() {
    let mut alone = Heartbeat::new(HeartbeatConfig::new(P[0], &P[..1], Duration::from_micros(1))).unwrap();
    assert_eq!(alone.poll(Duration::ZERO), Some(leader(1, 0)));
    assert_eq!(alone.poll(Duration::from_secs(9)), None);
}
