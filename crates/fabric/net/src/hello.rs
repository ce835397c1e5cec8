//! The handshake of the connection manager: both ends prove that they have the cluster's key before they exchange
//! messages.
//!
//! Both ends send a hello with a fresh nonce. Both answer with HMAC-SHA-256, under the cluster's key, of their role and
//! both hellos. A replayed or reflected answer therefore proves nothing. A key for the connection is derived from the
//! cluster's key and both hellos. Every later message carries an HMAC under that key, which covers the message's number
//! and direction. Nothing is encrypted.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use stentor_fabric::codec::{BigEndian, Field};
use stentor_fabric::{ProcessId, fields};

use crate::frame_stream::FrameStream;
use crate::message::Garbage;

const MAGIC: &[u8; 8] = b"stentorR";
/// Version of the encoding.
const FORMAT: u16 = 6;
/// Length of the HMAC that follows a message, in bytes.
pub(crate) const TAG: usize = 16;
/// Length of a proof, in bytes.
pub(crate) const PROOF: usize = 32;
/// Maximum length of the names of clusters and fabrics, in bytes.
pub(crate) const MAX_NAME: usize = 64;

/// Id of an end that is no process; no cluster has that many processes.
pub(crate) const NOBODY: ProcessId = ProcessId(u16::MAX);

/// The claimed identity and parameters of an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) fingerprint: u64,
    pub(crate) process: ProcessId,
    pub(crate) processes: u16,
    pub(crate) nonce: [u8; 32],
    /// A number that changes with each start of the process.
    pub(crate) life: u64,
    /// Name of the fabric (see [`ConnectionManager::start`](crate::ConnectionManager::start)), or purpose of the
    /// connection.
    pub(crate) fabric: String,
    pub(crate) cluster: String,
}

impl Hello {
    /// Creates the hello of a connection with a program that is no process of the cluster. Each call begins a new life.
    pub(crate) fn of_purpose(purpose: &str, version: u16, cluster: &str, process: ProcessId) -> Hello {
        Hello {
            version,
            fingerprint: 0,
            process,
            processes: 0,
            nonce: [0; 32],
            life: u64::from_be_bytes(nonce()),
            fabric: purpose.to_owned(),
            cluster: cluster.to_owned(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Hello { version, fingerprint, process, processes, nonce, life, .. } = *self;
        let fabric_bytes = self.fabric.len() as u8;
        let numbers = Numbers { version, fingerprint, process, processes, nonce, life, fabric_bytes };
        let mut to = Start { format: FORMAT }.to_message::<BigEndian>();
        numbers.put::<BigEndian>(&mut to);
        to.extend(self.fabric.as_bytes());
        to.extend(self.cluster.as_bytes());
        to
    }

    /// Returns whether these bytes begin like a hello of another release.
    pub(crate) fn is_of_another_format(mut bytes: &[u8]) -> bool {
        Start::take::<BigEndian>(&mut bytes).is_some_and(|start| start.format != FORMAT)
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Hello, Garbage> {
        let from = &mut bytes;
        Start::take::<BigEndian>(from).filter(|start| start.format == FORMAT).ok_or(Garbage)?;
        let numbers = Numbers::take::<BigEndian>(from).ok_or(Garbage)?;
        let Numbers { version, fingerprint, process, processes, nonce, life, fabric_bytes } = numbers;
        let text = |bytes| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Garbage);
        let (fabric, cluster) = from.split_at_checked(fabric_bytes.into()).ok_or(Garbage)?;
        if fabric.len() > MAX_NAME || cluster.len() > MAX_NAME {
            return Err(Garbage);
        }
        let (fabric, cluster) = (text(fabric)?, text(cluster)?);
        Ok(Hello { version, fingerprint, process, processes, nonce, life, fabric, cluster })
    }
}

/// The beginning of every hello, in all formats.
struct Start {
    format: u16,
}

fields! { Start = *MAGIC => { format } }

/// The fields of a hello before its names.
struct Numbers {
    version: u16,
    fingerprint: u64,
    process: ProcessId,
    processes: u16,
    nonce: [u8; 32],
    life: u64,
    fabric_bytes: u8,
}

fields! { Numbers { version, fingerprint, process, processes, nonce, life, fabric_bytes } }

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

/// The hellos of both ends, by role.
#[derive(Clone, Copy)]
pub(crate) struct Hellos<'a> {
    pub(crate) dialler: &'a [u8],
    pub(crate) listener: &'a [u8],
}

/// Computes the proof that the sender has the key.
pub(crate) fn proof(key: &[u8], by_dialler: bool, hellos: Hellos<'_>) -> [u8; PROOF] {
    mac(key, &[b"proof", &[by_dialler.into()], hellos.dialler, hellos.listener]).finalize().into_bytes().into()
}

/// Returns whether a proof is valid.
pub(crate) fn is_proof(key: &[u8], by_dialler: bool, hellos: Hellos<'_>, proof: &[u8]) -> bool {
    mac(key, &[b"proof", &[by_dialler.into()], hellos.dialler, hellos.listener]).verify_slice(proof).is_ok()
}

/// The authentication state of one connection: the key and the sequence numbers of its messages.
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

    /// Sends the next message, followed by its tag.
    pub(crate) fn send(&mut self, frames: &mut FrameStream, message: &[u8]) {
        let tag = self.seal(message);
        frames.send(&[message, &tag]);
    }

    /// Returns the message in a frame, if it is the next one of the other end.
    pub(crate) fn take<'a>(&mut self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let (message, tag) = frame.split_at(frame.len().checked_sub(TAG)?);
        self.open(message, tag).then_some(message)
    }

    /// Returns the tag of the next message to send.
    pub(crate) fn seal(&mut self, message: &[u8]) -> [u8; TAG] {
        let tag = mac(&self.key, &[&[self.dialled.into()], &self.sent.to_be_bytes(), message]).finalize().into_bytes();
        self.sent += 1;
        let mut short = [0; TAG];
        short.copy_from_slice(&tag[..TAG]);
        short
    }

    /// Returns whether this is the next message of the other end.
    pub(crate) fn open(&mut self, message: &[u8], tag: &[u8]) -> bool {
        let mac = mac(&self.key, &[&[(!self.dialled).into()], &self.received.to_be_bytes(), message]);
        self.received += 1;
        tag.len() == TAG && mac.verify_truncated_left(tag).is_ok()
    }
}

/// Returns `N` random bytes of the operating system.
///
/// # Panics
/// Panics if the operating system has no random numbers.
#[must_use]
pub fn nonce<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(got, Ok(N), "the system has random numbers");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Upper bound of the length of a hello, in bytes.
    const MAX_HELLO: usize = 200;

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
    fn hellos_round_trip_and_other_bytes_are_refused() {
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
    fn a_proof_depends_on_key_role_and_both_nonces() {
        let (a, b, other) = (hello(1).encode(), hello(2).encode(), hello(3).encode());
        let hellos = Hellos { dialler: &a, listener: &b };
        let good = proof(b"key", true, hellos);
        assert!(is_proof(b"key", true, hellos, &good));
        assert!(!is_proof(b"yek", true, hellos, &good), "another key");
        assert!(!is_proof(b"key", false, hellos, &good), "sent back");
        assert!(!is_proof(b"key", true, Hellos { dialler: &a, listener: &other }, &good), "sent to another");
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
        fn arbitrary_bytes_are_a_hello_or_garbage(
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
