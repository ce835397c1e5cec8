//! The sequential model of a service: one machine per group, which processes one call after the other.

use std::cell::RefCell;
use std::collections::BTreeMap;

use stentor_checker as checker;
use stentor_checker::calls::Model;
use stentor_multicast::{GroupId, Timestamp};
use stentor_session as session;
use stentor_simulation::sessions::{AppliedCalls, Passed, Place};

use super::applies::{Applies, Lent, append, in_context, in_read_context};
use super::clients::SimCall;
use super::wrongs::Wrongs;
use crate::Group;
use crate::{Position, Reply, SessionId};

/// The sequential model of a service.
///
/// Replies may depend on the context of a call: on its position, its session, and on earlier ends of sessions and
/// timers. Each call therefore has the same context here as at the members, sessions end where they ended at the
/// members, and timers fire at the positions that members passed. Only the order of the calls is chosen by the search.
pub(super) struct Sequential<'a> {
    pub(super) fresh: &'a dyn Fn(Group) -> Box<dyn Applies>,
    /// Version in force at the members.
    pub(super) version: u32,
    pub(super) calls: &'a BTreeMap<u64, SimCall>,
    pub(super) applied: &'a AppliedCalls,
    pub(super) passed: &'a BTreeMap<(GroupId, u64), Passed>,
    pub(super) most_reply: usize,
    /// For each group, a machine and the calls that it has processed. Most searches continue from this state.
    pub(super) reached: RefCell<BTreeMap<u16, Reached>>,
    pub(super) wrongs: Wrongs,
}

/// A machine that has processed a sequence of calls.
pub(super) struct Reached {
    machine: Box<dyn Applies>,
    pub(super) lent: Lent,
    calls: Vec<u64>,
    /// Number of the last position that was passed.
    passed: u64,
    /// Number of the last passed position at which a session ended or a timer fired.
    told: u64,
}

/// Returns the bytes of an operation in a history: the token, by which this model finds the call, and the content of
/// the call.
pub(super) fn operation(token: u64, call: &SimCall) -> Vec<u8> {
    [format!("#{token} ").as_bytes(), &call.bytes].concat()
}

fn token(operation: &[u8]) -> u64 {
    let digits = operation.iter().skip(1).take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

impl Sequential<'_> {
    /// Returns the model's reply to a call in a group after the calls `calls`.
    pub(super) fn reply(&self, group: GroupId, calls: &[u64], token: u64) -> Vec<u8> {
        self.with_machine(group, calls, token, |reached| self.carry_out(group, reached, token))
    }

    /// Returns the number of a call in the order of a group, with its timestamp; 0 if it was not applied there. For an
    /// unordered read, returns the position that its answer names.
    fn place_of(&self, group: GroupId, token: u64) -> (u64, Timestamp) {
        let answered = self.calls.get(&token).and_then(SimCall::answered_at);
        if let Some(Position { time, group, index, .. }) = answered {
            return (index, Timestamp { time, group: group.0.0 });
        }
        let place = self.applied.get(&token).and_then(|groups| groups.get(&group));
        place.map_or((0, Timestamp::default()), |applied| (applied.number, applied.timestamp))
    }

    /// Returns the timestamp at a position of a group's order; the earliest timestamp if members have not passed it.
    pub(super) fn timestamp_at(&self, group: GroupId, number: u64) -> Timestamp {
        self.passed.get(&(group, number)).map(|passed| passed.timestamp).unwrap_or_default()
    }

    /// Runs `with` on the machine of a group after `calls` and the positions up to that of the call `token`.
    fn with_machine<T>(&self, group: GroupId, calls: &[u64], token: u64, with: impl FnOnce(&mut Reached) -> T) -> T {
        let mut all = self.reached.borrow_mut();
        let reached = all.entry(group.0).or_insert_with(|| self.begin(group));
        let (number, _) = self.place_of(group, token);
        if !calls.starts_with(&reached.calls) || number < reached.told {
            *reached = self.begin(group);
        }
        for call in &calls[reached.calls.len()..] {
            self.carry_out(group, reached, *call);
        }
        self.pass_places(group, reached, number);
        let done = with(reached);
        // The search compares replies only, so notifications are dropped.
        reached.lent.notes.take(|_, _| ());
        done
    }

    /// Returns a machine of a group that has processed nothing.
    pub(super) fn begin(&self, group: GroupId) -> Reached {
        let (machine, lent) = ((self.fresh)(Group(group)), Lent::new(self.version));
        Reached { machine, lent, calls: Vec::new(), passed: 0, told: 0 }
    }

    /// Passes the positions up to a number: reports the sessions that end there, and fires timers.
    pub(super) fn pass_places(&self, group: GroupId, reached: &mut Reached, number: u64) {
        if number <= reached.passed || self.wrongs.are_fatal() {
            return;
        }
        for ((_, at), passed) in self.passed.range((group, reached.passed + 1)..=(group, number)) {
            let (groups, timestamp, client) = (&passed.groups[..], passed.timestamp, passed.client);
            let place = Place { token: 0, group, groups, timestamp, number: *at, client, session: None };
            let is_due = reached.lent.timers.get().begin(timestamp.time);
            if is_due || passed.sessions().next().is_some() {
                reached.told = *at;
            }
            self.tell_ends(&place, reached, &passed.ran_out);
            let Reached { machine, lent, .. } = &mut *reached;
            if is_due {
                while let Some(timer) = lent.timers.fire() {
                    let fired = || in_context(&place, lent, |at| machine.timer(at, timer));
                    self.wrongs.run(|| "`timer` of the model".to_owned(), fired);
                }
            }
            self.tell_ends(&place, reached, &passed.ended);
        }
        reached.passed = number;
    }

    fn tell_ends(&self, place: &Place<'_>, reached: &mut Reached, sessions: &[session::SessionId]) {
        let Reached { machine, lent, .. } = reached;
        for session in sessions {
            let told = || in_context(place, lent, |at| machine.session_ended(at, SessionId(*session)));
            self.wrongs.run(|| "`session_ended` of the model".to_owned(), told);
        }
    }

    /// Applies a command or answers a read, and returns the reply.
    pub(super) fn carry_out(&self, group: GroupId, reached: &mut Reached, token: u64) -> Vec<u8> {
        self.pass_places(group, reached, self.place_of(group, token).0);
        let mut reply = Reply::new(self.most_reply);
        // After a panic the machine may be inconsistent, and the run has failed.
        if let Some(call) = self.calls.get(&token).filter(|_| !self.wrongs.are_fatal()) {
            let Reached { machine, lent, .. } = &mut *reached;
            let place = self.place(group, token, call);
            let applied = || match call.how {
                Some(_) => in_read_context(&place, lent, |at| machine.read(at, &call.bytes, &mut reply)),
                None => in_context(&place, lent, |at| machine.apply(at, &call.bytes, &mut reply)),
            };
            self.wrongs.run(|| "the model".to_owned(), applied);
            if call.how.is_none() {
                reached.calls.push(token);
            }
        }
        let mut out = Vec::new();
        append(&reply, self.most_reply, &mut out);
        out
    }

    fn place<'b>(&self, group: GroupId, token: u64, call: &'b SimCall) -> Place<'b> {
        let (number, timestamp) = self.place_of(group, token);
        Place {
            token,
            group,
            groups: call.groups.ids(),
            timestamp,
            number,
            client: Some(call.client),
            session: Some(call.session),
        }
    }
}

impl Model for Sequential<'_> {
    /// The calls that the group has processed.
    type State = Vec<u64>;

    fn initial(&self, _: checker::Group) -> Vec<u64> {
        Vec::new()
    }

    fn apply(&self, state: &mut Vec<u64>, group: checker::Group, operation: &[u8]) -> Vec<u8> {
        let (group, token) = (GroupId(group.0), token(operation));
        let reply = self.reply(group, state, token);
        state.push(token);
        reply
    }

    fn read(&self, state: &Vec<u64>, group: checker::Group, operation: &[u8]) -> Vec<u8> {
        let (group, token) = (GroupId(group.0), token(operation));
        self.reply(group, state, token)
    }
}
