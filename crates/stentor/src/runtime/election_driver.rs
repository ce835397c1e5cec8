//! Turns decisions of the election into campaigns of the member.
//!
//! The election names the process that the group should follow; the member's ballots decide which process leads. The
//! driver at each member connects the two. It campaigns if, and only if, the election names its process and that
//! process does not lead. A leader that resigns because it reaches no majority keeps its ballot: if it is named again
//! before another member has campaigned, it continues to lead without a campaign. A leader that learns of a larger
//! ballot of its group campaigns like any other named member. Safety never depends on the election: it follows from the
//! ballots.
//!
//! # States of a member
//! - *Joining*: the member has no state of its group. It is not eligible.
//! - *Has the state*, but its election has named no leader yet. The group may have a leader that the election does not
//!   know: the first leader of a group, or the one that admitted this member. The member must not depose that leader,
//!   so it is not eligible until it leads itself, it loses the connection with the leader of its ballot, or `patience`
//!   has passed.
//! - *Eligible* (`stands`): the election has named a leader before. An eligible member does not depose a leader by
//!   itself: the election replaces a leader only if that leader is suspected, is ineligible or hands over. So a member
//!   can take over as soon as it has the state and knows the leader. It remains eligible until it joins again, leaves
//!   or defers.
//! - *Named* by the election: it campaigns until it *leads*.
//! - *Deferring* (`stands_back`): its state machine is poisoned (it has panicked or was outvoted), and the state
//!   machine of a connected member of its group is not; or its wall clock differs from the median of the known clocks
//!   by more than the bound, and a connected member of its group has a right clock. It is not eligible. If it leads, it
//!   continues: the election replaces an ineligible leader as soon as another member is eligible, and not before. A
//!   leader whose state machine is poisoned hands over by itself. If the election names no leader for twice `patience`,
//!   a leader that should defer is better than none: the member becomes eligible for a while.
//! - *Leaving*: it is no longer eligible. If it leads, it hands over first, for at most 500 ms.

use std::time::Duration;

use stentor_election::{Beat, Change, Election, HandOverError, Heartbeat, HeartbeatConfig, HeartbeatError};
use stentor_fabric::{Fabric, ProcessId};
use stentor_multicast::{HeartbeatCell, Member, ProcessRole};

use super::clock::incarnation;
use super::{ClusterRuntime, FabricDiagnostics};
use crate::config::ElectionTimes;

/// Longest time between two campaigns, as a multiple of `patience`, which is the time between the first two.
const LONGEST_BACKOFF: u32 = 16;
/// Longest time for which a leaving leader waits until another member leads.
const HANDING_OVER: Duration = Duration::from_millis(500);
/// Time without a leader after which a deferring member becomes eligible, in units of `patience`.
const UNLED: u32 = 2;
/// Time for which that member then remains eligible, in units of `patience`.
const INSISTING: u32 = 64;
/// Index of the word in which a member publishes the number of commands that its application's state contains, or of
/// its deliveries if that is unknown. It follows the words of the heartbeat.
const DELIVERED: usize = Beat::WORDS;
/// Index of the word in which a member publishes the command at which its state machine is poisoned: the number of the
/// command plus 1, or 0 if the state machine is not poisoned.
const POISONED: usize = DELIVERED + 1;

/// The state of another member's process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Presence {
    /// The process is not connected, and no death was reported.
    Absent,
    /// The process is connected.
    There,
    /// The system has reported the death of the process, and no other process has replaced it.
    Died,
}

impl Presence {
    /// Returns the state of a peer's process, as the fabric knows it.
    #[inline]
    pub fn of<F: FabricDiagnostics>(fabric: &F, peer: ProcessId) -> Presence {
        match (fabric.has_died(peer), fabric.sees(peer)) {
            (true, _) => Presence::Died,
            (false, true) => Presence::There,
            (false, false) => Presence::Absent,
        }
    }
}

/// Another member of the group.
#[derive(Debug)]
struct Other {
    process: ProcessId,
    /// `true` if the member was connected at the last check.
    connected: bool,
    /// `true` if the member was connected at any time since this process started.
    connected_once: bool,
    /// `true` if the member was connected, and no longer is.
    lost: bool,
    /// State of the member's process at the last check.
    presence: Presence,
    /// Number of applied commands, or of deliveries, that the member published last.
    delivered: u64,
    /// Number of the command at which the member's state machine is poisoned, as the member published last.
    poisoned: Option<u64>,
    /// Last heartbeat of the member, and the time at which that heartbeat was first read.
    beat: Option<([u64; 2], Duration)>,
}

/// One member's part in the election of its group's leader.
#[derive(Debug)]
pub struct ElectionDriver<E> {
    election: E,
    me: ProcessId,
    /// The other members of the group.
    others: Vec<Other>,
    interval: Duration,
    /// Time after which a first campaign that has not succeeded is repeated.
    patience: Duration,
    backoff: Duration,
    next: Duration,
    /// `true` if the election names this process as leader.
    named: bool,
    /// Earliest time of the next campaign.
    campaign_at: Duration,
    /// Time since which this process has its group's state.
    since: Option<Duration>,
    /// `true` if the election has a leader.
    led: bool,
    /// Time since which this member has its group's state and the election names no leader.
    unled: Option<Duration>,
    /// Time until which this member is eligible although it should defer.
    insists: Duration,
    /// `true` if this member deferred to another one in the last round.
    stands_back: bool,
    /// `true` if this member has become eligible since it received the state. It may defer nevertheless.
    stands: bool,
    /// Eligibility that was last reported to an election that is notified of changes only.
    stood: Option<bool>,
    leaving: Option<Leaving>,
    /// Progress of the application, if it was set.
    applied: Option<Applied>,
    /// Time of the next attempt to hand over, for a leader whose state machine is poisoned.
    hands_over_at: Duration,
}

/// The progress of a member's application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Number of commands that the application's state contains.
    pub commands: u64,
    /// Number of the command at which the state machine is poisoned. Such a member is not eligible while a member with
    /// an intact state machine can lead.
    pub poisoned: Option<u64>,
}

/// The state of a process that prepares its end.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    since: Duration,
    /// Member that is to lead afterwards.
    heir: Option<ProcessId>,
}

/// Returns the members of the group of `me`. Returns none for a process that is not a member.
fn members(plan: &ClusterRuntime, me: ProcessId) -> Vec<ProcessId> {
    match plan.topology().role(me) {
        Some(ProcessRole::Member { group, .. }) => plan.topology().members(group).collect(),
        _ => Vec::new(),
    }
}

impl ElectionDriver<Heartbeat> {
    /// Creates a driver with an election by heartbeats in the fabric, as configured.
    ///
    /// # Errors
    /// See [`HeartbeatError`].
    pub fn heartbeat(plan: &ClusterRuntime, me: ProcessId) -> Result<Self, HeartbeatError> {
        let ElectionTimes { min, max } = plan.config().election_times();
        let members = members(plan, me);
        let interval = ElectionTimes::INTERVAL;
        let config = HeartbeatConfig {
            incarnation: incarnation().max(1),
            timeout_min: min,
            timeout_max: max,
            ..HeartbeatConfig::new(me, &members, interval)
        };
        Ok(ElectionDriver::new(Heartbeat::new(config)?, me, &members, interval, max))
    }

    /// Runs one round, after the member's step: reads the other members' heartbeats, lets the election decide,
    /// publishes this member's heartbeat, and campaigns if necessary. Does nothing before the next round is due.
    pub fn round<F: Fabric>(&mut self, now: Duration, member: &mut Member<F>) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        for Other { process, connected, beat: last, delivered, poisoned, .. } in &mut self.others {
            let Some(heartbeat) = member.heartbeat(*process) else { continue };
            // A leader writes its stream over other links than those that carry heartbeats, so the election must know
            // the state of all links.
            self.election.link(*process, member.is_connected_to(*process));
            if let Some(words) = heartbeat.words {
                *delivered = words[DELIVERED];
                *poisoned = words[POISONED].checked_sub(1);
                let beat = Beat::from_words(std::array::from_fn(|word| words[word]));
                let count = [beat.incarnation, beat.counter];
                if last.is_none_or(|(before, _)| before != count) {
                    *last = Some((count, now));
                }
                // A member with an invalid claim counts as alive, but its claim is ignored.
                let _ = self.election.observe(*process, &beat);
            }
            if std::mem::replace(connected, heartbeat.connected) && !heartbeat.connected {
                self.election.unreachable(*process);
            }
        }
        let stands = self.stands(now, member);
        self.election.stand(stands);
        self.poll(now, member);
        self.hand_over_if_poisoned(now, member);
        let applied = self.applied.unwrap_or(Applied { commands: member.replica().delivered(), poisoned: None });
        // A poisoned machine frees no slots, so clients must not wait for it.
        member.set_aside(self.election.is_cut_off() || applied.poisoned.is_some());
        let mut words = [0; HeartbeatCell::WORDS];
        words[..Beat::WORDS].copy_from_slice(&self.election.beat().to_words());
        words[DELIVERED] = applied.commands;
        words[POISONED] = applied.poisoned.map_or(0, |command| command.saturating_add(1));
        member.publish(&words);
    }

    /// Checks whether the processes of other members still exist, and reports changes to the election. A death starts
    /// an election at once: the next [`round`](ElectionDriver::round) is due. A member whose connection ended for
    /// another reason is only suspected. Call it before each round; it loads a few words.
    #[inline]
    pub fn watch(&mut self, presence: impl Fn(ProcessId) -> Presence) {
        for Other { process, presence: before, .. } in &mut self.others {
            let now = presence(*process);
            if std::mem::replace(before, now) == now {
                continue;
            }
            match now {
                Presence::Died => {
                    self.election.died(*process);
                    self.next = Duration::ZERO;
                }
                Presence::Absent => self.election.unreachable(*process),
                Presence::There => {}
            }
        }
    }
}

impl<E: Election> ElectionDriver<E> {
    /// Creates a driver for the member `me` of a group of `members`, with a round every `interval`. A campaign that has
    /// not succeeded after `patience` is repeated, and the time doubles each time, up to 16 times `patience`.
    pub fn new(election: E, me: ProcessId, members: &[ProcessId], interval: Duration, patience: Duration) -> Self {
        let other = |process: &ProcessId| Other {
            process: *process,
            connected: false,
            connected_once: false,
            lost: false,
            presence: Presence::Absent,
            delivered: 0,
            poisoned: None,
            beat: None,
        };
        let others = members.iter().filter(|process| **process != me).map(other).collect();
        ElectionDriver {
            election,
            me,
            others,
            interval,
            patience,
            backoff: patience,
            next: Duration::ZERO,
            named: false,
            campaign_at: Duration::ZERO,
            since: None,
            led: false,
            unled: None,
            insists: Duration::ZERO,
            stands_back: false,
            stands: false,
            stood: None,
            leaving: None,
            applied: None,
            hands_over_at: Duration::ZERO,
        }
    }

    /// Creates a driver for a member of a configuration, with a round every 5 ms and the longest timeout of
    /// `[election]` as its patience.
    #[must_use]
    pub fn configured(election: E, plan: &ClusterRuntime, me: ProcessId) -> Self {
        let patience = plan.config().election_times().max;
        ElectionDriver::new(election, me, &members(plan, me), ElectionTimes::INTERVAL, patience)
    }

    /// Returns the election.
    #[must_use]
    pub fn election(&self) -> &E {
        &self.election
    }

    /// Returns the time at which another member's heartbeat last advanced, on the clock of
    /// [`round`](ElectionDriver::round). Returns `None` if it never did, or if the election does not use heartbeats.
    #[must_use]
    pub fn heard(&self, process: ProcessId) -> Option<Duration> {
        self.others.iter().find(|other| other.process == process)?.beat.map(|(_, at)| at)
    }

    /// Returns the number of commands that another member has applied, or of its deliveries, as it published last.
    /// Returns 0 if it has published nothing.
    #[must_use]
    pub fn delivered(&self, process: ProcessId) -> u64 {
        self.others.iter().find(|other| other.process == process).map_or(0, |other| other.delivered)
    }

    /// Returns the number of the command at which another member's state machine is poisoned, as it published last.
    #[must_use]
    pub fn poisoned(&self, process: ProcessId) -> Option<u64> {
        self.others.iter().find(|other| other.process == process)?.poisoned
    }

    /// Sets the progress of this member's application, which the next rounds publish. If it was never set, the rounds
    /// publish the member's number of deliveries.
    pub fn set_applied(&mut self, applied: Applied) {
        self.applied = Some(applied);
    }

    /// Returns whether the election names this process as the leader.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// Runs one round, after the member's step, with an election that does not read members' heartbeats. `stand`
    /// receives the eligibility of this process whenever it changes.
    pub fn round_by<F: Fabric>(&mut self, now: Duration, member: &mut Member<F>, stand: impl FnOnce(&E, bool)) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        let stands = self.stands(now, member);
        if self.stood.replace(stands) != Some(stands) {
            stand(&self.election, stands);
        }
        self.poll(now, member);
    }

    /// Returns whether this member is eligible; see the states above.
    fn stands<F: Fabric>(&mut self, now: Duration, member: &Member<F>) -> bool {
        let replica = member.replica();
        for other in &mut self.others {
            let connected = member.is_connected_to(other.process);
            other.lost = other.connected_once && !connected;
            other.connected_once |= connected;
        }
        if replica.is_joining() {
            (self.since, self.stands, self.unled, self.stands_back) = (None, false, None, false);
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let waited = now.saturating_sub(since) >= self.patience;
        self.stands |= replica.is_leader() || self.led || self.is_lost(replica.ballot().leader()) || waited;
        self.unled = if self.led { None } else { self.unled.or(Some(now)) };
        self.stands_back = self.must_stand_back(now, member);
        self.stands && self.leaving.is_none() && !self.stands_back
    }

    /// Returns whether this member must defer to another one: its clock is wrong or its state machine is poisoned, and
    /// a better member could lead; see the states above.
    fn must_stand_back<F: Fabric>(&mut self, now: Duration, member: &Member<F>) -> bool {
        let clock = member.physical_clock();
        let poisoned = self.applied.is_some_and(|applied| applied.poisoned.is_some());
        if !(clock.is_off() || poisoned) || now < self.insists {
            return false;
        }
        if self.unled.is_some_and(|since| now.saturating_sub(since) >= UNLED * self.patience) {
            self.insists = now + INSISTING * self.patience;
            return false;
        }
        let is_better = |other: &Other| {
            let is_right = !clock.is_off() || clock.is_right(other.process);
            is_right && (!poisoned || other.poisoned.is_none())
        };
        self.others.iter().any(|other| member.is_connected_to(other.process) && is_better(other))
    }

    /// Returns whether this member defers because its wall clock is wrong, or its state machine is poisoned.
    #[must_use]
    pub fn stands_back(&self) -> bool {
        self.stands_back
    }

    /// Returns whether another member was connected, and no longer is.
    fn is_lost(&self, process: ProcessId) -> bool {
        self.others.iter().any(|other| other.process == process && other.lost)
    }

    /// Prepares the end of this process: the member is no longer eligible, and a leader hands over to the connected
    /// member that has applied most; members with an intact state machine come first. Returns whether the process may
    /// end: it does not lead and, if it handed over, knows that another member leads; no other member can take over; or
    /// 500 ms have passed. Call it after each [`round`](ElectionDriver::round) until then.
    pub fn leave<F: Fabric>(&mut self, now: Duration, member: &Member<F>) -> bool {
        let mut leaving = *self.leaving.get_or_insert(Leaving { since: now, heir: None });
        let replica = member.replica();
        if now.saturating_sub(leaving.since) >= HANDING_OVER {
            return true;
        }
        if !replica.is_leader() {
            // The replica shows another leader only once this member has received that leader's state.
            return leaving.heir.is_none() || replica.ballot().leader() != self.me;
        }
        if leaving.heir.is_some_and(|heir| member.is_connected_to(heir)) {
            return false;
        }
        let (heir, early) = self.nominate(member);
        leaving.heir = heir;
        self.leaving = Some(leaving);
        leaving.heir.is_none() && !early
    }

    /// Hands over to the connected member that has applied most; members with an intact state machine come first.
    /// Returns that member, and whether it is too early because the election may not have named this leader yet.
    fn nominate<F: Fabric>(&mut self, member: &Member<F>) -> (Option<ProcessId>, bool) {
        let mut heirs: Vec<&Other> = self.others.iter().filter(|other| member.is_connected_to(other.process)).collect();
        heirs.sort_by_key(|other| (other.poisoned.is_some(), std::cmp::Reverse(other.delivered)));
        let election = &mut self.election;
        let mut early = false;
        let heir = heirs.iter().map(|other| other.process).find(|heir| match election.hand_over(*heir) {
            Ok(()) => true,
            Err(error) => {
                early |= error == HandOverError::NotLeader;
                false
            }
        });
        (heir, early)
    }

    /// Hands over if this member leads and its state machine is poisoned: as soon as another member can lead, and again
    /// after `patience` if that had no effect. Ineligibility does not suffice, because only a majority without this
    /// member could then replace it.
    fn hand_over_if_poisoned<F: Fabric>(&mut self, now: Duration, member: &Member<F>) {
        let poisoned = self.applied.is_some_and(|applied| applied.poisoned.is_some());
        if poisoned && self.stands_back && member.replica().is_leader() && now >= self.hands_over_at {
            let (heir, _) = self.nominate(member);
            self.hands_over_at = heir.map_or(now, |_| now + self.patience);
        }
    }

    /// Returns the member to which this process hands over before it ends.
    #[must_use]
    pub fn heir(&self) -> Option<ProcessId> {
        self.leaving?.heir
    }

    /// Hands the leadership to another member, without waiting for a timeout: the election names that member, and it
    /// campaigns.
    ///
    /// # Errors
    /// Returns a [`HandOverError`], and changes nothing, if the hand-over is impossible now. A leader that the election
    /// does not know yet counts as not leading.
    pub fn hand_over(&mut self, to: ProcessId) -> Result<(), HandOverError> {
        self.election.hand_over(to)
    }

    /// Lets the election decide, and campaigns if it names this process and the member does not lead.
    pub fn poll<F: Fabric>(&mut self, now: Duration, member: &mut Member<F>) {
        while let Some(change) = self.election.poll(now) {
            self.led = matches!(change, Change::Leader { .. });
            let named = matches!(change, Change::Leader { process, .. } if process == self.me);
            if named && !self.named {
                (self.campaign_at, self.backoff) = (now, self.patience);
            }
            self.named = named;
        }
        let replica = member.replica();
        // A partitioned leader may not know that another ballot has superseded it. It campaigns when it is named again.
        let leads = replica.is_leader() && replica.ballot() == replica.known(replica.group());
        if leads {
            self.backoff = self.patience;
            // If another member deposes this leader, it may have had a reason. The delay avoids an immediate
            // counter-campaign.
            self.campaign_at = self.campaign_at.max(now + self.interval);
        } else if self.named && now >= self.campaign_at && member.campaign().is_ok() {
            self.campaign_at = now + self.backoff;
            self.backoff = (self.backoff * 2).min(self.patience * LONGEST_BACKOFF);
        }
    }
}

#[cfg(test)]
mod tests {
    use stentor_election::Life;

    use super::*;

    const P: [ProcessId; 3] = [ProcessId(0), ProcessId(1), ProcessId(2)];

    fn driver() -> ElectionDriver<Heartbeat> {
        let interval = Duration::from_millis(5);
        let heartbeat = Heartbeat::new(HeartbeatConfig::new(P[0], &P, interval)).unwrap();
        ElectionDriver::new(heartbeat, P[0], &P, interval, interval)
    }

    #[test]
    fn death_makes_the_next_round_due_once_and_silence_does_not() {
        let mut driver = driver();
        let mut is_due_after = |one, other| {
            driver.next = driver.interval;
            driver.watch(|process| if process == P[1] { one } else { other });
            driver.next.is_zero()
        };
        let (absent, there, died) = (Presence::Absent, Presence::There, Presence::Died);
        // At first no process exists. Then both processes connect, and one stops sending.
        for (one, other) in [(absent, absent), (there, there), (absent, there)] {
            assert!(!is_due_after(one, other));
        }
        assert!(is_due_after(absent, died));
        assert!(!is_due_after(absent, died), "it was reported already");
        assert!(!is_due_after(absent, there), "its next life is connected");
        assert!(is_due_after(absent, died), "the next life has died, too");
    }

    #[test]
    fn death_is_believed_at_once_and_silence_only_if_the_last_was_no_mistake() {
        let (mut driver, mut counter) = (driver(), 0);
        let mut is_trusted_after = |beats, presence| {
            for _ in 0..beats {
                counter += 1;
                let beat = Beat { incarnation: 1, counter, claim: 0, doubt: 0, stands: 1, sees: 0 };
                driver.election.observe(P[1], &beat).unwrap();
            }
            driver.watch(|_| presence);
            driver.election.life(P[1]) == Some(Life::Alive)
        };
        assert!(is_trusted_after(3, Presence::There));
        assert!(!is_trusted_after(0, Presence::Absent), "the first silence");
        assert!(is_trusted_after(3, Presence::There), "it continues to beat");
        assert!(is_trusted_after(0, Presence::Absent), "the next silence");
        assert!(!is_trusted_after(0, Presence::Died));
    }
}
