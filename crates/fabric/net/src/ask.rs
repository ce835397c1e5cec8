//! Queries to a process at its control address, by a program that has the cluster's key but is no process of the
//! cluster. `docs/ask.md` specifies the protocol.
//!
//! The handshake is the connection manager's. The hello of the querying program has [`PURPOSE`] in place of a fabric
//! and no process id. The hello of the answering end must be that of the intended process. Then one question follows,
//! and one answer returns in parts. All frames after the handshake are authenticated and numbered, as on every control
//! connection; nothing is encrypted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::frame_stream::{FrameStream, connect};
use crate::handshake::{Fault, Handshake};
use crate::hello::{Hello, NOBODY};
use crate::message::Garbage;

/// Version of the protocol.
pub const VERSION: u16 = 1;
/// The word in the hello of the querying program, in place of the fabric's name.
pub const PURPOSE: &str = "ask";
/// Maximum length of a question, in bytes.
pub const MAX_QUESTION: usize = 64;
/// Maximum length of an answer, in bytes.
pub const MAX_ANSWER: usize = MAX_PARTS * MAX_PART;
/// Maximum number of parts of an answer.
const MAX_PARTS: usize = 64;
/// Error text if no packet returns. A dead host and a program that accepts no connections look alike.
const SILENCE: &str =
    "no packet returns; or a program that accepts no connections has the address (`ss -ltnp` on that host)";
/// Maximum length of a part, in bytes.
const MAX_PART: usize = 480;

/// The process to query, and its address.
#[derive(Clone, Debug)]
pub struct AskConfig {
    /// Name of the cluster.
    pub cluster: String,
    /// Key of the cluster.
    pub key: Vec<u8>,
    /// The intended process.
    pub process: ProcessId,
    /// Address at which the process listens for its peers.
    pub at: SocketAddr,
}

/// The reason why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AskError {
    /// The host refused or reset the connection: usually no program listens at the address.
    #[error("nobody listens there")]
    Nobody,
    /// The host accepted the connection, but the process did not answer in time.
    #[error("it accepted the connection and does not answer in time")]
    Silent,
    /// No packet from the host arrived, or the connection failed in another way.
    #[error("its host cannot be reached from here: {0}")]
    Unreachable(String),
    /// The process has another key.
    #[error("it has another key than this command: give both the same")]
    NoKey,
    /// The other end is not the intended process, closed the connection, or sent an invalid answer.
    #[error("{0}")]
    Other(&'static str),
}

/// Sends a question and waits for the answer for at most `within`.
///
/// # Errors
/// Returns an [`AskError`].
///
/// # Panics
/// Panics if the question is longer than [`MAX_QUESTION`].
pub fn ask(config: &AskConfig, question: &[u8], within: Duration) -> Result<Vec<u8>, AskError> {
    assert!(question.len() <= MAX_QUESTION, "a question of {} bytes", question.len());
    let until = Instant::now() + within;
    let from: IpAddr = if config.at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let stream = connect(from, config.at).map_err(|error| why(&error))?;
    let hello = Hello::of_purpose(PURPOSE, VERSION, &config.cluster, NOBODY);
    let mut handshake = Handshake::new(stream, &hello, true).map_err(|error| why(&error))?;
    let (them, mut session) = loop {
        let frame = next(&mut handshake.frames, until)?;
        let heard = handshake.hear(&config.key, &frame, Some(config.process)).map_err(wrong)?;
        if let Some(shown) = heard {
            break shown;
        }
    };
    if them.cluster != config.cluster {
        return Err(AskError::Other("it belongs to another cluster"));
    }
    let mut frames = handshake.frames;
    session.send(&mut frames, question);
    let mut answer = Assembly::default();
    loop {
        let frame = next(&mut frames, until)?;
        let part = session.take(&frame).ok_or(AskError::Other("its answer is damaged or forged"))?;
        match answer.take(part) {
            Ok(true) => return Ok(answer.bytes),
            Ok(false) => {}
            Err(Garbage) => return Err(AskError::Other("its answer is malformed")),
        }
    }
}

/// Waits for the next frame.
fn next(frames: &mut FrameStream, until: Instant) -> Result<Vec<u8>, AskError> {
    loop {
        frames.drain();
        if let Some(frame) = frames.receive() {
            return Ok(frame);
        }
        if frames.dead {
            let closed = AskError::Other(
                "it closed the connection: it refused, and its log says why; or it runs another release; or it is another program",
            );
            return Err(frames.fault.as_ref().map_or(closed, why));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // The kernel of the host accepts the connection even if the process that listens is stopped.
            let taken = frames.socket.peer_addr().is_ok();
            return Err(if taken { AskError::Silent } else { AskError::Unreachable(SILENCE.to_owned()) });
        }
        let longest = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let flags = if frames.is_behind() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        // An error is ignored: the next iteration detects it.
        let _ = poll(&mut [PollFd::new(&frames.socket, flags)], Some(&longest));
    }
}

/// Returns the error for a failed handshake.
pub(crate) fn wrong(fault: Fault) -> AskError {
    match fault {
        Fault::NoKey => AskError::NoKey,
        Fault::Another(_) => AskError::Other("another process has that address"),
        Fault::Release => AskError::Other("it runs another release of Stentor"),
        Fault::NoHello => AskError::Other("another program has that address"),
    }
}

pub(crate) fn why(error: &io::Error) -> AskError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => AskError::Nobody,
        _ => AskError::Unreachable(error.to_string()),
    }
}

/// Splits an answer into messages. Each contains the number of parts and its own number.
pub(crate) fn parts(answer: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let answer = &answer[..answer.len().min(MAX_ANSWER)];
    let all = answer.len().div_ceil(MAX_PART).max(1);
    (0..all).map(move |n| {
        let bytes = &answer[n * MAX_PART..answer.len().min((n + 1) * MAX_PART)];
        [&[all as u8, n as u8], bytes].concat()
    })
}

/// An answer that is being assembled from its parts.
#[derive(Debug, Default)]
struct Assembly {
    /// Number of parts, once it is known.
    all: Option<u8>,
    /// Number of parts received.
    here: u8,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Adds the next part. Returns whether it was the last one.
    fn take(&mut self, part: &[u8]) -> Result<bool, Garbage> {
        let ([all, n], bytes) = part.split_first_chunk().ok_or(Garbage)?;
        let known = *self.all.get_or_insert(*all);
        let fits = known == *all && *n == self.here && *n < known && usize::from(known) <= MAX_PARTS;
        // Only the last part may be shorter.
        if !fits || bytes.len() > MAX_PART || (*n + 1 < known && bytes.len() < MAX_PART) {
            return Err(Garbage);
        }
        self.here += 1;
        self.bytes.extend(bytes);
        Ok(self.here == known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_of_all_lengths_are_reassembled() {
        for length in [0, 1, MAX_PART - 1, MAX_PART, MAX_PART + 1, 5000, MAX_ANSWER] {
            let answer: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let mut assembly = Assembly::default();
            let mut taken: Vec<_> = parts(&answer).map(|part| assembly.take(&part)).collect();
            assert_eq!(taken.pop(), Some(Ok(true)), "{length}");
            assert!(taken.iter().all(|more| *more == Ok(false)), "{length}");
            assert_eq!(assembly.bytes, answer);
        }
        assert_eq!(parts(&vec![1; MAX_ANSWER + 1]).count(), MAX_PARTS, "cut off, never more");
    }

    #[test]
    fn parts_out_of_place_are_garbage() {
        let answer = vec![7; 3 * MAX_PART];
        let all: Vec<_> = parts(&answer).collect();
        let mut twice = Assembly::default();
        assert_eq!((twice.take(&all[0]), twice.take(&all[0])), (Ok(false), Err(Garbage)));
        let mut skipped = Assembly::default();
        assert_eq!((skipped.take(&all[0]), skipped.take(&all[2])), (Ok(false), Err(Garbage)));
        let mut short = Assembly::default();
        assert_eq!(short.take(&all[0][..9]), Err(Garbage), "only the last is shorter");
        for part in [&[][..], &[1], &[0, 0], &[1, 1], &[65, 0], &[255, 254]] {
            assert_eq!(Assembly::default().take(part), Err(Garbage), "{part:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_parts_assemble_or_fail_within_the_limit(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 0..80),
            heads in proptest::collection::vec((0_u8..80, 0_u8..80), 80),
        ) {
            let mut assembly = Assembly::default();
            for (part, (all, n)) in parts.iter().zip(heads) {
                let mut part = part.clone();
                if n % 3 > 0 {
                    part.splice(..part.len().min(2), [all, assembly.here]);
                    part.resize(MAX_PART + 2, 0);
                }
                if assembly.take(&part).is_err() {
                    break;
                }
                prop_assert!(assembly.bytes.len() <= MAX_ANSWER && usize::from(assembly.here) <= MAX_PARTS);
            }
        }
    }
}
