//! Hellos and clock messages carry wall clocks. A leader accepts no time of another group that is too far ahead of its
//! own time.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::NetworkModel;

use crate::bed::{Bed, limits};

const MS: u64 = 1_000_000;
const BOUND: Duration = Duration::from_millis(20);
/// Time in which a clock is sent again, and after which the wait for other clocks is over, in milliseconds.
const LONG_MS: u64 = 200;
/// True time at the beginning, in nanoseconds since 1970.
const BEGIN: u64 = 1_795_000_000_000_000_000;
const HOUR: u64 = 3_600_000 * MS;

fn bed(groups: &[usize]) -> Bed {
    let mut bed = Bed::new(groups, 1, limits(), NetworkModel::calm(), 1);
    bed.members.iter_mut().for_each(|member| member.set_clock_bound(BOUND));
    bed
}

/// Runs all members for `ms` milliseconds. The clocks of their hosts are ahead by `ahead` nanoseconds.
fn run(bed: &mut Bed, ms: u64, ahead: &[u64]) {
    for _ in 0..ms {
        let now = bed.world.now_ns();
        for (member, ahead) in bed.members.iter_mut().zip(ahead) {
            member.tell_wall_clock(Duration::from_nanos(now), BEGIN + now + ahead).expect("a sound clock");
        }
        bed.run(MS);
    }
}

/// Returns how far a leader's time is ahead of true time, in milliseconds.
fn ahead_ms(bed: &Bed, member: usize) -> i64 {
    let now = bed.world.now_ns();
    let time = bed.members[member].physical_clock().time(now).expect("the member leads");
    (time as i64 - (BEGIN + now) as i64 + MS as i64 / 2).div_euclid(MS as i64)
}

#[test]
fn clocks_are_sent_in_hellos_and_again_when_one_is_stepped() {
    let mut bed = bed(&[3, 1]);
    run(&mut bed, 20, &[0; 4]);
    assert!(bed.members.iter().all(|member| member.physical_clock().counted() == 4), "all have greeted");
    let is_right = |bed: &Bed, of: u16| {
        let others = (0..4).filter(|member| *member != usize::from(of));
        others.map(|member| bed.members[member].physical_clock().is_right(ProcessId(of))).collect::<Vec<_>>()
    };
    assert_eq!(is_right(&bed, 3), [true; 3]);
    run(&mut bed, 20, &[0, 0, 0, HOUR]);
    assert_eq!(is_right(&bed, 3), [false; 3], "within a few milliseconds");
    let clock = bed.members[3].physical_clock();
    assert!(clock.is_off());
    let away = clock.off().expect("four clocks are known") - HOUR as i64;
    assert!((0..MS as i64).contains(&away), "others look late by the time that a greeting takes: {away} ns");
    assert_eq!(ahead_ms(&bed, 3), 0, "it leads on, at the time that it has");
    let id = bed.submit(0, &[0, 1], b"both").expect("the client is connected to all destinations");
    run(&mut bed, 20, &[0, 0, 0, HOUR]);
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 1 && delivered[0].0 == id));
    assert_eq!(bed.rejected(), 0);
    run(&mut bed, 20, &[0; 4]);
    assert_eq!(is_right(&bed, 3), [true; 3], "within a bound after it was set right");
}

/// The group of the member with the wrong clock has assigned no wrong time yet, so it can adopt the median.
#[test]
fn group_that_gave_no_time_yet_adopts_the_median_of_the_clocks() {
    let mut bed = bed(&[1, 1]);
    bed.cut(0, 1, LONG_MS * MS);
    run(&mut bed, LONG_MS - 50, &[0, HOUR]);
    assert_eq!(ahead_ms(&bed, 1), 3_600_000);
    run(&mut bed, 70, &[0, HOUR]);
    assert_eq!(ahead_ms(&bed, 1), 0);
    let both = bed.submit(0, &[0, 1], b"both").expect("the client is connected to all destinations");
    run(&mut bed, 20, &[0, HOUR]);
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 1 && delivered[0].0 == both));
}

/// Two groups of one member connect late. Until then each knows only its own clock, and one of them has assigned a
/// time.
#[test]
fn group_that_is_an_hour_ahead_does_not_advance_the_other() {
    let mut bed = bed(&[1, 1]);
    bed.cut(0, 1, LONG_MS * MS);
    run(&mut bed, LONG_MS - 50, &[0, HOUR]);
    let alone = bed.submit(0, &[1], b"alone").expect("the client is connected to all destinations");
    run(&mut bed, 70, &[0, HOUR]);
    assert_eq!([0, 1].map(|member| ahead_ms(&bed, member)), [0, 3_600_000]);
    run(&mut bed, LONG_MS, &[0, HOUR]);
    let apart = |bed: &Bed, member: usize| {
        let apart = bed.members[member].physical_clock().apart();
        apart.map(|(process, ahead)| (process.0, (ahead + MS as i64 / 2) / MS as i64)).collect::<Vec<_>>()
    };
    for (member, other, ahead) in [(0, 1, 3_600_000_i64), (1, 0, -3_600_000)] {
        let apart = apart(&bed, member);
        let [(process, ms)] = apart[..] else { panic!("{member}: {apart:?}") };
        assert!(process == other && (ms - ahead).abs() <= 20, "{member}: {apart:?}");
    }
    let one = bed.submit(0, &[0], b"one").expect("the client is connected to all destinations");
    run(&mut bed, 20, &[0, HOUR]);
    let both = bed.submit(0, &[0, 1], b"both").expect("the client is connected to all destinations");
    run(&mut bed, LONG_MS, &[0, HOUR]);
    assert_eq!(bed.delivered[0].iter().map(|(id, _)| *id).collect::<Vec<_>>(), [one]);
    assert_eq!(bed.delivered[1].iter().map(|(id, _)| *id).collect::<Vec<_>>(), [alone]);
    assert!(bed.members[0].clock_counts().refused > 0);
    assert_eq!(bed.members[1].clock_counts().refused, 0, "nobody is ahead of it");
    assert_eq!(ahead_ms(&bed, 0), 0);
    // An operator raises the bound, so that both continue.
    bed.members.iter_mut().for_each(|member| member.set_clock_bound(2 * Duration::from_nanos(HOUR)));
    run(&mut bed, LONG_MS, &[0, 0]);
    for (member, delivered) in bed.delivered.iter().enumerate() {
        assert_eq!(delivered.last().map(|(id, _)| *id), Some(both), "member {member}");
    }
}

/// A member begins to lead in a step, reads the time of its next step, and is stopped for 10 ms. Then it answers a read
/// whose session has learned of a time that another group assigned meanwhile, so it orders a time entry. The group's
/// time is not ahead afterwards.
#[test]
fn time_entry_that_a_new_leader_orders_between_two_steps_does_not_advance_its_time() {
    let mut bed = Bed::with_time_entries(&[3], NetworkModel::calm(), 1);
    bed.members.iter_mut().for_each(|member| member.set_clock_bound(BOUND));
    run(&mut bed, 20, &[0; 3]);
    bed.members[1].campaign().expect("the member can campaign");
    while !bed.members[1].replica().is_leader() {
        bed.run(50);
    }
    let meanwhile = BEGIN + bed.world.now_ns() + 10 * MS;
    bed.order_time(1, meanwhile).expect("no other time entry is under way");
    assert!(bed.members[1].replica().clock() > meanwhile);
    bed.run(MS / 10);
    assert_eq!(ahead_ms(&bed, 1), 0);
    run(&mut bed, 20, &[0; 3]);
    assert_eq!(ahead_ms(&bed, 1), 0);
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 1), "all have delivered the entry");
}

/// A member is stopped, and begins to lead in the step in which it continues. That step has the time before the stop,
/// and learns which times the group has assigned meanwhile. The group's time is not ahead afterwards.
#[test]
fn member_that_begins_to_lead_in_a_step_that_is_late_is_not_ahead() {
    let mut bed = bed(&[3]);
    run(&mut bed, 20, &[0; 3]);
    bed.stands_still = Some((1, Duration::from_nanos(bed.world.now_ns())));
    for _ in 0..10 {
        bed.submit(0, &[0], b"meanwhile").expect("the client is connected to all destinations");
        bed.run(MS);
    }
    bed.members[1].campaign().expect("the member can campaign");
    bed.world.wake_at(ProcessId(1), bed.world.now_ns());
    bed.run(MS);
    assert!(bed.members[1].replica().is_leader());
    assert!(bed.members[1].replica().clock() > BEGIN + bed.world.now_ns() - 3 * MS, "it has recovered the last time");
    bed.stands_still = None;
    run(&mut bed, 2, &[0; 3]);
    assert_eq!(ahead_ms(&bed, 1), 0);
}
