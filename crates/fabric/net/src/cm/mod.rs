//! What a fabric has of its peers.

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

/// Peers, connections with them, and what was granted both ways.
#[derive(Debug)]
pub struct ConnectionManager<S> {
    pub(crate) me: ProcessId,
    pub(crate) processes: usize,
    pub(crate) control: Control,
    pub(crate) connections: Vec<Connection>,
    pub(crate) remotes: Remotes,
    /// Sets, and what they know.
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
    /// Listens: from here on peers can connect. `fabric` has 1 to 64 bytes and is equal at every process, except that `roce` and
    /// `verbs`, which both speak RoCEv2, connect with each other.
    ///
    /// # Errors
    /// See [`StartError`].
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

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.control.events.pop_front()
    }

    /// Whether there is one.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.control.events.is_empty()
    }

    /// Tells of something that the fabric itself has done.
    pub fn tell(&mut self, event: Event) {
        self.control.events.push_back(event);
    }

    /// The next connection that was refused. The newest 64 are kept, each once.
    pub fn next_refusal(&mut self) -> Option<Refusal> {
        self.control.refusals.pop_front()
    }

    /// The next thing about names and addresses that a person should know. The newest 64 are kept.
    pub fn next_name_note(&mut self) -> Option<String> {
        self.control.names.notes.pop_front()
    }

    /// Names a peer for people, with its address in the configuration.
    #[must_use]
    pub fn name_of(&self, peer: ProcessId) -> String {
        self.control.names.shown(peer.index())
    }

    /// Why the name of a peer led to no address when it was looked up last, if it did not.
    #[must_use]
    pub fn unresolved(&self, peer: ProcessId) -> Option<&str> {
        self.control.names.fault(peer.index())
    }

    /// The next question of somebody who has the key and is no process, with a number for its [`answer`](Self::answer).
    pub fn next_question(&mut self) -> Option<(u64, Vec<u8>)> {
        self.control.askers.next()
    }

    /// Answers a question. Of what is longer than [`MAX_ANSWER`](crate::ask::MAX_ANSWER) the end is left out.
    pub fn answer(&mut self, question: u64, answer: &[u8]) {
        self.control.askers.answer(question, answer);
    }

    /// Returns the next line of an observer. From then on it is the caller's.
    pub fn next_observer(&mut self) -> Option<crate::observe::Line> {
        self.control.observers.next()
    }

    /// Whether the control connection of a peer ended because its process closed it or is gone, and it has not come back. A peer that was
    /// silent for too long has not died.
    #[inline]
    #[must_use]
    pub fn has_died(&self, peer: ProcessId) -> bool {
        self.control.peers.get(peer.index()).is_some_and(|known| known.died)
    }

    /// Whether a peer says that another process with this one's id is connected to it.
    #[must_use]
    pub fn is_displaced(&self) -> bool {
        self.control.peers.iter().any(|peer| peer.taken)
    }

    /// Whether a peer is connected.
    #[must_use]
    pub fn is_linked(&self, peer: ProcessId) -> bool {
        peer == self.me || peer.index() < self.processes && self.control.is_linked(peer)
    }

    /// Whether a peer that could be there is not.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        self.control.is_connecting() || self.sets.is_connecting()
    }

    /// Whether something here is due by the passing of time alone, within milliseconds: a peer is dialled again, or a
    /// handshake or what copies for sets is waited for. A peer that dials this process wakes whoever waits for the
    /// [sockets](ConnectionManager::sockets).
    #[must_use]
    pub fn is_dialling(&self) -> bool {
        self.control.is_dialling() || self.sets.is_connecting()
    }

    /// Returns this process.
    #[must_use]
    pub fn me(&self) -> ProcessId {
        self.me
    }

    /// How many processes the cluster has.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes
    }

    /// The sockets to wait for: those that were closed have left by themselves, new ones come with every
    /// [`pump`](ConnectionManager::pump).
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let cm = std::iter::once(self.control.listener().as_fd()).chain(self.control.sockets().map(AsFd::as_fd));
        cm.chain(self.sets.socket())
    }

    /// How many of [`sockets`](Self::sockets) there ever were: there is none that was not there before while this stays the
    /// same. `None`: one of them is that of [`sets`](Self::sets), which is made anew at any time.
    #[must_use]
    pub fn sockets_made(&self) -> Option<u64> {
        self.sets.socket().is_none().then_some(self.control.begun)
    }

    /// What peers have granted.
    #[inline]
    #[must_use]
    pub fn remotes(&self) -> &Remotes {
        &self.remotes
    }

    /// A peer may use a region: it is told, now or when it joins; the process itself hears of it at once. The regions that one
    /// peer may use have different purposes.
    pub fn grant(&mut self, peer: ProcessId, purpose: Purpose, place: RemoteKey, bytes: u64, access: Access) {
        self.grants.insert((peer, purpose), Grant { place, bytes, access });
        self.announce(peer, purpose);
    }

    /// It may not any more.
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

    /// Tells a peer that joined of everything that it was granted.
    pub(crate) fn announce_grants(&mut self, peer: ProcessId) {
        let purposes: Vec<_> = self.grants.keys().filter(|(to, _)| *to == peer).map(|(_, purpose)| *purpose).collect();
        purposes.into_iter().for_each(|purpose| self.announce(peer, purpose));
    }
}
