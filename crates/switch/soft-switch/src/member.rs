//! A host that joins its set through the control plane, driven by hand. Like [`Attached`], it is for tests and benches.

use std::net::SocketAddr;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_net::control_session::{ControlSession, SessionConfig, SessionError};
use stentor_switch::enrol::{Join, Ready, Refusal, ToHost, ToSwitch, VERSION};

use crate::attached::{AttachError, Attached};
use crate::enrolment::PURPOSE;

/// A message of the control plane, as [`Member::hear`] reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The queue pairs are connected to this generation.
    Ready(Ready),
    /// The member must join again with a new life.
    Renew,
    /// The switch refused the join.
    Refused(Refusal),
}

/// A host of a set, and its session with the control plane.
#[derive(Debug)]
pub struct Member {
    /// The host.
    pub host: Attached,
    session: ControlSession,
    number: u16,
    size: u8,
}

impl Member {
    /// Connects to the control plane.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn dial(
        host: Attached,
        (number, size): (u16, u8),
        cluster: &str,
        key: &[u8],
        control: SocketAddr,
    ) -> Result<Member, SessionError> {
        let config = SessionConfig {
            purpose: PURPOSE.to_owned(),
            version: VERSION,
            cluster: cluster.to_owned(),
            key: key.to_vec(),
            me: Some(ProcessId(host.config().rank.into())),
        };
        let session = ControlSession::dial(&config, host.config().address.into(), control)?;
        Ok(Member { host, session, number, size })
    }

    /// Returns whether the session can send messages.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.session.is_ready()
    }

    /// Returns the error that ended the session, if any.
    #[must_use]
    pub fn error(&self) -> Option<&SessionError> {
        self.session.error()
    }

    /// Joins the set with the host's current life. The queue pairs must not be connected yet.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn join(&mut self) -> Result<(), SessionError> {
        let (config, description) = (*self.host.config(), self.host.description());
        let join = Join {
            number: self.number,
            size: self.size,
            rank: config.rank,
            life: config.life,
            lease: Duration::from_secs(5),
            mtu: config.mtu,
            identified: false,
            sends: description.sends,
            receives: description.receives,
        };
        self.say(&ToSwitch::Join(join))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn say(&mut self, word: &ToSwitch) -> Result<(), SessionError> {
        let (bytes, len) = word.encode();
        self.session.send(&bytes[..len])
    }

    /// Receives a message of the control plane, and connects the queue pairs if it announces a generation. This method
    /// also advances the handshake of the session.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn hear(&mut self) -> Result<Option<Heard>, AttachError> {
        let Some(message) = self.session.receive() else { return Ok(None) };
        let life = self.host.config().life;
        Ok(match ToHost::decode(&message) {
            Ok(ToHost::Ready(ready)) if ready.life == life => {
                self.host.connect(ready.gid)?;
                Some(Heard::Ready(ready))
            }
            Ok(ToHost::Renew { life: own, .. }) if own == life => Some(Heard::Renew),
            Ok(ToHost::Refused { life: own, why, .. }) if own == life => Some(Heard::Refused(why)),
            _ => None,
        })
    }
}
