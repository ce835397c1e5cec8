//! Elections for tests: one that says what it was told to say, and a hostile one.

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::{ProcessId, SplitMix64};

use crate::{Change, Election, HandOverError};

/// Says each change at its time, whatever is true. Keeps no rule of the stream by itself.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    script: VecDeque<(Duration, Change)>,
    witnessed: Option<(u64, ProcessId)>,
}

impl Scripted {
    /// These changes, each at its time or at the first poll after it. They come in the given order.
    #[must_use]
    pub fn new(script: impl IntoIterator<Item = (Duration, Change)>) -> Self {
        Scripted { script: script.into_iter().collect(), witnessed: None }
    }

    /// One leader from the start, for ever.
    #[must_use]
    pub fn fixed(epoch: u64, process: ProcessId) -> Self {
        Self::new([(Duration::ZERO, Change::Leader { epoch, process })])
    }

    /// The largest pair that [`witness`](Election::witness) was told.
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

/// Changes its mind every period, at each process as it likes: it names two leaders at once, none, dead ones, oneself.
/// It keeps the rules of the stream, so what breaks under it is the protocol. From a given time on it names one leader.
///
/// Decided by the seed alone: the same arguments and the same times of polling give the same stream.
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
    /// Creates an election among these members for `me`, or of `me` alone if there are none, with a change about every
    /// `period`, which is a nanosecond at least.
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

    /// From the first poll at or after `at` it names `leader`, for ever.
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
            // One change however many periods have passed: a stalled process does not make up for lost time.
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
