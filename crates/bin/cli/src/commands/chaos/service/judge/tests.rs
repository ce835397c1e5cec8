//! The judge detects errors: each test changes one thing in a correct run.

use super::evidence::{ClientLife, MemberLife};
use super::*;
use crate::commands::chaos::service::records::Place;

const MS: u64 = 1_000_000;
const SESSION: &str = "00000000000000000000000000000007";

/// A run of one client and two groups with two members each. Its events happen one after the other, one per
/// millisecond.
#[derive(Default)]
struct World {
    now: u64,
    next: u64,
    values: [Registers; 2],
    index: [u64; 2],
    members: [Vec<MemberRecord>; 2],
    records: Vec<ClientRecord>,
}

impl World {
    fn at(&mut self) -> u64 {
        self.now += MS;
        self.now
    }

    fn place(&mut self, group: usize, time: u64) -> Place {
        self.index[group] += 1;
        Place { time, of: 0, index: self.index[group] }
    }

    /// Calls a command, which is applied and answered.
    fn command(&mut self, to: &[u16], operation: &str) -> Place {
        self.next += 1;
        let (call, at, time) = (1 << 32 | self.next, self.at(), self.at());
        let operation = format!("{operation} {call}");
        let begin = ClientRecord::Begin {
            at,
            call,
            to: to.to_vec(),
            kind: CallKind::Command,
            operation: operation.clone(),
            after: None,
        };
        self.records.push(begin);
        let (mut replies, mut places) = (Vec::new(), Vec::new());
        for group in to {
            let of = usize::from(*group);
            let place = self.place(of, time);
            let effects = self.values[of].apply(time, SESSION, &operation);
            let (session, reply) = (SESSION.to_owned(), effects.reply);
            let told = Told::Applied { session, operation: operation.clone(), reply: reply.clone() };
            let notes = effects.notified.clone();
            self.members[of].push(MemberRecord { at: self.now, place: Some(place), told, notified: effects.notified });
            replies.push((*group, reply));
            places.push(place);
            self.notes(*group, place, notes.len());
        }
        let how = How::Answered { place: places[0], replies };
        let at = self.at();
        self.records.push(ClientRecord::End { at, call, how });
        places[0]
    }

    fn notes(&mut self, group: u16, place: Place, count: usize) {
        let at = self.now;
        self.records.extend((0..count).map(|_| ClientRecord::Note { at, group, place }));
    }

    fn read(&mut self, group: u16, kind: CallKind, query: &str) {
        self.next += 1;
        let (call, at) = (1 << 32 | self.next, self.at());
        let (to, operation) = (vec![group], query.to_owned());
        self.records.push(ClientRecord::Begin { at, call, to, kind, operation, after: None });
        let of = usize::from(group);
        // A leader orders a time entry before it answers a client that has seen a later time.
        let time = self.at();
        let entry = (kind == CallKind::Leader).then(|| self.place(of, time));
        let last = entry.or(self.members[of].last().and_then(|record| record.place));
        let reply = self.values[of].read(query);
        let how = How::Answered { place: last.expect("a record was applied"), replies: vec![(group, reply)] };
        let at = self.at();
        self.records.push(ClientRecord::End { at, call, how });
    }

    /// Reads at a new leader whose recovered clock has reached the time that the client has seen, so that it orders no
    /// time entry.
    fn read_at_new_leader(&mut self, group: u16, query: &str) {
        let (entries, kind) = (self.index, CallKind::Local);
        self.read(group, kind, query);
        assert_eq!(self.index, entries);
        let begin = self.records.iter_mut().rev().find_map(|record| match record {
            ClientRecord::Begin { kind, .. } => Some(kind),
            _ => None,
        });
        *begin.expect("the read has begun") = CallKind::Leader;
    }

    fn timer(&mut self, group: u16, lease: u64) {
        let (of, time) = (usize::from(group), self.at());
        let place = self.place(of, time);
        let notified = self.values[of].timer(lease);
        self.notes(group, place, notified.len());
        self.members[of].push(MemberRecord { at: time, place: Some(place), told: Told::Timer(lease), notified });
    }

    fn evidence(mut self) -> Evidence {
        let at = self.at();
        self.records.push(ClientRecord::Closed { at });
        let life = |group: u16, name: &str| {
            let records = self.members[usize::from(group)].clone();
            MemberLife { name: name.to_owned(), group, records }
        };
        let members = vec![life(0, "g1.1"), life(0, "g1.2"), life(1, "g2.1"), life(1, "g2.2")];
        let client = ClientLife { client: 0, life: 1, session: SESSION.to_owned(), records: self.records };
        let mut evidence =
            Evidence { groups: 2, members, clients: vec![client], bound: 1, complete: true, ..Evidence::default() };
        evidence.gather();
        evidence
    }
}

/// Returns a correct run.
fn right() -> Evidence {
    let mut world = World::default();
    world.command(&[0], "watch");
    world.command(&[1], "watch");
    for round in 0..4 {
        world.command(&[0, 1], &format!("mix {round}"));
        world.command(&[0], "put 1");
        world.command(&[1], "cas 2 0");
        world.read(0, CallKind::Leader, "sum");
        world.read(1, CallKind::Local, "get 2");
    }
    world.command(&[0], "lease 0 5");
    world.read(0, CallKind::Leader, "who 0");
    world.timer(0, 0);
    world.read(0, CallKind::Leader, "who 0");
    world.command(&[0], "put 3");
    world.evidence()
}

fn verdicts(evidence: &Evidence) -> (Vec<&'static str>, String) {
    let judged = decided(evidence);
    let violated = judged.verdicts.iter().filter(|(_, verdict)| **verdict == "violated").map(|(name, _)| *name);
    (violated.collect(), judged.example.unwrap_or_default())
}

/// Changes a correct run, and expects the judge to find these violations.
fn wrong(change: impl FnOnce(&mut Evidence), expected: &[&str], text: &str) {
    let mut evidence = right();
    change(&mut evidence);
    let (violated, example) = verdicts(&evidence);
    assert_eq!(violated, expected, "{example}");
    assert!(example.contains(text), "{example}");
}

fn is_put(told: &Told) -> bool {
    matches!(told, Told::Applied { operation, .. } if operation.starts_with("put "))
}

#[test]
fn correct_run_passes() {
    let judged = decided(&right());
    assert!(judged.verdicts.values().all(|verdict| *verdict == "ok"), "{:?} {:?}", judged.verdicts, judged.example);
    let counts = judged.counts;
    assert_eq!((counts.commands, counts.wide, counts.timers, counts.notified), (16, 4, 1, 6));
    assert_eq!(counts.reads.values().sum::<u64>(), 10);
}

#[test]
fn stale_read_at_the_leader_is_found() {
    let stale = |evidence: &mut Evidence| {
        let leader = |called: &&mut evidence::Called| called.kind == CallKind::Leader && called.operation == "sum";
        let replies: Vec<_> = evidence.calls.iter_mut().filter(leader).map(|called| called.end.clone()).collect();
        let last = evidence.calls.iter_mut().rfind(leader).expect("a read at the leader is recorded");
        let (Some((at, _)), Some((_, How::Answered { place, replies }))) = (&last.end, &replies[replies.len() - 2])
        else {
            panic!("all are answered")
        };
        last.end = Some((*at, How::Answered { place: *place, replies: replies.clone() }));
    };
    wrong(stale, &["V2"], "g0");
}

/// The answer contains a place before the time that the session has seen in another group. It is right unless it lacks
/// a command up to that time.
#[test]
fn read_at_a_new_leader_may_show_an_earlier_place_than_the_session_has_seen() {
    let world = |is_stale: bool| {
        let mut world = World::default();
        world.command(&[1], "put 1");
        world.read(0, CallKind::Leader, "sum");
        let (before, missed) = (world.values[1].clone(), world.members[1].len());
        if is_stale {
            world.command(&[1], "put 2");
        }
        world.command(&[0], "put 1");
        let (now, missed) = (world.values[1].clone(), world.members[1].split_off(missed));
        if is_stale {
            world.values[1] = before;
        }
        world.read_at_new_leader(1, "sum");
        world.values[1] = now;
        world.members[1].extend(missed);
        world.command(&[1], "put 3");
        world.evidence()
    };
    assert_eq!(verdicts(&world(false)), (Vec::new(), String::new()));
    assert_eq!(verdicts(&world(true)).0, ["V2"]);
}

#[test]
fn wrong_reply_lost_command_and_doubled_command_are_found() {
    wrong(|evidence| evidence.spoil(ChaosPlant::Reply), &["V2"], "");
    let mut lost = right();
    lost.spoil(ChaosPlant::Lost);
    assert!(verdicts(&lost).0.contains(&"V1"), "{:?}", verdicts(&lost));
    let mut doubled = right();
    doubled.spoil(ChaosPlant::Doubled);
    assert!(verdicts(&doubled).0.contains(&"V1"), "{:?}", verdicts(&doubled));
}

#[test]
fn differing_members_are_found() {
    let skip = |evidence: &mut Evidence| drop(evidence.members[0].records.remove(5));
    wrong(skip, &["V1"], "has left out place");
    let other = |evidence: &mut Evidence| evidence.members[2].records[3].notified.push(SESSION.to_owned());
    wrong(other, &["V1"], "`g2.2`");
    let back = |evidence: &mut Evidence| {
        for member in &mut evidence.members[..2] {
            let before = member.records[4].place.expect("the record has a place").time;
            member.records[5].place.as_mut().expect("the record has a place").time = before;
        }
    };
    wrong(back, &["V1"], "behind");
}

#[test]
fn cancelled_command_that_is_applied_is_found() {
    let not_applied = |evidence: &mut Evidence| {
        let at = evidence.calls[3].at + 1;
        evidence.calls[3].end = Some((at, How::NotApplied("closed".to_owned())));
    };
    let mut evidence = right();
    not_applied(&mut evidence);
    let (violated, example) = verdicts(&evidence);
    assert!(violated.contains(&"V1") && example.contains("was not applied (closed), and members have it"), "{example}");
}

#[test]
fn call_of_unknown_outcome_may_be_applied_or_not() {
    let mut evidence = right();
    evidence.calls.last_mut().expect("a call is recorded").end = None;
    assert_eq!(verdicts(&evidence), (Vec::new(), String::new()));
    let counts = decided(&evidence).counts;
    assert_eq!((counts.unknown, counts.unknown_applied), (1, 1));
}

#[test]
fn late_and_early_timers_are_found() {
    let late = |evidence: &mut Evidence| {
        evidence
            .members
            .iter_mut()
            .for_each(|member| member.records.retain(|record| !matches!(record.told, Told::Timer(_))));
    };
    wrong(late, &["V1"], "a timer that is due has not fired");
    let early = |evidence: &mut Evidence| {
        for record in evidence.members[..2].iter_mut().flat_map(|member| &mut member.records) {
            if matches!(record.told, Told::Timer(_)) {
                record.place.as_mut().expect("the record has a place").time -= 4 * MS;
            }
        }
    };
    let mut evidence = right();
    early(&mut evidence);
    let verdicts = verdicts(&evidence);
    assert!(verdicts.0.contains(&"V1"), "{verdicts:?}");
}

#[test]
fn time_beyond_the_bound_is_found() {
    let shift = |evidence: &mut Evidence, by: i128| evidence.wall += by;
    let within = i128::from(40 * MS);
    for by in [within, -within] {
        let mut evidence = right();
        shift(&mut evidence, by);
        assert_eq!(verdicts(&evidence), (Vec::new(), String::new()));
    }
    let beyond = i128::from(60 * MS);
    wrong(|evidence| shift(evidence, beyond), &["V3"], "was ordered at a time");
    wrong(|evidence| shift(evidence, -beyond), &["V3"], "was ordered at a time");
}

#[test]
fn lost_notification_must_be_reported() {
    let is_note = |record: &ClientRecord| matches!(record, ClientRecord::Note { group: 0, .. });
    let lose = |evidence: &mut Evidence, which: usize, missed: Option<u64>| {
        let records = &mut evidence.clients[0].records;
        let at = records
            .iter()
            .enumerate()
            .filter(|(_, record)| is_note(record))
            .nth(which)
            .expect("a notification is recorded")
            .0;
        let told = missed.map(|count| ClientRecord::Missed { at: 0, group: 0, count });
        records.splice(at..=at, told);
    };
    for which in [1, 5] {
        wrong(|evidence| lose(evidence, which, None), &["V4"], "1 notifications did not arrive, and 0 were reported");
        wrong(|evidence| lose(evidence, which, Some(2)), &["V4"], "and 2 were reported as missed");
        let mut told = right();
        lose(&mut told, which, Some(1));
        assert_eq!(verdicts(&told), (Vec::new(), String::new()));
    }
    let twice = |evidence: &mut Evidence| {
        let records = &mut evidence.clients[0].records;
        let at = records.iter().position(is_note).expect("a notification is recorded");
        records.insert(at, records[at].clone());
    };
    wrong(twice, &["V4"], "twice or not at all");
}

#[test]
fn put_notifies_watchers() {
    let told = right();
    let puts =
        told.members[0].records.iter().filter(|record| is_put(&record.told) || !record.notified.is_empty()).count();
    assert_eq!(puts, 6, "five puts and a timer");
}
