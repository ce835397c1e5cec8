//! Tests of the scripted and the flapping election.

use std::collections::BTreeSet;
use std::time::Duration;

use stentor_election::{Audit, Change, Election, Flapping, HandOverError, Scripted};
use stentor_fabric::ProcessId;

const P: [ProcessId; 3] = [ProcessId(0), ProcessId(1), ProcessId(2)];

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn leader(epoch: u64, process: ProcessId) -> Change {
    Change::Leader { epoch, process }
}

#[test]
fn script_reports_each_change_at_its_time() {
    let mut script = Scripted::new([(ms(1), Change::Pending), (ms(1), leader(1, P[0])), (ms(5), leader(2, P[1]))]);
    let polled: Vec<_> = [0, 1, 1, 1, 4, 9].into_iter().map(|t| script.poll(ms(t))).collect();
    assert_eq!(polled, [None, Some(Change::Pending), Some(leader(1, P[0])), None, None, Some(leader(2, P[1]))]);
    script.witness(3, P[2]);
    script.witness(2, P[0]);
    assert_eq!(script.witnessed(), Some((3, P[2])));
    assert_eq!(script.hand_over(P[1]), Err(HandOverError::Unsupported));
}

/// Returns the streams of three processes, each polled ten times per millisecond for `milliseconds`.
fn streams(seed: u64, milliseconds: u64) -> Vec<Vec<Change>> {
    let stream = |me: ProcessId| {
        let mut flapping = Flapping::new(seed, me, &P, ms(1)).settling(ms(50), P[1]);
        let mut changes = Vec::new();
        for poll in 0..10 * milliseconds {
            if poll == 300 {
                flapping.witness(1000, P[2]);
            }
            changes.extend(std::iter::from_fn(|| flapping.poll(Duration::from_micros(100 * poll))));
        }
        changes
    };
    P.into_iter().map(stream).collect()
}

#[test]
fn flapping_election_keeps_the_rules_and_settles() {
    for seed in 0..200 {
        let streams = streams(seed, 60);
        for (me, stream) in P.into_iter().zip(&streams) {
            let mut audit = Audit::new(me);
            stream.iter().for_each(|change| audit.check(*change).unwrap());
            assert_eq!(audit.leader().map(|(_, leader)| leader), Some(P[1]));
            assert!(audit.leader().is_some_and(|(epoch, _)| epoch > 1000));
            assert!(stream.len() > 30, "a change about every millisecond: {}", stream.len());
        }
    }
}

#[test]
fn flapping_election_names_several_leaders_and_differs_by_seed() {
    let own_leaders = |seed| {
        let leads = |(me, stream): (ProcessId, &Vec<Change>)| {
            stream.iter().take(8).any(|change| matches!(change, Change::Leader { process, .. } if *process == me))
        };
        P.into_iter().zip(&streams(seed, 10)).filter(|pair| leads(*pair)).count()
    };
    assert!((0..20).filter(|seed| own_leaders(*seed) > 1).count() > 10);
    let different: BTreeSet<String> = (0..20).map(|seed| format!("{:?}", streams(seed, 10))).collect();
    assert_eq!(different.len(), 20);
    assert_eq!(streams(7, 10), streams(7, 10));
}
