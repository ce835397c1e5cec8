//! The progress of a state machine, as shared with other threads.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use stentor_multicast::{GroupId, RestoreError};

use crate::Group;
use crate::Position;

/// The progress of a state machine. The thread that applies commands writes it, and other threads may read it at any
/// time. The protocol's thread also writes it, if the machine was outvoted.
///
/// # Invariants
/// - The position of the last command is read atomically, by a sequence lock: `version` is odd while the position is
///   written, and rises with each write.
/// - A command costs only stores. Rare changes are protected by a lock.
#[derive(Debug)]
pub(in crate::node) struct Progress {
    /// The group of the machine.
    own: Group,
    version: AtomicU64,
    time: AtomicU64,
    group: AtomicU64,
    index: AtomicU64,
    incarnation: AtomicU64,
    /// Number of commands that the value contains.
    commands: AtomicU64,
    /// The order time at which something is due, or `NEVER`. It is valid after `due_after` commands.
    due: AtomicU64,
    due_after: AtomicU64,
    /// The version of the machine that is in force.
    in_force: AtomicU32,
    /// Number of restorations of a state, including failed ones.
    restores: AtomicU64,
    /// `true` if the machine accepts no more work: it is poisoned, has failed to restore a state, or does not know the
    /// version in force.
    ill: AtomicBool,
    rare: Mutex<Rare>,
}

/// The value of `due` if nothing is due.
const NEVER: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Rare {
    poisoned: Option<Position>,
    failure: Option<RestoreError>,
}

impl Progress {
    pub(super) fn new(own: Group) -> Self {
        Progress {
            own,
            version: AtomicU64::new(0),
            time: AtomicU64::new(0),
            group: AtomicU64::new(0),
            index: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            due: AtomicU64::new(NEVER),
            due_after: AtomicU64::new(0),
            in_force: AtomicU32::new(1),
            restores: AtomicU64::new(0),
            ill: AtomicBool::new(false),
            rare: Mutex::default(),
        }
    }

    fn rare<T>(&self, look: impl FnOnce(&mut Rare) -> T) -> T {
        look(&mut self.rare.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a command was applied. Only the thread that applies commands calls this.
    #[inline]
    pub(super) fn note_applied(&self, position: Position) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.time.store(position.time, Ordering::Relaxed);
        self.group.store(u64::from(position.group.0.0), Ordering::Relaxed);
        self.index.store(position.index, Ordering::Relaxed);
        self.incarnation.store(position.incarnation, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
        self.commands.store(position.index, Ordering::Release);
    }

    /// Records the earliest time at which something is due after the applied commands. Only the thread that applies
    /// commands calls this.
    #[inline]
    pub(super) fn note_due(&self, due: Option<u64>) {
        self.due.store(due.unwrap_or(NEVER), Ordering::Relaxed);
        self.due_after.store(self.commands.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Returns the earliest time at which a session ends or a timer fires after `commands` commands. Returns `None` if
    /// nothing is due. Also returns `None` if these commands are not all applied yet, because they may change that
    /// time.
    #[inline]
    pub(in crate::node) fn due(&self, commands: u64) -> Option<u64> {
        let is_known = self.due_after.load(Ordering::Acquire) == commands;
        let due = self.due.load(Ordering::Relaxed);
        (is_known && due != NEVER).then_some(due)
    }

    /// Records that a state of this many commands was restored, or why the machine is unusable.
    pub(super) fn note_restored(&self, commands: Result<u64, RestoreError>) {
        match commands {
            Ok(commands) => {
                self.rare(|rare| rare.poisoned = None);
                self.ill.store(false, Ordering::Release);
                self.commands.store(commands, Ordering::Release);
            }
            Err(error) => {
                self.rare(|rare| rare.failure = Some(error));
                self.ill.store(true, Ordering::Release);
            }
        }
    }

    /// Records the version in force. Only the thread that applies commands calls this.
    pub(super) fn note_version(&self, version: u32) {
        self.in_force.store(version, Ordering::Relaxed);
    }

    /// Returns the version of the machine that is in force.
    pub(in crate::node) fn version(&self) -> u32 {
        self.in_force.load(Ordering::Relaxed)
    }

    /// Records the end of a restoration, whether it succeeded or not.
    pub(super) fn note_restore_over(&self) {
        self.restores.fetch_add(1, Ordering::Release);
    }

    /// Records that the machine is poisoned at a position.
    pub(in crate::node) fn note_poisoned(&self, at: Position) {
        self.rare(|rare| rare.poisoned = Some(at));
        self.ill.store(true, Ordering::Release);
    }

    /// Returns the position of the last command that this process has applied, or `None` if it has applied none.
    pub(in crate::node) fn applied(&self) -> Option<Position> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let (time, group) = (self.time.load(Ordering::Relaxed), self.group.load(Ordering::Relaxed));
            let (index, incarnation) = (self.index.load(Ordering::Relaxed), self.incarnation.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                let (group, applied_in) = (Group(GroupId(group as u16)), self.own);
                let position = Position { time, group, index, applied_in, incarnation, heard: 0 };
                return (version > 0).then_some(position);
            }
            std::thread::yield_now();
        }
    }

    /// Returns the number of commands that the value contains.
    #[inline]
    pub(in crate::node) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Acquire)
    }

    /// Returns the number of restorations of a state, including failed ones.
    pub(super) fn restores(&self) -> u64 {
        self.restores.load(Ordering::Acquire)
    }

    /// Returns whether the machine accepts no more work.
    #[inline]
    pub(in crate::node) fn is_ill(&self) -> bool {
        self.ill.load(Ordering::Acquire)
    }

    /// Returns the position at which the machine is poisoned, if it is.
    pub(in crate::node) fn poisoned(&self) -> Option<Position> {
        if self.is_ill() { self.rare(|rare| rare.poisoned) } else { None }
    }

    /// Returns why a state could not be restored, or why a version entry could not be applied.
    pub(in crate::node) fn failure(&self) -> Option<RestoreError> {
        if self.is_ill() { self.rare(|rare| rare.failure.clone()) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_place_is_read_whole_while_it_changes() {
        let (progress, ends) = (Arc::new(Progress::new(Group(GroupId(0)))), Arc::new(AtomicBool::new(false)));
        assert_eq!(progress.applied(), None);
        let writer = std::thread::spawn({
            let (progress, ends) = (Arc::clone(&progress), Arc::clone(&ends));
            move || {
                let mut index = 0;
                while !ends.load(Ordering::Relaxed) {
                    index += 1;
                    let group = Group(GroupId(index as u16));
                    let position =
                        Position { time: 3 * index, group, index, applied_in: group, incarnation: 7 * index, heard: 0 };
                    progress.note_applied(position);
                }
            }
        });
        let (mut seen, mut last, since) = (0, 0, std::time::Instant::now());
        // The two threads must overlap often enough, however many processors there are.
        while seen < 100_000 && since.elapsed() < std::time::Duration::from_secs(2) {
            if let Some(Position { time, group, index, incarnation, .. }) = progress.applied() {
                assert_eq!((time, group.0.0, incarnation), (3 * index, index as u16, 7 * index));
                seen += u32::from(index != last);
                last = index;
            }
        }
        ends.store(true, Ordering::Relaxed);
        writer.join().expect("the writing thread does not panic");
    }
}
