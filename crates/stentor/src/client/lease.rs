//! The time for which a session is certain to live.
//!
//! # The argument
//! A renewal that was sent at the moment *t* of this process's monotonic clock sets the session's end to *T + ttl*. *T*
//! is the time of the renewal's place in the group's order, and was assigned after *t*. The session ends at the first
//! place with a time beyond its end.
//!
//! Order time is physical: at each moment the times of any two leaders, of this group or of another one with which it
//! shares a message, differ by at most the clock bound. Each leader's time gains at most [`SLEW_PPM`] on a monotonic
//! clock. So after *T*, the order advances by at most the time that passes here plus two bounds, apart from the slew:
//! one bound for a leader that takes over, and one for a leader of another group. Therefore no place has a time beyond
//! the end until *t + ttl*, minus the two bounds and the slew.
//!
//! # Invariants
//! - The lease counts from the first transmission of the answered message, and never from the arrival of the answer.
//! - If one group has not answered, the result is unknown: a command may go to all groups of the session.

use std::time::{Duration, Instant};

use stentor_multicast::{GroupId, SLEW_PPM};

/// Maximum number of unanswered renewals that are kept per group. The earliest are dropped.
const MOST: usize = 16;

/// The renewals of one group.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Time at which the message that set the present end was sent.
    since: Option<Instant>,
    /// The number and send time of each unanswered renewal.
    sent: Vec<(u64, Instant)>,
}

/// For each group, the time from which the session's time to live counts.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    by_group: Vec<Known>,
    /// Time at which the session's pending command was first sent.
    control: Option<Instant>,
    /// The time to live, minus the possible difference of clocks.
    sure: Duration,
}

impl Lease {
    pub(super) fn new(groups: usize, ttl: Duration, bound: Duration) -> Self {
        let gained = ttl / (1_000_000 / SLEW_PPM as u32);
        let sure = ttl.saturating_sub(2 * bound).saturating_sub(gained);
        Lease { by_group: vec![Known::default(); groups], control: None, sure }
    }

    /// Records the first transmission of a command of the session.
    pub(super) fn begin(&mut self, now: Instant) {
        self.control = Some(now);
    }

    /// Records that all groups have answered the command, and that the groups `by` carried it out.
    pub(super) fn agree(&mut self, by: impl Iterator<Item = GroupId>) {
        let since = self.control.take();
        for group in by {
            if let Some(known) = self.by_group.get_mut(usize::from(group.0)) {
                known.since = known.since.max(since);
            }
        }
    }

    /// Records the transmission of a renewal.
    pub(super) fn renew(&mut self, group: GroupId, number: u64, now: Instant) {
        let Some(known) = self.by_group.get_mut(usize::from(group.0)) else { return };
        if known.sent.len() == MOST {
            known.sent.remove(0);
        }
        known.sent.push((number, now));
    }

    /// Records that a group has renewed the session.
    pub(super) fn renewed(&mut self, group: GroupId, number: u64) {
        let Some(known) = self.by_group.get_mut(usize::from(group.0)) else { return };
        if let Some((_, since)) = known.sent.iter().find(|(sent, _)| *sent == number) {
            known.since = known.since.max(Some(*since));
        }
        known.sent.retain(|(sent, _)| *sent > number);
    }

    /// Records that a group no longer knows the session.
    pub(super) fn drop(&mut self, group: GroupId) {
        if let Some(known) = self.by_group.get_mut(usize::from(group.0)) {
            *known = Known::default();
        }
    }

    /// Returns the moment until which the session is certain to live in all these groups, or `None` if it is not known.
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
    /// The rest of `TTL` after two bounds and a slew of 500 ppm.
    const SURE: Duration = Duration::from_millis(7_995);

    #[test]
    fn the_lease_counts_from_the_send_of_the_answered_message() {
        let (mut lease, now) = (Lease::new(2, TTL, BOUND), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(lease.until(GROUPS.into_iter()), None);
        lease.begin(at(0));
        lease.agree(GROUPS.into_iter());
        assert_eq!(lease.until(GROUPS.into_iter()), Some(at(0) + SURE));
        // The second renewal is answered. The late answer to the first one extends nothing.
        for (number, second) in [(1, 2), (2, 3), (3, 4)] {
            lease.renew(GROUPS[0], number, at(second));
        }
        lease.renewed(GROUPS[0], 2);
        lease.renewed(GROUPS[0], 1);
        assert_eq!(lease.until(GROUPS[..1].iter().copied()), Some(at(3) + SURE));
        assert_eq!(lease.until(GROUPS.into_iter()), Some(at(0) + SURE), "the other group has not renewed the session");
        lease.renewed(GROUPS[0], 3);
        assert_eq!(lease.until(GROUPS[..1].iter().copied()), Some(at(4) + SURE));
        lease.drop(GROUPS[1]);
        assert_eq!((lease.until(GROUPS.into_iter()), lease.until(std::iter::empty())), (None, None));
    }

    #[test]
    fn an_answer_to_an_unknown_renewal_extends_nothing() {
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
    fn bounds_beyond_the_ttl_leave_the_moment_of_sending() {
        let (mut lease, now) = (Lease::new(1, BOUND, BOUND), Instant::now());
        lease.begin(now);
        lease.agree(GROUPS[..1].iter().copied());
        assert_eq!(lease.until(GROUPS[..1].iter().copied()), Some(now));
    }
}
