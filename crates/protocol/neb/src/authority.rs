//! Ed25519 signatures: a conflict counts only when both values are the sender's own, and then they are evidence.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use stentor_fabric::ProcessId;
use thiserror::Error;
use zerocopy::IntoBytes;

/// What is signed begins with this, so that a signature means nothing anywhere else.
const DOMAIN: &[u8; 16] = b"stentor-neb-v1\0\0";

/// Why keys are refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// A point that is not on the curve.
    #[error("the public key of process {0} is no Ed25519 key")]
    NotAKey(usize),
    /// Somebody else's secret.
    #[error("the secret key is not the one of process {0}: its public key differs from the configured one")]
    NotOurs(usize),
}

/// This process's secret key and everybody's public keys.
#[derive(Clone, Debug)]
pub struct Authority {
    cluster: u64,
    me: ProcessId,
    secret: SigningKey,
    public: Vec<VerifyingKey>,
}

impl Authority {
    /// The keys of a cluster with this salt, at one process.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn new(cluster: u64, me: ProcessId, secret: &[u8; 32], public: &[[u8; 32]]) -> Result<Self, KeyError> {
        let secret = SigningKey::from_bytes(secret);
        let key = |(process, bytes)| VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::NotAKey(process));
        let public = public.iter().enumerate().map(key).collect::<Result<Vec<_>, _>>()?;
        if public.get(me.index()) != Some(&secret.verifying_key()) {
            return Err(KeyError::NotOurs(me.index()));
        }
        Ok(Authority { cluster, me, secret, public })
    }

    /// The public key of a secret one.
    #[must_use]
    pub fn public_of(secret: &[u8; 32]) -> [u8; 32] {
        SigningKey::from_bytes(secret).verifying_key().to_bytes()
    }

    /// Whether these bytes are a public key.
    #[must_use]
    pub fn is_key(public: &[u8; 32]) -> bool {
        VerifyingKey::from_bytes(public).is_ok()
    }

    /// What is signed: domain, cluster, sender, and the content of the value, the index in front. The signature hashes
    /// all of it, so a hash of the payload in its place would only be hashed again.
    fn message(&self, sender: ProcessId, content: &[u64]) -> Vec<u8> {
        let mut message = Vec::with_capacity(32 + content.len() * 8);
        message.extend_from_slice(DOMAIN);
        message.extend_from_slice(&self.cluster.to_le_bytes());
        message.extend_from_slice(&u64::from(sender.0).to_le_bytes());
        message.extend_from_slice(content.as_bytes());
        message
    }

    /// Signs a value's content as this process's.
    #[must_use]
    pub fn sign(&self, content: &[u64]) -> [u8; 64] {
        self.secret.sign(&self.message(self.me, content)).to_bytes()
    }

    /// Whether this is `sender`'s signature of the content.
    #[must_use]
    pub fn verifies(&self, sender: ProcessId, content: &[u64], signature: &[u8; 64]) -> bool {
        let Some(key) = self.public.get(sender.index()) else { return false };
        key.verify_strict(&self.message(sender, content), &Signature::from_bytes(signature)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<[u8; 32]> {
        (0..3).map(|n| Authority::public_of(&[n; 32])).collect()
    }

    #[test]
    fn a_signature_is_good_for_one_sender_one_index_and_one_cluster() {
        let at = |cluster, me: u16| Authority::new(cluster, ProcessId(me), &[me as u8; 32], &keys()).unwrap();
        let signature = at(1, 0).sign(&[5, 6, 7]);
        assert!(at(1, 2).verifies(ProcessId(0), &[5, 6, 7], &signature));
        assert!(!at(1, 2).verifies(ProcessId(1), &[5, 6, 7], &signature), "another sender");
        assert!(!at(1, 2).verifies(ProcessId(0), &[6, 6, 7], &signature), "another index");
        assert!(!at(2, 2).verifies(ProcessId(0), &[5, 6, 7], &signature), "another cluster");
        assert!(!at(1, 2).verifies(ProcessId(9), &[5, 6, 7], &signature), "nobody");
    }

    #[test]
    fn keys_that_are_none_or_not_ours_are_refused_by_name() {
        let wrong = Authority::new(1, ProcessId(1), &[2; 32], &keys()).unwrap_err();
        assert_eq!(wrong, KeyError::NotOurs(1));
        let mut bad = keys();
        bad[2] = [2; 32];
        let text = Authority::new(1, ProcessId(1), &[1; 32], &bad).unwrap_err().to_string();
        assert_eq!(text, "the public key of process 2 is no Ed25519 key");
    }
}
