//! A non-blocking attempt to connect to one member, up to the point where it serves the observer.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use stentor_fabric_net::ask::AskConfig;
use stentor_fabric_net::observe::{Dial, Dialled};
use stentor_host::Credentials;

use super::error::Fault;
use super::frame::{Begin, Frame, LONGEST};
use super::line::Line;
use super::target::Target;
use crate::operator::{Answer, Asks, Question};

/// Longest time for a member on this host to answer the observer's request.
const PATIENCE: Duration = Duration::from_secs(5);

/// An attempt in progress.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The member on this host was asked whether it accepts an observer.
    Asks(Asking),
    /// One of the member's addresses is being dialed. The other addresses are dialed if that fails.
    Dials(Box<Dial>, Vec<AskConfig>),
}

/// The progress of an attempt.
pub(super) enum Attempted {
    Waits(Attempt),
    /// The connection is established, and the request was sent.
    Begun(Line),
}

/// A question at the control socket of a member on this host.
#[derive(Debug)]
pub(super) struct Asking {
    stream: UnixStream,
    answer: Vec<u8>,
    until: Instant,
}

impl Attempt {
    /// Begins an attempt: at a control socket of the member on this host if it accepts the connection, and over the
    /// network otherwise.
    pub(super) fn begin(target: &Target) -> Result<Attempt, Fault> {
        let mut last = None;
        for path in target.paths() {
            match Asking::begin(&path) {
                Ok(asking) => return Ok(Attempt::Asks(asking)),
                Err(error) => last = Some(Fault::Unreached(error.to_string())),
            }
        }
        match target.remote() {
            Ok(addresses) => dial(addresses),
            Err(why) => Err(last.unwrap_or(Fault::Unreached(why))),
        }
    }

    /// Continues the attempt without blocking.
    pub(super) fn turn(self, begin: &Begin) -> Result<Attempted, Fault> {
        let mut line = match self {
            Attempt::Asks(asking) => match asking.turn()? {
                Asked::Waits(asking) => return Ok(Attempted::Waits(Attempt::Asks(asking))),
                Asked::In(line) => line,
            },
            Attempt::Dials(dial_, others) => match dial_.turn() {
                Ok(Dialled::Waits(waits)) => return Ok(Attempted::Waits(Attempt::Dials(waits, others))),
                Ok(Dialled::Line(line)) => Line::tcp(line, LONGEST),
                Err(_) if !others.is_empty() => return dial(others).map(Attempted::Waits),
                Err(error) => return Err(Fault::Unreached(error.to_string())),
            },
        };
        line.send(&Frame::Begin(*begin));
        line.flush().map_err(|_| Fault::Closed)?;
        Ok(Attempted::Begun(line))
    }

    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Attempt::Dials(dial, _) if dial.is_behind())
    }
}

impl AsFd for Attempt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Attempt::Asks(asking) => asking.stream.as_fd(),
            Attempt::Dials(dial, _) => dial.as_fd(),
        }
    }
}

/// Dials one of several addresses, from the last to the first.
fn dial(mut addresses: Vec<AskConfig>) -> Result<Attempt, Fault> {
    let mut fault = Fault::Unreached("it has no address".to_owned());
    while let Some(to) = addresses.pop() {
        match Dial::begin(to) {
            Ok(dial) => return Ok(Attempt::Dials(Box::new(dial), addresses)),
            Err(error) => fault = Fault::Unreached(error.to_string()),
        }
    }
    Err(fault)
}

enum Asked {
    Waits(Asking),
    In(Line),
}

impl Asking {
    fn begin(path: &Path) -> std::io::Result<Asking> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let (other, me) = (Credentials::of(&socket)?.uid, geteuid().as_raw());
        if other != me {
            let what = format!("the other end runs as user {other}, this process as {me}");
            return Err(std::io::Error::new(ErrorKind::PermissionDenied, what));
        }
        let mut stream = UnixStream::from(socket);
        let mut line = serde_json::to_vec(&Question::Observe).map_err(std::io::Error::other)?;
        line.push(b'\n');
        // The question is so short that it always fits into the buffer of a new socket.
        stream.write_all(&line)?;
        Ok(Asking { stream, answer: Vec::new(), until: Instant::now() + PATIENCE })
    }

    fn turn(mut self) -> Result<Asked, Fault> {
        let mut bytes = [0; 512];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Fault::Closed),
                Ok(read) => self.answer.extend(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(Fault::Unreached(error.to_string())),
            }
            if self.answer.len() as u64 > Question::LONGEST {
                return Err(Fault::Broken("its answer is too long".to_owned()));
            }
        }
        let Some(end) = self.answer.iter().position(|byte| *byte == b'\n') else {
            return if Instant::now() < self.until { Ok(Asked::Waits(self)) } else { Err(Fault::Silent) };
        };
        let unread = self.answer.split_off(end + 1);
        match serde_json::from_slice(&self.answer) {
            Ok(Answer::Done) => {
                let line = Line::unix(self.stream, LONGEST, unread);
                line.map(Asked::In).map_err(|error| Fault::Unreached(error.to_string()))
            }
            Ok(Answer::Refused(why) | Answer::NotYet(why)) => Err(Fault::Unreached(why)),
            _ => Err(Fault::Broken("it answered another question".to_owned())),
        }
    }
}
