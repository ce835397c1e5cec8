//! The handshake of a connection whose other end has not yet proved that it has the key.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stentor_fabric::ProcessId;

use crate::frame_stream::FrameStream;
use crate::hello::{self, Hello, Hellos, Session, nonce};

/// Maximum duration of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time for a peer to accept a connection before it is dialled again. The peer's kernel accepts, so a host that does
/// not answer within this time is probably down. Dialling again is faster than the retransmissions of TCP.
const DIALLING: Duration = Duration::from_millis(500);

/// A handshake in progress.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) frames: FrameStream,
    dialled: bool,
    ours: Vec<u8>,
    theirs: Option<(Vec<u8>, Hello)>,
    since: Instant,
}

/// The reason why a handshake failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The first frame is not a hello.
    NoHello,
    /// The hello has another format.
    Release,
    /// The process that answered is not the one that was dialled.
    Another(ProcessId),
    /// The other end does not have the key.
    NoKey,
}

impl Handshake {
    /// Begins a handshake by sending a hello with a fresh nonce.
    pub(crate) fn new(stream: TcpStream, hello: &Hello, dialled: bool) -> io::Result<Handshake> {
        let ours = Hello { nonce: nonce(), ..hello.clone() }.encode();
        let mut frames = FrameStream::new(stream)?;
        frames.send(&[&ours]);
        Ok(Handshake { frames, dialled, ours, theirs: None, since: Instant::now() })
    }

    /// Returns whether the handshake has timed out.
    pub(crate) fn is_late(&self) -> bool {
        let taken = !self.dialled || !self.frames.is_behind();
        self.since.elapsed() >= if taken { HANDSHAKE } else { DIALLING }
    }

    /// Returns the process id that the other end claims. The other end has not proved its identity.
    pub(crate) fn claims(&self) -> Option<ProcessId> {
        self.theirs.as_ref().map(|(_, hello)| hello.process)
    }

    /// Handles a frame. Returns `Some` when both ends have proved that they have the key.
    pub(crate) fn hear(
        &mut self,
        key: &[u8],
        frame: &[u8],
        expected: Option<ProcessId>,
    ) -> Result<Option<(Hello, Session)>, Fault> {
        let dialled = self.dialled;
        let Some((theirs, known)) = &self.theirs else {
            let garbage = if Hello::is_of_another_format(frame) { Fault::Release } else { Fault::NoHello };
            let known = Hello::decode(frame).map_err(|_| garbage)?;
            if expected.is_some_and(|expected| expected != known.process) {
                return Err(Fault::Another(known.process));
            }
            self.frames.send(&[&hello::proof(key, dialled, order(dialled, &self.ours, frame))]);
            self.theirs = Some((frame.to_vec(), known));
            return Ok(None);
        };
        let hellos = order(dialled, &self.ours, theirs);
        if !hello::is_proof(key, !dialled, hellos, frame) {
            return Err(Fault::NoKey);
        }
        Ok(Some((known.clone(), Session::new(key, dialled, hellos))))
    }
}

fn order<'a>(dialled: bool, ours: &'a [u8], theirs: &'a [u8]) -> Hellos<'a> {
    if dialled { Hellos { dialler: ours, listener: theirs } } else { Hellos { dialler: theirs, listener: ours } }
}
