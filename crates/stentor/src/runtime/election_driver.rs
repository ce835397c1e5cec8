//! Keeps a group led: a decision of the election becomes a campaign of the member.
//!
//! The election says whom the group takes for its leader; the member's ballots say who is. The driver at each member
//! closes the gap: it campaigns while the election names its process and that process does not lead, and never
//! otherwise. A leader that resigns because it reaches no majority keeps its ballot: if it is named again before another
//! member has campaigned, it leads on without a campaign. A leader that knows of a larger ballot of its group campaigns like
//! any other member that is named. Whatever the election says, safety is the ballots' concern.
//!
//! # States of a member
//! - *Joining*: it has no state of its group. It does not stand.
//! - *Has the state*, and its election has named nobody yet. Somebody may lead of whom the election has not heard: the
//!   first leader of a group, or the one that took this member in. It does not stand, so that it cannot depose that
//!   leader, until it leads itself, the leader of its ballot was lost, or one patience has passed.
//! - *Stands*: from the first leader on that the election has named. To stand deposes nobody: an election replaces only
//!   a leader that it doubts. So a member can take over as soon as it has the state and knows who leads. It stands until
//!   it joins anew or leaves.
//! - *Named* by the election: it campaigns until it *leads*.
//! - *Stands back*: its state machine has panicked, and that of a connected member of its group has not. Or its wall clock is
//!   off the median of those it hears by more than the bound, and a connected member of its
//!   group has one that is right. It does not stand. If it leads, it goes on: an election replaces a leader that does not
//!   stand as soon as somebody can come forward, and not before. One whose state machine has panicked hands over by itself. If nobody leads for two patiences, a leader whose clock is
//!   off is better than none: it stands for a while, whatever its clock says.
//! - *Leaving*: it stands no longer. If it leads, it hands over first, for at most 500 ms.

use std::time::Duration;

use stentor_election::{Beat, Change, Election, HandOverError, Heartbeat, HeartbeatConfig, HeartbeatError};
use stentor_fabric::{Fabric, ProcessId};
use stentor_multicast::{HeartbeatCell, Member, ProcessRole};

use super::clock::incarnation;
use super::{ClusterRuntime, FabricDiagnostics};
use crate::config::ElectionTimes;

/// The longest time between two campaigns, in first ones.
const LONGEST_BACKOFF: u32 = 16;
/// The time for which a leader that leaves waits until another one leads.
const HANDING_OVER: Duration = Duration::from_millis(500);
/// How long nobody leads, in patiences, before a member whose clock is off stands nevertheless.
const UNLED: u32 = 2;
/// How long it stands then, in patiences.
const INSISTING: u32 = 64;
/// The word, after those of the heartbeat, in which a member publishes how much it has delivered.
const DELIVERED: usize = Beat::WORDS;
/// The word, after that, in which a member publishes where its state machine has panicked: the number of the command and 1; 0: nowhere.
const POISONED: usize = DELIVERED + 1;

/// Whether the process of a member is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Presence {
    /// Nobody is connected, and no death was told.
    Absent,
    /// It is connected.
    There,
    /// The system has told that it has died, and no other has come in its place.
    Died,
}

impl Presence {
    /// Of a peer, as a fabric says.
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
    /// At the last look.
    connected: bool,
    /// Whether it was connected since this process began.
    connected_once: bool,
    /// Whether it was connected, and is not any more.
    lost: bool,
    /// Of its process, at the last look.
    presence: Presence,
    /// The number of deliveries that it published last.
    delivered: u64,
    /// Where its state machine has panicked, as it published last.
    poisoned: Option<u64>,
    /// Its last heartbeat, and when that was first read.
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
    /// How long a campaign may take before it is begun again, the first time.
    patience: Duration,
    backoff: Duration,
    next: Duration,
    /// The election's word: this process leads.
    named: bool,
    /// No campaign before this.
    campaign_at: Duration,
    /// Since when this process has its group's state.
    since: Option<Duration>,
    /// Whether the election has a leader.
    led: bool,
    /// Since when this member could stand and the election has named nobody.
    unled: Option<Duration>,
    /// Until when it stands although its clock is off.
    insists: Duration,
    /// Whether it stood back at the last round.
    stands_back: bool,
    /// Whether it has stood since it has the state.
    stands: bool,
    /// Whether it stands for leader, as an election was told last that is told only of changes.
    stood: Option<bool>,
    leaving: Option<Leaving>,
    /// How far the application is, if it is told.
    applied: Option<Applied>,
    /// When a leader whose state machine has panicked hands over next.
    hands_over_at: Duration,
}

/// How far a member's application is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// The commands that its state contains.
    pub commands: u64,
    /// The number of the command at which the state machine has panicked. Such a member does not stand while another one can lead whose
    /// state machine has not.
    pub poisoned: Option<u64>,
}

/// The end of this process that is being prepared.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    since: Duration,
    /// The member that is to lead then.
    heir: Option<ProcessId>,
}

impl ElectionDriver<Heartbeat> {
    /// By heartbeats in the fabric, as the configuration has them.
    ///
    /// # Errors
    /// See [`HeartbeatError`].
    pub fn heartbeat(plan: &ClusterRuntime, me: ProcessId) -> Result<Self, HeartbeatError> {
        let ElectionTimes { min, max } = plan.config().election_times();
        let members: Vec<ProcessId> = match plan.topology().role(me) {
            Some(ProcessRole::Member { group, .. }) => plan.topology().members(group).collect(),
            _ => Vec::new(),
        };
        let interval = ElectionTimes::INTERVAL;
        let config = HeartbeatConfig {
            incarnation: incarnation().max(1),
            timeout_min: min,
            timeout_max: max,
            ..HeartbeatConfig::new(me, &members, interval)
        };
        Ok(ElectionDriver::new(Heartbeat::new(config)?, me, &members, interval, max))
    }

    /// One round, after the member's step: takes what was read of the others, lets the election decide, publishes what
    /// the others read, campaigns if it has to. Cheap when it is not yet time.
    pub fn round<F: Fabric>(&mut self, now: Duration, member: &mut Member<F>) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        for Other { process, connected, beat: last, delivered, poisoned, .. } in &mut self.others {
            let Some(heartbeat) = member.heartbeat(*process) else { continue };
            // A leader writes its stream on other links than those on which beats are read.
            self.election.link(*process, member.is_connected_to(*process));
            if let Some(words) = heartbeat.words {
                *delivered = words[DELIVERED];
                *poisoned = words[POISONED].checked_sub(1);
                let beat = Beat::from_words(std::array::from_fn(|word| words[word]));
                let count = [beat.incarnation, beat.counter];
                if last.is_none_or(|(before, _)| before != count) {
                    *last = Some((count, now));
                }
                // Who claims nonsense is believed to live, and no more.
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
        // A machine that has panicked frees nothing.
        member.set_aside(self.election.is_cut_off() || applied.poisoned.is_some());
        let mut words = [0; HeartbeatCell::WORDS];
        words[..Beat::WORDS].copy_from_slice(&self.election.beat().to_words());
        words[DELIVERED] = applied.commands;
        words[POISONED] = applied.poisoned.map_or(0, |command| command.saturating_add(1));
        member.publish(&words);
    }

    /// Looks whether the processes of other members still exist, and tells the election of those that do not. A death starts an
    /// election at once: the next [`round`](ElectionDriver::round) is due. A member whose connection ended otherwise is only
    /// doubted. Call it before each round; it loads a few words.
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
    /// For the member `me` of a group of `members`, looking every `interval`. A campaign that has not succeeded after
    /// `patience` is begun again, each time after twice as long.
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

    /// The election.
    #[must_use]
    pub fn election(&self) -> &E {
        &self.election
    }

    /// When another member's heartbeat was seen to rise last, in the time of [`round`](ElectionDriver::round). `None`: never; or
    /// the election does not look at members.
    #[must_use]
    pub fn heard(&self, process: ProcessId) -> Option<Duration> {
        self.others.iter().find(|other| other.process == process)?.beat.map(|(_, at)| at)
    }

    /// Returns how many messages another member had delivered, as it published last. 0: it has published nothing.
    #[must_use]
    pub fn delivered(&self, process: ProcessId) -> u64 {
        self.others.iter().find(|other| other.process == process).map_or(0, |other| other.delivered)
    }

    /// Returns the number of the command at which another member's state machine has panicked, as it published last.
    #[must_use]
    pub fn poisoned(&self, process: ProcessId) -> Option<u64> {
        self.others.iter().find(|other| other.process == process)?.poisoned
    }

    /// Sets how far this member's application is, which the next rounds publish. Without that they publish what the member has delivered.
    pub fn set_applied(&mut self, applied: Applied) {
        self.applied = Some(applied);
    }

    /// Whether the election names this process.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// One round, after the member's step, with an election that looks at nobody through the fabric: `stand` tells it
    /// whether this process would lead, each time that this changes.
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

    /// Returns whether this member would lead; see the states above.
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

    /// Returns whether this member's clock is off, or its state machine has panicked, and another one could lead that is better off; see
    /// the states above.
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

    /// Whether this member does not stand because its wall clock is off, or its state machine has panicked.
    #[must_use]
    pub fn stands_back(&self) -> bool {
        self.stands_back
    }

    /// Returns whether another member was connected, and is not any more.
    fn is_lost(&self, process: ProcessId) -> bool {
        self.others.iter().any(|other| other.process == process && other.lost)
    }

    /// Prepares the end of this process: the member no longer stands, and a leader hands over to the connected member
    /// that has delivered most. Returns whether the process may end: it does not lead, nobody takes over, or 500 ms
    /// have passed. Call it after each [`round`](ElectionDriver::round) until then.
    pub fn leave<F: Fabric>(&mut self, now: Duration, member: &Member<F>) -> bool {
        let mut leaving = *self.leaving.get_or_insert(Leaving { since: now, heir: None });
        let replica = member.replica();
        if now.saturating_sub(leaving.since) >= HANDING_OVER {
            return true;
        }
        if !replica.is_leader() {
            // Another one leads here only once this member has its state.
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

    /// Hands over to the connected member that has applied most, of those whose state machines have not panicked, if there are any.
    /// Returns which one that is, and whether it is too early: the election may not have named this leader yet.
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

    /// A leader whose state machine has panicked hands over, as soon as there is somebody who can lead, and again after a patience if
    /// that did not help. That it no longer stands is not enough: it takes a majority without it to replace it.
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

    /// Hands the leadership to another member, without waiting for a timeout: the election names it, and it campaigns.
    ///
    /// # Errors
    /// See [`HandOverError`]; nothing has changed then. A leader of which the election does not know yet does not lead.
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
        // A leader that was cut off may not know that another ballot took its group: it campaigns when it is named again.
        let leads = replica.is_leader() && replica.ballot() == replica.known(replica.group());
        if leads {
            self.backoff = self.patience;
            // Whoever overthrows it may have had a reason; then it is not disputed at once.
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
    fn a_death_is_told_once_makes_the_next_round_due_and_silence_is_none() {
        let mut driver = driver();
        let mut is_due_after = |one, other| {
            driver.next = driver.interval;
            driver.watch(|process| if process == P[1] { one } else { other });
            driver.next.is_zero()
        };
        let (absent, there, died) = (Presence::Absent, Presence::There, Presence::Died);
        // Nobody was there yet; then both are, and one goes in silence.
        for (one, other) in [(absent, absent), (there, there), (absent, there)] {
            assert!(!is_due_after(one, other));
        }
        assert!(is_due_after(absent, died));
        assert!(!is_due_after(absent, died), "it was told");
        assert!(!is_due_after(absent, there), "its next life is there");
        assert!(is_due_after(absent, died), "and has died, too");
    }

    #[test]
    fn the_election_believes_a_death_at_once_and_a_silence_only_if_the_last_one_was_no_mistake() {
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
        assert!(is_trusted_after(3, Presence::There), "it beats on");
        assert!(is_trusted_after(0, Presence::Absent), "the next silence");
        assert!(!is_trusted_after(0, Presence::Died));
    }
}
