//! For how long a session surely lives.
//!
//! # The argument
//! A renewal that was sent at the moment *t* of this process's monotonic clock gives the end *T + ttl*, where *T* is the time of its place in
//! the group's order. That time was given after *t*. The session ends at the first place with a time beyond its end. The time of the order
//! is physical: at each moment the times of any two leaders, of this group or of another one with which it shares a message, are within
//! the clock bound of each other, and each gains at most [`SLEW_PPM`] against a monotonic clock. So from *T* on the order gains at most the
//! time that passes here, and two bounds: one for a leader that takes over, one for a leader of another group. Until *t + ttl*, less the two
//! bounds and what may be gained, no place has a time beyond the end.
//!
//! # Invariants
//! - The moment of an answer is never taken, only that at which the message was sent first that is answered.
//! - A group that has not answered makes the whole unknown: a command may go to all groups of the session.

use std::time::{Duration, Instant};

use stentor_multicast::{GroupId, SLEW_PPM};

/// Renewals of a group that are not answered and are kept, at most: the earliest are forgotten.
const MOST: usize = 16;

/// What is known of one group.
#[derive(Clone, Debug, Default)]
struct Known {
    /// When the message was sent that gave the present end.
    since: Option<Instant>,
    /// Renewals that are not answered: their number, and when they were sent.
    sent: Vec<(u64, Instant)>,
}

/// The moments that the ends of a session count from.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    by_group: Vec<Known>,
    /// When the session's command that is under way was sent first.
    control: Option<Instant>,
    /// The time to live, less what clocks may differ.
    sure: Duration,
}

impl Lease {
    pub(super) fn new(groups: usize, ttl: Duration, bound: Duration) -> Self {
        let gained = ttl / (1_000_000 / SLEW_PPM as u32);
        let sure = ttl.saturating_sub(2 * bound).saturating_sub(gained);
        Lease { by_group: vec![Known::default(); groups], control: None, sure }
    }

    /// A command of the session goes out for the first time.
    pub(super) fn begin(&mut self, now: Instant) {
        self.control = Some(now);
    }

    /// All groups have answered the command, and these agreed.
    pub(super) fn agree(&mut self, by: impl Iterator<Item = GroupId>) {
        let since = self.control.take();
        for group in by {
            if let Some(known) = self.by_group.get_mut(usize::from(group.0)) {
                known.since = known.since.max(since);
            }
        }
    }

    /// A renewal goes out.
    pub(super) fn renew(&mut self, group: GroupId, number: u64, now: Instant) {
        let Some(known) = self.by_group.get_mut(usize::from(group.0)) else { return };
        if known.sent.len() == MOST {
            known.sent.remove(0);
        }
        known.sent.push((number, now));
    }

    /// A group has renewed the session.
    pub(super) fn renewed(&mut self, group: GroupId, number: u64) {
        let Some(known) = self.by_group.get_mut(usize::from(group.0)) else { return };
        if let Some((_, since)) = known.sent.iter().find(|(sent, _)| *sent == number) {
            known.since = known.since.max(Some(*since));
        }
        known.sent.retain(|(sent, _)| *sent > number);
    }

    /// A group does not know the session any more.
    pub(super) fn drop(&mut self, group: GroupId) {
        if let Some(known) = self.by_group.get_mut(usize::from(group.0)) {
            *known = Known::default();
        }
    }

    /// Returns the moment until which the session surely lives in all these groups; `None` if that is not known.
    pub(super) fn until(&self, mut groups: impl Iterator<Item = GroupId>) -> Option<Instant> {
        let since = |group: GroupId| self.by_group.get(usize::from(group.0))?.since;
        let first = since(groups.next()?)?;
        let earliest = groups.try_fold(first, |earliest, group| since(group).map(|since| since.min(earliest)))?;
        earliest.checked_add(self.sure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(1)];
    const TTL: Duration = Duration::from_secs(10);
    const BOUND: Duration = Duration::from_secs(1);
    /// What is left of the time to live: 500 millionths may be gained.
    const SURE: Duration = Duration::from_millis(7_995);

    #[test]
    fn the_sending_of_what_is_answered_counts() {
        let (mut lease, now) = (Lease::new(2, TTL, BOUND), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(lease.until(GROUPS.into_iter()), None);
        lease.begin(at(0));
        lease.agree(GROUPS.into_iter());
        assert_eq!(lease.until(GROUPS.into_iter()), Some(at(0) + SURE));
        // The second renewal is answered; then late the first one, which prolongs nothing.
        for (number, second) in [(1, 2), (2, 3), (3, 4)] {
            lease.renew(GROUPS[0], number, at(second));
        }
        lease.renewed(GROUPS[0], 2);
        lease.renewed(GROUPS[0], 1);
        assert_eq!(lease.until(GROUPS[..1].iter().copied()), Some(at(3) + SURE));
        assert_eq!(lease.until(GROUPS.into_iter()), Some(at(0) + SURE), "the other group was not renewed");
        lease.renewed(GROUPS[0], 3);
        assert_eq!(lease.until(GROUPS[..1].iter().copied()), Some(at(4) + SURE));
        lease.drop(GROUPS[1]);
        assert_eq!((lease.until(GROUPS.into_iter()), lease.until(std::iter::empty())), (None, None));
    }

    #[test]
    fn an_answer_to_what_is_not_known_prolongs_nothing() {
        let (mut lease, now) = (Lease::new(1, TTL, BOUND), Instant::now());
        lease.renewed(GROUPS[0], 7);
        lease.renewed(GROUPS[1], 7);
        assert_eq!(lease.until(GROUPS[..1].iter().copied()), None);
        for number in 0..2 * MOST as u64 {
            lease.renew(GROUPS[0], number, now);
        }
        assert_eq!(lease.by_group[0].sent.len(), MOST);
    }

    #[test]
    fn bounds_that_take_all_of_the_time_leave_the_moment_of_sending() {
        let (mut lease, now) = (Lease::new(1, BOUND, BOUND), Instant::now());
        lease.begin(now);
        lease.agree(GROUPS[..1].iter().copied());
        assert_eq!(lease.until(GROUPS[..1].iter().copied()), Some(now));
    }
}
