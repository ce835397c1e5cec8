//! A lease from the holder's point of view.

use std::time::{Duration, Instant};

/// A lock that this process holds, with the time until which surely no other session has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    name: String,
    token: u64,
    length: Duration,
    sure_until: Instant,
}

impl Lease {
    /// Returns the lease of a grant or a renewal whose command was sent at `sent`.
    pub(crate) fn new(name: &str, token: u64, length: Duration, sure: Duration, sent: Instant) -> Lease {
        Lease { name: name.to_owned(), token, length, sure_until: sent + sure }
    }

    /// Returns the time for which a lease of this length is certain, counted from the sending of the command.
    /// `clock_bound` is the maximum error of the nodes' clocks. Returns `None` if no certain time is left.
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

    /// Returns the fencing token. Each act that needs the lock should carry it.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the requested length of the lease.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Returns the moment until which surely no other session has the lock.
    #[must_use]
    pub fn sure_until(&self) -> Instant {
        self.sure_until
    }

    /// Returns whether surely no other session has the lock now. The result is out of date if the process is stopped
    /// after this call.
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
