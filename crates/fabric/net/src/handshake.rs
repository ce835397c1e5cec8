//! A connection whose other end has not shown that it has the key.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stentor_fabric::ProcessId;

use crate::frame_stream::FrameStream;
use crate::hello::{self, Hello, Hellos, Session, nonce};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a peer has to take a connection before it is dialled anew. Its kernel takes it: a host that does not answer is not
/// there, and sooner asked again than by the retransmissions of TCP.
const DIALLING: Duration = Duration::from_millis(500);

/// A handshake that is under way.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) frames: FrameStream,
    dialled: bool,
    ours: Vec<u8>,
    theirs: Option<(Vec<u8>, Hello)>,
    since: Instant,
}

/// Why it ends without a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Something else than a hello came.
    NoHello,
    /// A hello of another format came.
    Release,
    /// Somebody else answered than was dialled.
    Another(ProcessId),
    /// The other end does not have the key.
    NoKey,
}

impl Handshake {
    /// Says hello with a nonce of its own.
    pub(crate) fn new(stream: TcpStream, hello: &Hello, dialled: bool) -> io::Result<Handshake> {
        let ours = Hello { nonce: nonce(), ..hello.clone() }.encode();
        let mut frames = FrameStream::new(stream)?;
        frames.send(&[&ours]);
        Ok(Handshake { frames, dialled, ours, theirs: None, since: Instant::now() })
    }

    /// Whether it has had its time.
    pub(crate) fn is_late(&self) -> bool {
        let taken = !self.dialled || !self.frames.is_behind();
        self.since.elapsed() >= if taken { HANDSHAKE } else { DIALLING }
    }

    /// Who the other end says to be. It has not proved that.
    pub(crate) fn claims(&self) -> Option<ProcessId> {
        self.theirs.as_ref().map(|(_, hello)| hello.process)
    }

    /// Takes a frame in. `Some` when both have shown that they have the key.
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
