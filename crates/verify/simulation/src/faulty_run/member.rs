//! A member with an election, which may crash at any of its posts and restarts without memory.

use std::rc::Rc;
use std::time::Duration;

use stentor_fabric::{ProcessId, SplitMix64};
use stentor_fabric_sim::{SimFabric, World};
use stentor_multicast::{Application, Ballot, Delivered, GroupId, Member, NodeError, ReplicaConfig};

use super::Shared;
use super::candidate::Candidate;
use crate::chance::Chance;
use crate::clocks::BOUND_NS;
use crate::scenario::Scenario;

/// The stream of random choices of time entries.
const TIMES: u64 = 900;
/// Time between ticks of the state machine, in nanoseconds.
pub(crate) const TICK_NS: u64 = 20_000;

pub(super) struct MemberActor {
    pub(super) member: Member<SimFabric>,
    me: ProcessId,
    group: GroupId,
    candidate: Candidate,
    /// `true` if the process restarted without memory and its recovery is not recorded yet.
    absent: bool,
    /// `true` if the group cannot rely on the process's memory yet: the nemesis counts it as failed.
    forgetful: bool,
    /// The last ballot in which the process was ready to lead.
    ready: Option<Ballot>,
    digest: u64,
    /// Decides when a leader orders a time entry.
    times: Chance,
    shared: Rc<Shared>,
}

/// Starts a member on its NIC. The first life of a process has its memory; later lives do not.
pub(crate) fn start(
    world: &World,
    scenario: &Scenario,
    config: ReplicaConfig,
    salt: u64,
    incarnation: u64,
) -> Result<Member<SimFabric>, NodeError> {
    let (me, limits) = (config.me, scenario.limits);
    let config = ReplicaConfig { variant: scenario.variant, retry_ticks: 3, ..config };
    let fabric = world.fabric(me);
    let mut member = match incarnation {
        1 => Member::new(fabric, config, limits, salt, incarnation)?,
        _ => Member::joining(fabric, config, limits, salt, incarnation)?,
    };
    let forever = |ns: Option<u64>| ns.map_or(Duration::MAX, Duration::from_nanos);
    member.set_expel_after(forever(scenario.expel_ns));
    member.set_tick(Duration::from_nanos(TICK_NS));
    member.set_client_timeout(forever(scenario.client_timeout_ns));
    world.name(me, &format!("g{} {me}", member.replica().group().0 + 1));
    Ok(member)
}

impl MemberActor {
    pub(super) fn new(shared: &Rc<Shared>, me: ProcessId, incarnation: u64) -> Result<Self, NodeError> {
        let config = ReplicaConfig {
            mutant: shared.mutant,
            time_entries: shared.scenario.time_entries,
            ..ReplicaConfig::new(shared.topology.clone(), me, shared.scenario.limits.window)
        };
        let mut member = start(&shared.world, &shared.scenario, config, shared.salt, incarnation)?;
        member.record_operations();
        if shared.clocks.is_some() {
            member.set_clock_bound(Duration::from_nanos(BOUND_NS));
        }
        let group = member.replica().group();
        let election = shared.nemesis.borrow().election(me);
        Ok(MemberActor {
            member,
            me,
            group,
            candidate: Candidate::new(me, election, Chance::of_process(shared.salt, me, incarnation)),
            absent: incarnation > 1,
            forgetful: incarnation > 1,
            ready: None,
            digest: 0,
            times: Chance::new(shared.salt ^ u64::from(me.0) ^ incarnation << 16, TIMES),
            shared: Rc::clone(shared),
        })
    }

    pub(super) fn me(&self) -> ProcessId {
        self.me
    }

    /// Returns whether the member has stopped, because its group continues without its state, or because it could not
    /// install a state.
    pub(super) fn is_over(&self) -> bool {
        self.member.replica().is_superseded() || self.member.failure().is_some()
    }

    /// Returns whether the member is part of its group and has the group's state.
    pub(super) fn has_state(&self) -> bool {
        let replica = self.member.replica();
        !replica.is_joining() && !replica.incarnation().is_none() && !self.is_over()
    }

    pub(super) fn step(&mut self, now_ns: u64) -> bool {
        self.candidate.listen(now_ns, &mut self.member);
        let member_ns = self.tell_clock(now_ns);
        let housekept = self.member.housekeep();
        let MemberActor { member, me, group, absent, digest, shared, .. } = self;
        let mut app = App { now_ns, me: *me, group: *group, absent, digest, shared };
        let mut worked = member.step(Duration::from_nanos(member_ns), &mut app);
        if shared.scenario.time_entries && shared.world.is_up(*me) && self.times.between(0, 7) == 0 {
            let now = Duration::from_nanos(member_ns);
            worked |= member.group_time(now).and_then(|time| member.order_time(time, &mut app)).is_some();
        }
        while let Some(report) = member.take_transfer_report() {
            shared.transfers.borrow_mut().count(&report);
        }
        let operations = member.take_operations();
        if !self.shared.world.is_up(self.me) {
            return false;
        }
        self.shared.history.borrow_mut().operations(now_ns, self.me, &operations);
        self.note(now_ns);
        self.shared.world.wake_at(self.me, now_ns + TICK_NS);
        self.candidate.wake(now_ns, &self.shared.world);
        housekept || worked
    }

    /// Passes the clock of the host to the member. Returns the host's monotonic time, in nanoseconds.
    fn tell_clock(&mut self, now_ns: u64) -> u64 {
        let Some(clocks) = &self.shared.clocks else { return now_ns };
        let clocks = clocks.borrow();
        let member_ns = clocks.monotonic(self.me, now_ns);
        let told = self.member.tell_wall_clock(Duration::from_nanos(member_ns), clocks.wall(self.me, now_ns));
        told.expect("the clocks are of this age");
        member_ns
    }

    /// Records that the member has recovered, or is ready to lead.
    fn note(&mut self, now_ns: u64) {
        let replica = self.member.replica();
        let shared = &self.shared;
        if self.absent && !replica.is_joining() {
            self.absent = false;
            came_back(shared, now_ns, self.me, replica.delivered());
        }
        if self.forgetful && !replica.is_joining() {
            // The nemesis counts the member as healthy only now. Before the member has the messages in progress, the
            // group cannot rely on the state of its application.
            self.forgetful = false;
            let under_load = shared.loads.iter().any(|load| load.borrow().left > 0);
            shared.nemesis.borrow_mut().synced(now_ns, self.me, under_load);
        }
        if replica.is_leader() && self.ready != Some(replica.ballot()) {
            self.ready = Some(replica.ballot());
            let carried: Vec<_> = replica.undelivered().collect();
            shared.history.borrow_mut().epoch(now_ns, self.me, self.group, replica.ballot(), &carried);
            shared.nemesis.borrow_mut().ready(now_ns, self.group, self.me);
            shared.world.mark(self.me, format_args!("leads in ballot {}", replica.ballot()));
        }
    }
}

/// Records that a member's application has its group's state again.
fn came_back(shared: &Shared, now_ns: u64, me: ProcessId, number: u64) {
    shared.history.borrow_mut().recover(now_ns, me, number);
    shared.progress.borrow_mut().restored(me, number);
}

/// The application of a member: a digest of all deliveries, in order.
struct App<'a> {
    now_ns: u64,
    me: ProcessId,
    group: GroupId,
    absent: &'a mut bool,
    digest: &'a mut u64,
    shared: &'a Shared,
}

impl App<'_> {
    /// Returns the padding of a state, whose bytes depend on the digest.
    fn padding(&self) -> impl Iterator<Item = u8> + use<> {
        let digest = *self.digest;
        (0..self.shared.scenario.state_bytes).map(move |at| (digest.rotate_left(at as u32 / 64) >> 56) as u8)
    }
}

impl Application for App<'_> {
    fn deliver(&mut self, delivered: &Delivered<'_>) {
        // The process may have crashed at a post of this step. Its later actions never happened.
        if !self.shared.world.is_up(self.me) {
            return;
        }
        if std::mem::take(self.absent) {
            came_back(self.shared, self.now_ns, self.me, delivered.number - 1);
        }
        let word = u64::from(delivered.id.client.0) << 48 ^ delivered.id.sequence ^ delivered.number << 24;
        *self.digest = (*self.digest ^ word).wrapping_mul(SplitMix64::GOLDEN).rotate_left(29);
        let mut history = self.shared.history.borrow_mut();
        history.deliver(self.now_ns, self.me, self.group, delivered);
        history.digest(self.me, self.group, delivered.number, *self.digest);
        let mut progress = self.shared.progress.borrow_mut();
        let first = progress.delivered(self.me, self.group, delivered.id, delivered.number);
        progress.note_delivery(self.now_ns, self.group, first);
        drop(progress);
        if let Some(clocks) = &self.shared.clocks {
            clocks.borrow_mut().judge(self.me, delivered.id, delivered.timestamp.time, self.now_ns);
        }
        self.shared.world.mark(self.me, format_args!("deliver {}", delivered.id));
    }

    fn snapshot(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.digest.to_le_bytes());
        out.extend(self.padding());
    }

    fn restore(&mut self, number: u64, state: &[u8]) {
        if !self.shared.world.is_up(self.me) {
            return;
        }
        *self.digest = state.first_chunk().map_or(0, |digest| u64::from_le_bytes(*digest));
        if number != 0 && !state.get(8..).is_some_and(|rest| rest.iter().copied().eq(self.padding())) {
            // The padding is of another state, so the digest is made wrong, too.
            *self.digest = !*self.digest;
        }
        let mut history = self.shared.history.borrow_mut();
        history.digest(self.me, self.group, number, *self.digest);
        if std::mem::take(self.absent) {
            drop(history);
            came_back(self.shared, self.now_ns, self.me, number);
        } else {
            // The process was up all the time, but lagged too far.
            history.caught_up(self.now_ns, self.me, number);
            self.shared.progress.borrow_mut().restored(self.me, number);
        }
        self.shared.world.mark(self.me, format_args!("state after delivery {number}"));
    }
}
