//! Scripts of widenings: with other commands pending, and with processes or groups that do not know of the widening.

use stentor_multicast::GroupId;
use stentor_session::{CallerError, Mutant, Outcome};

use crate::script::{CONFIG, SESSION, applied, deliver, opened, outcome, pass, refusal, settle};
use crate::world::TTL;
/// The session is ended while it is unknown whether its widening takes effect. The end is ordered after the widening,
/// in all its groups.
#[test]
fn session_ends_after_its_widening() {
    let mut world = opened(Mutant::None, &[0]);
    let (pairs, until) = (world.pairs(&[1]), world.now() + TTL);
    world.processes[0].caller.widen(60, &pairs, until).expect("the session is open");
    assert_eq!(world.processes[0].caller.widen(61, &pairs, until), Err(CallerError::UnderWay));
    world.send_control(0);
    world.processes[0].caller.end(62).expect("only its widening is under way");
    assert_eq!(world.processes[0].caller.end(63), Err(CallerError::NotOpen));
    world.send_control(0);
    settle(&mut world);
    assert_eq!([0, 1].map(|group: usize| world.groups[group].sessions.end_of(SESSION)), [None; 2]);
    assert_eq!(world.processes[0].caller.message(), None, "all groups have answered");
}

#[test]
fn unsent_widening_can_be_taken_back() {
    let mut world = opened(Mutant::None, &[0]);
    let (pairs, until) = (world.pairs(&[1]), world.now() + TTL);
    let key = world.processes[0].caller.key();
    world.processes[0].caller.widen(60, &pairs, until).expect("the session is open");
    assert!(world.processes[0].caller.take_back());
    assert_eq!(world.processes[0].caller.message(), None);
    assert_eq!(world.processes[0].caller.key(), key, "as before the widening");
    assert!(!world.processes[0].caller.take_back(), "nothing is under way");
    world.processes[0].caller.widen(61, &pairs, until).expect("no widening is in progress");
    world.send_control(0);
    settle(&mut world);
    world.begin(0, &[0, 1]);
    assert_eq!(outcome(&mut world), Outcome::Applied);
    world.processes[0].caller.end(62).expect("the session is open");
    assert!(!world.processes[0].caller.take_back(), "an end is no widening");
}

#[test]
fn key_from_before_a_widening_is_updated() {
    let mut world = opened(Mutant::None, &[0]);
    let (pairs, until) = (world.pairs(&[1]), world.now() + TTL);
    world.processes[0].caller.widen(60, &pairs, until).expect("the session is open");
    world.send_control(0);
    deliver(&mut world);
    world.answers.clear();
    world.processes[0].alive = false;
    assert_eq!(world.keys[&SESSION].pairs.len(), 1, "the key was written down before");
    let next = world.succeed(SESSION, CONFIG, 61);
    settle(&mut world);
    assert!(!world.processes[next].caller.is_open());
    let until = world.now() + TTL;
    world.processes[next].caller.take_up(62, until).expect("a key");
    world.send_control(next);
    settle(&mut world);
    assert_eq!(world.begin(next, &[0, 1]), Some(1));
    settle(&mut world);
    assert_eq!((applied(&world, 0), applied(&world, 1)), (1, 1));
}

/// The process crashes during its widening. The widening fails, or it takes effect.
#[test]
fn key_from_during_a_widening_is_updated() {
    for last_time in [0, 2 * TTL] {
        let mut world = opened(Mutant::None, &[0]);
        let pairs = world.pairs(&[1]);
        world.processes[0].caller.widen(60, &pairs, last_time).expect("the session is open");
        world.note_key(0);
        assert_eq!((world.keys[&SESSION].widening, world.keys[&SESSION].pairs.len()), (1, 1));
        world.send_control(0);
        deliver(&mut world);
        world.processes[0].alive = false;
        let next = world.succeed(SESSION, CONFIG, 61);
        settle(&mut world);
        assert!(!world.processes[next].caller.is_open());
        let until = world.now() + TTL;
        world.processes[next].caller.take_up(62, until).expect("a key");
        world.send_control(next);
        settle(&mut world);
        assert!(world.processes[next].caller.is_open(), "{last_time}");
        let pairs = if last_time == 0 { 1 } else { 2 };
        assert_eq!(world.processes[next].caller.key().pairs.len(), pairs, "{last_time}");
    }
}

#[test]
fn take_up_must_name_the_last_widening_even_with_equal_pairs() {
    let mut world = opened(Mutant::None, &[0]);
    let (pairs, until) = (world.pairs(&[0]), world.now() + TTL);
    let key = world.keys[&SESSION].clone();
    world.processes[0].caller.widen(60, &pairs, until).expect("the session is open");
    world.send_control(0);
    settle(&mut world);
    world.keys.insert(SESSION, key);
    world.succeed(SESSION, CONFIG, 61);
    assert_eq!(outcome(&mut world), Outcome::WrongPairs);
}

/// A superseded process widens the session. The old group refuses. The new group cannot know that the process is
/// superseded.
#[test]
fn widening_refused_by_one_group_counts_in_no_other() {
    let mut world = opened(Mutant::None, &[0]);
    world.succeed(SESSION, CONFIG, 50);
    settle(&mut world);
    let (pairs, until) = (world.pairs(&[1]), world.now() + TTL);
    world.processes[0].caller.widen(60, &pairs, until).expect("the caller does not know yet that it is superseded");
    world.send_control(0);
    settle(&mut world);
    assert_eq!(world.processes[0].caller.begin(&[GroupId(1)]), Err(CallerError::SessionNotOpen(1)));
    // A successor of the superseded process cannot begin either, because one group agrees and another refuses.
    let key = world.processes[0].caller.key();
    world.keys.insert(SESSION, key);
    let rival = world.succeed(SESSION, CONFIG, 61);
    settle(&mut world);
    assert_eq!(world.groups[1].sessions.generation_of(SESSION), Some(2), "this group agreed");
    assert!(!world.processes[rival].caller.is_open());
}

#[test]
fn new_group_is_not_used_before_all_agree() {
    let mut world = opened(Mutant::None, &[0]);
    let (pairs, until) = (world.pairs(&[1]), world.now() + TTL);
    world.processes[0].caller.widen(60, &pairs, until).expect("the session is open");
    world.send_control(0);
    deliver(&mut world);
    let at = world.answers.iter().position(|answer| answer.group == GroupId(1)).expect("both groups answer");
    world.answer(at);
    assert_eq!(world.processes[0].caller.begin(&[GroupId(1)]), Err(CallerError::SessionNotOpen(1)));
    settle(&mut world);
    assert_eq!(world.processes[0].caller.begin(&[GroupId(1)]), Ok(1));
}

/// A session expires in one group, which then no longer has the session's replies. The caller widens the session before
/// it learns that.
pub(crate) fn expired_session_is_not_opened_anew_in_silence(mutant: Mutant) {
    let mut world = opened(mutant, &[0, 1]);
    pass(&mut world, 0, TTL / 2 + 10);
    world.renew(0, 1000);
    world.flights.truncate(1);
    settle(&mut world);
    let end = world.processes[0].caller.end_in(GroupId(1)).expect("the session is open in the group");
    let beyond = end + 1 - world.groups[1].clock;
    pass(&mut world, 1, beyond);
    let (pairs, until) = (world.pairs(&[0, 1]), world.now() + TTL);
    world.processes[0]
        .caller
        .widen(60, &pairs, until)
        .expect("the caller does not know yet that its session has expired");
    world.send_control(0);
    while !world.flights.is_empty() {
        deliver(&mut world);
    }
    assert_eq!(refusal(&mut world, 0), Some((GroupId(1), Outcome::SessionNotOpen)));
    world.answers.clear();
    let caller = &mut world.processes[0].caller;
    assert_eq!(caller.begin(&[GroupId(0), GroupId(1)]), Err(CallerError::SessionNotOpen(1)));
    assert!(caller.end_in(GroupId(0)).is_some(), "it is still open in the other group");
    // The caller now knows that the session has expired in the group, and adds the group to the session again.
    caller.widen(61, &pairs, until).expect("the session is open");
    world.send_control(0);
    settle(&mut world);
    assert!(world.processes[0].caller.end_in(GroupId(1)).is_some());
}
