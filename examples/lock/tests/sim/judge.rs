//! The checks over all clients of a seed.

use std::collections::BTreeMap;

use stentor_lock::{Cause, End, Held};

/// Counts over the scripts of all seeds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) grants: u64,
    pub(crate) renewals: u64,
    pub(crate) taken: u64,
    pub(crate) ran_out: u64,
    pub(crate) notified: u64,
}

/// The facts that the replies and notifications to the clients of one seed report. The replies and notifications may
/// arrive in an order other than that of the events.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The session of each token.
    owners: BTreeMap<u64, [u8; 16]>,
    /// The token that was valid, by lock and position of the order.
    valid: BTreeMap<(String, u64), u64>,
    /// The latest end of the lease that a reply to the holder named, by token.
    promised: BTreeMap<u64, u64>,
    /// The time at which a lease ran out, by token.
    ran_out: BTreeMap<u64, u64>,
}

impl Judge {
    /// Records that the lock was held at this position. Returns an error if that contradicts an earlier record.
    pub(crate) fn was_held(&mut self, name: &str, place: u64, held: &Held) -> Result<(), String> {
        let owner = *self.owners.entry(held.token).or_insert(held.session);
        if owner != held.session {
            return Err(format!("token {} belongs to two sessions", held.token));
        }
        let key = |place| (name.to_owned(), place);
        let before = self.valid.range(key(0)..=key(place)).next_back().map(|(_, token)| *token);
        let after = self.valid.range(key(place)..=key(u64::MAX)).next().map(|(_, token)| *token);
        if before.is_some_and(|before| before > held.token) || after.is_some_and(|after| after < held.token) {
            return Err(format!("token {} of {name} at {place} is between {before:?} and {after:?}", held.token));
        }
        self.valid.insert(key(place), held.token);
        Ok(())
    }

    /// Records the end of a lease that a reply to the token's holder named. Returns an error if the lease ran out
    /// earlier.
    pub(crate) fn was_promised(&mut self, held: &Held) -> Result<(), String> {
        let promised = self.promised.entry(held.token).or_default();
        *promised = held.ends.max(*promised);
        self.compare(held.token)
    }

    pub(crate) fn has_ended(&mut self, end: &End) -> Result<(), String> {
        if end.cause == Cause::RanOut {
            self.ran_out.insert(end.token, end.at);
        }
        self.compare(end.token)
    }

    fn compare(&self, token: u64) -> Result<(), String> {
        match (self.promised.get(&token), self.ran_out.get(&token)) {
            (Some(promised), Some(at)) if at < promised => {
                Err(format!("the lease of token {token} was promised until {promised} and ran out at {at}"))
            }
            _ => Ok(()),
        }
    }
}
