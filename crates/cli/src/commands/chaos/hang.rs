//! The hang detector: a pure function of times, milliseconds.

use std::collections::BTreeSet;

/// The time without progress that counts as a hang.
pub(super) const LIMIT_MS: u64 = 5000;

/// The oldest message of a client that waits for progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    /// The message's sequence number at its client; `None` if it found no room and was not sent.
    pub(super) sequence: Option<u64>,
    /// The indexes of the destination groups.
    pub(super) to: Vec<usize>,
    /// The time since which the message has waited.
    pub(super) since: u64,
}

/// Returns the groups without which a message cannot be delivered, in rising order: its own, and those of all waiting
/// messages that share a group with these. A message to one group stands behind one to two groups in the order.
pub(super) fn needed(message: &Waiting, all: &[Waiting]) -> Vec<usize> {
    let mut groups: BTreeSet<usize> = message.to.iter().copied().collect();
    loop {
        let before = groups.len();
        for other in all {
            if other.to.iter().any(|group| groups.contains(group)) {
                groups.extend(&other.to);
            }
        }
        if groups.len() == before {
            return groups.into_iter().collect();
        }
    }
}

/// Returns how long a message makes no progress although all the groups that it [needs](needed) could deliver: since the
/// message waits, or since the last of these groups has a connected majority. `None`: some group has none.
pub(super) fn stands_still(now: u64, since: u64, needed: &[usize], good: &[Option<u64>]) -> Option<u64> {
    let all = needed.iter().map(|group| good[*group]).collect::<Option<Vec<_>>>()?;
    let since = all.into_iter().chain([since]).max().expect("it has a beginning");
    Some(now.saturating_sub(since))
}

/// Returns whether this time without progress is a hang.
pub(super) fn is_hang(still: Option<u64>) -> bool {
    still.is_some_and(|still| still > LIMIT_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn still(now: u64, since: u64, good: &[Option<u64>]) -> Option<u64> {
        stands_still(now, since, &[0, 2], good)
    }

    #[test]
    fn a_message_needs_the_groups_of_those_that_it_may_stand_behind() {
        let to = |groups: &[usize]| Waiting { sequence: Some(1), to: groups.to_vec(), since: 0 };
        let all = [to(&[1]), to(&[2, 3]), to(&[1, 3]), to(&[0, 4])];
        assert_eq!(needed(&all[0], &all), [1, 2, 3]);
        assert_eq!(needed(&all[3], &all), [0, 4]);
        assert_eq!(needed(&all[0], &all[..2]), [1], "nobody waits for 1 and another group");
    }

    #[test]
    fn only_time_counts_in_which_all_groups_could_deliver() {
        assert_eq!(still(9000, 3000, &[Some(0), None, Some(0)]), Some(6000), "the group between is not meant");
        assert_eq!(still(9000, 3000, &[Some(0), Some(0), Some(8000)]), Some(1000), "a majority came back at 8000");
        assert_eq!(still(9000, 3000, &[None, Some(0), Some(0)]), None);
        assert_eq!(still(100, 3000, &[Some(0), None, Some(0)]), Some(0), "stamps may be a look apart");
    }

    #[test]
    fn a_hang_is_more_than_the_limit() {
        assert!(!is_hang(None) && !is_hang(Some(LIMIT_MS)) && is_hang(Some(LIMIT_MS + 1)));
    }
}
