//! One process with scripted inputs: its stream of changes and its beats.

use std::time::Duration;

use stentor_election::{Beat, Change, Election, HandOverError, Heartbeat, HeartbeatConfig, Life};
use stentor_fabric::ProcessId;

use crate::world::claim;

const P: [ProcessId; 3] = [ProcessId(0), ProcessId(1), ProcessId(2)];

/// One of three processes, and the memories of the others.
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

    /// Runs for `steps` microseconds in which the processes `beating` beat. Returns all changes.
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
fn first_member_leads_once_it_has_read_all_others() {
    let mut one = One::new(0);
    assert_eq!(one.run(1, &[1]), [Change::Pending]);
    assert_eq!(one.run(30, &[1]), []);
    assert_eq!(one.run(3, &[1, 2]), [leader(1, 0)]);
    assert_eq!(one.heartbeat.beat().claim, claim(1, 0));
}

#[test]
fn first_member_waits_for_one_longest_timeout() {
    let mut one = One::new(0);
    assert_eq!(one.run(64, &[1]), [Change::Pending]);
    assert_eq!(one.run(3, &[1]), [leader(1, 0)]);
    assert_eq!([1, 2].map(|n| one.heartbeat.stands(P[n])), [true, false], "the other member was never seen to beat");
}

#[test]
fn larger_claim_deposes_a_leader_and_smaller_ones_do_not() {
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
fn doubted_leader_is_replaced_by_first_live_member() {
    let mut one = One::new(1);
    one.beats[0].claim = claim(4, 0);
    assert_eq!(one.run(20, &[0, 2]), [leader(4, 0)]);
    // This process doubts alone, so nothing changes.
    assert_eq!(one.run(50, &[2]), []);
    let doubt = one.heartbeat.beat().doubt;
    assert_eq!(doubt, !claim(4, 0));
    one.beats[2].doubt = doubt;
    assert_eq!(one.run(1, &[2]), [leader(5, 1)]);
    assert_eq!((one.heartbeat.beat().claim, one.heartbeat.beat().doubt), (claim(5, 1), 0));
}

#[test]
fn withdrawn_doubt_restores_the_same_reign() {
    let mut one = One::new(2);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 1]);
    one.beats[1].doubt = !claim(4, 0);
    assert_eq!(one.run(20, &[1]), [Change::Pending]);
    one.beats[1].doubt = 0;
    assert_eq!(one.run(10, &[0, 1]), [leader(4, 0)]);
}

#[test]
fn broken_connection_needs_confirmation_after_a_wrong_report() {
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
fn death_is_believed_after_wrong_reports() {
    let mut one = One::new(1);
    one.run(20, &[0, 2]);
    for _ in 0..9 {
        // A wrong report of a broken connection.
        one.heartbeat.unreachable(P[0]);
        one.run(3, &[0, 2]);
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive));
        one.heartbeat.died(P[0]);
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected));
        one.run(3, &[0, 2]);
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive));
    }
}

/// No other member has to doubt the leader. A repeated report causes no further change.
#[test]
fn leader_reported_dead_is_replaced_at_once() {
    let mut one = One::new(1);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 2]);
    one.heartbeat.died(P[0]);
    one.heartbeat.died(P[0]);
    assert_eq!(one.run(1, &[2]), [leader(5, 1)]);
    one.heartbeat.died(P[0]);
    assert_eq!(one.run(60, &[2]), [], "the process that died no longer leads");
    // Process 2 comes after process 1 in the order of successors, so it does not claim leadership. It follows process
    // 1.
    let mut one = One::new(2);
    one.beats[0].claim = claim(4, 0);
    one.run(20, &[0, 1]);
    one.heartbeat.died(P[0]);
    assert_eq!(one.run(2, &[1]), [Change::Pending]);
    one.beats[1].claim = claim(5, 1);
    assert_eq!(one.run(1, &[1]), [leader(5, 1)]);
}

#[test]
fn false_death_deposes_once_and_is_forgotten_after_three_beats() {
    let mut one = One::new(1);
    let mut epoch = 4;
    one.beats[0].claim = claim(epoch, 0);
    one.run(20, &[0, 2]);
    for _ in 0..9 {
        one.heartbeat.died(P[0]);
        assert_eq!(one.run(1, &[0, 2]).last(), Some(&leader(epoch + 1, 1)));
        one.run(5, &[0, 2]);
        assert_eq!(one.heartbeat.life(P[0]), Some(Life::Alive));
        // Process 0 leads again, and no member deposes it.
        epoch += 2;
        one.beats[0].claim = claim(epoch, 0);
        assert_eq!(one.run(60, &[0, 2]).last(), Some(&leader(epoch, 0)));
    }
    // No other member confirms the silence that follows, so process 0 stays leader, as it would without the reports of
    // its death.
    assert_eq!(one.run(60, &[2]), []);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected));
}

/// A report of the death of a process does not apply to its next life, which has a larger number.
#[test]
fn restarted_process_is_not_dead() {
    let mut one = One::new(2);
    one.beats[1].claim = claim(4, 1);
    one.run(20, &[0, 1]);
    one.heartbeat.died(P[1]);
    (one.beats[1].incarnation, one.beats[1].counter) = (one.beats[1].incarnation + 1, 1);
    one.beats[1].claim = claim(6, 1);
    assert_eq!(one.run(20, &[0, 1]), [leader(6, 1)], "its claim is valid from its first beat on");
    assert_eq!(one.run(60, &[0, 1]), []);
}

#[test]
fn hand_over_succeeds_or_is_refused_with_a_reason() {
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
fn nominee_that_does_not_claim_leadership_is_skipped() {
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
fn unwilling_leader_is_replaced_if_another_is_willing() {
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
fn witnessed_ballot_raises_the_epoch() {
    let mut one = One::new(0);
    one.heartbeat.witness(7, P[2]);
    assert_eq!(one.run(20, &[1, 2])[1..], [leader(8, 0)]);
    one.heartbeat.witness(7, P[1]);
    assert_eq!(one.run(20, &[1, 2]), []);
    one.heartbeat.witness(8, P[1]);
    assert_eq!(one.run(20, &[1, 2]), [leader(9, 0)]);
}

#[test]
fn clock_jumps_do_not_count_as_silence() {
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
fn reset_after_a_long_cut_does_not_depose_a_live_leader() {
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
fn unread_process_reported_dead_is_suspected_at_once() {
    let mut one = One::new(1);
    one.heartbeat.died(P[0]);
    assert_eq!(one.heartbeat.life(P[0]), Some(Life::Suspected));
}

#[test]
fn single_member_leads_at_once() {
    let mut alone = Heartbeat::new(HeartbeatConfig::new(P[0], &P[..1], Duration::from_micros(1))).unwrap();
    assert_eq!(alone.poll(Duration::ZERO), Some(leader(1, 0)));
    assert_eq!(alone.poll(Duration::from_secs(9)), None);
}
