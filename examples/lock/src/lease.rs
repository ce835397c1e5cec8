//! A lease, as its holder sees it.

use std::time::{Duration, Instant};

/// A lock that this process holds, until others may have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    name: String,
    token: u64,
    length: Duration,
    sure_until: Instant,
}

impl Lease {
    /// A lease that was granted or renewed by a command that was sent at `sent`.
    pub(crate) fn new(name: &str, token: u64, length: Duration, sure: Duration, sent: Instant) -> Lease {
        Lease { name: name.to_owned(), token, length, sure_until: sent + sure }
    }

    /// Returns how long a lease of this length is sure, from the moment at which its command was sent. The clocks of the nodes are at most
    /// `clock_bound` from the right one. `None` if nothing is left.
    #[must_use]
    pub fn sure_for(length: Duration, clock_bound: Duration) -> Option<Duration> {
        let margin = length / 2000 + 2 * clock_bound;
        length.checked_sub(margin).filter(|left| !left.is_zero())
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fencing token. Send it with whatever needs the lock.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the length that was asked for.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Returns the moment until which surely nobody else has the lock.
    #[must_use]
    pub fn sure_until(&self) -> Instant {
        self.sure_until
    }

    /// Returns whether surely nobody else has the lock now. A process that stands still behind this call does not know it any more.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        Instant::now() < self.sure_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_taken_off() {
        let sure = |length, bound| Lease::sure_for(Duration::from_millis(length), Duration::from_millis(bound));
        assert_eq!(sure(4000, 1000), Some(Duration::from_millis(1998)));
        assert_eq!((sure(2000, 1000), sure(0, 0)), (None, None));
    }
}
