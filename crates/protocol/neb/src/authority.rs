//! Ed25519 signatures. With them a conflict counts only if the sender has signed both values, which are then evidence.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use stentor_fabric::ProcessId;
use thiserror::Error;
use zerocopy::IntoBytes;

/// Prefix of all signed data, so that a signature is valid in no other context.
const DOMAIN: &[u8; 16] = b"stentor-neb-v1\0\0";

/// Reason why keys are refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// A public key is not a point on the curve.
    #[error("the public key of process {0} is no Ed25519 key")]
    NotAKey(usize),
    /// The secret key does not belong to this process.
    #[error("the secret key is not the one of process {0}: its public key differs from the configured one")]
    NotOurs(usize),
}

/// The secret key of this process and the public keys of all.
#[derive(Clone, Debug)]
pub struct Authority {
    cluster: u64,
    me: ProcessId,
    secret: SigningKey,
    public: Vec<VerifyingKey>,
}

impl Authority {
    /// Creates the keys of one process in the cluster with this salt.
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

    /// Returns the public key of a secret key.
    #[must_use]
    pub fn public_of(secret: &[u8; 32]) -> [u8; 32] {
        SigningKey::from_bytes(secret).verifying_key().to_bytes()
    }

    /// Returns whether these bytes are a public key.
    #[must_use]
    pub fn is_key(public: &[u8; 32]) -> bool {
        VerifyingKey::from_bytes(public).is_ok()
    }

    /// Returns the signed message: domain, cluster, sender, and the content of the value, which begins with the index.
    /// The signature hashes all of it, so hashing the payload before would only hash it twice.
    fn message(&self, sender: ProcessId, content: &[u64]) -> Vec<u8> {
        let mut message = Vec::with_capacity(32 + content.len() * 8);
        message.extend_from_slice(DOMAIN);
        message.extend_from_slice(&self.cluster.to_le_bytes());
        message.extend_from_slice(&u64::from(sender.0).to_le_bytes());
        message.extend_from_slice(content.as_bytes());
        message
    }

    /// Signs a value's content with this process's key.
    #[must_use]
    pub fn sign(&self, content: &[u64]) -> [u8; 64] {
        self.secret.sign(&self.message(self.me, content)).to_bytes()
    }

    /// Returns whether this is `sender`'s signature of the content.
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
    fn signature_is_valid_for_one_sender_index_and_cluster() {
        let at = |cluster, me: u16| Authority::new(cluster, ProcessId(me), &[me as u8; 32], &keys()).unwrap();
        let signature = at(1, 0).sign(&[5, 6, 7]);
        assert!(at(1, 2).verifies(ProcessId(0), &[5, 6, 7], &signature));
        assert!(!at(1, 2).verifies(ProcessId(1), &[5, 6, 7], &signature), "another sender");
        assert!(!at(1, 2).verifies(ProcessId(0), &[6, 6, 7], &signature), "another index");
        assert!(!at(2, 2).verifies(ProcessId(0), &[5, 6, 7], &signature), "another cluster");
        assert!(!at(1, 2).verifies(ProcessId(9), &[5, 6, 7], &signature), "no process of the cluster");
    }

    #[test]
    fn invalid_and_foreign_keys_are_refused_by_name() {
        let wrong = Authority::new(1, ProcessId(1), &[2; 32], &keys()).unwrap_err();
        assert_eq!(wrong, KeyError::NotOurs(1));
        let mut bad = keys();
        bad[2] = [2; 32];
        let text = Authority::new(1, ProcessId(1), &[1; 32], &bad).unwrap_err().to_string();
        assert_eq!(text, "the public key of process 2 is no Ed25519 key");
    }
}
