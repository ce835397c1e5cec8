//! Tests each rule of the promise with hand-written histories, allowed and forbidden ones.

use stentor_checker::calls::{
    Call, CallError, Counterexample, History, Kind, Outcome, Position, Rule, Verdict, decide, verify,
};
use stentor_checker::{Group, GroupSet};

use crate::service::Service;

/// Returns a call of a session. Groups, operation and replies are text, such as `"0 2"`, `"put 0 1"` and `"0 0"`.
fn call(session: u64, times: (u64, u64), groups: &str, operation: &str, replies: &str) -> Call {
    let groups: Vec<Group> = groups.split(' ').map(|group| Group(group.parse().unwrap())).collect();
    let kind = if operation.starts_with(['g', 's']) { Kind::Ordered } else { Kind::Command };
    let replies = groups.iter().zip(replies.split(' ')).map(|(group, reply)| (*group, reply.as_bytes().to_vec()));
    let outcome = Outcome::Answered { at: times.1, replies: replies.collect(), position: None };
    let groups: GroupSet = groups.into_iter().collect();
    let operation = operation.as_bytes().to_vec();
    Call { session, generation: 1, submitted: times.0, groups, operation, kind, outcome, observed: Vec::new() }
}

fn position(time: u64) -> Position {
    Position { time, group: Group(0) }
}

trait With: Sized {
    fn kind(self, kind: Kind) -> Self;
    fn at(self, time: u64) -> Self;
    fn observed(self, time: u64) -> Self;
    fn ended(self, outcome: Outcome) -> Self;
}

impl With for Call {
    fn kind(self, kind: Kind) -> Call {
        Call { kind, ..self }
    }

    fn at(mut self, time: u64) -> Call {
        let group = self.groups.iter().next().unwrap();
        if let Outcome::Answered { position, .. } = &mut self.outcome {
            *position = Some(Position { time, group });
        }
        self
    }

    fn observed(self, time: u64) -> Call {
        Call { observed: vec![position(time)], ..self }
    }

    fn ended(self, outcome: Outcome) -> Call {
        Call { outcome, ..self }
    }
}

fn history(calls: &[Call]) -> History {
    History::try_from(calls.to_vec()).unwrap()
}

#[track_caller]
fn allowed(calls: &[Call]) -> Vec<usize> {
    let history = history(calls);
    match decide(&history, &Service) {
        Verdict::Kept(order) => {
            verify(&history, &Service, &order).unwrap();
            order
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn forbidden(calls: &[Call], rule: Rule, example: &[usize]) -> Counterexample {
    match decide(&history(calls), &Service) {
        Verdict::Violated(found) => {
            assert_eq!((found.rule, &found.calls[..]), (rule, example), "{found}");
            found
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn concurrent_calls_may_take_effect_in_any_order() {
    let calls = [call(0, (0, 10), "0", "put 0 1", "2"), call(1, (0, 10), "0", "put 0 2", "0")];
    assert_eq!(allowed(&calls), [1, 0]);
}

#[test]
fn a_value_that_nobody_wrote_has_no_order() {
    let calls = [
        call(0, (0, 10), "0", "put 0 1", "0"),
        call(1, (0, 10), "0", "put 1 5", "0"),
        call(2, (0, 10), "0", "get 0", "7"),
    ];
    forbidden(&calls, Rule::Reply, &[2]);
}

#[test]
fn a_read_at_the_leader_sees_what_was_answered_before() {
    let write = call(0, (0, 10), "0", "put 0 1", "0");
    let read = |from, reply| call(1, (from, 30), "0", "get 0", reply).kind(Kind::Leader);
    allowed(&[write.clone(), read(20, "1")]);
    allowed(&[write.clone(), read(10, "0")]);
    forbidden(&[write, read(11, "0")], Rule::RealTime, &[0, 1]);
}

#[test]
fn a_lost_write_is_shown_with_the_read_that_misses_it() {
    let calls = [
        call(0, (0, 10), "0", "put 0 1", "0"),
        call(1, (0, 10), "0", "put 2 1", "0"),
        call(1, (20, 30), "0", "put 0 2", "1"),
        call(2, (20, 60), "0", "put 1 3", "0"),
        call(0, (40, 50), "0", "get 0", "1"),
    ];
    let found = forbidden(&calls, Rule::RealTime, &[0, 2, 4]);
    assert_eq!(
        found.lines[2],
        "call 4: session 0.1: ordered read \"get 0\" to g0, submitted at 40, answered at 50, g0: \"1\""
    );
}

/// Returns the example of independent sessions: call 0 to g2, then call 1 to g0, while calls 2 and 3 connect the groups
/// in the opposite direction. `session_of_b` is the session of call 1.
fn strangers(session_of_b: u64) -> [Call; 4] {
    [
        call(0, (10, 20), "2", "add 0 1", "2"),
        call(session_of_b, (30, 40), "0", "add 0 1", "1"),
        call(2, (0, 60), "0 1", "add 0 1", "2 1"),
        call(3, (0, 60), "1 2", "add 0 1", "2 1"),
    ]
}

#[test]
fn strangers_without_a_common_group_need_not_respect_real_time() {
    assert_eq!(allowed(&strangers(1)), [1, 2, 3, 0]);
}

#[test]
fn a_session_is_respected_over_groups_that_have_nothing_in_common() {
    forbidden(&strangers(0), Rule::Session, &[0, 1, 2, 3]);
}

/// The session and real time both order the read after the write, so neither rule alone makes the reply impossible.
#[test]
fn a_stale_reply_to_the_session_that_wrote_breaks_real_time() {
    let calls = [call(0, (0, 10), "0", "put 0 1", "0"), call(0, (20, 30), "0", "get 0", "0")];
    let found = forbidden(&calls, Rule::RealTime, &[0, 1]);
    assert!(found.summary.starts_with("no order that respects real time in each group"), "{found}");
}

#[test]
fn next_generation_inherits_the_order_of_commands_but_not_of_reads() {
    let mut calls = strangers(0);
    calls[1].generation = 2;
    forbidden(&calls, Rule::Session, &[0, 1, 2, 3]);
    calls[0] = call(0, (10, 20), "2", "get 0", "1");
    calls[2] = call(2, (0, 60), "0 1", "add 0 1", "2 1");
    allowed(&calls);
    calls[1].generation = 1;
    forbidden(&calls, Rule::Session, &[0, 1, 2]);
}

#[test]
fn observed_calls_come_first() {
    let mut calls = strangers(1);
    calls[0] = calls[0].clone().at(50);
    allowed(&calls);
    calls[1].observed = vec![calls[0].position().unwrap()];
    forbidden(&calls, Rule::Observed, &[0, 1, 2, 3]);
    // Another call of the same session observed the position earlier.
    calls[1].observed.clear();
    let mut local = call(1, (25, 35), "0", "get 1", "0").kind(Kind::Local);
    local.observed = vec![calls[0].position().unwrap()];
    let with_local = [calls.to_vec(), vec![local]].concat();
    assert!(
        matches!(decide(&history(&with_local), &Service), Verdict::Violated(found) if found.rule == Rule::Observed)
    );
}

#[test]
fn the_call_that_observed_a_position_is_shown() {
    let mut calls = [
        call(0, (20, 30), "0", "put 0 1", "0").at(50),
        call(1, (10, 15), "0 1", "put 0 2", "1 0").ended(Outcome::Unknown),
        call(1, (5, 8), "1", "get 0", "0").kind(Kind::Local),
        call(1, (9, 12), "0", "put 1 3", "0"),
    ];
    allowed(&calls);
    calls[2].observed = vec![calls[0].position().unwrap()];
    forbidden(&calls, Rule::Observed, &[0, 2, 3]);
}

#[test]
fn a_cut_over_two_groups_sees_a_command_in_both_or_in_none() {
    let add = call(0, (0, 50), "0 1", "add 0 1", "1 1");
    let cut = |replies| call(1, (0, 50), "0 1", "get 0", replies);
    allowed(&[add.clone(), cut("0 0")]);
    allowed(&[add.clone(), cut("1 1")]);
    forbidden(&[add, cut("1 0")], Rule::OneOrder, &[1]);
}

#[test]
fn two_commands_have_one_order_in_all_their_groups() {
    let of = |session, replies| call(session, (0, 50), "0 1", "add 0 1", replies);
    allowed(&[of(0, "1 1"), of(1, "2 2")]);
    forbidden(&[of(0, "1 2"), of(1, "2 1")], Rule::OneOrder, &[1]);
}

#[test]
fn a_local_read_is_of_some_prefix() {
    let local = |reply| call(1, (20, 30), "0", "get 0", reply).kind(Kind::Local);
    let writes = [
        call(0, (0, 5), "0", "put 0 1", "0"),
        call(0, (6, 9), "0", "put 0 2", "1"),
        call(0, (40, 50), "0", "put 0 3", "2"),
    ];
    let with = |read: Call| [writes.to_vec(), vec![read]].concat();
    ["0", "1", "2"].into_iter().for_each(|reply| drop(allowed(&with(local(reply)))));
    forbidden(&with(local("7")), Rule::Reply, &[3]);
    // A read from the future: it observes a command that was submitted after its answer.
    let found = decide(&history(&with(local("3"))), &Service);
    assert!(matches!(&found, Verdict::Violated(found) if found.rule == Rule::Prefix), "{found:?}");
}

#[test]
fn a_read_after_a_position_observes_it() {
    let writes = [call(0, (0, 5), "0", "put 0 1", "0").at(10), call(0, (6, 9), "0", "put 0 2", "1").at(20)];
    let with = |asked, reply| {
        let read = call(1, (20, 30), "0", "get 0", reply).kind(Kind::After(position(asked)));
        [writes.to_vec(), vec![read]].concat()
    };
    allowed(&with(10, "1"));
    allowed(&with(10, "2"));
    allowed(&with(9, "0"));
    let found = decide(&history(&with(20, "1")), &Service);
    assert!(matches!(&found, Verdict::Violated(found) if found.rule == Rule::Prefix), "{found:?}");
    let found = decide(&history(&with(15, "0")), &Service);
    assert!(matches!(&found, Verdict::Violated(found) if found.rule == Rule::Prefix), "{found:?}");
}

#[test]
fn a_stale_read_constrains_its_session() {
    // The write is in progress when session 1 reads its effect. Then session 1 issues another read.
    let write = call(0, (0, 100), "0", "put 0 1", "0");
    let seen = call(1, (10, 20), "0", "get 0", "1").kind(Kind::Local);
    let again = |session, reply| call(session, (30, 40), "0", "get 0", reply).kind(Kind::Leader);
    allowed(&[write.clone(), seen.clone(), again(1, "1")]);
    allowed(&[write.clone(), seen.clone(), again(2, "0")]);
    let found = decide(&history(&[write, seen, again(1, "0")]), &Service);
    assert!(matches!(&found, Verdict::Violated(found) if found.rule == Rule::Session), "{found:?}");
}

#[test]
fn an_unknown_command_takes_effect_late_or_never_but_not_twice() {
    let unknown = call(0, (0, 1), "0", "add 0 1", "").ended(Outcome::Unknown);
    let read = |from, reply| call(from, (from, from + 5), "0", "get 0", reply);
    assert_eq!(allowed(&[unknown.clone(), read(10, "0"), read(20, "1")]), [1, 0, 2]);
    assert_eq!(allowed(&[unknown.clone(), read(10, "0")]), [1]);
    forbidden(&[unknown.clone(), read(10, "1"), read(20, "0")], Rule::RealTime, &[1, 2]);
    forbidden(&[unknown, read(10, "2")], Rule::Reply, &[1]);
}

#[test]
fn an_unknown_command_does_not_take_effect_before_it_is_submitted() {
    let unknown = call(0, (20, 21), "0", "add 0 1", "").ended(Outcome::Unknown);
    let read = call(1, (0, 10), "0", "get 0", "1");
    forbidden(&[unknown, read], Rule::RealTime, &[0, 1]);
}

#[test]
fn an_unknown_command_takes_effect_in_all_its_groups_at_once() {
    let unknown = call(0, (0, 1), "0 1", "add 0 1", "").ended(Outcome::Unknown);
    let read = |groups, from, replies| call(1, (from, from + 5), groups, "get 0", replies);
    allowed(&[unknown.clone(), read("0", 10, "1"), read("1", 20, "1")]);
    // Session 1 has observed the command in g0.
    let found = forbidden(&[unknown, read("0", 10, "1"), read("1", 20, "0")], Rule::Session, &[1, 2]);
    assert!(found.summary.starts_with("no order that respects the sessions"), "{found}");
}

#[test]
fn a_refused_call_has_no_effect() {
    let refused = call(0, (0, 1), "0", "add 0 1", "").ended(Outcome::NotApplied);
    let read = |reply| call(1, (10, 15), "0", "get 0", reply);
    assert_eq!(allowed(&[refused.clone(), read("0")]), [1]);
    forbidden(&[refused, read("1")], Rule::Reply, &[1]);
}

#[test]
fn positions_rise_with_the_order_of_effects() {
    let of = |session, reply, time| call(session, (0, 50), "0", "add 0 1", reply).at(time);
    allowed(&[of(0, "1", 5), of(1, "2", 6)]);
    forbidden(&[of(0, "1", 6), of(1, "2", 5)], Rule::Position, &[0, 1]);
    forbidden(&[of(0, "1", 5), of(1, "2", 5)], Rule::Position, &[0, 1]);
}

#[test]
fn a_position_is_above_those_that_the_session_had_observed() {
    let first = call(0, (0, 10), "0", "add 0 1", "1").at(50);
    let second = |session, time| call(session, (20, 30), "1", "add 0 1", "1").at(time);
    allowed(&[first.clone(), second(0, 51)]);
    allowed(&[first.clone(), second(1, 40)]);
    forbidden(&[first.clone(), second(0, 40)], Rule::Position, &[0, 1]);
    forbidden(&[first.clone(), second(1, 40).observed(50)], Rule::Position, &[1]);
    allowed(&[first.clone(), second(0, 50).ended(Outcome::Unknown)]);
    // A read at the leader may be answered at the same position.
    let read = |time| call(0, (20, 30), "0", "get 0", "1").kind(Kind::Leader).at(time);
    allowed(&[first.clone(), read(50)]);
    forbidden(&[first, read(49)], Rule::Position, &[0, 1]);
}

#[test]
fn only_times_are_compared_between_groups() {
    let get = |group: &str, from, kind, time| call(0, (from, from + 5), group, "get 0", "0").kind(kind).at(time);
    for (first, second) in [("2", "0"), ("0", "2")] {
        let seen = get(first, 0, Kind::Leader, 5);
        allowed(&[seen.clone(), get(second, 20, Kind::Leader, 5)]);
        forbidden(&[seen.clone(), get(second, 20, Kind::Leader, 4)], Rule::Position, &[0, 1]);
        // A leader assigns a message a later time than the time that the message names.
        allowed(&[seen.clone(), get(second, 20, Kind::Ordered, 6)]);
        forbidden(&[seen.clone(), get(second, 20, Kind::Ordered, 5)], Rule::Position, &[0, 1]);
        allowed(&[get(second, 20, Kind::After(seen.position().unwrap()), 5)]);
        forbidden(&[get(second, 20, Kind::After(seen.position().unwrap()), 4)], Rule::Position, &[0]);
    }
}

#[test]
fn a_position_is_above_those_answered_by_the_group_before() {
    let first = call(0, (0, 10), "0", "add 0 1", "1").at(50);
    let second = |from, time| call(1, (from, 30), "0", "add 0 1", "2").at(time);
    allowed(&[first.clone(), second(20, 51)]);
    forbidden(&[first, second(20, 50 - 1)], Rule::Position, &[0, 1]);
}

#[test]
fn a_read_observes_exactly_the_commands_up_to_its_position() {
    let writes = [call(0, (0, 5), "0", "put 0 1", "0").at(10), call(0, (6, 9), "0", "put 0 2", "1").at(20)];
    let with = |time, reply| {
        let read = call(1, (7, 30), "0", "get 0", reply).kind(Kind::Leader).at(time);
        [writes.to_vec(), vec![read]].concat()
    };
    allowed(&with(10, "1"));
    allowed(&with(25, "2"));
    forbidden(&with(10, "2"), Rule::Position, &[1, 2]);
}

#[test]
fn a_read_from_the_future_is_a_cycle() {
    let write = call(0, (20, 30), "0", "put 0 1", "0").at(50);
    let read = call(1, (0, 10), "0", "get 0", "1").kind(Kind::After(position(50)));
    let found = forbidden(&[write, read], Rule::Prefix, &[0, 1]);
    assert_eq!(
        found.lines[2..],
        [
            "call 0 comes before call 1: the read asked for its position",
            "call 1 comes before call 0: it was answered before the other was submitted"
        ]
    );
}

/// Different orders of the commands lead to different states, and the search finds none that matches the read.
#[test]
fn a_search_that_is_too_hard_is_abandoned() {
    let mut calls: Vec<Call> =
        (0..20).map(|session| call(session, (0, 10), "0", &format!("push 0 {session}"), "")).collect();
    calls.push(call(20, (20, 30), "0", "get 0", "7"));
    assert_eq!(decide(&history(&calls), &Service), Verdict::TooHard);
}

#[test]
fn a_wrong_witness_is_rejected() {
    let calls = [
        call(0, (0, 10), "0", "put 0 1", "0"),
        call(1, (20, 30), "0", "put 0 2", "1"),
        call(2, (0, 1), "0", "put 1 1", "").ended(Outcome::NotApplied),
        call(2, (40, 50), "1", "put 1 1", "0"),
        call(2, (60, 70), "2", "put 1 1", "0"),
    ];
    let of = |order: &[usize]| verify(&history(&calls), &Service, order);
    assert_eq!(of(&[0, 1, 3, 4]), Ok(()));
    assert_eq!(of(&[3, 0, 4, 1]), Ok(()));
    assert_eq!(
        of(&[0, 1, 4, 3]).unwrap_err(),
        "call 3 was answered before its session submitted a call that the order puts first"
    );
    assert_eq!(of(&[1, 0, 3, 4]).unwrap_err(), "call 1: the reply of g0 is not the one of the model");
    assert_eq!(of(&[0, 1, 3]).unwrap_err(), "call 4 was answered and is missing");
    for wrong in [&[0, 0, 1, 3, 4][..], &[0, 1, 2, 3, 4], &[0, 1, 3, 4, 5]] {
        assert!(of(wrong).unwrap_err().ends_with("does not exist, occurs twice, or took no effect"));
    }
}

#[test]
fn calls_that_cannot_have_been_made_are_refused() {
    let mut history = History::new();
    let good = call(0, (0, 10), "0 1", "put 0 1", "0 0");
    let refused = |history: &mut History, call: Call| history.push(call).unwrap_err();
    assert_eq!(refused(&mut history, good.clone().kind(Kind::Leader)), CallError::OneGroupOnly);
    assert_eq!(refused(&mut history, Call { groups: GroupSet::EMPTY, ..good.clone() }), CallError::NoGroups);
    let late = Call { submitted: 11, ..good.clone() };
    assert_eq!(refused(&mut history, late), CallError::AnsweredBefore { submitted: 11, answered: 10 });
    assert_eq!(refused(&mut history, call(0, (0, 10), "0 1", "put 0 1", "0")), CallError::Replies);
    assert_eq!(history.push(good), Ok(0));
    assert_eq!(history.calls().len(), 1);
}
