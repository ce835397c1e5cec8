//! The groups that are halted at a command that their state machine cannot apply.
//!
//! # States of a group
//! A group is *running*, *announced* or *halted*. A halted member sends halt notices to the client. The first notice
//! makes the group *announced*. The group becomes *halted* [`SETTLED`] later. Until then, replies to earlier commands
//! may still arrive. An announced or halted group becomes *running* again in two cases: no notice has arrived
//! for [`FORGOTTEN`], or a member has answered a later command. An answer to a later command shows that the members
//! were restarted with another state machine.

use std::time::Duration;

use stentor_multicast::GroupId;

/// Time in which replies that were sent before a notice still arrive.
const SETTLED: Duration = Duration::from_millis(50);
/// Time after the last notice at which a halt is forgotten. A halted member repeats its notice many times within it.
const FORGOTTEN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
struct Halt {
    /// Index of the command at which the group is halted.
    index: u64,
    /// Time of the first notice.
    since: Duration,
    /// Time of the last notice.
    heard: Duration,
}

/// The halted groups of a cluster.
pub(super) struct Halts {
    by_group: Vec<Option<Halt>>,
    /// Number of groups that are announced or halted.
    count: usize,
}

impl Halts {
    pub(super) fn new(groups: usize) -> Self {
        Halts { by_group: vec![None; groups], count: 0 }
    }

    /// Records a member's notice that `group` is halted at the command with this index.
    #[cold]
    pub(super) fn note(&mut self, group: GroupId, index: u64, now: Duration) {
        let Some(halt) = self.by_group.get_mut(usize::from(group.0)) else { return };
        self.count += usize::from(halt.is_none());
        let since = halt.map_or(now, |halt| halt.since);
        *halt = Some(Halt { index, since, heard: now });
    }

    /// Records a member's answer to the command with this index.
    #[inline]
    pub(super) fn note_answer(&mut self, group: GroupId, index: u64) {
        if self.count > 0 {
            self.clear(group, |halt| index > halt.index);
        }
    }

    #[cold]
    fn clear(&mut self, group: GroupId, is_over: impl Fn(&Halt) -> bool) {
        let Some(halt) = self.by_group.get_mut(usize::from(group.0)) else { return };
        self.count -= usize::from(halt.take_if(|halt| is_over(halt)).is_some());
    }

    /// Returns the first of these groups that is halted.
    #[inline]
    pub(super) fn find(&self, groups: &[GroupId], now: Duration) -> Option<GroupId> {
        if self.count == 0 {
            return None;
        }
        let is_halted = |halt: &Halt| now.saturating_sub(halt.since) >= SETTLED;
        let halt = |group: &&GroupId| self.by_group.get(usize::from(group.0)).copied().flatten();
        groups.iter().find(|group| halt(group).as_ref().is_some_and(is_halted)).copied()
    }

    /// Forgets groups whose notices have stopped. Returns whether any group is announced or halted.
    pub(super) fn look(&mut self, now: Duration) -> bool {
        if self.count > 0 {
            for group in (0..self.by_group.len() as u16).map(GroupId) {
                self.clear(group, |halt| now.saturating_sub(halt.heard) >= FORGOTTEN);
            }
        }
        self.count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: [GroupId; 3] = [GroupId(0), GroupId(1), GroupId(2)];

    #[test]
    fn a_group_is_halted_a_moment_after_the_first_notice_and_until_it_answers_later_commands() {
        let (mut halts, now) = (Halts::new(3), Duration::from_secs(9));
        halts.note(GROUPS[1], 6, now);
        assert_eq!(halts.find(&GROUPS, now), None, "replies to earlier commands may still arrive");
        halts.note(GROUPS[1], 6, now + SETTLED);
        assert_eq!(halts.find(&GROUPS, now + SETTLED), Some(GROUPS[1]));
        assert_eq!(halts.find(&GROUPS[..1], now + SETTLED), None);
        halts.note_answer(GROUPS[1], 6);
        halts.note_answer(GROUPS[0], 7);
        assert_eq!(halts.find(&GROUPS, now + SETTLED), Some(GROUPS[1]));
        halts.note_answer(GROUPS[1], 7);
        assert_eq!((halts.find(&GROUPS, now + SETTLED), halts.count), (None, 0));
    }

    #[test]
    fn a_halt_without_further_notices_is_forgotten() {
        let (mut halts, now) = (Halts::new(3), Duration::from_secs(9));
        halts.note(GROUPS[2], 6, now);
        halts.note(GROUPS[2], 6, now + FORGOTTEN / 2);
        assert!(halts.look(now + FORGOTTEN));
        assert_eq!(halts.find(&GROUPS, now + FORGOTTEN), Some(GROUPS[2]));
        assert!(!halts.look(now + FORGOTTEN / 2 + FORGOTTEN));
        assert_eq!(halts.find(&GROUPS, now + FORGOTTEN / 2 + FORGOTTEN), None);
    }

    #[test]
    fn a_notice_of_an_unknown_group_is_ignored() {
        let mut halts = Halts::new(1);
        halts.note(GROUPS[1], 6, Duration::ZERO);
        halts.note_answer(GROUPS[1], 7);
        assert!(!halts.look(SETTLED));
    }
}
