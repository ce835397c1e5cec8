//! Connections of the control plane. Over a connection, a host proves that it has the cluster's key, and joins sets.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use stentor_fabric_net::control_session::{ControlSession, SessionConfig, SessionError, SessionListener};
use stentor_switch::Switch;
use stentor_switch::enrol::{ToSwitch, VERSION};

use crate::registry::{Registry, Said, SessionId};

/// Maximum number of simultaneous connections.
const MOST_SESSIONS: usize = 1024;
/// Maximum number of connections whose other end has not proven the key yet.
const MOST_STRANGERS: usize = 64;
/// Maximum number of messages of one connection that a round handles before the next connection.
const MESSAGES: usize = 16;
/// Purpose of the connection, which both ends must state.
pub(crate) const PURPOSE: &str = "switch";

/// Counts of connections, by their outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Admitted {
    /// Connections that proved the key.
    pub hosts: u64,
    /// Connections that ended before they proved the key.
    pub strangers: u64,
    /// Hosts that sent an invalid message and were disconnected.
    pub garbled: u64,
}

/// All connections, and the registry of their joins.
#[derive(Debug)]
pub(crate) struct Enrolment {
    listener: SessionListener,
    /// Maximum number of connections, [`MOST_SESSIONS`].
    most: usize,
    sessions: BTreeMap<SessionId, ControlSession>,
    next: SessionId,
    registry: Registry,
    said: Said,
    admitted: Admitted,
}

impl Enrolment {
    pub(crate) fn listen(
        cluster: &str,
        key: &[u8],
        at: std::net::SocketAddr,
        sees_identifications: bool,
    ) -> Result<Enrolment, SessionError> {
        let config = SessionConfig {
            purpose: PURPOSE.to_owned(),
            version: VERSION,
            cluster: cluster.to_owned(),
            key: key.to_vec(),
            me: None,
        };
        let start = u32::from_be_bytes(stentor_fabric_net::nonce());
        Ok(Enrolment {
            listener: SessionListener::bind(config, at)?,
            most: MOST_SESSIONS,
            sessions: BTreeMap::new(),
            next: 0,
            registry: Registry::new(sees_identifications, start),
            said: Vec::new(),
            admitted: Admitted::default(),
        })
    }

    pub(crate) fn admitted(&self) -> Admitted {
        self.admitted
    }

    /// Returns the address of the listener.
    pub(crate) fn address(&self) -> Option<std::net::SocketAddr> {
        self.listener.local_address().ok()
    }

    /// Returns all sockets to wait for.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.listener.as_fd()).chain(self.sessions.values().filter_map(ControlSession::socket))
    }

    /// Receives the hosts' messages and answers them. Returns whether it did any work.
    pub(crate) fn round(&mut self, now: u64, switch: &mut Switch) -> bool {
        let mut any = false;
        for _ in 0..MOST_STRANGERS {
            let Some(session) = self.listener.accept() else { break };
            any = true;
            if self.makes_room() {
                self.sessions.insert(self.next, session);
                self.next += 1;
            }
        }
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            any |= self.hear(id, now, switch);
        }
        self.registry.tick(now, switch, &mut self.said);
        any |= !self.said.is_empty();
        for (id, word) in self.said.drain(..) {
            let (bytes, len) = word.encode();
            if let Some(session) = self.sessions.get_mut(&id) {
                // If the session has ended, the next round handles that.
                let _ = session.send(&bytes[..len]);
            }
        }
        any
    }

    /// Closes the oldest unauthenticated connection if there are too many connections, or too many unauthenticated
    /// ones. (A host proves its key immediately, so an old unauthenticated connection is unlikely to be that of a
    /// host.) Authenticated connections stay open. Returns `false` if there is no room for another connection.
    fn makes_room(&mut self) -> bool {
        let strangers = self.sessions.iter().filter(|(_, session)| !session.is_ready());
        let (oldest, count) = strangers.fold((None, 0), |(oldest, n), (id, _)| (oldest.or(Some(*id)), n + 1));
        let full = self.sessions.len() >= self.most;
        if let Some(id) = oldest.filter(|_| full || count >= MOST_STRANGERS) {
            // This connection has joined no set, so the registry need not be informed.
            self.admitted.strangers += 1;
            self.sessions.remove(&id);
        }
        self.sessions.len() < self.most
    }

    fn hear(&mut self, id: SessionId, now: u64, switch: &mut Switch) -> bool {
        let Enrolment { sessions, registry, said, admitted, .. } = self;
        let Some(session) = sessions.get_mut(&id) else { return false };
        let mut any = false;
        let was_ready = session.is_ready();
        for _ in 0..MESSAGES {
            let Some(message) = session.receive() else { break };
            any = true;
            match ToSwitch::decode(&message) {
                Ok(ToSwitch::Join(join)) => registry.join(id, join, now, switch, said),
                Ok(ToSwitch::Leave { number, life }) => registry.leave(id, number, life, switch, said),
                Err(_) => {
                    admitted.hosts += u64::from(!was_ready);
                    admitted.garbled += 1;
                    sessions.remove(&id);
                    registry.end(id, switch, said);
                    return true;
                }
            }
        }
        admitted.hosts += u64::from(!was_ready && session.is_ready());
        if session.is_dead() {
            admitted.strangers += u64::from(!was_ready);
            sessions.remove(&id);
            registry.end(id, switch, said);
            return true;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::{Duration, Instant};

    use stentor_fabric::ProcessId;
    use stentor_switch::Config;

    use super::*;

    const KEY: &[u8] = b"a key of this test";

    #[test]
    fn hosts_beyond_the_limit_are_rejected_and_the_others_stay() {
        let own = Ipv4Addr::new(127, 211, 99, 250);
        let mut switch = Switch::new(Config::new(own, Ipv4Addr::new(127, 211, 99, 251)), 2);
        let mut enrolment = Enrolment::listen("test", KEY, SocketAddr::from((own, 0)), false).unwrap();
        enrolment.most = 2;
        let at = enrolment.address().unwrap();
        let dial = |host: u8| {
            let (purpose, cluster, me) = (PURPOSE.to_owned(), "test".to_owned(), Some(ProcessId(host.into())));
            let config = SessionConfig { purpose, version: VERSION, cluster, key: KEY.to_vec(), me };
            ControlSession::dial(&config, Ipv4Addr::new(127, 211, 99, host).into(), at).unwrap()
        };
        let mut sessions: Vec<ControlSession> = Vec::new();
        let since = Instant::now();
        for host in 1..=4 {
            sessions.push(dial(host));
            let before = enrolment.admitted().hosts;
            while enrolment.admitted().hosts == before && !sessions[sessions.len() - 1].is_dead() {
                enrolment.round(0, &mut switch);
                sessions.iter_mut().for_each(|session| drop(session.receive()));
                assert!(since.elapsed() < Duration::from_secs(10), "host {host} is neither admitted nor rejected");
            }
        }
        let ready: Vec<bool> = sessions.iter().map(ControlSession::is_ready).collect();
        assert_eq!(ready, [true, true, false, false]);
        assert_eq!(enrolment.admitted(), Admitted { hosts: 2, strangers: 0, garbled: 0 });
    }
}
