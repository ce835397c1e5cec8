//! A client with its session on its fabric. A [`Client`](super::Client)'s thread serves it, and a
//! [`LocalClient`](super::LocalClient) turns it.
//!
//! # Recovery of lost replies
//! A reply can be lost with a connection, or with the member that sent it. Members repeat replies to a client that
//! connects, and a new leader repeats every reply that was not acknowledged. Neither helps if the leader is not
//! connected to this client. Then the client asks: once a majority of each group has delivered a command and no reply
//! has arrived for [`UNANSWERED`], it asks the groups for the outcome, which all members answer. If a group does not
//! know a command, the question closes the command: the groups then never apply it. A delivered command is in the
//! session table of each group, so this cannot happen to it.
//!
//! Commands of the session itself (such as its opening) and questions about requests of an earlier process are resent
//! 250 ms (`AGAIN`) after a majority of each group has delivered them, until all groups have answered.
//!
//! # Groups that do not answer or have no room
//! - A widening adds groups to the session. A widening that cannot be sent is withdrawn, so that it does not block the
//!   next one.
//! - After a widening that was refused or could not be sent, the session pauses before the next one. The pause doubles
//!   each time, up to 4 s. It contains a random part, so that clients which compete for table entries do not retry in
//!   step.
//! - The session's end does not wait for a widening.

mod questions;
mod reading;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_fabric::{Backoff, Idle, WaitMode};
use stentor_multicast::{Client as Sender, GroupId};
use stentor_session::{
    COMMAND_OVERHEAD, Caller, CallerConfig, CallerError, Envelope, Event, Kind, Outcome as Answered, Pair, Reason,
    ReplyRecord, SessionId, SessionKey,
};

use self::reading::Reading;
use super::asked::{Asked, rest_of};
use super::error::Problem;
use super::fates::{not_applied, outcome, refusal};
use super::groups::first;
use super::halts::Halts;
use super::leaders::Leaders;
use super::lease::Lease;
use super::notifications::{Inbox, Notification};
use super::origins::Origins;
use super::random::random;
use super::watch::{ClientWatch, multicast};
use super::{Ask, Outcome, Refused, Session, Why};
use crate::Group;
use crate::runtime::{ClusterRuntime, FabricDiagnostics, Housekeeper, LONGEST_SLEEP, RunError, wall_ns};

/// Time after which the client asks for the outcome of a delivered command that has no reply.
const UNANSWERED: Duration = Duration::from_millis(100);
/// Maximum number of attempts to open or resume a session. Another attempt follows if a group's time or history, or the
/// session's generation, was not as assumed. Attempts that fail because a group does not know the time do not count.
const ATTEMPTS: u32 = 4;
/// Pause before the next attempt if a group does not know the time yet. Members wait for the clocks of other members
/// for up to four clock bounds, and the pause is a fraction of that time.
const UNKNOWN_TIME: Duration = Duration::from_millis(50);
/// Longest wait of a closing client for the end of its session.
const FAREWELL: Duration = Duration::from_secs(1);

/// A request that was sent and is not answered.
#[derive(Clone, Copy, Default)]
struct Sent {
    sequence: u64,
    /// Time at which the delivery of the request was detected, by the housekeeper's clock.
    delivered: Option<Duration>,
}

const NOT_SENT: Sent = Sent { sequence: u64::MAX, delivered: None };

/// The identity of a request of the session. If groups have diverged, two processes can reach the same generation. The
/// random words of the two processes differ in this case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Name {
    pub(super) generation: u32,
    pub(super) word: u64,
    pub(super) request: u64,
}

impl Name {
    pub(super) fn of(ticket: &stentor_session::Ticket) -> Self {
        Name { generation: ticket.generation, word: ticket.word, request: ticket.request }
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) struct Finished<'a> {
    pub(super) name: Name,
    pub(super) outcome: Outcome<'a>,
}

/// A client with its session.
pub(super) struct Core<F: FabricDiagnostics> {
    plan: Arc<ClusterRuntime>,
    client: Sender<F>,
    watch: ClientWatch,
    caller: Caller,
    backoff: Backoff,
    housekeeper: Housekeeper,
    patience: Duration,
    /// Time to live of the session without a renewal.
    ttl: Duration,
    /// The latest order time that a reply has reported or the owner has observed, in nanoseconds since 1970.
    order_time: u64,
    origins: Origins,
    /// Requests in flight, indexed by request number modulo the window.
    sent: Vec<Sent>,
    envelope: [u8; Envelope::BYTES],
    question: Vec<u8>,
    /// Length of the longest command, in bytes.
    longest: usize,
    /// Groups by which the session is to be widened.
    wanted: Vec<GroupId>,
    /// The last transmission of the session's pending command.
    asked: Option<Asked>,
    /// The last transmission of each question about a request of an earlier generation.
    questions: Vec<(Name, Asked)>,
    /// No widening begins before this time.
    rests_until: Duration,
    /// Number of consecutive widenings that were refused or could not be sent.
    refusals: u32,
    /// The outcome of the session's last command: its kind, and the group that refused it, with the reason.
    agreed: Option<(Kind, Option<(GroupId, Answered)>)>,
    /// Groups that are known to have been reset.
    reset: Vec<GroupId>,
    /// Number of changes of the session's key or of the moment until which the session lives.
    changes: u64,
    halts: Halts,
    lease: Lease,
    /// `true` if a group has reported that another process resumed the session.
    taken_up: bool,
    /// A group in which the session has expired. The group has released everything that the session held there, so no
    /// further command may use the session's id.
    ran_out: Option<Group>,
    /// Notifications that the caller has not received yet.
    inbox: Inbox,
    reading: Reading,
}

impl<F: FabricDiagnostics> Core<F> {
    pub(super) fn new(
        plan: &Arc<ClusterRuntime>,
        (client, watch): (Sender<F>, ClientWatch),
        wait: WaitMode,
        patience: Duration,
        ttl: Duration,
    ) -> Result<Self, Problem> {
        let [word, ..] = random().map_err(Problem::Random)?;
        let limits = plan.config().limits();
        let config = caller_config(limits.window, ttl);
        Ok(Core {
            plan: Arc::clone(plan),
            client,
            watch,
            caller: Caller::new(SessionId::default(), config),
            backoff: Backoff::new(wait),
            housekeeper: Housekeeper::default(),
            patience,
            ttl,
            order_time: 0,
            origins: Origins::new(plan.topology().groups()),
            sent: vec![Sent::default(); limits.window as usize],
            envelope: [0; Envelope::BYTES],
            question: Vec::new(),
            longest: (limits.message_bytes as usize).saturating_sub(COMMAND_OVERHEAD),
            wanted: Vec::new(),
            asked: None,
            questions: Vec::new(),
            rests_until: Duration::ZERO,
            refusals: 0,
            agreed: None,
            reset: Vec::new(),
            changes: 0,
            halts: Halts::new(plan.topology().groups()),
            lease: Lease::new(plan.topology().groups(), ttl, plan.config().clock_bound()),
            taken_up: false,
            ran_out: None,
            inbox: Inbox::default(),
            reading: Reading::new(plan.topology(), limits.window as usize, word),
        })
    }

    /// Returns the name of the process under whose client id this client runs.
    pub(super) fn name(&self) -> &str {
        self.plan.name(self.client.fabric().me())
    }

    /// Returns the underlying multicast client.
    #[cfg(feature = "unstable-core")]
    pub(super) fn sender(&mut self) -> &mut Sender<F> {
        &mut self.client
    }

    /// Returns the maximum number of requests in flight.
    pub(super) fn window(&self) -> usize {
        self.sent.len()
    }

    /// Returns the members that answered this client as leaders.
    pub(super) fn leaders(&self) -> &Arc<Leaders> {
        &self.reading.leaders
    }

    /// Returns the configuration.
    pub(super) fn plan(&self) -> &Arc<ClusterRuntime> {
        &self.plan
    }

    pub(super) fn key(&self) -> SessionKey {
        self.caller.key()
    }

    /// Returns the moment until which the session is certain to live in all its groups.
    pub(super) fn lives_until(&self) -> Option<Instant> {
        let until = self.lease.until(self.caller.key().pairs.iter().map(|pair| pair.group));
        until.filter(|_| self.caller.is_open() && !self.taken_up && self.ran_out.is_none())
    }

    /// Returns the number of changes of the [key](Core::key) or of the [moment](Core::lives_until).
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the identity of a request of this process.
    #[inline]
    pub(super) fn name_of(&self, request: u64) -> Name {
        Name { generation: self.caller.generation(), word: self.caller.word(), request }
    }

    /// Returns the ticket of an unsettled request.
    pub(super) fn ticket(&self, request: u64) -> Option<&stentor_session::Ticket> {
        self.caller.ticket(request)
    }

    // -------------------------------------------------------------------------------------------------- the session

    /// Opens a session in these groups, or resumes `session`, and waits for the result.
    pub(super) fn open(&mut self, to: &[GroupId], session: Option<&Session>) -> Result<(), Problem> {
        let until = Instant::now() + self.patience;
        let config = caller_config(self.window() as u32, self.ttl);
        if let Some(Session(key)) = session {
            self.caller = Caller::resume(key, config);
        }
        let not_done = if session.is_some() { Problem::NotTakenUp } else { Problem::NotOpened };
        let (mut last, mut attempts) = (None, 0);
        while attempts < ATTEMPTS {
            let [word, high, low] = random().map_err(Problem::Random)?;
            let at_the_latest = self.order_now().saturating_add(self.ttl.as_nanos() as u64);
            let began = if session.is_some() {
                // All attempts use the same caller, which learns the session's current generation from each refusal.
                self.caller.take_up(word, at_the_latest)
            } else {
                self.caller = Caller::new(SessionId(u128::from(high) << 64 | u128::from(low)), config);
                self.caller.open(word, &self.pairs(to), at_the_latest)
            };
            began.map_err(|error| not_done(self.refused(error, to)))?;
            self.asked = None;
            last = match (self.agree(until), last) {
                (Err(Problem::Unanswered), Some((group, Answered::Refused(Reason::TimeToLive)))) => {
                    return Err(Problem::Behind(self.plan.group_name(group).to_owned()));
                }
                (agreed, _) => agreed?,
            };
            if last.is_some() && session.is_none() {
                // Groups that did open the session release its table entry now. Otherwise they would keep it until the
                // session expires.
                self.close()?;
            }
            match last {
                None => {
                    self.changes += 1;
                    return Ok(());
                }
                // The next attempt uses another random word, and the time and the origin of the history that the
                // refusal carried, so it can succeed.
                Some((_, Answered::Refused(Reason::TooLate | Reason::Taken) | Answered::WrongPairs)) => {}
                Some((_, Answered::Refused(Reason::Superseded | Reason::GenerationAhead))) if session.is_some() => {}
                // A group whose members have not received enough clocks does not know the time yet.
                Some((_, Answered::Refused(Reason::TimeToLive))) => {
                    self.wait(UNKNOWN_TIME)?;
                    continue;
                }
                Some((group, _)) if self.origins.differ(group, &self.caller.key().pairs) => {
                    return Err(not_done(Refused::GroupReset(Group(group))));
                }
                Some((group, outcome)) => return Err(not_done(not_applied(group, outcome))),
            }
            attempts += 1;
        }
        Err(match last {
            Some((group, Answered::WrongPairs)) => not_done(Refused::GroupReset(Group(group))),
            _ => Problem::Disagreed,
        })
    }

    /// Waits until all groups have answered the session's command. Returns the group that refused it, or `None` if it
    /// was carried out.
    fn agree(&mut self, until: Instant) -> Result<Option<(GroupId, Answered)>, Problem> {
        self.agreed = None;
        loop {
            let worked = self.round(|_| {})?;
            if let Some((_, refused)) = self.agreed.take() {
                return Ok(if self.caller.is_open() { None } else { refused });
            }
            if Instant::now() > until || !self.watch.goes_on() {
                return Err(Problem::Unanswered);
            }
            self.pause(worked)?;
        }
    }

    /// Runs rounds for `time`, between two attempts to open or resume the session.
    fn wait(&mut self, time: Duration) -> Result<(), Problem> {
        let until = Instant::now() + time;
        while Instant::now() < until && self.watch.goes_on() {
            let worked = self.round(|_| {})?;
            self.pause(worked)?;
        }
        Ok(())
    }

    /// Pauses after a round, according to the wait mode.
    fn pause(&mut self, worked: bool) -> Result<(), Problem> {
        let slept = self.backoff.pause(self.client.fabric_mut(), worked, LONGEST_SLEEP);
        self.housekeeper.note_sleep(slept.map_err(RunError::Wait).map_err(Problem::Run)?);
        Ok(())
    }

    fn pairs(&self, to: &[GroupId]) -> Vec<Pair> {
        // A leader that learns of another history of its group continues its own history in a larger incarnation. The
        // incarnation in the group's hello is then not the origin of the history. The first reply reports the origin.
        let origin = |group| self.origins.of(group).unwrap_or_else(|| self.client.incarnation(group));
        to.iter().map(|group| Pair { group: *group, incarnation: origin(*group) }).collect()
    }

    /// Returns the latest order time that this client knows.
    pub(super) fn heard(&self) -> u64 {
        self.order_time
    }

    /// Orders later commands after this time.
    #[inline]
    pub(super) fn observe(&mut self, time: u64) {
        self.order_time = self.order_time.max(time);
    }

    /// Returns the best local estimate of the order's current time.
    fn order_now(&self) -> u64 {
        self.order_time.max(wall_ns())
    }

    /// Ends the session, and waits up to [`FAREWELL`] for the groups' answers.
    pub(super) fn close(&mut self) -> Result<(), Problem> {
        if !self.begin_close() {
            return Ok(());
        }
        // If the groups do not answer, the session ends when it expires.
        match self.agree(Instant::now() + self.farewell()) {
            Err(problem @ Problem::Run(_)) => Err(problem),
            _ => Ok(()),
        }
    }

    /// Starts to end the session; later rounds complete this. Returns whether there was a session to end.
    pub(super) fn begin_close(&mut self) -> bool {
        let Ok([word, ..]) = random() else { return false };
        if self.asked.is_none() {
            self.caller.take_back();
        }
        if self.caller.end(word).is_err() {
            return false;
        }
        (self.asked, self.agreed) = (None, None);
        true
    }

    /// Returns whether the groups have answered the session's end.
    pub(super) fn has_closed(&mut self) -> bool {
        self.agreed.take().is_some()
    }

    /// Returns the longest wait for the session's end.
    pub(super) fn farewell(&self) -> Duration {
        FAREWELL.min(self.patience)
    }

    // ----------------------------------------------------------------------------------------------------- commands

    /// Sends a command or a query. Returns its request number.
    #[inline]
    pub(super) fn submit(&mut self, ask: Ask, to: &[GroupId], command: &[u8]) -> Result<u64, Refused> {
        let request = self.begin(ask, to, command)?;
        let sent = self.send(request, to, command);
        if sent.is_err() {
            self.caller.not_sent(request);
        }
        sent.map(|()| request)
    }

    /// Assigns a request number, and thereby a ticket, to a command or a query. Returns the number. The caller either
    /// sends the request once or [drops](Core::not_sent) it.
    #[inline]
    pub(super) fn begin(&mut self, ask: Ask, to: &[GroupId], command: &[u8]) -> Result<u64, Refused> {
        if command.len() > self.longest {
            return Err(Refused::TooLong { bytes: command.len(), limit: self.longest });
        }
        if let Some(group) = self.halts.find(to, self.housekeeper.now()) {
            return Err(Refused::Halted(Group(group)));
        }
        if self.ran_out.is_some() {
            return Err(Refused::SessionNotOpen);
        }
        let begun = match ask {
            Ask::Command => self.caller.begin(to),
            Ask::Query => self.caller.begin_query(to),
        };
        match begun {
            Ok(request) => {
                let at = request as usize % self.sent.len();
                self.sent[at] = NOT_SENT;
                Ok(request)
            }
            Err(error) => Err(self.refused(error, to)),
        }
    }

    /// Sends a command that has a request number.
    #[inline]
    pub(super) fn send(&mut self, request: u64, to: &[GroupId], command: &[u8]) -> Result<(), Refused> {
        if !self.caller.envelope(request, &mut self.envelope) {
            return Err(Refused::Closed);
        }
        // The reply to an earlier command may come from any group. Everything that the session has seen must precede
        // this command in the order.
        let after = self.order_time;
        let submitted = multicast(&mut self.client, &mut self.watch, to, &[&self.envelope, command], after);
        let submitted = submitted.map_err(|error| refusal(&error))?;
        let at = request as usize % self.sent.len();
        self.sent[at].sequence = submitted.id.sequence;
        Ok(())
    }

    /// Drops a request that has a number and will never be sent. Does nothing if it was sent.
    pub(super) fn not_sent(&mut self, request: u64) {
        let at = request as usize % self.sent.len();
        if self.sent[at].sequence == NOT_SENT.sequence {
            self.caller.not_sent(request);
        }
    }

    /// Returns why a command cannot begin now. Groups that the session does not include yet are scheduled for a
    /// widening.
    #[cold]
    fn refused(&mut self, error: CallerError, to: &[GroupId]) -> Refused {
        let first = first(to);
        match error {
            CallerError::Busy | CallerError::UnderWay => Refused::Busy(first),
            CallerError::SessionNotOpen(group) if self.plan.topology().has_group(GroupId(group)) => {
                if !self.wanted.contains(&GroupId(group)) {
                    self.wanted.push(GroupId(group));
                }
                Refused::Unavailable(Group(GroupId(group)))
            }
            CallerError::NotOpen => Refused::SessionNotOpen,
            CallerError::Ticket => Refused::OtherSession,
            _ => Refused::NoGroups,
        }
    }

    /// Returns why a command to these groups has to wait.
    pub(super) fn why_waiting(&self, to: &[GroupId]) -> Refused {
        let reached = |group: &&GroupId| self.client.is_connected(&[**group]) && self.caller.end_in(**group).is_some();
        let first = first(to);
        to.iter()
            .find(|group| !reached(group))
            .map_or(Refused::Busy(first), |group| Refused::Unavailable(Group(*group)))
    }

    // ------------------------------------------------------------------------------------------------------- rounds

    /// Runs one round: receives replies, reports the outcomes of requests to `each`, and maintains the session. Returns
    /// whether there was any work.
    #[inline]
    pub(super) fn round(&mut self, mut each: impl FnMut(Finished<'_>)) -> Result<bool, Problem> {
        let mut worked = self.client.step();
        worked |= self.take_replies(&mut each);
        self.look_for_reads(false);
        if self.housekeeper.is_due(worked) {
            worked |= self.client.housekeep();
            self.client.tick(self.housekeeper.now());
            self.keep_session(&mut each)?;
        }
        Ok(worked)
    }

    #[inline]
    fn take_replies(&mut self, each: &mut impl FnMut(Finished<'_>)) -> bool {
        let Core {
            client,
            caller,
            order_time,
            origins,
            agreed,
            changes,
            halts,
            housekeeper,
            inbox,
            lease,
            taken_up,
            ran_out,
            reading,
            plan,
            ..
        } = self;
        let mut any = false;
        while let Some(reply) = client.next_reply() {
            any = true;
            // Bytes that do not parse come from another version, or from a faulty member.
            let Ok(record) = ReplyRecord::parse(reply.bytes) else { continue };
            if record.is_halt_notice() {
                halts.note(reply.group, record.position.index, housekeeper.now());
                continue;
            }
            if record.is_read() {
                *order_time = (*order_time).max(record.applied);
                reading.take(housekeeper.now(), (plan.topology(), reply.member), &record, each);
                continue;
            }
            reading.leaders.note_record(reply.group, reply.member, &record);
            halts.note_answer(reply.group, record.position.index);
            *order_time = (*order_time).max(record.applied);
            origins.note(reply.group, record.position.incarnation);
            match caller.on_reply(reply.group, &record) {
                Some(Event::Finished(finished)) => {
                    let stentor_session::Finished { generation, word, request, fate } = finished;
                    let outcome = outcome(fate);
                    *taken_up |= outcome.is_superseded();
                    each(Finished { name: Name { generation, word, request }, outcome });
                }
                Some(Event::Answered { kind, refused }) => {
                    *changes += 1;
                    *agreed = Some((kind, refused));
                    *ran_out = ran_out.or_else(|| ran_out_before(kind, refused, origins, caller));
                    let counts = refused.is_none() || kind == Kind::TakeUp;
                    let groups = caller.key().pairs.into_iter().map(|pair| pair.group);
                    lease.agree(groups.filter(|group| counts && caller.end_in(*group).is_some()));
                }
                Some(Event::Renewed { group, .. }) => {
                    *changes += 1;
                    lease.renewed(group, record.request);
                }
                Some(Event::Dropped { group, outcome }) => {
                    *changes += 1;
                    *taken_up |= outcome == Answered::Refused(Reason::Superseded);
                    let incarnation = record.position.incarnation;
                    let is_known = |pair: &Pair| pair.group == group && pair.incarnation == incarnation;
                    let ends = matches!(outcome, Answered::SessionNotOpen | Answered::Refused(Reason::TooLate));
                    if ends && caller.key().pairs.iter().any(is_known) {
                        *ran_out = Some(Group(group));
                    }
                    lease.drop(group);
                }
                Some(Event::Notified(news)) => inbox.take(news, &record),
                Some(_) | None => {}
            }
        }
        any
    }

    #[inline]
    pub(super) fn has_notifications(&self) -> bool {
        !self.inbox.is_empty()
    }

    pub(super) fn take_notification(&mut self) -> Option<Notification> {
        self.inbox.pop()
    }

    /// Maintains the session and follows up unanswered requests. Runs every few milliseconds.
    fn keep_session(&mut self, each: &mut impl FnMut(Finished<'_>)) -> Result<(), Problem> {
        if self.client.is_superseded() && self.client.reset_of(&self.all_groups()).is_none() {
            self.give_up(Why::Superseded, |_| true, each);
            self.reading.give_up(|_| true, Why::Superseded, each);
            return Err(Problem::Superseded);
        }
        if self.taken_up {
            self.give_up(Why::Superseded, |_| true, each);
            self.reading.give_up(|_| true, Why::Superseded, each);
            return Err(Problem::TakenUp);
        }
        if let Some(group) = self.ran_out {
            self.give_up(Why::SessionEnded, |ticket| ticket.groups().any(|other| other == group.0), each);
            // Requests to other groups are settled before the client ends, because nothing can settle them afterwards.
            if self.caller.room() as usize == self.window() {
                self.reading.give_up(|_| true, Why::SessionEnded, each);
                return Err(Problem::RanOut(self.plan.group_name(group.0).to_owned()));
            }
        }
        self.look_for_resets(each);
        let now = self.housekeeper.now();
        if self.halts.look(now) {
            self.look_for_halts(now, each);
        }
        self.widened(now)?;
        let is_idle = self.caller.message().is_none() && self.caller.is_open();
        if is_idle && !self.wanted.is_empty() && self.ran_out.is_none() && now >= self.rests_until {
            self.widen()?;
        }
        self.send_control(now)?;
        let (order_now, Core { caller, client, watch, lease, .. }) = (self.order_now(), &mut *self);
        // A renewal that cannot be sent becomes due again.
        caller.due(now.as_nanos() as u64, order_now, |group, payload| {
            if let Ok((envelope, _)) = Envelope::parse(payload) {
                lease.renew(group, envelope.request, Instant::now());
            }
            let _ = multicast(client, watch, &[group], &[payload], 0);
        });
        self.ask_for_replies(now);
        self.ask_again(now);
        self.look_for_reads(true);
        Ok(())
    }

    /// Sends the session's pending command, and resends it when it is not answered. A widening that cannot be sent is
    /// withdrawn, because its group may be down for long.
    fn send_control(&mut self, now: Duration) -> Result<(), Problem> {
        let Core { client, watch, caller, asked, lease, .. } = self;
        let Some(message) = caller.message() else { return Ok(()) };
        if asked.as_mut().is_some_and(|asked| !asked.is_due(now, |sent| client.is_delivered(sent, message.to))) {
            return Ok(());
        }
        if asked.is_none() {
            lease.begin(Instant::now());
        }
        match multicast(client, watch, message.to, &[message.payload], 0) {
            Ok(sent) => *asked = Some(Asked::new(sent.id.sequence, now)),
            Err(_) if asked.is_none() && caller.take_back() => self.rest(now)?,
            Err(_) => {}
        }
        Ok(())
    }

    /// Postpones the next widening.
    fn rest(&mut self, now: Duration) -> Result<(), Problem> {
        let [part, ..] = random().map_err(Problem::Random)?;
        self.rests_until = now + rest_of(self.refusals, part);
        self.refusals = self.refusals.saturating_add(1);
        Ok(())
    }

    /// Records the outcome of a widening.
    fn widened(&mut self, now: Duration) -> Result<(), Problem> {
        match self.agreed.take_if(|(kind, _)| *kind == Kind::Widen) {
            Some((_, Some(_))) => self.rest(now),
            Some((_, None)) => {
                (self.refusals, self.rests_until) = (0, Duration::ZERO);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Widens the session by the wanted groups that are reachable.
    fn widen(&mut self) -> Result<(), Problem> {
        let mut wanted = self.wanted.clone();
        wanted.retain(|group| self.opens(*group));
        if wanted.is_empty() {
            return Ok(());
        }
        let [word, ..] = random().map_err(Problem::Random)?;
        let until = self.order_now().saturating_add(self.ttl.as_nanos() as u64);
        if self.caller.widen(word, &self.pairs(&wanted), until).is_ok() {
            self.asked = None;
            self.wanted.retain(|group| !wanted.contains(group));
        }
        Ok(())
    }

    /// Returns whether messages can be multicast to a group. If not, requests admission to the group.
    fn opens(&mut self, group: GroupId) -> bool {
        self.client.is_connected(&[group]) || self.client.next_id(&[group], &[]).is_ok()
    }

    pub(super) fn all_groups(&self) -> Vec<GroupId> {
        self.plan.topology().group_ids().collect()
    }

    /// Gives up the requests in flight to a group that was reset.
    fn look_for_resets(&mut self, each: &mut impl FnMut(Finished<'_>)) {
        for group in self.plan.topology().group_ids() {
            if !self.reset.contains(&group) && self.client.reset_of(&[group]).is_some() {
                self.reset.push(group);
                let why = Why::GroupReset(Group(group));
                self.give_up(why, |ticket| ticket.groups().any(|to| to == group), each);
                self.reading.give_up(|read| read == group, why, each);
            }
        }
    }

    /// Gives up the requests in flight to a halted group.
    #[cold]
    fn look_for_halts(&mut self, now: Duration, each: &mut impl FnMut(Finished<'_>)) {
        for group in self.plan.topology().group_ids() {
            if self.halts.find(&[group], now).is_some() {
                let why = Why::Halted(Group(group));
                self.give_up(why, |ticket| ticket.groups().any(|to| to == group), each);
                self.reading.give_up(|read| read == group, why, each);
            }
        }
    }

    fn give_up(
        &mut self,
        why: Why,
        is_meant: impl Fn(&stentor_session::Ticket) -> bool,
        each: &mut impl FnMut(Finished<'_>),
    ) {
        let from = self.caller.responded();
        for request in from..from + self.window() as u64 {
            let told = match why {
                Why::GroupReset(Group(group)) => stentor_session::Why::GroupReset(group),
                Why::Halted(Group(group)) => stentor_session::Why::Halted(group),
                _ => stentor_session::Why::Superseded,
            };
            if self.caller.ticket(request).is_some_and(&is_meant) && self.caller.lost(request, told).is_some() {
                each(Finished { name: self.name_of(request), outcome: Outcome::Unknown(why) });
            }
        }
    }

    /// Gives up a request for which no caller waits any more. An answer that arrives later settles it.
    pub(super) fn lose(&mut self, request: u64) {
        let _ = self.caller.lost(request, stentor_session::Why::TimedOut);
    }

    // ------------------------------------------------------------------------------------------------------- pauses

    /// Returns what to do after a round; see [`MemberLoop::idle`](crate::runtime::MemberLoop::idle).
    #[inline]
    pub(super) fn idle(&mut self, worked: bool) -> Idle {
        let idle = self.backoff.after(worked);
        match idle {
            Idle::Poll => {}
            Idle::Arm => self.client.fabric_mut().arm(),
            Idle::Sleep => self.housekeeper.note_sleep(true),
        }
        idle
    }

    /// Arms the fabric, for a caller that sleeps by other means than the fabric's wait.
    pub(super) fn arm(&mut self) {
        self.client.fabric_mut().arm();
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.client.fabric().descriptor()
    }

    /// Returns the longest time for which the client may sleep.
    pub(super) fn longest_sleep(&self) -> Duration {
        if self.descriptor().is_some() { LONGEST_SLEEP } else { Duration::from_millis(1) }
    }

    /// Makes the fabric process the events that made its descriptor readable, after a sleep on it.
    pub(super) fn woken(&mut self) -> Result<(), Problem> {
        self.housekeeper.note_sleep(true);
        self.client.fabric_mut().wait(Duration::ZERO).map_err(|error| Problem::Run(RunError::Wait(error)))?;
        Ok(())
    }
}

/// Returns the group that refused a widening because the session has expired there.
fn ran_out_before(
    kind: Kind,
    refused: Option<(GroupId, Answered)>,
    origins: &Origins,
    caller: &Caller,
) -> Option<Group> {
    let (group, _) = refused.filter(|(_, why)| kind == Kind::Widen && *why == Answered::SessionNotOpen)?;
    (!origins.differ(group, &caller.key().pairs)).then_some(Group(group))
}

fn caller_config(window: u32, ttl: Duration) -> CallerConfig {
    let (ttl, config) = (ttl.as_nanos() as u64, CallerConfig::default());
    // A renewal is due after half of the time to live, so a lost one is resent in time.
    CallerConfig { window, ttl, renewal_timeout: config.renewal_timeout.min(ttl / 8) }
}
