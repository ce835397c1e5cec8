//! Keeps a group led: an election's word becomes a member's campaign.
//!
//! The election says whom the group takes for its leader; the member's ballots say who is. The keeper at each member
//! closes the gap: it campaigns while the election names its process and that process does not lead, and never
//! otherwise. A leader that resigns because it reaches no majority keeps its ballot: if it is named again before another
//! member has campaigned, it leads on without a campaign. Whatever the election says, safety is the ballots' concern.

use std::time::Duration;

use stentor_election::{Beat, Change, Election, HandOverError, Heartbeat, HeartbeatConfig, HeartbeatError};
use stentor_fabric::{Fabric, ProcessId};
use stentor_multicast::{Member, Place, Pulse};

use super::Plan;
use super::clock::incarnation;
use crate::config::ElectionTimes;

/// The longest time between two campaigns, in first ones.
const LONGEST_BACKOFF: u32 = 16;

/// Another member of the group.
#[derive(Debug)]
struct Other {
    process: ProcessId,
    /// At the last look.
    connected: bool,
    /// Its last heartbeat, and when that was first read.
    beat: Option<([u64; 2], Duration)>,
}

/// One member's part in the election of its group's leader.
#[derive(Debug)]
pub struct Keeper<E> {
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
    /// Whether it stands for leader, as an election was told last that is told only of changes.
    stood: Option<bool>,
}

impl Keeper<Heartbeat> {
    /// By heartbeats in the fabric, as the configuration has them.
    ///
    /// # Errors
    /// See [`HeartbeatError`].
    pub fn heartbeat(plan: &Plan, me: ProcessId) -> Result<Self, HeartbeatError> {
        let ElectionTimes { min, max } = plan.config().election_times();
        let members: Vec<ProcessId> = match plan.topology().place(me) {
            Some(Place::Member { group, .. }) => plan.topology().members(group).collect(),
            _ => Vec::new(),
        };
        let interval = ElectionTimes::INTERVAL;
        let config = HeartbeatConfig {
            incarnation: incarnation().max(1),
            timeout_min: min,
            timeout_max: max,
            ..HeartbeatConfig::new(me, &members, interval)
        };
        Ok(Keeper::new(Heartbeat::new(config)?, me, &members, interval, max))
    }

    /// One round, after the member's step: takes what was read of the others, lets the election decide, publishes what
    /// the others read, campaigns if it has to. Cheap when it is not yet time.
    pub fn round<F: Fabric>(&mut self, now: Duration, member: &mut Member<F>) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        for Other { process, connected, beat: last } in &mut self.others {
            let Some(pulse) = member.pulse(*process) else { continue };
            // A leader writes its stream on other links than those on which beats are read.
            self.election.link(*process, member.is_connected_to(*process));
            if let Some(words) = pulse.words {
                let beat = Beat::from_words(std::array::from_fn(|word| words[word]));
                let count = [beat.incarnation, beat.counter];
                if last.is_none_or(|(before, _)| before != count) {
                    *last = Some((count, now));
                }
                // Who claims nonsense is believed to live, and no more.
                let _ = self.election.observe(*process, &beat);
            }
            if std::mem::replace(connected, pulse.connected) && !pulse.connected {
                self.election.unreachable(*process);
            }
        }
        let stands = self.stands(now, member);
        self.election.stand(stands);
        self.poll(now, member);
        member.set_aside(self.election.is_cut_off());
        let mut words = [0; Pulse::WORDS];
        words[..Beat::WORDS].copy_from_slice(&self.election.beat().to_words());
        member.publish(&words);
    }
}

impl<E: Election> Keeper<E> {
    /// For the member `me` of a group of `members`, looking every `interval`. A campaign that has not succeeded after
    /// `patience` is begun again, each time after twice as long.
    pub fn new(election: E, me: ProcessId, members: &[ProcessId], interval: Duration, patience: Duration) -> Self {
        let other = |process: &ProcessId| Other { process: *process, connected: false, beat: None };
        let others = members.iter().filter(|process| **process != me).map(other).collect();
        Keeper {
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
            stood: None,
        }
    }

    /// The election.
    #[must_use]
    pub fn election(&self) -> &E {
        &self.election
    }

    /// When another member's heartbeat was seen to rise last, in the time of [`round`](Keeper::round). `None`: never; or
    /// the election does not look at members.
    #[must_use]
    pub fn heard(&self, process: ProcessId) -> Option<Duration> {
        self.others.iter().find(|other| other.process == process)?.beat.map(|(_, at)| at)
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

    /// Not without the group's state; and who has just got it leaves the lead to who has it, if there is somebody.
    fn stands<F: Fabric>(&mut self, now: Duration, member: &Member<F>) -> bool {
        if member.replica().is_joining() {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        member.replica().is_leader() || now.saturating_sub(since) >= self.patience
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
            let named = matches!(change, Change::Leader { process, .. } if process == self.me);
            if named && !self.named {
                (self.campaign_at, self.backoff) = (now, self.patience);
            }
            self.named = named;
        }
        if member.replica().is_leader() {
            self.backoff = self.patience;
            // Whoever overthrows it may have had a reason; then it is not disputed at once.
            self.campaign_at = self.campaign_at.max(now + self.interval);
        } else if self.named && now >= self.campaign_at && member.campaign().is_ok() {
            self.campaign_at = now + self.backoff;
            self.backoff = (self.backoff * 2).min(self.patience * LONGEST_BACKOFF);
        }
    }
}
