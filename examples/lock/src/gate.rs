//! The check of fencing tokens at a resource.

/// The gate of a resource that one holder at a time may use. It remembers the largest token that it has seen, and refuses smaller ones.
///
/// A resource that forgets it, because it is started again for example, lets one old holder in. So keep the token with what it guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenGate {
    largest: u64,
}

/// A token that is older than one that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("token {token} is older than {largest}, which was seen already: the lock was lost; acquire it again")]
pub struct Stale {
    /// The token.
    pub token: u64,
    /// The largest that was seen.
    pub largest: u64,
}

impl TokenGate {
    /// Opens a gate that has seen tokens up to this one; 0 for none.
    #[must_use]
    pub fn new(largest: u64) -> TokenGate {
        TokenGate { largest }
    }

    /// Lets a token in, and refuses smaller ones from now on.
    ///
    /// # Errors
    /// If a larger one was seen.
    pub fn admit(&mut self, token: u64) -> Result<(), Stale> {
        if token < self.largest {
            return Err(Stale { token, largest: self.largest });
        }
        self.largest = token;
        Ok(())
    }

    /// Returns the largest token that was seen.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_tokens_are_refused() {
        let mut gate = TokenGate::default();
        assert_eq!([3, 3, 5].map(|token| gate.admit(token)), [Ok(()); 3]);
        assert_eq!(gate.admit(4), Err(Stale { token: 4, largest: 5 }));
        assert_eq!(TokenGate::new(gate.largest()).admit(4), gate.admit(4));
    }
}
