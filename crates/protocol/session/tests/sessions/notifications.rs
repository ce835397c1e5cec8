//! Notifications to sessions: each is received once, in order, or known to be lost.

use stentor_multicast::{GroupId, Incarnation, Timestamp};
use stentor_session::{At, Event, Mutant, Notified, Outcome, ReplyRecord, SessionId, Sessions};

use crate::script::{CONFIG, LIMITS, SESSION, opened, settle};
use crate::world::{TTL, World};

const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(1)];

/// Lets a group notify a session during a delivery. Returns the client that the record is for, and the record.
fn notify(world: &mut World, group: u16, session: SessionId, bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
    let group = &mut world.groups[usize::from(group)];
    let at = At {
        time: Timestamp { time: group.clock, group: 0 },
        index: group.index,
        incarnation: group.incarnation,
        destinations: &GROUPS[..1],
        client: 0,
    };
    let answer = group.sessions.notify(&at, session, bytes)?;
    assert!(!answer.by_all, "the leader sends it alone");
    Some((answer.client.0, answer.record.to_vec()))
}

/// Returns what a process learns from a record: the number of lost notifications, and the notification.
fn learn(world: &mut World, process: usize, group: u16, record: &[u8]) -> Option<(u64, Option<Vec<u8>>)> {
    let record = ReplyRecord::parse(record).expect("a record");
    match world.processes[process].caller.on_reply(GroupId(group), &record)? {
        Event::Notified(Notified { group: of, missed, is_one }) => {
            assert_eq!(of, GroupId(group));
            Some((missed, is_one.then(|| record.bytes.to_vec())))
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the record about notifications that a member sends again to the client of a process.
fn repeated_record(world: &mut World, group: u16, process: usize) -> Option<Vec<u8>> {
    let mut again = Vec::new();
    world.groups[usize::from(group)].sessions.replies_of(process as u16, |record| again.push(record.to_vec()));
    again.retain(|record| ReplyRecord::parse(record).expect("a record").outcome == Outcome::Notified);
    assert!(again.len() <= 1, "one for each session");
    again.pop()
}

/// Widens the session of the first process into the second group again.
fn widen(world: &mut World) {
    let (pairs, until) = (world.pairs(&[1]), world.now() + TTL);
    world.processes[0].caller.widen(60, &pairs, until).expect("the session is open in the first group");
    world.send_control(0);
    settle(world);
}

fn one(bytes: &[u8]) -> Option<(u64, Option<Vec<u8>>)> {
    Some((0, Some(bytes.to_vec())))
}

fn losses_are_reported(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    assert_eq!(repeated_record(&mut world, 0, 0), None, "there was none");
    let sent: Vec<_> = (0..5_u8).map(|n| notify(&mut world, 0, SESSION, &[n]).expect("the session is open")).collect();
    assert!(sent.iter().all(|(client, _)| *client == 0));
    let record = |n: usize| &sent[n].1[..];
    assert_eq!(learn(&mut world, 0, 0, record(0)), one(&[0]));
    assert_eq!(learn(&mut world, 0, 0, record(0)), None, "once");
    assert_eq!(learn(&mut world, 0, 0, record(3)), Some((2, Some(vec![3]))));
    assert_eq!(learn(&mut world, 0, 0, record(2)), None, "it was reported as lost");
    // A later leader reports that five notifications were sent.
    let again = repeated_record(&mut world, 0, 0).expect("there were some");
    assert_eq!(learn(&mut world, 0, 0, &again), Some((1, None)));
    assert_eq!(learn(&mut world, 0, 0, &again), None);
    assert_eq!(learn(&mut world, 0, 0, record(4)), None);
    assert_eq!(world.processes[0].caller.responded(), 1, "it answers no request");
}

fn a_successor_counts_its_own(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    let (_, first) = notify(&mut world, 0, SESSION, b"first").expect("the session is open");
    let next = world.succeed(SESSION, CONFIG, 50);
    settle(&mut world);
    assert_eq!(repeated_record(&mut world, 0, next), None, "none was sent to this process");
    assert_eq!(learn(&mut world, next, 0, &first), None, "it was for the process before");
    let (client, second) = notify(&mut world, 0, SESSION, b"second").expect("the session is open");
    assert_eq!((usize::from(client), learn(&mut world, next, 0, &second)), (next, one(b"second")));
    assert_eq!(learn(&mut world, 0, 0, &second), None, "it is superseded");
}

fn groups_count_apart(mutant: Mutant) {
    let mut world = opened(mutant, &[0, 1]);
    for group in [0, 1, 0] {
        let (_, record) = notify(&mut world, group, SESSION, b"x").expect("the session is open");
        assert_eq!(learn(&mut world, 0, group, &record), one(b"x"));
    }
}

const SCRIPTS: [fn(Mutant); 3] = [losses_are_reported, a_successor_counts_its_own, groups_count_apart];

#[test]
fn notifications_are_received_once_or_known_to_be_lost() {
    for script in SCRIPTS {
        script(Mutant::None);
    }
}

#[cfg(feature = "plants")]
#[test]
fn mutants_of_notifications_are_found() {
    let found: [(Mutant, fn(Mutant)); 3] = [
        (Mutant::NumbersTwice, losses_are_reported),
        (Mutant::TellsNoNumber, losses_are_reported),
        (Mutant::NumbersGoOn, a_successor_counts_its_own),
    ];
    for (mutant, script) in found {
        std::panic::catch_unwind(|| script(mutant)).expect_err("the mutant is found");
    }
}

#[test]
fn session_that_is_not_open_is_not_notified() {
    let mut world = opened(Mutant::None, &[0]);
    assert_eq!(notify(&mut world, 0, SessionId(8), b"x"), None, "it was never opened");
    assert_eq!(notify(&mut world, 1, SESSION, b"x"), None, "not in this group");
    world.processes[0].caller.end(9).expect("the session is open");
    world.send_control(0);
    settle(&mut world);
    assert_eq!(notify(&mut world, 0, SESSION, b"x"), None, "it has ended");
}

#[test]
fn too_long_notification_is_reported_as_lost() {
    let mut world = opened(Mutant::None, &[0]);
    let fits = vec![7; LIMITS.reply_bytes as usize];
    let (_, record) = notify(&mut world, 0, SESSION, &fits).expect("the session is open");
    assert_eq!(learn(&mut world, 0, 0, &record), one(&fits));
    let (_, record) = notify(&mut world, 0, SESSION, &[&fits[..], &[7]].concat()).expect("the session is open");
    assert_eq!((record.len(), learn(&mut world, 0, 0, &record)), (ReplyRecord::HEAD_BYTES, Some((1, None))));
}

/// The session expires in one group, and is later widened into that group again. The group has forgotten the number of
/// notifications.
#[test]
fn widening_into_a_group_again_restarts_the_numbers() {
    let mut world = opened(Mutant::None, &[0, 1]);
    let old: Vec<_> = (0..3).map(|n| notify(&mut world, 1, SESSION, &[n]).expect("the session is open").1).collect();
    assert_eq!(learn(&mut world, 0, 1, &old[1]), Some((1, Some(vec![1]))));
    world.groups[1].clock += 2 * TTL;
    let group = &mut world.groups[1];
    group.sessions.expire(group.clock, &mut group.machine);
    assert_eq!(notify(&mut world, 1, SESSION, b"x"), None, "it has expired");
    widen(&mut world);
    let (_, record) = notify(&mut world, 1, SESSION, b"anew").expect("the session is open again");
    assert_eq!(learn(&mut world, 0, 1, &record), one(b"anew"));
    assert_eq!(learn(&mut world, 0, 1, &old[2]), None, "of an earlier count");
    let (_, record) = notify(&mut world, 1, SESSION, b"next").expect("the session is open");
    assert_eq!(learn(&mut world, 0, 1, &record), one(b"next"));
}

/// A group continues in another incarnation with the state of a member. A widening adds the group to the session again.
#[test]
fn each_incarnation_restarts_the_numbers() {
    let mut world = opened(Mutant::None, &[0, 1]);
    for n in 0..3 {
        let (_, record) = notify(&mut world, 1, SESSION, &[n]).expect("the session is open");
        assert_eq!(learn(&mut world, 0, 1, &record), one(&[n]));
    }
    let moved = Incarnation { number: 2, tag: 7 };
    world.groups[1].incarnation = moved;
    assert_eq!(notify(&mut world, 1, SESSION, b"x"), None, "the session does not use it in this incarnation");
    widen(&mut world);
    let (_, record) = notify(&mut world, 1, SESSION, b"anew").expect("the session is open again");
    assert_eq!(learn(&mut world, 0, 1, &record), one(b"anew"));
    assert_eq!(repeated_record(&mut world, 1, 0).and_then(|again| learn(&mut world, 0, 1, &again)), None);
}

#[test]
fn restored_table_continues_the_numbers() {
    let mut world = opened(Mutant::None, &[0]);
    for _ in 0..2 {
        notify(&mut world, 0, SESSION, b"lost").expect("the session is open");
    }
    let mut bytes = Vec::new();
    world.groups[0].sessions.write(&mut bytes);
    (world.groups[0].sessions, _) = Sessions::read(GroupId(0), LIMITS, &bytes).expect("the snapshot is complete");
    let (_, record) = notify(&mut world, 0, SESSION, b"third").expect("the session is open");
    assert_eq!(learn(&mut world, 0, 0, &record), Some((2, Some(b"third".to_vec()))));
}
