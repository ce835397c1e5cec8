//! Elections for tests: one that follows a script, and a hostile one.

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::{ProcessId, SplitMix64};

use crate::{Change, Election, HandOverError};

/// An election that reports each change of a script at the time of that change. It does not enforce the rules of the
/// stream.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    script: VecDeque<(Duration, Change)>,
    witnessed: Option<(u64, ProcessId)>,
}

impl Scripted {
    /// Creates an election that reports these changes in the given order, each at the first poll at or after its time.
    #[must_use]
    pub fn new(script: impl IntoIterator<Item = (Duration, Change)>) -> Self {
        Scripted { script: script.into_iter().collect(), witnessed: None }
    }

    /// Creates an election that names one leader from the start, for ever.
    #[must_use]
    pub fn fixed(epoch: u64, process: ProcessId) -> Self {
        Self::new([(Duration::ZERO, Change::Leader { epoch, process })])
    }

    /// Returns the largest pair that was passed to [`witness`](Election::witness).
    #[must_use]
    pub fn witnessed(&self) -> Option<(u64, ProcessId)> {
        self.witnessed
    }
}

impl Election for Scripted {
    fn poll(&mut self, now: Duration) -> Option<Change> {
        let due = self.script.front().is_some_and(|(at, _)| *at <= now);
        if due { self.script.pop_front().map(|(_, change)| change) } else { None }
    }

    fn hand_over(&mut self, _to: ProcessId) -> Result<(), HandOverError> {
        Err(HandOverError::Unsupported)
    }

    fn witness(&mut self, epoch: u64, process: ProcessId) {
        self.witnessed = self.witnessed.max(Some((epoch, process)));
    }
}

/// An election that changes its leader every period, independently at each process. It names two leaders at once, none,
/// crashed ones, and the polling process itself. It keeps the rules of the stream, so any failure under it is the
/// protocol's. [`settling`](Flapping::settling) makes it name one leader after a given time.
///
/// The seed decides everything: the same arguments and times of polls produce the same stream.
#[derive(Clone, Debug)]
pub struct Flapping {
    me: ProcessId,
    members: Vec<ProcessId>,
    random: SplitMix64,
    period: Duration,
    next: Duration,
    settle: Option<(Duration, ProcessId)>,
    epoch: u64,
    leading: Option<u64>,
    pending: bool,
    queue: VecDeque<Change>,
}

impl Flapping {
    /// Creates an election among `members` for process `me`, or among `me` alone if `members` is empty. A leader, or
    /// none, is drawn once per `period`, which is raised to at least 1 ns.
    #[must_use]
    pub fn new(seed: u64, me: ProcessId, members: &[ProcessId], period: Duration) -> Self {
        Flapping {
            me,
            members: if members.is_empty() { vec![me] } else { members.to_vec() },
            random: SplitMix64(seed ^ (u64::from(me.0) << 48)),
            period: period.max(Duration::from_nanos(1)),
            next: Duration::ZERO,
            settle: None,
            epoch: 0,
            leading: None,
            pending: false,
            queue: VecDeque::new(),
        }
    }

    /// Makes the election name `leader` for ever, beginning with the first poll at or after `at`.
    #[must_use]
    pub fn settling(mut self, at: Duration, leader: ProcessId) -> Self {
        self.settle = Some((at, leader));
        self
    }

    fn name(&mut self, leader: Option<ProcessId>) {
        if leader != Some(self.me)
            && let Some(epoch) = self.leading.take()
        {
            self.queue.push_back(Change::Resigned { epoch });
        }
        match leader {
            Some(process) => {
                self.epoch += 1;
                self.leading = (process == self.me).then_some(self.epoch);
                self.queue.push_back(Change::Leader { epoch: self.epoch, process });
            }
            None if !self.pending => self.queue.push_back(Change::Pending),
            None => {}
        }
        self.pending = leader.is_none();
    }
}

impl Election for Flapping {
    fn poll(&mut self, now: Duration) -> Option<Change> {
        if let Some((_, leader)) = self.settle.filter(|(at, _)| *at <= now) {
            self.settle = None;
            self.next = Duration::MAX;
            self.name(Some(leader));
        } else if self.next <= now {
            // A stalled process draws once, however many periods have passed.
            self.next = now.saturating_add(self.period);
            let (roll, pick) = (self.random.below(8), self.random.word());
            let anybody = self.members[(pick % self.members.len() as u64) as usize];
            self.name(match roll {
                0 => None,
                1..=3 => Some(self.me),
                _ => Some(anybody),
            });
        }
        self.queue.pop_front()
    }

    fn hand_over(&mut self, _to: ProcessId) -> Result<(), HandOverError> {
        Err(HandOverError::Unsupported)
    }

    fn witness(&mut self, epoch: u64, process: ProcessId) {
        let beaten = self.leading.is_some_and(|leading| (epoch, process) > (leading, self.me));
        self.epoch = self.epoch.max(epoch);
        if beaten {
            self.name(Some(self.me));
        }
    }
}
