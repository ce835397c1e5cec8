//! The sender's side of a stream: when it may broadcast, and when it delivers its own broadcasts. A pure state machine.

use stentor_fabric::ProcessId;

use crate::{Config, ProcessSet, mutant};

/// The stream of the local process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Broadcast {
    config: Config,
    me: ProcessId,
    /// Next index to broadcast.
    next: u64,
    /// Next index to deliver here.
    head: u64,
    /// Index, for each process, below which all broadcasts were written to that process.
    written: Vec<u64>,
    /// Index, for each process, below which that process has freed all broadcasts.
    freed: Vec<u64>,
    /// Processes that have been a window behind for longer than the timeout.
    late: ProcessSet,
    /// Mode `all`: processes that have not been removed.
    members: ProcessSet,
    blocked_since: Option<u64>,
}

impl Broadcast {
    /// Creates the stream at its beginning.
    #[must_use]
    pub fn new(config: &Config, me: ProcessId) -> Self {
        Broadcast {
            config: *config,
            me,
            next: 0,
            head: 0,
            written: vec![0; config.everybody().len()],
            freed: vec![0; config.everybody().len()],
            late: ProcessSet::EMPTY,
            members: config.everybody(),
            blocked_since: None,
        }
    }

    /// Returns the next index.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the processes that have not freed slots for longer than the timeout. Flow control ignores them.
    #[must_use]
    pub fn late(&self) -> ProcessSet {
        self.late
    }

    fn others(&self) -> impl Iterator<Item = ProcessId> + use<> {
        self.members.without(self.me).iter()
    }

    fn has_freed(&self, process: ProcessId) -> bool {
        mutant!(self.config.mutant, FixedBuffer) && self.next < u64::from(self.config.window)
            || !mutant!(self.config.mutant, FixedBuffer)
                && self.freed[process.index()] + u64::from(self.config.window) > self.next
    }

    /// Returns whether the slot of the next index is free: every process that counts has freed it, and fewer than a
    /// window of indices are undelivered here. The sender waits for a late process only for the configured time, and at
    /// least [`Config::must_credit`] processes are always waited for.
    pub fn has_room(&mut self, now_ns: u64) -> bool {
        let behind: ProcessSet = self.others().filter(|process| !self.has_freed(*process)).collect();
        self.late = self.late.and(behind);
        let own = self.head + u64::from(self.config.window) > self.next;
        if own && self.late.covers(behind) {
            self.blocked_since = None;
            return true;
        }
        let since = self.blocked_since.get_or_insert(now_ns);
        // If the clock is set back, the wait must not become longer.
        *since = now_ns.min(*since);
        let since = *since;
        let others = self.others().count();
        let must = self.config.must_credit().min(others);
        if own && now_ns.saturating_sub(since) >= self.config.patience_ns && others - behind.len() >= must {
            self.late = behind;
            self.blocked_since = None;
            return true;
        }
        false
    }

    /// Allocates the next index.
    pub fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Records that all indices below `upto` were written to a process.
    pub fn written(&mut self, process: ProcessId, upto: u64) {
        if let Some(written) = self.written.get_mut(process.index()) {
            *written = (*written).max(upto.min(self.next));
        }
    }

    /// Records that a process has freed all indices below `upto`. A process that lies about that harms only itself.
    pub fn freed(&mut self, process: ProcessId, upto: u64) {
        let Some(freed) = self.freed.get_mut(process.index()) else { return };
        if upto > *freed && upto <= self.next {
            *freed = upto;
        }
    }

    /// Returns the position up to which a process has freed, or 0 if there is no such process.
    #[must_use]
    pub fn freed_by(&self, process: ProcessId) -> u64 {
        self.freed.get(process.index()).copied().unwrap_or(0)
    }

    /// Returns the position up to which all broadcasts were written to a process, or 0 if there is no such process.
    #[must_use]
    pub fn written_at(&self, process: ProcessId) -> u64 {
        self.written.get(process.index()).copied().unwrap_or(0)
    }

    /// Returns the next index to deliver here, once it has reached a majority, or at once with [`Config::eager_self`].
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let reached = self.others().filter(|process| self.written[process.index()] > self.head).count();
        let members = self.members.len();
        let needed = if self.config.eager_self { 0 } else { self.config.own_majority().min(members / 2) };
        (self.head < self.next && reached >= needed).then_some(self.head)
    }

    /// Records that the index returned by [`due`](Self::due) was delivered at this process.
    pub fn settled(&mut self) {
        self.head += 1;
    }

    /// Removes a member after an agreed and fenced view change.
    pub fn remove_member(&mut self, member: ProcessId) {
        self.members.remove(member);
        self.late.remove(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultModel, Mode};

    fn stream(n: usize, mode: Mode, f: usize) -> Broadcast {
        let config = Config { window: 2, patience_ns: 100, ..Config::new(n, mode, f) };
        Broadcast::new(&config, ProcessId(0))
    }

    fn deliver_own(stream: &mut Broadcast) {
        for process in 1..stream.config.processes as u16 {
            stream.written(ProcessId(process), stream.next());
        }
        while stream.due().is_some() {
            stream.settled();
        }
    }

    #[test]
    fn sender_ignores_late_processes_if_enough_others_have_freed() {
        let mut stream = stream(4, Mode::Quorum(FaultModel::LyingSender), 1);
        for _ in 0..2 {
            assert!(stream.has_room(0));
            stream.take();
        }
        deliver_own(&mut stream);
        stream.freed(ProcessId(1), 2);
        assert!(!stream.has_room(0) && !stream.has_room(100), "two of three are behind: f is 1");
        stream.freed(ProcessId(2), 2);
        assert!(stream.has_room(100), "the timeout counts from the first refusal");
        assert_eq!(stream.late(), [ProcessId(3)].into_iter().collect());
        stream.freed(ProcessId(3), 2);
        assert!(stream.has_room(101));
        assert!(stream.late().is_empty());
    }

    #[test]
    fn sender_in_mode_all_never_times_out() {
        let mut stream = stream(3, Mode::All, 0);
        for _ in 0..2 {
            stream.take();
        }
        deliver_own(&mut stream);
        stream.freed(ProcessId(1), 2);
        assert!(!stream.has_room(0) && !stream.has_room(1 << 60));
        stream.remove_member(ProcessId(2));
        assert!(stream.has_room(1 << 60));
    }

    #[test]
    fn own_broadcasts_are_delivered_after_a_majority_of_write_completions() {
        let mut stream = stream(4, Mode::Quorum(FaultModel::LyingHosts), 1);
        stream.take();
        assert_eq!(stream.due(), None);
        stream.written(ProcessId(1), 1);
        assert_eq!(stream.due(), None, "two of four are no majority");
        stream.written(ProcessId(3), 1);
        assert_eq!(stream.due(), Some(0));
        stream.freed(ProcessId(1), 99);
        assert_eq!(stream.freed_by(ProcessId(1)), 0, "a process cannot free indices that were not broadcast");
    }
}
