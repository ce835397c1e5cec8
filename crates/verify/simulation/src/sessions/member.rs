//! A member with its table of sessions. It answers clients as a node does.

use std::rc::Rc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::SimFabric;
use stentor_multicast::{Application, Ballot, Delivered, GroupId, Member, NodeError, ReplicaConfig};
use stentor_session::{
    Answer, AnswerBuffer, Answers, At, Kind, Reads, ReadyRead, ReplyRecord, SessionId, Sessions, Verdict,
};

use super::ledger::Passed;
use super::machine::{Machine, Place, TimeEvent};
use super::mutant::Mutant;
use super::note_ledger::{Count, Notes};
use super::reading;
use super::served::{Done, Served};
use super::shared::Shared;
use super::time_ledger::Timed;
use crate::chance::Chance;
use crate::clocks::BOUND_NS;
use crate::faulty_run::Candidate;
use crate::faulty_run::member::{TICK_NS, start};

/// The application of a member: the table of sessions and the state machine.
struct Applied {
    group: GroupId,
    sessions: Sessions,
    machine: Box<dyn Machine>,
    /// The initial state of the machine.
    first: Vec<u8>,
    /// Replies that are to be sent.
    replies: AnswerBuffer,
    /// Tokens of the commands that were applied in this step.
    tokens: Vec<u64>,
    /// The version in force: 1, plus one for each version entry.
    version: u32,
    /// The version that was ordered when this step began, for the mutant that puts it in force at once.
    ordered: u32,
}

impl Applied {
    fn version(&self, mutant: Mutant) -> u32 {
        if mutant.takes_versions_at_receipt() { self.version.max(self.ordered) } else { self.version }
    }
}

pub(super) struct MemberActor {
    pub(super) member: Member<SimFabric>,
    me: ProcessId,
    candidate: Candidate,
    /// `true` if the process restarted without memory and its recovery is not recorded yet.
    absent: bool,
    /// `true` if the nemesis counts the member as failed.
    forgetful: bool,
    /// The last ballot in which the member led.
    led: Option<Ballot>,
    applied: Applied,
    answers: Answers,
    reads: Reads,
    /// Commands whose replies the member sent as the leader.
    said: Vec<u64>,
    shared: Rc<Shared>,
}

impl MemberActor {
    pub(super) fn new(shared: &Rc<Shared>, me: ProcessId, incarnation: u64) -> Result<Self, NodeError> {
        let (topology, base) = (&shared.topology, &shared.scenario.base);
        let (mutant, time_entries) = (shared.mutant.of_multicast(), shared.scenario.time_entries);
        let config = ReplicaConfig::new(topology.clone(), me, base.limits.window);
        let config = ReplicaConfig { mutant, time_entries, ..config };
        let mut member = start(&shared.world, base, config, shared.salt, incarnation)?;
        member.set_clock_bound(Duration::from_nanos(BOUND_NS));
        let group = member.replica().group();
        let election = shared.nemesis.borrow().election(me);
        let machine = (shared.machine)(group);
        let mut first = Vec::new();
        machine.write(&mut first);
        Ok(MemberActor {
            member,
            me,
            candidate: Candidate::new(me, election, Chance::of_process(shared.salt, me, incarnation)),
            absent: incarnation > 1,
            forgetful: incarnation > 1,
            led: None,
            applied: Applied {
                group,
                sessions: shared.table(group),
                machine,
                first,
                replies: AnswerBuffer::default(),
                tokens: Vec::new(),
                version: 1,
                ordered: 1,
            },
            answers: Answers::new(topology.clients()),
            reads: Reads::default(),
            said: Vec::new(),
            shared: Rc::clone(shared),
        })
    }

    pub(super) fn step(&mut self, now_ns: u64) -> bool {
        self.candidate.listen(now_ns, &mut self.member);
        let clocks = self.shared.clocks.borrow();
        let member_ns = clocks.monotonic(self.me, now_ns);
        let wall_ns = clocks.wall(self.me, now_ns);
        drop(clocks);
        let told = self.member.tell_wall_clock(Duration::from_nanos(member_ns), wall_ns);
        told.expect("the clocks are of this age");
        let mut worked = self.member.housekeep();
        let MemberActor { member, me, absent, applied, shared, .. } = self;
        applied.ordered = member.replica().ordered_version();
        let (mut app, now) = (App { now_ns, me: *me, absent, applied, shared }, Duration::from_nanos(member_ns));
        worked |= member.step(now, &mut app);
        if !shared.world.is_up(*me) {
            return false;
        }
        worked |= order_what_is_due(member, &mut app, now) | report_goal(member, &mut app);
        worked |= self.answer();
        worked |= self.answer_reads(now) | self.order_for_reads(now_ns);
        self.note(now_ns);
        self.shared.world.wake_at(self.me, now_ns + TICK_NS);
        self.candidate.wake(now_ns, &self.shared.world);
        worked || self.member.has_unflushed()
    }

    /// Sends the replies of this step and the repeated replies, in the order of a node's round.
    fn answer(&mut self) -> bool {
        let MemberActor { member, me, applied, answers, said, shared, .. } = self;
        let (mut again, number) = (0, member.applied());
        let looked = answers.look(member, |client| {
            shared.said_again.borrow_mut().insert((*me, client), number);
            if shared.mutant.says_once() {
                return;
            }
            applied.sessions.replies_of(client.0, |record| {
                again += 1;
                applied.replies.push(&Answer::again(client, record));
            });
        });
        if member.replica().is_leader() {
            said.append(&mut applied.tokens);
        }
        applied.tokens.clear();
        answers.send(member, applied.replies.iter());
        applied.replies.clear();
        let mut counts = shared.counts.borrow_mut();
        counts.records_said_again += again;
        counts.reply_rings_full += u64::from(answers.waiting() > 0);
        looked
    }

    /// Answers reads outside the order.
    fn answer_reads(&mut self, now: Duration) -> bool {
        let MemberActor { member, applied, reads, shared, .. } = self;
        let (mut ready, time) = (Vec::new(), applied.sessions.time());
        let worked = reads
            .look(member, (now, true), |read| ready.push((read.client, read.name, read.time, read.query.to_vec())));
        for (client, name, least, query) in ready {
            let read = ReadyRead { client, name, time: least, query: &query };
            reading::answer(member, &mut *applied.machine, (time, &read), shared);
        }
        worked
    }

    /// Orders a time entry if reads wait for one.
    fn order_for_reads(&mut self, now_ns: u64) -> bool {
        let MemberActor { member, me, absent, applied, reads, shared, .. } = self;
        let Some(time) = reads.early().filter(|_| shared.scenario.time_entries) else { return false };
        let ordered = member.order_time(time, &mut App { now_ns, me: *me, absent, applied, shared }).is_some();
        shared.counts.borrow_mut().entries_for_reads += u64::from(ordered);
        ordered
    }

    /// Adds the member's counts of reads to the totals.
    pub(super) fn count_reads(&self) {
        let (read, counts) = (self.reads.counts(), &mut *self.shared.counts.borrow_mut());
        counts.reads_led += read.led;
        counts.reads_led_late += read.waited;
        counts.reads_after += read.after;
        counts.reads_after_late += read.late;
        counts.reads_local += read.local;
        counts.reads_elsewhere += read.elsewhere;
    }

    /// Records that the member has recovered, or is ready to lead.
    fn note(&mut self, now_ns: u64) {
        let (replica, shared) = (self.member.replica(), &self.shared);
        if self.absent && !replica.is_joining() {
            self.absent = false;
            shared.progress.borrow_mut().restored(self.me, replica.delivered());
        }
        if self.forgetful && !replica.is_joining() {
            self.forgetful = false;
            shared.nemesis.borrow_mut().synced(now_ns, self.me, !shared.are_all_done());
        }
        if replica.is_leader() && self.led.replace(replica.ballot()) != Some(replica.ballot()) {
            shared.nemesis.borrow_mut().ready(now_ns, replica.group(), self.me);
            shared.leaders.set(shared.leaders.get() + 1);
        }
    }

    /// Counts the replies that are lost with the member.
    pub(super) fn crashed(&self) {
        let ledger = self.shared.ledger.borrow();
        let lost = self.said.iter().filter(|token| !ledger.is_known(**token)).count();
        self.shared.counts.borrow_mut().replies_lost_with_leaders += lost as u64;
    }

    /// Describes the state of the member.
    pub(super) fn stand(&self) -> String {
        let replica = self.member.replica();
        let open: Vec<String> = replica.undelivered().take(4).map(|id| id.to_string()).collect();
        format!(
            "{} has delivered {} in ballot {}{}{}; {} sessions; undelivered: {}",
            self.me,
            replica.delivered(),
            replica.ballot(),
            if replica.is_leader() { ", leads" } else { "" },
            if replica.is_joining() { ", joins" } else { "" },
            self.applied.sessions.len(),
            open.join(" ")
        )
    }
}

/// Orders a time entry if the member leads and the end of a session or a timer is due. Returns whether one was ordered.
fn order_what_is_due(member: &mut Member<SimFabric>, app: &mut App<'_>, now: Duration) -> bool {
    if !app.shared.scenario.time_entries {
        return false;
    }
    let end = app.applied.sessions.next_end().map(|end| end + 1);
    let due = end.into_iter().chain(app.applied.machine.next_timer()).min();
    let has_come = due.zip(member.group_time(now)).filter(|(due, time)| due <= time);
    has_come.is_some_and(|(due, _)| member.order_time(due.saturating_sub(1), app).is_some())
}

/// Reports the smallest version of the group's programs to the member. Returns whether it ordered version entries.
fn report_goal(member: &mut Member<SimFabric>, app: &mut App<'_>) -> bool {
    if !app.shared.scenario.upgrades || !app.shared.world.is_up(app.me) {
        return false;
    }
    let goal = app.shared.goal_of(app.applied.group, app.me, app.now_ns);
    member.set_version_goal(goal, app)
}

/// Returns the session whose end a message sets, and the end.
fn end_in(judged: &stentor_session::Delivered<'_>) -> Option<(SessionId, u64)> {
    let sets = matches!(judged.envelope.kind, Kind::Open | Kind::Widen | Kind::TakeUp | Kind::Renew);
    let ReplyRecord { session, end, .. } = ReplyRecord::parse(judged.record).ok().filter(|_| sets)?;
    (end > 0).then_some((session, end))
}

/// Returns the position of a delivery.
fn at<'a>(delivered: &Delivered<'_>, destinations: &'a [GroupId]) -> At<'a> {
    let Delivered { timestamp, number, origin, id, .. } = *delivered;
    At { time: timestamp, index: number, incarnation: origin, destinations, client: id.client.0 }
}

/// Returns the series that a notification belongs to.
fn count_of(group: GroupId, answer: &Answer<'_>) -> Option<Count> {
    let ReplyRecord { session, generation, end, .. } = ReplyRecord::parse(answer.record).ok()?;
    Some(Count { session, group, generation, since: end })
}

/// Describes a notification.
fn notifies(group: GroupId, number: u64, session: SessionId, bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(60)].escape_ascii();
    format!("group {} notifies session {:08x} at {number}: \"{text}\"", group.0, session.0 >> 96)
}

/// The application during one step.
struct App<'a> {
    now_ns: u64,
    me: ProcessId,
    absent: &'a mut bool,
    applied: &'a mut Applied,
    shared: &'a Shared,
}

impl App<'_> {
    /// Processes a delivery in the table of sessions.
    fn apply(&mut self, delivered: &Delivered<'_>, done: &mut Done) {
        let Applied { group, sessions, machine, replies, .. } = &mut *self.applied;
        let groups: Vec<GroupId> = delivered.groups.iter().collect();
        let client = delivered.id.client;
        let (timestamp, number) = (delivered.timestamp, delivered.number);
        let sender = self.shared.sender_of(delivered);
        let place =
            Place { token: 0, group: *group, groups: &groups, timestamp, number, client: sender, session: None };
        let mut service = Served { machine: &mut **machine, at: place, done };
        service.machine.begin(&place);
        let is_late = self.shared.mutant.ends_after_apply();
        if !is_late || sender.is_none() {
            sessions.expire(timestamp.time, &mut service);
        }
        service.fire_timers();
        if sender.is_none() {
            let mut counts = self.shared.counts.borrow_mut();
            counts.sessions_run_out += done.ran_out.len() as u64;
            return;
        }
        let at = at(delivered, &groups);
        let judged = match sessions.deliver(&at, delivered.payload, &mut service) {
            Ok(judged) if delivered.enveloped => judged,
            Ok(_) => {
                return self.shared.ledger.borrow_mut().violate("X1", "the mark of an envelope is lost".to_owned());
            }
            Err(why) => {
                return self.shared.ledger.borrow_mut().violate("X1", format!("a payload is no message: {why}"));
            }
        };
        let mut counts = self.shared.counts.borrow_mut();
        match (judged.verdict, judged.envelope.kind) {
            (Verdict::Duplicate, Kind::Command | Kind::Query) => counts.duplicates_from_cache += 1,
            (Verdict::Applied, Kind::Query) => counts.queries_answered += 1,
            (Verdict::Duplicate, Kind::Resolve) => counts.questions_from_cache += 1,
            _ => {}
        }
        replies.push(&Answer::to(client, &judged));
        // A mutant may end other sessions here.
        let (ends, end) = (judged.verdict == Verdict::CarriedOut(Kind::End), end_in(&judged));
        if is_late {
            sessions.expire(timestamp.time, &mut service);
        }
        (done.ends, done.end) = (ends, end);
        counts.sessions_run_out += (done.ran_out.len() + done.ended.len() - usize::from(ends)) as u64;
    }

    /// Judges the times and the version at a delivery.
    fn judge_times(&mut self, delivered: &Delivered<'_>, done: &Done) {
        let Applied { group, machine, .. } = &mut *self.applied;
        let (group, raises_version) = (*group, delivered.id.client == self.shared.topology.version_client(*group));
        let (time, mut events) = (delivered.timestamp.time, Vec::new());
        machine.take_events(&mut |event| events.push(event));
        let has_fired = events.iter().any(|event| matches!(event, TimeEvent::Fired(_)));
        self.applied.version += u32::from(raises_version);
        let version = self.applied.version(self.shared.mutant);
        let program = self.shared.program_of(self.me, self.now_ns);
        let at = Timed { time, events, ends: done.ends, end: done.end, raises_version, version, program };
        if self.shared.ledger.borrow_mut().timed((group, delivered.number), self.me, &at) {
            let mut counts = self.shared.counts.borrow_mut();
            counts.timers_fired += u64::from(has_fired);
            counts.version_entries += u64::from(raises_version);
        }
    }

    /// Sends the machine's notifications at a delivery, after the reply.
    fn notify(&mut self, delivered: &Delivered<'_>) {
        let Applied { group, sessions, machine, replies, .. } = &mut *self.applied;
        let (group, shared, number) = (*group, self.shared, delivered.number);
        let (groups, mut notes): (Vec<GroupId>, _) = (delivered.groups.iter().collect(), Notes::new());
        machine.take_notes(&mut |session, bytes| notes.push((session, bytes.to_vec())));
        let (at, mut ledger) = (at(delivered, &groups), shared.ledger.borrow_mut());
        let is_first = ledger.is_new((group, number));
        for (session, bytes) in &notes {
            let times = if shared.mutant.notifies_twice() { 2 } else { 1 };
            for time in 0..times {
                let Some(answer) = sessions.notify(&at, *session, bytes) else { break };
                replies.push(&answer);
                if is_first
                    && time == 0
                    && let Some(count) = count_of(group, &answer)
                {
                    ledger.notes.counts(count, number, bytes);
                    shared.counts.borrow_mut().notifications += 1;
                    shared.tell(|| notifies(group, number, *session, bytes));
                }
            }
        }
        if let Err(why) = ledger.notes.sent((group, number), self.me, notes, is_first) {
            ledger.violate("X11", why);
        }
    }

    fn judge(&self, number: u64) {
        let (mut table, mut value) = (Vec::new(), Vec::new());
        self.applied.sessions.write(&mut table);
        self.applied.machine.compared(&mut value);
        self.shared.ledger.borrow_mut().state((self.applied.group, number), self.me, &table, &value);
    }
}

impl Application for App<'_> {
    fn deliver(&mut self, delivered: &Delivered<'_>) {
        // The process may have crashed at a post of this step. Its later actions never happened.
        if !self.shared.world.is_up(self.me) {
            return;
        }
        let mut progress = self.shared.progress.borrow_mut();
        if std::mem::take(self.absent) {
            progress.restored(self.me, delivered.number - 1);
        }
        let (group, number, timestamp) = (self.applied.group, delivered.number, delivered.timestamp);
        let time = timestamp.time;
        let first = progress.delivered(self.me, group, delivered.id, number);
        progress.note_delivery(self.now_ns, group, first);
        drop(progress);
        let mut done = Done::default();
        self.apply(delivered, &mut done);
        self.judge_times(delivered, &done);
        let mut ledger = self.shared.ledger.borrow_mut();
        ledger.reads.delivered(group, number, timestamp);
        let (groups, client) = (delivered.groups.iter().collect(), self.shared.sender_of(delivered));
        let passed = Passed { timestamp, groups, client, ran_out: done.ran_out, ended: done.ended };
        let names: Vec<String> = passed.sessions().map(|session| format!("{:08x}", session.0 >> 96)).collect();
        if ledger.passes((group, number), passed) {
            let names = names.join(", ");
            self.shared.tell(|| format!("in group {}, session {names} has ended at {number}", group.0));
        }
        if let Some((token, reply)) = done.applied {
            self.applied.tokens.push(token);
            if ledger.applied((group, number), timestamp, token, &reply) {
                self.shared.tell(|| {
                    format!("{} of group {} is the first to apply call {token}, at {number}", self.me, group.0)
                });
            }
            self.shared.record("apply", self.now_ns, self.me, &[number, time, token]);
        } else {
            self.shared.record("judge", self.now_ns, self.me, &[number, time]);
        }
        drop(ledger);
        self.notify(delivered);
        self.judge(number);
        self.shared.deliveries.set(self.shared.deliveries.get() + 1);
        self.shared.world.mark(self.me, format_args!("deliver {}", delivered.id));
    }

    fn snapshot(&mut self, out: &mut Vec<u8>) {
        self.applied.sessions.write(out);
        if self.shared.scenario.upgrades {
            out.extend(self.applied.version.to_le_bytes());
        }
        self.applied.machine.write(out);
    }

    fn restore(&mut self, number: u64, state: &[u8]) {
        if !self.shared.world.is_up(self.me) {
            return;
        }
        let (group, shared) = (self.applied.group, self.shared);
        let Applied { machine, first, .. } = &mut *self.applied;
        let read = if number == 0 {
            Some((shared.table(group), &first[..]))
        } else {
            Sessions::read(group, shared.scenario.sessions, state).ok()
        };
        let has_version = number > 0 && shared.scenario.upgrades;
        let read = read.and_then(|(sessions, rest)| {
            let (version, value) = if has_version { rest.split_first_chunk()? } else { (&[1, 0, 0, 0], rest) };
            machine.restore(value).then_some((sessions, u32::from_le_bytes(*version)))
        });
        let Some((sessions, version)) = read else {
            return shared.ledger.borrow_mut().violate("X6", format!("{} cannot read a state", self.me));
        };
        shared.restores.set(shared.restores.get() + u64::from(number > 0));
        shared.tell(|| format!("{} of group {} takes over the state after {number}", self.me, group.0));
        shared.counts.borrow_mut().states_with_sessions += u64::from(!sessions.is_empty());
        let sessions = if shared.mutant.leaves_table_out() { shared.table(group) } else { sessions };
        self.applied.version = if shared.mutant.leaves_version_out() { 1 } else { version };
        self.applied.sessions = sessions.with_mutant(shared.mutant.of_sessions());
        if number > 0 {
            self.judge(number);
        }
        *self.absent = false;
        shared.progress.borrow_mut().restored(self.me, number);
        shared.world.mark(self.me, format_args!("state after delivery {number}"));
    }
}
