//! Tests of the invariants of the physical clock under steps, delays and losses of wall clocks.

use std::time::Duration;

use proptest::prelude::*;
use stentor_fabric::ProcessId;

use super::{ClockError, END_OF_TIME, PhysicalClock, SLEW_PPM};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// A day in 2026.
const NOW: u64 = 1_795_000_000 * S;
const YEAR: u64 = 365 * 86_400 * S;
const BOUND: u64 = S;

/// Returns the clock of process 0 in a cluster of `members`, whose own wall clock is `ahead` of true time.
fn clock(members: usize, ahead: i64) -> PhysicalClock {
    let mut clock = PhysicalClock::new(Duration::from_nanos(BOUND), members);
    clock.tell(0, NOW.saturating_add_signed(ahead)).expect("a sound clock");
    clock.pass(1);
    clock
}

/// Lets the clock receive the clocks of other processes at `now`, each this far ahead of true time, and lets time pass.
fn hear(clock: &mut PhysicalClock, now: u64, others: &[i64]) {
    for (process, ahead) in (1..).map(ProcessId).zip(others) {
        clock.hear(process, (NOW + now).saturating_add_signed(*ahead), None).expect("a sound clock");
    }
    clock.pass(now);
}

fn seconds(seconds: i64) -> i64 {
    seconds * S as i64
}

/// Returns how far a clock's time is ahead of true time.
fn ahead(clock: &PhysicalClock, now: u64) -> i64 {
    clock.time(now).expect("the physical time runs") as i64 - (NOW + now) as i64
}

#[test]
fn a_host_a_year_ahead_adopts_the_median_and_detects_that_it_is_off() {
    let mut clock = clock(3, YEAR as i64);
    hear(&mut clock, 2, &[0, 5]);
    clock.follow(7, true);
    assert_eq!((ahead(&clock, 2), clock.is_off(), clock.off()), (5, true, Some(YEAR as i64 - 5)));
    assert!(clock.is_right(ProcessId(1)) && clock.is_right(ProcessId(2)) && !clock.is_right(ProcessId(3)));
}

#[test]
fn the_earlier_of_two_clocks_counts_and_neither_is_judged() {
    let mut clock = clock(2, YEAR as i64);
    hear(&mut clock, 2, &[0]);
    clock.follow(7, true);
    assert_eq!((ahead(&clock, 2), clock.is_off(), clock.off()), (0, false, None));
}

#[test]
fn a_process_that_receives_too_few_clocks_waits_and_runs_alone() {
    let mut clock = clock(3, 9);
    clock.follow(7, true);
    assert_eq!(clock.time(1), None);
    clock.pass(1 + 4 * BOUND - 1);
    clock.follow(7, true);
    assert_eq!(clock.time(4 * BOUND), None);
    clock.pass(1 + 4 * BOUND);
    clock.follow(7, true);
    assert_eq!(ahead(&clock, 1 + 4 * BOUND), 9);
    // The only member of a cluster waits for no other clock.
    let mut alone = self::clock(1, 9);
    alone.follow(7, true);
    assert_eq!(ahead(&alone, 1), 9);
}

/// The first process of a group uses its own clock because it has received no other one. Once it receives others, it
/// adopts the median, unless its group has assigned times of that run.
#[test]
fn the_first_process_adopts_the_median_unless_times_were_assigned() {
    for given in [7, NOW + YEAR + 5 * S] {
        let mut clock = clock(3, YEAR as i64);
        clock.follow(7, true);
        clock.pass(5 * S);
        clock.follow(7, false);
        assert_eq!(ahead(&clock, 5 * S), YEAR as i64);
        // The other clocks arrive, and the process has run for a while without a pause.
        for tenth in 1..=6 {
            hear(&mut clock, 5 * S + tenth * 100 * MS, &[0, 0]);
        }
        clock.follow(given, false);
        let late = 5 * S + 600 * MS;
        let expected = if given == 7 { 0 } else { YEAR as i64 };
        assert!((ahead(&clock, late) - expected).abs() < MS as i64, "{given}: {}", ahead(&clock, late));
    }
}

#[test]
fn time_begins_at_the_recovered_time_if_that_is_later_and_is_slewed_towards_the_median() {
    let mut clock = clock(3, 0);
    hear(&mut clock, 2, &[0, 0]);
    clock.follow(NOW + 500 * MS, true);
    assert_eq!(ahead(&clock, 2), 500 * MS as i64 - 2);
    let before = ahead(&clock, 2);
    let mut now = 2;
    // At 500 ppm, 500 ms take 1000 s; the rate falls towards the end.
    for _ in 0..12_000 {
        now += 100 * MS;
        hear(&mut clock, now, &[0, 0]);
        let away = ahead(&clock, now);
        assert!((0..=before).contains(&away), "{away} after {now} ns");
    }
    assert!(ahead(&clock, now) < 5 * MS as i64, "{} ns", ahead(&clock, now));
}

#[test]
fn a_step_of_a_wall_clock_does_not_step_the_time() {
    let mut clock = clock(3, 0);
    hear(&mut clock, 2, &[0, 0]);
    clock.follow(0, true);
    for (at, step) in [(10, 3600), (20, -3600), (30, 86_400)] {
        assert_eq!(clock.tell(at * MS, (NOW + at * MS).saturating_add_signed(seconds(step))), Ok(true));
        clock.pass(at * MS);
        assert_eq!((ahead(&clock, at * MS), clock.is_off()), (0, true));
    }
    // The time is not stepped even if the clocks of all members are stepped.
    hear(&mut clock, 40 * MS, &[seconds(86_400); 2]);
    assert_eq!(ahead(&clock, 40 * MS), 0);
    assert!(!clock.is_off(), "they agree");
    assert_eq!(clock.ahead(), Some(-seconds(86_400)), "the physical time is not stepped");
    let gain = SLEW_PPM * (60 * MS as i64) / 1_000_000;
    assert!((0..=gain).contains(&ahead(&clock, 100 * MS)));
}

#[test]
fn clocks_received_around_a_pause_do_not_count() {
    let mut clock = clock(3, 0);
    hear(&mut clock, MS, &[0, 0]);
    // The process pauses for 30 s, and processes the clocks that arrived meanwhile before it reads a clock.
    for process in 1..=2 {
        clock.hear(ProcessId(process), NOW + 5 * S, None).expect("a sound clock");
    }
    clock.pass(30 * S);
    hear(&mut clock, 30 * S + MS, &[-seconds(20), -seconds(25)]);
    assert_eq!(clock.off(), Some(0));
    hear(&mut clock, 31 * S, &[7, 7]);
    assert_eq!(clock.off(), Some(0), "a pause of a second");
    for tenth in 1..=6 {
        hear(&mut clock, 31 * S + 100 * tenth * MS, &[7, 7]);
    }
    assert_eq!(clock.off(), Some(-7));
}

#[test]
fn a_clock_that_is_no_longer_received_does_not_count() {
    let mut clock = clock(3, 0);
    hear(&mut clock, 2, &[seconds(9), seconds(9)]);
    assert_eq!((clock.counted(), clock.is_off()), (3, true));
    for tenth in 1..400 {
        clock.pass(2 + 100 * tenth * MS);
    }
    assert_eq!((clock.counted(), clock.off(), clock.is_right(ProcessId(1))), (1, None, false));
}

#[test]
fn one_delayed_reading_marks_no_clock_as_off() {
    let mut clock = clock(3, 0);
    hear(&mut clock, 2, &[0, 0]);
    hear(&mut clock, 100 * MS, &[-seconds(8), -seconds(8)]);
    assert_eq!(clock.off(), Some(0));
    hear(&mut clock, 200 * MS, &[-seconds(8), -seconds(8)]);
    assert!(clock.is_off(), "two readings in a row are not explained by a delay");
}

#[test]
fn leaders_whose_times_differ_by_more_than_the_bound_both_detect_it() {
    let mut clocks = [clock(2, 0), clock(2, 0)];
    let times = [0, 2 * BOUND];
    for (clock, time) in clocks.iter_mut().zip(times) {
        hear(clock, 2, &[0]);
        clock.follow(NOW + time, true);
    }
    for (at, other, apart) in [(0, 1, 2 * BOUND as i64 - 2), (1, 0, 2 - 2 * BOUND as i64)] {
        let group = clocks[other].time(3);
        clocks[at].hear(ProcessId(other as u16), NOW, group).expect("a sound clock");
        clocks[at].pass(3);
        assert_eq!(clocks[at].apart().collect::<Vec<_>>(), [(ProcessId(other as u16), apart)]);
    }
}

#[test]
fn absurd_clocks_are_refused() {
    let mut clock = clock(3, 0);
    for absurd in [0, END_OF_TIME, u64::MAX] {
        assert_eq!(clock.hear(ProcessId(1), absurd, None), Err(ClockError::Absurd(absurd)));
        assert_eq!(clock.hear(ProcessId(1), NOW, Some(absurd)), Err(ClockError::Absurd(absurd)));
        assert_eq!(clock.tell(2, absurd), Err(ClockError::Absurd(absurd)));
        assert_eq!(clock.wall(2), 0);
    }
    clock.tell(2, END_OF_TIME - 1).expect("the last valid time");
    clock.pass(3);
    clock.follow(0, true);
    assert_eq!(clock.time(10 * BOUND), None, "time has run out");
    clock.pass(5 * BOUND);
    clock.follow(END_OF_TIME, true);
    assert_eq!(clock.time(5 * BOUND), None, "the clock is logical from here on");
}

#[test]
fn a_host_without_a_sound_clock_follows_the_others_and_is_off() {
    let mut clock = PhysicalClock::new(Duration::from_nanos(BOUND), 5);
    assert!(!clock.is_told());
    clock.tell(0, 0).expect_err("the beginning of 1970");
    hear(&mut clock, 2, &[0, 3, 9]);
    clock.follow(0, true);
    assert_eq!((ahead(&clock, 2), clock.is_off(), clock.off()), (3, true, None));
}

/// An input of a clock.
#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Step(i64),
    Hear(u16, i64),
    /// The group assigns times. `Some(ahead)`: this process begins to lead and recovers a clock that is ahead by that
    /// much.
    Lead(Option<u64>),
    Resign,
}

fn event() -> impl Strategy<Value = Event> {
    let away = prop_oneof![-100 * MS as i64..100 * MS as i64, -10 * BOUND as i64..10 * BOUND as i64];
    prop_oneof![
        6 => prop_oneof![1..1000_u64, 1..10 * MS, 1..3 * BOUND].prop_map(Event::Pass),
        1 => away.clone().prop_map(Event::Step),
        4 => (1..5_u16, away).prop_map(|(process, ahead)| Event::Hear(process, ahead)),
        4 => Just(Event::Lead(None)),
        1 => (0..10 * BOUND).prop_map(|more| Event::Lead(Some(more))),
        1 => Just(Event::Resign),
    ]
}

proptest! {
    /// Checks invariants 1 to 3, and that the time stays between the earliest and the latest clock of the run.
    #[test]
    fn time_never_goes_back_and_never_jumps(events in prop::collection::vec(event(), 1..200)) {
        let mut clock = clock(5, 0);
        let (mut now, mut step) = (1, 0);
        let (mut earliest, mut latest, mut given) = (0, 0, 0);
        for event in events {
            let before = clock.time(now);
            match event {
                Event::Pass(passed) => {
                    now += passed;
                    let at = clock.time(now);
                    clock.tell(now, (NOW + now).saturating_add_signed(step)).expect("a sound clock");
                    clock.pass(now);
                    prop_assert_eq!(clock.time(now), at, "computing the median changes the rate, not the time");
                    if let (Some(before), Some(at)) = (before, at) {
                        prop_assert!(at >= before);
                        let gain = (at - before) as i64 - passed as i64;
                        prop_assert!(gain.abs() <= passed as i64 * SLEW_PPM / 1_000_000 + 1, "{} in {}", gain, passed);
                    }
                }
                Event::Step(ahead) => step = ahead,
                Event::Hear(process, ahead) => {
                    // The reading is dated when time passes, up to three bounds later.
                    (earliest, latest) = (earliest.min(ahead - 3 * BOUND as i64), latest.max(ahead));
                    clock.hear(ProcessId(process), (NOW + now).saturating_add_signed(ahead), None).expect("a sound clock");
                }
                Event::Lead(recovers) => {
                    given = given.max(before.unwrap_or(0));
                    if let Some(more) = recovers {
                        given = given.max(NOW + now) + more;
                        latest = latest.max((given - NOW - now) as i64);
                    }
                    clock.follow(given, recovers.is_some());
                    prop_assert!(clock.time(now) >= before);
                    prop_assert!(recovers.is_none() || clock.time(now).is_none_or(|time| time >= given));
                }
                Event::Resign => {
                    given = given.max(before.unwrap_or(0));
                    latest = latest.max(given.saturating_sub(NOW + now) as i64);
                    clock.stop();
                }
            }
            (earliest, latest) = (earliest.min(step), latest.max(step));
            if let Some(time) = clock.time(now) {
                let ahead = time as i64 - (NOW + now) as i64;
                prop_assert!((earliest - 1..=latest + 1).contains(&ahead), "{} not in {}..{}", ahead, earliest, latest);
            }
        }
    }
}

/// A long step receives clocks at its end, and the process may begin to lead in it.
#[test]
fn clocks_received_in_a_step_are_dated_with_a_later_step() {
    let mut clock = PhysicalClock::new(Duration::from_secs(1), 3);
    clock.tell(S, NOW + S).expect("the clock accepts the reading");
    clock.pass(S);
    // The other processes send their clocks 300 ms into the step.
    for process in [1, 2] {
        clock.hear(ProcessId(process), NOW + S + 300 * MS, None).expect("the clock accepts the reading");
    }
    clock.pass(S);
    assert_eq!(clock.counted(), 1, "in the same step they are not known yet");
    clock.pass(S + 310 * MS);
    assert_eq!(clock.counted(), 3);
    clock.follow(0, true);
    let time = clock.time(S + 310 * MS).expect("three clocks are known");
    assert!(time <= NOW + S + 310 * MS, "{time}");
}

/// A stopped process resumes. Within one step it learns that it leads, and which time its group has assigned meanwhile.
#[test]
fn a_time_that_is_recovered_within_a_step_counts_from_a_later_one() {
    let mut clock = PhysicalClock::new(Duration::from_secs(1), 1);
    clock.tell(S, NOW + S).expect("the clock accepts the reading");
    clock.pass(S);
    // The process can start to lead at any moment.
    clock.follow(0, true);
    assert_eq!(clock.time(S), Some(NOW + S));
    let given = NOW + S + 770 * MS;
    clock.pass(S);
    clock.follow(given, true);
    assert_eq!(clock.time(S), Some(NOW + S), "the group's times are logical until time has passed");
    let now = S + 780 * MS;
    clock.pass(now);
    clock.follow(given, false);
    assert_eq!(clock.time(now), Some(NOW + now), "it is not ahead");
    // A recovered time that is ahead is adopted nevertheless, one step later.
    clock.pass(now);
    clock.follow(given + S, true);
    clock.pass(now + MS);
    clock.follow(given + S, false);
    assert_eq!(clock.time(now + MS), Some(given + S));
}

/// A process begins to lead within a step, reads the time of the next step, and is stopped. Then it orders a time entry,
/// for a read whose session has learned of a time that another group assigned meanwhile.
#[test]
fn a_time_to_which_the_clock_was_raised_between_two_steps_is_not_adopted() {
    let mut clock = PhysicalClock::new(Duration::from_secs(1), 1);
    clock.tell(S, NOW + S).expect("the clock accepts the reading");
    clock.pass(S);
    clock.follow(0, true);
    clock.pass(S);
    clock.follow(NOW + S, true);
    clock.note_raise(NOW + S);
    let given = NOW + S + 770 * MS;
    clock.pass(S + MS);
    clock.follow(given, false);
    assert_eq!(clock.time(S + MS), Some(NOW + S + MS), "it is not ahead");
    // The clock before the raise is recovered, and later the whole clock.
    clock.pass(S + MS);
    clock.follow(given, true);
    clock.note_raise(given);
    clock.note_raise(given + S);
    clock.pass(S + 2 * MS);
    clock.follow(given + 2 * S, false);
    assert_eq!(clock.time(S + 2 * MS), Some(given));
    clock.pass(S + 3 * MS);
    clock.follow(given + 2 * S, true);
    assert_eq!(clock.time(S + 3 * MS), Some(given + 2 * S));
}
