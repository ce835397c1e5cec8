//! The connection between a process and an observer: a program that has the cluster's key, is no process, and follows
//! the order of a group. `docs/observers.md` specifies the protocol.
//!
//! The handshake is the connection manager's. The hello of the observer has [`PURPOSE`] in place of a fabric and no
//! process id. After the handshake the connection manager hands the connection over and does not use it again:
//! [`ConnectionManager::next_observer`]. Both ends then frame their messages themselves, and seal each frame with
//! [`Seals`].
//!
//! [`ConnectionManager::next_observer`]: crate::ConnectionManager::next_observer

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::ask::{AskConfig, AskError, why, wrong};
use crate::frame_stream::{FrameStream, connect};
use crate::handshake::Handshake;
use crate::hello::{Hello, NOBODY, Session, TAG};

/// Version of the protocol.
pub const VERSION: u16 = 1;
/// The word in the observer's hello, in place of the fabric's name.
pub const PURPOSE: &str = "observe";
/// Maximum number of connections that wait to be handed over. A further one replaces the oldest.
const MOST: usize = 32;
/// Maximum time that a connection waits to be handed over. A process that accepts no observers never fetches its
/// connections.
const LONGEST: Duration = Duration::from_secs(5);

/// Seals and verifies the frames of one connection. A seal covers the number and the direction of its frame, so a
/// changed, replayed or reflected frame is detected.
#[derive(Debug)]
pub struct Seals(Session);

impl Seals {
    /// Length of a seal, in bytes.
    pub const BYTES: usize = TAG;

    /// Returns the seal of the next frame to send.
    pub fn seal(&mut self, frame: &[u8]) -> [u8; Seals::BYTES] {
        self.0.seal(frame)
    }

    /// Returns whether this is the next frame of the other end.
    #[must_use]
    pub fn open(&mut self, frame: &[u8], seal: &[u8]) -> bool {
        self.0.open(frame, seal)
    }
}

/// A connection whose ends have proved that they have the key.
#[derive(Debug)]
pub struct Line {
    /// The connection, which never blocks.
    pub socket: TcpStream,
    /// The seals that authenticate its frames in both directions.
    pub seals: Seals,
    /// Bytes that arrived after the handshake.
    pub unread: Vec<u8>,
    /// Bytes of the handshake that must be sent before any frame.
    pub unsent: Vec<u8>,
}

impl Line {
    fn new(frames: FrameStream, session: Session) -> Line {
        let (socket, unread, unsent) = frames.into_parts();
        Line { socket, seals: Seals(session), unread, unsent }
    }
}

/// A connection that an observer dials. No function blocks: call [`turn`](Dial::turn) when the socket is ready, and at
/// intervals.
#[derive(Debug)]
pub struct Dial {
    handshake: Handshake,
    to: AskConfig,
}

/// The progress of a dial.
#[derive(Debug)]
pub enum Dialled {
    /// The handshake is not complete.
    Waits(Box<Dial>),
    /// The handshake is complete, and the other end is the intended process.
    Line(Line),
}

impl Dial {
    /// Begins to dial a process.
    ///
    /// # Errors
    /// [`AskError::Unreachable`] and [`AskError::Nobody`].
    pub fn begin(to: AskConfig) -> Result<Dial, AskError> {
        let from: IpAddr = if to.at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let begun = || -> io::Result<Handshake> {
            Handshake::new(connect(from, to.at)?, &Hello::of_purpose(PURPOSE, VERSION, &to.cluster, NOBODY), true)
        };
        let handshake = begun().map_err(|error| why(&error))?;
        Ok(Dial { handshake, to })
    }

    /// Continues the handshake.
    ///
    /// # Errors
    /// Returns the reason why there is no connection.
    pub fn turn(mut self) -> Result<Dialled, AskError> {
        loop {
            self.handshake.frames.drain();
            let Some(frame) = self.handshake.frames.receive() else { break };
            let heard = self.handshake.hear(&self.to.key, &frame, Some(self.to.process)).map_err(wrong)?;
            if let Some((them, session)) = heard {
                if them.cluster != self.to.cluster {
                    return Err(AskError::Other("it belongs to another cluster"));
                }
                return Ok(Dialled::Line(Line::new(self.handshake.frames, session)));
            }
        }
        let frames = &self.handshake.frames;
        if frames.dead {
            let closed = AskError::Other("it closed the connection: it refused, and its log says why");
            return Err(frames.fault.as_ref().map_or(closed, why));
        }
        if self.handshake.is_late() {
            let taken = frames.socket.peer_addr().is_ok();
            let nothing = || AskError::Unreachable("no packet returns".to_owned());
            return Err(if taken { AskError::Silent } else { nothing() });
        }
        Ok(Dialled::Waits(Box::new(self)))
    }

    /// Returns whether bytes are waiting to be sent.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.handshake.frames.is_behind()
    }
}

impl AsFd for Dial {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handshake.frames.socket.as_fd()
    }
}

/// Connections that wait to be handed over.
#[derive(Debug, Default)]
pub(crate) struct Lines(VecDeque<(Instant, Line)>);

impl Lines {
    pub(crate) fn admit(&mut self, frames: FrameStream, session: Session) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((Instant::now(), Line::new(frames, session)));
    }

    /// Drops connections that have waited for too long.
    pub(crate) fn pump(&mut self) {
        while self.0.front().is_some_and(|(since, _)| since.elapsed() > LONGEST) {
            self.0.pop_front();
        }
    }

    pub(crate) fn next(&mut self) -> Option<Line> {
        self.0.pop_front().map(|(_, line)| line)
    }
}
