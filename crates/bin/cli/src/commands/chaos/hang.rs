//! The hang detector: a pure function of times, in milliseconds.

/// Time without progress that counts as a hang.
pub(super) const LIMIT_MS: u64 = 5000;

/// A client's oldest message or call without progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    /// The message's sequence number at its client; `None` if it found no room and was not sent.
    pub(super) sequence: Option<u64>,
    /// The indexes of the destination groups.
    pub(super) to: Vec<usize>,
    /// The time since which the message has waited.
    pub(super) since: u64,
}

/// Returns for how long a message has made no progress although all its groups could deliver it: since it began to
/// wait, or since the last of its groups regained a connected majority. Returns `None` if a group has none.
pub(super) fn stands_still(now: u64, waiting: &Waiting, good: &[Option<u64>]) -> Option<u64> {
    let all = waiting.to.iter().map(|group| good[*group]).collect::<Option<Vec<_>>>()?;
    let since = all.into_iter().chain([waiting.since]).max().expect("the times include the beginning of the wait");
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
        stands_still(now, &Waiting { sequence: Some(1), to: vec![0, 2], since }, good)
    }

    #[test]
    fn only_time_with_all_groups_able_to_deliver_counts() {
        assert_eq!(still(9000, 3000, &[Some(0), None, Some(0)]), Some(6000), "the group between is no destination");
        assert_eq!(still(9000, 3000, &[Some(0), Some(0), Some(8000)]), Some(1000), "a majority came back at 8000");
        assert_eq!(still(9000, 3000, &[None, Some(0), Some(0)]), None);
        assert_eq!(still(100, 3000, &[Some(0), None, Some(0)]), Some(0), "the wait may begin after `now`");
    }

    #[test]
    fn hang_is_longer_than_the_limit() {
        assert!(!is_hang(None) && !is_hang(Some(LIMIT_MS)) && is_hang(Some(LIMIT_MS + 1)));
    }
}
