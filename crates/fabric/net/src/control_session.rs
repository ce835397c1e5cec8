//! A session between a process and a program that is not a process of the cluster, such as the control plane of a
//! switch. A session is one TCP connection on which both ends prove that they have the cluster's key before they
//! exchange messages. Every message is authenticated and numbered. The handshake is the connection manager's.
//!
//! No function blocks. The owner of a [`ControlSession`] calls [`receive`](ControlSession::receive) at intervals, and
//! when its descriptor is readable. This also continues the handshake and sends pending bytes.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::frame_stream::{FrameStream, SILENCE, connect};
use crate::handshake::{Fault, Handshake};
use crate::hello::{Hello, MAX_NAME, NOBODY, Session};

/// Maximum length of a message on a session, in bytes.
pub const MAX_MESSAGE: usize = 256;

/// The parameters of one end of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Purpose of the session, 1 to 64 bytes; equal at both ends.
    pub purpose: String,
    /// Version of the session's messages; equal at both ends.
    pub version: u16,
    /// Name of the cluster, 1 to 64 bytes; equal at both ends.
    pub cluster: String,
    /// Key of the cluster; equal at both ends.
    pub key: Vec<u8>,
    /// Id of this process. `None` if this end of the session is not a process of the cluster.
    pub me: Option<ProcessId>,
}

impl SessionConfig {
    fn check_names(&self) -> Result<(), SessionError> {
        for (what, name) in [("cluster", &self.cluster), ("purpose", &self.purpose)] {
            if name.is_empty() || name.len() > MAX_NAME {
                return Err(SessionError::Name { what, name: name.clone() });
            }
        }
        Ok(())
    }
}

/// The identity of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionPeer {
    /// Id of the other end. `None` if the other end is not a process of the cluster.
    pub process: Option<ProcessId>,
    /// A number that changes with each session.
    pub life: u64,
}

/// The reason why there is no session, or why it ended.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SessionError {
    /// A name is empty or too long.
    #[error("invalid {what} name {name:?}: it must have 1 to {MAX_NAME} bytes")]
    Name {
        /// `cluster` or `purpose`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The connection could not be begun.
    #[error("cannot dial {to} from {from}: {reason}; is {from} an address of this host?")]
    Dial {
        /// Source address.
        from: IpAddr,
        /// Destination address.
        to: SocketAddr,
        /// Message of the operating system.
        reason: String,
    },
    /// The listening socket could not be opened.
    #[error("cannot listen at {at}: {reason}")]
    Listen {
        /// The address.
        at: SocketAddr,
        /// `true` if another socket has that port.
        in_use: bool,
        /// Message of the operating system.
        reason: String,
    },
    /// The handshake was not complete in time, or the connection was not accepted.
    #[error("the other end does not answer: is it running, and does nothing in between drop TCP?")]
    NoAnswer,
    /// The other end closed the session: it ended, or refused the session.
    #[error("the other end closed the session: it ended or refused the session; its messages say why")]
    Closed,
    /// The connection broke.
    #[error("the connection broke ({}): {reason}", if *.silent { "the other end is silent" } else { "by the network or the other end" })]
    Broke {
        /// `true` if the other end was silent for too long, and may still be running.
        silent: bool,
        /// Message of the operating system.
        reason: String,
    },
    /// The first frame is not a hello of this release.
    #[error("the other end speaks another protocol: are its address and port right?")]
    NoHello,
    /// The other end has another key.
    #[error("the other end does not have the cluster's key: give both the same")]
    NoKey,
    /// The ends have different parameters.
    #[error("the other end has {what} {theirs}, this one {ours}: start both with the same")]
    Differs {
        /// The parameter that differs.
        what: &'static str,
        /// Value of the parameter at this end.
        ours: String,
        /// Value of the parameter at the other end.
        theirs: String,
    },
    /// A message is damaged, forged, out of order, or longer than [`MAX_MESSAGE`].
    #[error("the other end sent a message that is damaged or forged")]
    Forged,
    /// A message is too long for a session.
    #[error("a message of {0} bytes: {MAX_MESSAGE} at most")]
    TooLong(usize),
    /// The handshake is not complete.
    #[error("the other end has not answered yet: send when the session is ready")]
    NotReady,
}

#[derive(Debug)]
enum State {
    Greeting(Handshake),
    Ready(FrameStream, Session, SessionPeer),
    Dead(SessionError),
}

/// One end of a session.
#[derive(Debug)]
pub struct ControlSession {
    hello: Hello,
    key: Vec<u8>,
    state: State,
}

impl ControlSession {
    /// Begins to dial and returns at once. The result of the attempt becomes known later.
    ///
    /// # Errors
    /// [`SessionError::Name`] and [`SessionError::Dial`].
    pub fn dial(config: &SessionConfig, from: IpAddr, to: SocketAddr) -> Result<ControlSession, SessionError> {
        config.check_names()?;
        let failed = |error: io::Error| SessionError::Dial { from, to, reason: error.to_string() };
        ControlSession::begin(config, connect(from, to).map_err(failed)?, true, failed)
    }

    fn begin(
        config: &SessionConfig,
        stream: TcpStream,
        dialled: bool,
        failed: impl Fn(io::Error) -> SessionError,
    ) -> Result<ControlSession, SessionError> {
        let me = config.me.unwrap_or(NOBODY);
        let hello = Hello::of_purpose(&config.purpose, config.version, &config.cluster, me);
        let handshake = Handshake::new(stream, &hello, dialled).map_err(failed)?;
        Ok(ControlSession { hello, key: config.key.clone(), state: State::Greeting(handshake) })
    }

    /// Queues a message and sends as much as the socket accepts.
    ///
    /// # Errors
    /// [`SessionError::TooLong`], [`SessionError::NotReady`], or the error that ended the session.
    pub fn send(&mut self, message: &[u8]) -> Result<(), SessionError> {
        if message.len() > MAX_MESSAGE {
            return Err(SessionError::TooLong(message.len()));
        }
        match &mut self.state {
            State::Greeting(_) => Err(SessionError::NotReady),
            State::Dead(error) => Err(error.clone()),
            State::Ready(frames, session, _) => {
                session.send(frames, message);
                Ok(())
            }
        }
    }

    /// Returns the next message, if it is complete. Also continues the handshake, sends pending bytes, and detects the
    /// end of the session.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        self.greet();
        let State::Ready(frames, session, _) = &mut self.state else { return None };
        frames.drain();
        if let Some(frame) = frames.receive() {
            if let Some(message) = session.take(&frame).filter(|message| message.len() <= MAX_MESSAGE) {
                return Some(message.to_vec());
            }
            self.state = State::Dead(SessionError::Forged);
        } else if frames.dead {
            self.state = State::Dead(why(frames));
        }
        None
    }

    /// Continues the handshake.
    fn greet(&mut self) {
        while let State::Greeting(handshake) = &mut self.state {
            let Some(frame) = handshake.frames.receive() else {
                handshake.frames.drain();
                if handshake.frames.dead {
                    self.state = State::Dead(why(&handshake.frames));
                } else if handshake.is_late() {
                    self.state = State::Dead(SessionError::NoAnswer);
                }
                return;
            };
            match handshake.hear(&self.key, &frame, None) {
                Ok(None) => {}
                Ok(Some((hello, session))) => match differs(&self.hello, &hello) {
                    Some(error) => self.state = State::Dead(error),
                    None => self.is_there(&hello, session),
                },
                Err(Fault::NoKey) => self.state = State::Dead(SessionError::NoKey),
                Err(Fault::NoHello | Fault::Release | Fault::Another(_)) => {
                    self.state = State::Dead(SessionError::NoHello);
                }
            }
        }
    }

    fn is_there(&mut self, hello: &Hello, session: Session) {
        let peer = SessionPeer { process: Some(hello.process).filter(|process| *process != NOBODY), life: hello.life };
        if let State::Greeting(handshake) = std::mem::replace(&mut self.state, State::Dead(SessionError::Closed)) {
            self.state = State::Ready(handshake.frames, session, peer);
        }
    }

    /// Returns whether messages can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(..))
    }

    /// Returns whether the session has ended. The socket is then closed, and all messages from before the end were
    /// returned.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, State::Dead(_))
    }

    /// Returns the reason for the end of the session.
    #[must_use]
    pub fn error(&self) -> Option<&SessionError> {
        match &self.state {
            State::Dead(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the identity of the other end, once it is proved.
    #[must_use]
    pub fn peer(&self) -> Option<SessionPeer> {
        match &self.state {
            State::Ready(_, _, peer) => Some(*peer),
            _ => None,
        }
    }

    /// Returns whether bytes are waiting to be sent. If so, call [`receive`](ControlSession::receive) soon, even if
    /// nothing arrives.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        match &self.state {
            State::Greeting(handshake) => handshake.frames.is_behind(),
            State::Ready(frames, ..) => frames.is_behind(),
            State::Dead(_) => false,
        }
    }

    /// Returns the socket to wait for, or `None` when the session has ended.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Greeting(handshake) => Some(handshake.frames.socket.as_fd()),
            State::Ready(frames, ..) => Some(frames.socket.as_fd()),
            State::Dead(_) => None,
        }
    }

    /// Returns the time for which the other end may be silent before the session breaks.
    #[must_use]
    pub const fn silence() -> Duration {
        SILENCE
    }
}

/// A listener for sessions.
#[derive(Debug)]
pub struct SessionListener {
    config: SessionConfig,
    listener: TcpListener,
}

impl SessionListener {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`SessionError::Name`] and [`SessionError::Listen`].
    pub fn bind(config: SessionConfig, at: SocketAddr) -> Result<SessionListener, SessionError> {
        config.check_names()?;
        let failed = |error: io::Error| {
            let in_use = error.kind() == io::ErrorKind::AddrInUse;
            SessionError::Listen { at, in_use, reason: error.to_string() }
        };
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(SessionListener { config, listener })
    }

    /// Returns the next session that a peer has begun. The peer's identity becomes known later. The caller bounds the
    /// number of sessions that are not ready.
    pub fn accept(&mut self) -> Option<ControlSession> {
        loop {
            let (stream, from) = self.listener.accept().ok()?;
            let failed = |error: io::Error| SessionError::Broke { silent: false, reason: format!("{from}: {error}") };
            if let Ok(session) = ControlSession::begin(&self.config, stream, false, failed) {
                return Some(session);
            }
        }
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsFd for SessionListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn why(frames: &FrameStream) -> SessionError {
    let Some(error) = &frames.fault else { return SessionError::Closed };
    let silent = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable);
    SessionError::Broke { silent, reason: error.to_string() }
}

fn differs(ours: &Hello, theirs: &Hello) -> Option<SessionError> {
    let told = |hello: &Hello| [hello.fabric.clone(), hello.version.to_string(), hello.cluster.clone()];
    let all = ["purpose", "version", "cluster"].into_iter().zip(told(ours).into_iter().zip(told(theirs)));
    let first = all.into_iter().find(|(_, (ours, theirs))| ours != theirs);
    first.map(|(what, (ours, theirs))| SessionError::Differs { what, ours, theirs })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;

    fn config(me: Option<u16>) -> SessionConfig {
        SessionConfig {
            purpose: "switch".into(),
            version: 1,
            cluster: "c".into(),
            key: b"key".to_vec(),
            me: me.map(ProcessId),
        }
    }

    /// Returns two ends, the dialling one first, after both are ready or dead.
    fn both(dials: &SessionConfig, listens: SessionConfig) -> (ControlSession, ControlSession, SessionListener) {
        let mut listener = SessionListener::bind(listens, "127.0.0.1:0".parse().unwrap()).unwrap();
        let to = listener.local_address().unwrap();
        let mut one = ControlSession::dial(dials, [127, 0, 0, 7].into(), to).unwrap();
        assert_eq!(one.send(b"x"), Err(SessionError::NotReady));
        let since = Instant::now();
        let mut other = None;
        loop {
            assert_eq!(one.receive(), None);
            other = other.or_else(|| listener.accept());
            let over = |session: &ControlSession| session.is_ready() || session.is_dead();
            if let Some(other) = &mut other {
                assert_eq!(other.receive(), None);
            }
            if let Some(other) = other.take_if(|other| over(other) && over(&one)) {
                return (one, other, listener);
            }
            assert!(since.elapsed() < Duration::from_secs(10), "{one:?} {other:?}");
        }
    }

    fn next(session: &mut ControlSession) -> Option<Vec<u8>> {
        let since = Instant::now();
        loop {
            let message = session.receive();
            if message.is_some() || session.is_dead() {
                return message;
            }
            assert!(since.elapsed() < Duration::from_secs(10), "no message arrived");
        }
    }

    #[test]
    fn both_ends_exchange_messages_until_one_is_dropped() {
        let (mut host, mut switch, _) = both(&config(Some(3)), config(None));
        assert_eq!(switch.peer().unwrap().process, Some(ProcessId(3)));
        assert_eq!(host.peer().unwrap().process, None);
        assert!(host.socket().is_some() && !host.is_behind());
        let longest = [7; MAX_MESSAGE];
        for message in [&b""[..], b"join", &longest] {
            host.send(message).unwrap();
            switch.send(message).unwrap();
        }
        for message in [&b""[..], b"join", &longest] {
            assert_eq!(next(&mut host).as_deref(), Some(message));
            assert_eq!(next(&mut switch).as_deref(), Some(message));
        }
        assert_eq!(host.send(&[0; MAX_MESSAGE + 1]), Err(SessionError::TooLong(MAX_MESSAGE + 1)));
        host.send(b"last").unwrap();
        drop(host);
        assert_eq!(next(&mut switch).as_deref(), Some(&b"last"[..]), "what came before the end");
        assert_eq!(next(&mut switch), None);
        assert_eq!(switch.error(), Some(&SessionError::Closed));
        assert_eq!((switch.send(b"x"), switch.socket().is_none()), (Err(SessionError::Closed), true));
    }

    #[test]
    fn mismatched_ends_report_the_difference() {
        let end = |change: &dyn Fn(&mut SessionConfig)| {
            let mut other = config(None);
            change(&mut other);
            let (host, switch, _) = both(&config(Some(1)), other);
            assert!(host.is_dead() && switch.is_dead());
            // One end may only detect that the other has closed the session; at least one reports the difference.
            let errors = [host.error().unwrap().clone(), switch.error().unwrap().clone()];
            errors
                .into_iter()
                .find(|error| !matches!(error, SessionError::Closed | SessionError::Broke { .. }))
                .unwrap()
        };
        let differs = |error, expected| matches!(error, SessionError::Differs { what, .. } if what == expected);
        assert_eq!(end(&|c| c.key = vec![]), SessionError::NoKey);
        assert!(differs(end(&|c| c.cluster = "d".into()), "cluster"));
        assert!(differs(end(&|c| c.version = 2), "version"));
        assert!(differs(end(&|c| c.purpose = "other".into()), "purpose"));
        let long = SessionConfig { cluster: "c".repeat(65), ..config(None) };
        let refused = ControlSession::dial(&long, [127, 0, 0, 1].into(), "127.0.0.1:9".parse().unwrap());
        assert!(matches!(refused, Err(SessionError::Name { what: "cluster", .. })));
    }

    /// No peer could have such a name, so a listener with it would drop every connection.
    #[test]
    fn listener_with_an_invalid_name_is_refused() {
        let bind = |config| SessionListener::bind(config, "127.0.0.1:0".parse().unwrap()).map(|_| ()).unwrap_err();
        let empty = SessionConfig { purpose: String::new(), ..config(None) };
        assert_eq!(bind(empty), SessionError::Name { what: "purpose", name: String::new() });
        let long = SessionConfig { cluster: "c".repeat(65), ..config(None) };
        assert_eq!(bind(long), SessionError::Name { what: "cluster", name: "c".repeat(65) });
    }

    #[test]
    fn a_refused_connection_and_another_program_are_distinguished() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let own = [127, 0, 0, 1].into();
        let mut session = ControlSession::dial(&config(Some(1)), own, to).unwrap();
        listener.accept().unwrap().0.write_all(b"\x00\x05HELLO").unwrap();
        assert_eq!(next(&mut session), None);
        assert_eq!(session.error(), Some(&SessionError::NoHello));
        drop(listener);
        let error = ControlSession::dial(&config(Some(1)), own, to).map(|mut session| {
            assert_eq!(next(&mut session), None);
            session.error().cloned().unwrap()
        });
        match error {
            Ok(SessionError::Broke { silent, reason }) => assert!(!silent && reason.contains("refused"), "{reason}"),
            Err(SessionError::Dial { reason, .. }) => assert!(reason.contains("refused"), "{reason}"),
            other => panic!("{other:?}"),
        }
        let elsewhere = ControlSession::dial(&config(None), [192, 0, 2, 1].into(), to);
        assert!(matches!(elsewhere, Err(SessionError::Dial { .. })));
    }

    #[test]
    fn a_changed_message_ends_the_session() {
        let (host, mut switch, _) = both(&config(Some(3)), config(None));
        let State::Ready(frames, ..) = &host.state else { panic!() };
        let mut stream = frames.socket.try_clone().unwrap();
        stream.write_all(&[0, 20]).unwrap();
        stream.write_all(&[9; 20]).unwrap();
        assert_eq!(next(&mut switch), None);
        assert_eq!(switch.error(), Some(&SessionError::Forged));
        // The other end sends nothing more.
        let mut rest = Vec::new();
        stream.set_nonblocking(false).unwrap();
        drop((switch, host));
        assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
    }
}
