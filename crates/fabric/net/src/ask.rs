//! A question to a process at its control address, by somebody who has the cluster's key and is no process; `docs/ask.md`
//! specifies it.
//!
//! The handshake is the connection manager's. The hello of whoever asks has [`PURPOSE`] in place of a fabric and no process; the answer's
//! hello must be that of the process that is meant. Then one question goes there, and one answer comes back in parts. All of
//! it is authenticated and numbered, as everything is on a control connection; nothing is encrypted.

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

/// The version of the protocol.
pub const VERSION: u16 = 1;
/// The word that stands in the asker's hello where a process names its fabric.
pub const PURPOSE: &str = "ask";
/// The longest question, bytes.
pub const MAX_QUESTION: usize = 64;
/// The longest answer, bytes.
pub const MAX_ANSWER: usize = MAX_PARTS * MAX_PART;
/// The most parts of an answer, and the bytes of each.
const MAX_PARTS: usize = 64;
/// A host that is gone and a program that takes no connections look alike.
const SILENCE: &str =
    "nothing comes back; or a program that takes no connections has the address (`ss -ltnp` on that host)";
const MAX_PART: usize = 480;

/// Names the process that is asked, and how it is reached.
#[derive(Clone, Debug)]
pub struct AskConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's key.
    pub key: Vec<u8>,
    /// The process that is meant.
    pub process: ProcessId,
    /// Where it listens for its peers.
    pub at: SocketAddr,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AskError {
    /// Its host answers, and nobody listens there.
    #[error("nobody listens there")]
    Nobody,
    /// Its host takes the connection, and the process says nothing in time.
    #[error("it is there and does not answer in time")]
    Silent,
    /// Nothing comes from its host.
    #[error("its host cannot be reached from here: {0}")]
    Unreachable(String),
    /// It has another key.
    #[error("it has another key than this command: give both the same")]
    NoKey,
    /// It is something else.
    #[error("{0}")]
    Other(&'static str),
}

/// Asks, and waits for the answer, not longer than `within`.
///
/// # Errors
/// See [`AskError`].
///
/// # Panics
/// If the question is longer than [`MAX_QUESTION`].
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
            Err(Garbage) => return Err(AskError::Other("its answer makes no sense")),
        }
    }
}

/// The next frame, waited for.
fn next(frames: &mut FrameStream, until: Instant) -> Result<Vec<u8>, AskError> {
    loop {
        frames.drain();
        if let Some(frame) = frames.receive() {
            return Ok(frame);
        }
        if frames.dead {
            let closed = AskError::Other(
                "it closed the connection: it refuses, and its log says why; or it runs another release; or it is another program",
            );
            return Err(frames.fault.as_ref().map_or(closed, why));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // Its kernel takes a connection whatever the process does.
            let taken = frames.socket.peer_addr().is_ok();
            return Err(if taken { AskError::Silent } else { AskError::Unreachable(SILENCE.to_owned()) });
        }
        let longest = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let flags = if frames.is_behind() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        // Whatever it says, the next look shows.
        let _ = poll(&mut [PollFd::new(&frames.socket, flags)], Some(&longest));
    }
}

/// Why a handshake ended.
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

/// The messages of an answer: each says how many there are and which it is.
pub(crate) fn parts(answer: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let answer = &answer[..answer.len().min(MAX_ANSWER)];
    let all = answer.len().div_ceil(MAX_PART).max(1);
    (0..all).map(move |n| {
        let bytes = &answer[n * MAX_PART..answer.len().min((n + 1) * MAX_PART)];
        [&[all as u8, n as u8], bytes].concat()
    })
}

/// An answer that comes in parts.
#[derive(Debug, Default)]
struct Assembly {
    /// How many there are, once that is known, and how many are here.
    all: Option<u8>,
    here: u8,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Takes the next part. Whether that was the last.
    fn take(&mut self, part: &[u8]) -> Result<bool, Garbage> {
        let ([all, n], bytes) = part.split_first_chunk().ok_or(Garbage)?;
        let known = *self.all.get_or_insert(*all);
        let fits = known == *all && *n == self.here && *n < known && usize::from(known) <= MAX_PARTS;
        // Only the last one is shorter.
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
    fn answers_of_all_lengths_survive_their_parts() {
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
        fn any_parts_are_an_answer_or_garbage_and_never_more_than_the_longest(
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
