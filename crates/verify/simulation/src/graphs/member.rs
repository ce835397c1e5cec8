//! A member with heartbeat election: the election driver of a node, in virtual time.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use stentor_election::{Audit, Beat, Change, Election, Heartbeat, HeartbeatConfig, Mutant as ElectionPlant};
use stentor_fabric::{ProcessId, SplitMix64};
use stentor_fabric_sim::SimFabric;
use stentor_multicast::{
    Application, Delivered, GroupId, HeartbeatCell, Limits, Member, NodeError, ReplicaConfig, Topology,
};

use super::{INTERVAL_NS, Shared, TIMEOUT_MAX_NS, TIMEOUT_MIN_NS};

/// Maximum backoff between two campaigns, in multiples of the first one.
const LONGEST_BACKOFF: u64 = 16;

pub(super) struct Follower {
    member: Member<SimFabric>,
    election: Heartbeat,
    audit: Audit,
    me: ProcessId,
    others: Vec<(ProcessId, bool)>,
    next_ns: u64,
    named: bool,
    campaign_at_ns: u64,
    backoff_ns: u64,
    ready: Option<stentor_multicast::Ballot>,
    /// Reports of deaths that the member will receive, with their times in nanoseconds.
    told: Vec<(u64, ProcessId)>,
    digest: u64,
    shared: Rc<Shared>,
}

/// The application of a member: a digest of all deliveries, in order.
struct App<'a> {
    now_ns: u64,
    me: ProcessId,
    digest: &'a mut u64,
    shared: &'a Shared,
}

impl Application for App<'_> {
    fn deliver(&mut self, delivered: &Delivered<'_>) {
        *self.digest = (*self.digest ^ delivered.id.sequence ^ delivered.number << 24)
            .wrapping_mul(SplitMix64::GOLDEN)
            .rotate_left(29);
        let mut history = self.shared.history.borrow_mut();
        history.deliver(self.now_ns, self.me, GroupId(0), delivered);
        history.digest(self.me, GroupId(0), delivered.number, *self.digest);
        self.shared.progress.borrow_mut().delivered(self.me, GroupId(0), delivered.id, delivered.number);
        self.shared.seen.borrow_mut().delivered[self.me.index()] = delivered.id.sequence;
    }

    fn snapshot(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.digest.to_le_bytes());
    }

    /// Installs a state. The process was up all the time, but lagged too far.
    fn restore(&mut self, number: u64, state: &[u8]) {
        *self.digest = state.try_into().map_or(0, u64::from_le_bytes);
        let mut history = self.shared.history.borrow_mut();
        history.digest(self.me, GroupId(0), number, *self.digest);
        history.caught_up(self.now_ns, self.me, number);
        self.shared.progress.borrow_mut().restored(self.me, number);
        self.shared.seen.borrow_mut().caught_up += 1;
    }
}

impl Follower {
    pub(super) fn new(
        shared: &Rc<Shared>,
        topology: &Arc<Topology>,
        me: ProcessId,
        (limits, salt): (Limits, u64),
        mutant: ElectionPlant,
    ) -> Result<Self, NodeError> {
        let config = ReplicaConfig { retry_ticks: 3, ..ReplicaConfig::new(Arc::clone(topology), me, limits.window) };
        let mut member = Member::new(shared.world.fabric(me), config, limits, salt, 1)?;
        member.record_operations();
        member.set_tick(Duration::from_nanos(INTERVAL_NS));
        member.set_client_timeout(Duration::MAX);
        let members: Vec<ProcessId> = topology.members(GroupId(0)).collect();
        let interval = Duration::from_nanos(INTERVAL_NS);
        let config = HeartbeatConfig {
            timeout_min: Duration::from_nanos(TIMEOUT_MIN_NS),
            timeout_max: Duration::from_nanos(TIMEOUT_MAX_NS),
            mutant,
            ..HeartbeatConfig::new(me, &members, interval)
        };
        let election = Heartbeat::new(config).expect("the times are sound");
        let others = members.into_iter().filter(|other| *other != me).map(|other| (other, false)).collect();
        Ok(Follower {
            member,
            election,
            audit: Audit::new(me),
            me,
            others,
            next_ns: 0,
            named: false,
            campaign_at_ns: 0,
            backoff_ns: TIMEOUT_MAX_NS,
            ready: None,
            told: Vec::new(),
            digest: 0,
            shared: Rc::clone(shared),
        })
    }

    pub(super) fn hand_over(&mut self, to: ProcessId) {
        // The election refuses as long as the other member does not appear ready.
        let _ = self.election.hand_over(to);
    }

    /// Schedules a report that another member has died.
    pub(super) fn will_be_told(&mut self, at_ns: u64, of: ProcessId) {
        self.told.push((at_ns, of));
        self.shared.world.wake_at(self.me, at_ns);
    }

    pub(super) fn leads_in_protocol(&self) -> bool {
        self.member.replica().is_leader()
    }

    pub(super) fn step(&mut self, now_ns: u64) -> bool {
        let now = Duration::from_nanos(now_ns);
        let mut worked = self.member.housekeep();
        let (shared, me) = (Rc::clone(&self.shared), self.me);
        worked |= self.member.step(now, &mut App { now_ns, me, digest: &mut self.digest, shared: &shared });
        let operations = self.member.take_operations();
        shared.history.borrow_mut().operations(now_ns, me, &operations);
        for (_, of) in self.told.extract_if(.., |(at_ns, _)| *at_ns <= now_ns) {
            self.election.died(of);
            self.next_ns = now_ns;
        }
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + INTERVAL_NS;
            self.round(now_ns);
        }
        self.note_ready(now_ns);
        shared.world.wake_at(me, self.next_ns);
        worked
    }

    fn note_ready(&mut self, now_ns: u64) {
        let replica = self.member.replica();
        if replica.is_leader() && self.ready != Some(replica.ballot()) {
            self.ready = Some(replica.ballot());
            let carried: Vec<_> = replica.undelivered().collect();
            self.shared.history.borrow_mut().epoch(now_ns, self.me, GroupId(0), replica.ballot(), &carried);
        }
    }

    fn round(&mut self, now_ns: u64) {
        for (process, connected) in &mut self.others {
            let Some(heartbeat) = self.member.heartbeat(*process) else { continue };
            self.election.link(*process, self.member.is_connected_to(*process));
            if let Some(words) = heartbeat.words {
                let beat = Beat::from_words(std::array::from_fn(|word| words[word]));
                if let Err(error) = self.election.observe(*process, &beat) {
                    self.shared.seen.borrow_mut().broken.push(error.to_string());
                }
            }
            if std::mem::replace(connected, heartbeat.connected) && !heartbeat.connected {
                self.election.unreachable(*process);
            }
        }
        self.election.stand(!self.member.replica().is_joining());
        self.poll(now_ns);
        let aside = self.election.is_cut_off();
        self.shared.seen.borrow_mut().aside += u64::from(aside && !self.member.is_aside());
        self.member.set_aside(aside);
        let mut words = [0; HeartbeatCell::WORDS];
        words[..Beat::WORDS].copy_from_slice(&self.election.beat().to_words());
        self.member.publish(&words);
    }

    fn poll(&mut self, now_ns: u64) {
        let resigned_before = self.election.has_resigned();
        while let Some(change) = self.election.poll(Duration::from_nanos(now_ns)) {
            let mut seen = self.shared.seen.borrow_mut();
            if let Err(error) = self.audit.check(change) {
                seen.broken.push(format!("{}: {error}", self.me));
            }
            seen.changed_ns = now_ns;
            let named = matches!(change, Change::Leader { process, .. } if process == self.me);
            if named && !self.named {
                (self.campaign_at_ns, self.backoff_ns) = (now_ns, TIMEOUT_MAX_NS);
            }
            self.named = named;
            seen.leads[self.me.index()] = named;
        }
        self.shared.seen.borrow_mut().resigned += u64::from(!resigned_before && self.election.has_resigned());
        let replica = self.member.replica();
        if replica.is_leader() && replica.ballot() == replica.known(replica.group()) {
            self.backoff_ns = TIMEOUT_MAX_NS;
            self.campaign_at_ns = self.campaign_at_ns.max(now_ns + INTERVAL_NS);
        } else if self.named && now_ns >= self.campaign_at_ns && self.member.campaign().is_ok() {
            self.shared.seen.borrow_mut().campaigns += 1;
            self.campaign_at_ns = now_ns + self.backoff_ns;
            self.backoff_ns = (2 * self.backoff_ns).min(LONGEST_BACKOFF * TIMEOUT_MAX_NS);
        }
    }
}
