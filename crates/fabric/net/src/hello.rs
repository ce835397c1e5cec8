//! The handshake of the connection manager: both ends show that they have the cluster's key before anything else is said.
//!
//! Both send a hello with a fresh nonce. Both answer with HMAC-SHA-256, under the cluster's key, of their role and both
//! hellos; so neither a replay nor a reflection proves anything. From the same a key for the connection is made, under
//! which every later message carries an HMAC with its number and direction. Nothing is encrypted.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use stentor_fabric::ProcessId;

use crate::message::{Garbage, Reader};

const MAGIC: &[u8; 8] = b"stentorR";
/// Version of these bytes.
const FORMAT: u16 = 6;
/// Bytes of the HMAC behind a message.
pub(crate) const TAG: usize = 16;
/// Bytes of a proof.
pub(crate) const PROOF: usize = 32;
/// The longest hello, bytes.
pub(crate) const MAX_HELLO: usize = 200;
/// The longest names of clusters and of fabrics, bytes.
pub(crate) const MAX_NAME: usize = 64;

/// Who somebody says to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) fingerprint: u64,
    pub(crate) process: ProcessId,
    pub(crate) processes: u16,
    pub(crate) nonce: [u8; 32],
    /// Another one each time that the process is started.
    pub(crate) life: u64,
    /// Its fabric, as [`ConnectionManager::start`](crate::ConnectionManager::start) takes it.
    pub(crate) fabric: String,
    pub(crate) cluster: String,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(MAX_HELLO);
        to.extend(MAGIC);
        to.extend(FORMAT.to_be_bytes());
        to.extend(self.version.to_be_bytes());
        to.extend(self.fingerprint.to_be_bytes());
        to.extend(self.process.0.to_be_bytes());
        to.extend(self.processes.to_be_bytes());
        to.extend(self.nonce);
        to.extend(self.life.to_be_bytes());
        to.push(self.fabric.len() as u8);
        to.extend(self.fabric.as_bytes());
        to.extend(self.cluster.as_bytes());
        to
    }

    /// Whether these bytes begin as a hello of another release does.
    pub(crate) fn is_of_another_format(bytes: &[u8]) -> bool {
        let mut from = Reader(bytes);
        from.take() == Ok(MAGIC) && from.u16().is_ok_and(|format| format != FORMAT)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Hello, Garbage> {
        let mut from = Reader(bytes);
        if from.take()? != MAGIC || from.u16()? != FORMAT {
            return Err(Garbage);
        }
        let (version, fingerprint) = (from.u16()?, u64::from_be_bytes(*from.take()?));
        let (process, processes) = (ProcessId(from.u16()?), from.u16()?);
        let (nonce, life) = (*from.take()?, u64::from_be_bytes(*from.take()?));
        let text = |bytes| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Garbage);
        let length = usize::from(from.take::<1>()?[0]);
        let (fabric, cluster) = from.0.split_at_checked(length).ok_or(Garbage)?;
        if fabric.len() > MAX_NAME || cluster.len() > MAX_NAME {
            return Err(Garbage);
        }
        let (fabric, cluster) = (text(fabric)?, text(cluster)?);
        Ok(Hello { version, fingerprint, process, processes, nonce, life, fabric, cluster })
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

/// The two ends' hellos, by who dialled.
#[derive(Clone, Copy)]
pub(crate) struct Hellos<'a> {
    pub(crate) dialler: &'a [u8],
    pub(crate) listener: &'a [u8],
}

/// Shows that the sender has the key.
pub(crate) fn proof(key: &[u8], by_dialler: bool, hellos: Hellos<'_>) -> [u8; PROOF] {
    mac(key, &[b"proof", &[by_dialler.into()], hellos.dialler, hellos.listener]).finalize().into_bytes().into()
}

/// Whether a proof is right.
pub(crate) fn is_proof(key: &[u8], by_dialler: bool, hellos: Hellos<'_>, proof: &[u8]) -> bool {
    mac(key, &[b"proof", &[by_dialler.into()], hellos.dialler, hellos.listener]).verify_slice(proof).is_ok()
}

/// What goes over one connection is numbered and authenticated.
#[derive(Debug)]
pub(crate) struct Session {
    key: [u8; 32],
    dialled: bool,
    sent: u64,
    received: u64,
}

impl Session {
    pub(crate) fn new(key: &[u8], dialled: bool, hellos: Hellos<'_>) -> Session {
        let key = mac(key, &[b"session", hellos.dialler, hellos.listener]).finalize().into_bytes().into();
        Session { key, dialled, sent: 0, received: 0 }
    }

    /// The tag of the next message that is sent.
    pub(crate) fn seal(&mut self, message: &[u8]) -> [u8; TAG] {
        let tag = mac(&self.key, &[&[self.dialled.into()], &self.sent.to_be_bytes(), message]).finalize().into_bytes();
        self.sent += 1;
        let mut short = [0; TAG];
        short.copy_from_slice(&tag[..TAG]);
        short
    }

    /// Whether this is the next message of the other end.
    pub(crate) fn open(&mut self, message: &[u8], tag: &[u8]) -> bool {
        let mac = mac(&self.key, &[&[(!self.dialled).into()], &self.received.to_be_bytes(), message]);
        self.received += 1;
        tag.len() == TAG && mac.verify_truncated_left(tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(process: u16) -> Hello {
        Hello {
            version: 3,
            fingerprint: 9,
            process: ProcessId(process),
            processes: 4,
            nonce: [process as u8; 32],
            life: u64::MAX - 1,
            fabric: "f".repeat(MAX_NAME),
            cluster: "c".repeat(MAX_NAME),
        }
    }

    #[test]
    fn hellos_survive_and_others_are_refused() {
        let bytes = hello(1).encode();
        assert!(bytes.len() <= MAX_HELLO);
        assert_eq!(Hello::decode(&bytes), Ok(hello(1)));
        assert_eq!(Hello::decode(&bytes[..40]), Err(Garbage));
        assert_eq!(Hello::decode(&[0; 100]), Err(Garbage));
        let mut other = bytes.clone();
        other[MAGIC.len() + 1] ^= 1;
        assert!(Hello::is_of_another_format(&other) && Hello::decode(&other).is_err());
        assert!(!Hello::is_of_another_format(&bytes) && !Hello::is_of_another_format(&[0; 100]));
        assert_eq!(Hello::decode(&[&bytes[..], b"c"].concat()), Err(Garbage), "a name that is too long");
    }

    #[test]
    fn only_the_key_the_role_and_both_nonces_make_a_proof() {
        let (a, b, other) = (hello(1).encode(), hello(2).encode(), hello(3).encode());
        let hellos = Hellos { dialler: &a, listener: &b };
        let good = proof(b"key", true, hellos);
        assert!(is_proof(b"key", true, hellos, &good));
        assert!(!is_proof(b"yek", true, hellos, &good), "another key");
        assert!(!is_proof(b"key", false, hellos, &good), "sent back");
        assert!(!is_proof(b"key", true, Hellos { dialler: &a, listener: &other }, &good), "said to another");
        assert!(!is_proof(b"key", true, hellos, &good[..31]));
    }

    #[test]
    fn messages_are_numbered_and_have_a_direction() {
        let (a, b) = (hello(1).encode(), hello(2).encode());
        let hellos = Hellos { dialler: &a, listener: &b };
        let make = |dialled| Session::new(b"key", dialled, hellos);
        let (mut one, mut two) = (make(true), make(false));
        let first = one.seal(b"x");
        let second = one.seal(b"x");
        assert!(two.open(b"x", &first) && two.open(b"x", &second));
        assert!(!two.open(b"x", &second), "replayed");
        assert!(!make(false).open(b"y", &first), "changed");
        assert!(!make(true).open(b"x", &first), "sent back");
        assert!(!make(false).open(b"x", &first[..4]), "cut short");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_garbage(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
            length in 0..MAX_HELLO,
        ) {
            let mut bytes = hello(1).encode();
            bytes.resize(length, b'c');
            for (at, byte) in changes.iter().filter(|_| length > 0) {
                bytes[at.index(length)] = *byte;
            }
            if let Ok(hello) = Hello::decode(&bytes) {
                prop_assert_eq!(hello.encode(), bytes);
            }
        }
    }
}
