//! Invalid configurations and beats.

use std::time::Duration;

use stentor_election::{Beat, BeatError, Change, Claim, Election, Heartbeat, HeartbeatConfig, HeartbeatError};
use stentor_fabric::ProcessId;

use crate::world::claim;

const P: [ProcessId; 3] = [ProcessId(0), ProcessId(1), ProcessId(2)];

fn config() -> HeartbeatConfig {
    HeartbeatConfig::new(P[0], &P, Duration::from_micros(10))
}

#[test]
fn bad_configurations_are_refused_by_name() {
    let refused = |change: fn(&mut HeartbeatConfig)| {
        let mut config = config();
        change(&mut config);
        Heartbeat::new(config).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(|c| c.members.clear()), HeartbeatError::Members { members: 0 });
    assert_eq!(refused(|c| c.members = (0..65).map(ProcessId).collect()), HeartbeatError::Members { members: 65 });
    assert_eq!(refused(|c| c.me = ProcessId(7)), HeartbeatError::NotAMember { process: ProcessId(7) });
    assert_eq!(refused(|c| c.members.push(P[1])), HeartbeatError::Twice { process: P[1] });
    assert_eq!(refused(|c| c.incarnation = 0), HeartbeatError::Incarnation);
    assert_eq!(refused(|c| c.interval = Duration::ZERO), HeartbeatError::Interval);
    let (min, interval) = (Duration::from_micros(39), Duration::from_micros(10));
    assert_eq!(refused(|c| c.timeout_min = Duration::from_micros(39)), HeartbeatError::TooShort { min, interval });
    for max in [Duration::from_micros(1), Duration::from_secs(3601)] {
        let mut config = config();
        config.timeout_max = max;
        let min = config.timeout_min;
        assert_eq!(Heartbeat::new(config).map(|_| ()), Err(HeartbeatError::Maximum { min, max }));
    }
    for quorum in [0, 4] {
        let mut config = config();
        config.quorum = Some(quorum);
        assert_eq!(Heartbeat::new(config).map(|_| ()), Err(HeartbeatError::Quorum { quorum, members: 3 }));
    }
}

#[test]
fn errors_contain_a_remedy() {
    let error = HeartbeatError::TooShort { min: Duration::from_micros(39), interval: Duration::from_micros(10) };
    assert_eq!(error.to_string(), "the shortest timeout, 39µs, must be at least 4 times the interval, 10µs");
}

#[test]
fn invalid_readings_are_refused_and_elect_no_leader() {
    let mut heartbeat = Heartbeat::new(config()).unwrap();
    let beat = Beat { incarnation: 1, counter: 1, claim: 0, doubt: 0, stands: 1, sees: 7 };
    for process in [P[0], ProcessId(9)] {
        assert_eq!(heartbeat.observe(process, &beat), Err(BeatError::NotAPeer { process }));
    }
    for word in [u64::MAX, 1, claim(5, 9), 3 << 16 | 1 << 18] {
        let claimed = Beat { claim: word, ..beat };
        assert_eq!(heartbeat.observe(P[1], &claimed), Err(BeatError::Claim { process: P[1], word }));
    }
    assert_eq!(heartbeat.poll(Duration::ZERO), Some(Change::Pending));
    assert_eq!(heartbeat.poll(Duration::from_micros(1)), None);
}

#[test]
fn exhausted_epochs_elect_no_leader_and_do_not_panic() {
    let mut heartbeat = Heartbeat::new(config()).unwrap();
    let last =
        Beat { incarnation: 1, counter: 1, claim: claim(Claim::EPOCH_LIMIT - 1, 1), doubt: 0, stands: 1, sees: 7 };
    heartbeat.observe(P[1], &last).unwrap();
    let mut changes = Vec::new();
    for step in 0..1000 {
        // p2 is alive and doubts the claim, too; p1 is silent.
        let doubting = Beat { counter: step, claim: 0, doubt: !last.claim, ..last };
        heartbeat.observe(P[2], &doubting).unwrap();
        changes.extend(heartbeat.poll(Duration::from_micros(10 * step)));
    }
    assert_eq!(changes, [Change::Leader { epoch: Claim::EPOCH_LIMIT - 1, process: P[1] }, Change::Pending]);
    heartbeat.witness(u64::MAX, P[2]);
    assert_eq!(heartbeat.poll(Duration::from_secs(1)), None);
}

#[test]
fn beats_survive_encoding() {
    let beat = Beat { incarnation: 1, counter: 2, claim: 3, doubt: 4, stands: 5, sees: 6 };
    assert_eq!(beat.to_words(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(Beat::from_words(beat.to_words()), beat);
    assert_eq!(Beat::BYTES, 48);
}
