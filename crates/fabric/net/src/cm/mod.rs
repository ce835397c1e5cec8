//! The connection manager: control connections to peers, and the queue pairs and grants that are announced on them.

mod connections;
mod sets;
mod transport;

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};

use stentor_fabric::{Access, Event, ProcessId, Purpose, Refusal};

use crate::config::{NetConfig, StartError};
use crate::control::Control;
use crate::hello::{Hello, MAX_NAME, nonce};
use crate::message::Message;
use crate::names::Names;
use crate::remotes::{Granted, RemoteKey, Remotes};
use connections::Connection;
pub use sets::{NO_SETS, NoSets, Sets};
pub use transport::Transport;

/// The connections to all peers, the queue pairs on them, and the grants in both directions.
#[derive(Debug)]
pub struct ConnectionManager<S> {
    pub(crate) me: ProcessId,
    pub(crate) processes: usize,
    pub(crate) control: Control,
    pub(crate) connections: Vec<Connection>,
    pub(crate) remotes: Remotes,
    /// The fan-out sets and their state.
    pub sets: S,
    grants: HashMap<(ProcessId, Purpose), Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    place: RemoteKey,
    bytes: u64,
    access: Access,
}

impl<S: Sets> ConnectionManager<S> {
    /// Listens, so that peers can connect. `fabric`, the name of the fabric, has 1 to 64 bytes and is equal at every
    /// process, except that `roce` and `verbs` connect with each other, because both use RoCEv2.
    ///
    /// # Errors
    /// Returns a [`StartError`].
    pub fn start(fabric: String, config: NetConfig, sets: S) -> Result<Self, StartError> {
        let address = config.own_address()?;
        let NetConfig { cluster, key, fingerprint, version, me, addresses, names, one_life, .. } = config;
        let processes = addresses.len();
        for (what, name) in [("cluster", &cluster), ("fabric", &fabric)] {
            if name.is_empty() || name.len() > MAX_NAME {
                return Err(StartError::Name { what, name: name.clone() });
            }
        }
        let listen = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let hello = Hello {
            version,
            fingerprint,
            process: me,
            processes: processes as u16,
            nonce: [0; 32],
            life: u64::from_be_bytes(nonce()),
            fabric,
            cluster,
        };
        let mut names = Names::new(names, processes);
        names.warn_of_loopback(me.index(), address.ip(), &addresses);
        let control = Control::new(hello, address.ip(), one_life, key, addresses, names, listener);
        let (connections, remotes, grants) = (Vec::new(), Remotes::default(), HashMap::new());
        Ok(ConnectionManager { me, processes, control, connections, remotes, sets, grants })
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.control.events.pop_front()
    }

    /// Returns whether there is an event.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.control.events.is_empty()
    }

    /// Adds an event for an action of the fabric itself.
    pub fn tell(&mut self, event: Event) {
        self.control.events.push_back(event);
    }

    /// Returns the next refused connection. Up to 64 different refusals are kept; the oldest is dropped first.
    pub fn next_refusal(&mut self) -> Option<Refusal> {
        self.control.refusals.pop_front()
    }

    /// Returns the next message for the operator about names and addresses. The newest 64 are kept.
    pub fn next_name_note(&mut self) -> Option<String> {
        self.control.names.notes.pop_front()
    }

    /// Returns the name of a peer for messages, with its address in the configuration.
    #[must_use]
    pub fn name_of(&self, peer: ProcessId) -> String {
        self.control.names.shown(peer.index())
    }

    /// Returns the reason why the name of a peer had no address at the last lookup, if it had none.
    #[must_use]
    pub fn unresolved(&self, peer: ProcessId) -> Option<&str> {
        self.control.names.fault(peer.index())
    }

    /// Returns the next question of a program that has the cluster's key but is not a process of the cluster. The
    /// number identifies the question for [`answer`](Self::answer).
    pub fn next_question(&mut self) -> Option<(u64, Vec<u8>)> {
        self.control.askers.next()
    }

    /// Answers a question of [`next_question`](Self::next_question). An answer longer than
    /// [`MAX_ANSWER`](crate::ask::MAX_ANSWER) is truncated.
    pub fn answer(&mut self, question: u64, answer: &[u8]) {
        self.control.askers.answer(question, answer);
    }

    /// Returns the next connection of an observer, which the caller then owns.
    pub fn next_observer(&mut self) -> Option<crate::observe::Line> {
        self.control.observers.next()
    }

    /// Returns whether a peer's process closed its control connection or ended, and has not reconnected. A connection
    /// that timed out does not count as a death.
    #[inline]
    #[must_use]
    pub fn has_died(&self, peer: ProcessId) -> bool {
        self.control.peers.get(peer.index()).is_some_and(|known| known.died)
    }

    /// Returns whether a peer reports that another process with this process's id is connected to it.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        self.control.peers.iter().any(|peer| peer.taken)
    }

    /// Returns whether a peer is connected.
    #[must_use]
    pub fn is_linked(&self, peer: ProcessId) -> bool {
        peer == self.me || peer.index() < self.processes && self.control.is_linked(peer)
    }

    /// Returns whether a handshake is in progress, or a peer or the switch of the fan-out sets is not connected.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        self.control.is_connecting() || self.sets.is_connecting()
    }

    /// Returns whether the owner must pump every few milliseconds: this process dials a peer that is not connected, a
    /// handshake is in progress, or the connection to the switch is pending. A peer that dials this process wakes a
    /// thread that waits for the [sockets](ConnectionManager::sockets).
    #[must_use]
    pub fn is_dialling(&self) -> bool {
        self.control.is_dialling() || self.sets.is_connecting()
    }

    /// Returns the id of this process.
    #[must_use]
    pub fn me(&self) -> ProcessId {
        self.me
    }

    /// Returns the number of processes in the cluster.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes
    }

    /// Returns the sockets to wait for. The kernel removes closed ones from an epoll instance; every
    /// [`pump`](ConnectionManager::pump) may add new ones.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let cm = std::iter::once(self.control.listener().as_fd()).chain(self.control.sockets().map(AsFd::as_fd));
        cm.chain(self.sets.socket())
    }

    /// Returns the total number of [`sockets`](Self::sockets) ever created. While it is constant, there are no new
    /// sockets. Returns `None` if [`sets`](Self::sets) have a socket, which may be replaced at any time.
    #[must_use]
    pub fn sockets_made(&self) -> Option<u64> {
        self.sets.socket().is_none().then_some(self.control.begun)
    }

    /// Returns the regions that peers have granted.
    #[inline]
    #[must_use]
    pub fn remotes(&self) -> &Remotes {
        &self.remotes
    }

    /// Grants a peer access to a region. The peer is notified now or when it connects; this process itself is notified
    /// at once. The caller must choose different purposes for all regions that one peer may use.
    pub fn grant(&mut self, peer: ProcessId, purpose: Purpose, place: RemoteKey, bytes: u64, access: Access) {
        self.grants.insert((peer, purpose), Grant { place, bytes, access });
        self.announce(peer, purpose);
    }

    /// Revokes a peer's access to a region.
    pub fn revoke(&mut self, peer: ProcessId, purpose: Purpose, key: u64) {
        if self.grants.get(&(peer, purpose)).is_some_and(|grant| grant.place.key == key) {
            self.grants.remove(&(peer, purpose));
        }
        if peer == self.me {
            self.remotes.revoke(peer, purpose, key);
        } else {
            self.control.tell(peer, &Message::Revoke { purpose, key });
        }
    }

    fn announce(&mut self, peer: ProcessId, purpose: Purpose) {
        let Some(Grant { place, bytes, access }) = self.grants.get(&(peer, purpose)).copied() else { return };
        if peer == self.me {
            self.remotes.grant(peer, purpose, Granted { place, bytes, access });
        } else {
            let RemoteKey { key, base } = place;
            self.control.tell(peer, &Message::Grant { purpose, key, base, bytes, access });
        }
    }

    /// Sends all grants to a peer that has connected.
    pub(crate) fn announce_grants(&mut self, peer: ProcessId) {
        let purposes: Vec<_> = self.grants.keys().filter(|(to, _)| *to == peer).map(|(_, purpose)| *purpose).collect();
        purposes.into_iter().for_each(|purpose| self.announce(peer, purpose));
    }
}
