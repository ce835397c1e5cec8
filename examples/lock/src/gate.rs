//! The check that a resource makes of fencing tokens.

/// The gate of a resource that only one holder at a time may use. It remembers the largest token that it has seen, and
/// refuses smaller ones.
///
/// A resource that forgets this token, for example in a restart, admits old holders until it sees a newer token. So
/// store the token together with the resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenGate {
    largest: u64,
}

/// The error of a token that is smaller than one that the gate has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("token {token} is older than {largest}, which the resource has seen: the lock was lost; acquire it again")]
pub struct Stale {
    /// The refused token.
    pub token: u64,
    /// The largest token that the gate has seen.
    pub largest: u64,
}

impl TokenGate {
    /// Returns a gate that has seen tokens up to `largest`. `largest` is 0 if the gate has seen none.
    #[must_use]
    pub fn new(largest: u64) -> TokenGate {
        TokenGate { largest }
    }

    /// Admits a token, after which the gate refuses smaller tokens.
    ///
    /// # Errors
    /// Returns an error if the gate has seen a larger token.
    pub fn admit(&mut self, token: u64) -> Result<(), Stale> {
        if token < self.largest {
            return Err(Stale { token, largest: self.largest });
        }
        self.largest = token;
        Ok(())
    }

    /// Returns the largest token that the gate has seen.
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
