//! Queue pairs of the connection manager: created by both ends, connected over the control connection, broken and
//! reset.

use std::time::{Duration, Instant};

use stentor_fabric::{ConnectError, Event, ProcessId, QpConfig, QpId, QpKind, QpState, Service, Status};

use super::ConnectionManager;
use super::sets::Sets;
use super::transport::Transport;
use crate::control::{PeerEvent, started_again};
use crate::hello::{NOBODY, nonce};
use crate::message::{End, Message, Offer};
use crate::remotes::{Granted, RemoteKey};

/// One queue pair, as this process sees it.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: ProcessId,
    service: Service,
    config: QpConfig,
    pub(crate) state: QpState,
    /// Number of the current life of the queue pair.
    connection_id: u32,
    ours: Option<End>,
    /// Connection id and address of the peer's end to which this life is connected.
    with: Option<(u32, End)>,
    /// Time at which the peer withdrew its end or offered another life of it. Its earlier packets may still be in
    /// flight.
    withdrawn: Option<Instant>,
    /// Connection id of the peer's offer to which this end could not be connected, and the time of the last attempt.
    unmet: Option<(u32, Instant)>,
    /// `true` if the peer has connected its end to this life. The peer may do so before this end has connected to the
    /// peer's end.
    is_met: bool,
    /// Index of the fan-out set of which this queue pair is the local end; `None` if the queue pair has a peer.
    pub(crate) set: Option<usize>,
}

impl Connection {
    /// Creates a queue pair whose first life has not begun.
    fn new((peer, service): (ProcessId, Service), config: QpConfig, set: Option<usize>) -> Connection {
        Connection {
            peer,
            service,
            config,
            state: QpState::Connecting,
            connection_id: u32::from_be_bytes(nonce()) & 0xffff,
            ours: None,
            with: None,
            withdrawn: None,
            unmet: None,
            is_met: false,
            set,
        }
    }

    fn is_with(&self, connection_id: u32) -> bool {
        self.with.as_ref().is_some_and(|(with, _)| *with == connection_id)
    }
}

/// Interval between attempts to connect to an offer. A missing route, port or address may become available.
const AGAIN: Duration = Duration::from_millis(100);
/// Time after a peer's withdrawal before this end breaks. Packets that the peer sent before the withdrawal may arrive
/// that much later.
const GRACE: Duration = Duration::from_millis(30);

impl<S: Sets> ConnectionManager<S> {
    /// Creates an end. `make` creates the fabric's part of it for the given id. If the first life cannot begin, the
    /// next queue pair gets the same id.
    ///
    /// # Errors
    /// Returns a [`ConnectError`], which may be that of `make`.
    pub fn connect(
        &mut self,
        transport: &mut S::Transport,
        (peer, service): (ProcessId, Service),
        config: QpConfig,
        make: impl FnOnce(&mut S::Transport, QpId) -> Result<(), ConnectError>,
    ) -> Result<QpId, ConnectError> {
        if peer.index() >= self.processes {
            return Err(ConnectError::UnknownProcess(peer));
        }
        if self.index_of(peer, service).is_some() {
            return Err(ConnectError::Duplicate { peer, service });
        }
        let qp = QpId(self.connections.len() as u32);
        make(transport, qp)?;
        self.connections.push(Connection::new((peer, service), config, None));
        let begun = self.begin(transport, qp.index());
        if begun.is_err() {
            self.connections.pop();
        }
        begun.map(|()| qp)
    }

    /// Begins the next life of a broken end.
    ///
    /// # Errors
    /// Returns a [`ConnectError`]; the state of the end is then unchanged.
    pub fn reset(&mut self, transport: &mut S::Transport, qp: QpId) -> Result<(), ConnectError> {
        self.report_broken(transport);
        let own = self.connections.get_mut(qp.index()).ok_or(ConnectError::UnknownQp(qp))?;
        if own.state != QpState::Error {
            return Err(ConnectError::NotBroken { qp, state: own.state });
        }
        own.connection_id += 1;
        match own.set {
            Some(set) => S::begin(self, transport, set),
            None => self.begin(transport, qp.index()),
        }
    }

    /// Returns the last known state of a queue pair. The queue pair may have broken since.
    #[inline]
    #[must_use]
    pub fn state(&self, qp: QpId) -> Option<QpState> {
        self.connections.get(qp.index()).map(|own| own.state)
    }

    /// Returns the peer of a queue pair: this process itself for its end of a fan-out set.
    #[must_use]
    pub fn peer(&self, qp: QpId) -> Option<ProcessId> {
        self.connections.get(qp.index()).map(|own| if own.set.is_some() { self.me } else { own.peer })
    }

    /// Sets the state of a queue pair that is this process's end of a fan-out set.
    ///
    /// # Panics
    /// Panics if there is no such queue pair.
    pub fn set_state(&mut self, qp: QpId, state: QpState) {
        self.connections[qp.index()].state = state;
    }

    /// Adds this process's end of a fan-out set, as a queue pair whose first life has not begun.
    pub fn add_set(&mut self, config: QpConfig, set: usize) -> QpId {
        let qp = QpId(self.connections.len() as u32);
        self.connections.push(Connection::new((NOBODY, Service(0)), config, Some(set)));
        qp
    }

    /// Removes the queue pair that was added last.
    pub fn forget_last(&mut self) {
        self.connections.pop();
    }

    /// Returns the index of the set whose local end a queue pair is.
    #[inline]
    #[must_use]
    pub fn set_of(&self, qp: QpId) -> Option<usize> {
        self.connections.get(qp.index())?.set
    }

    /// Returns the id of the next queue pair.
    #[must_use]
    pub fn next_qp(&self) -> QpId {
        QpId(self.connections.len() as u32)
    }

    /// Asks a receiver whether it has left a generation of a set. The answer arrives at [`Sets::left`].
    pub fn ask_to_leave(&mut self, receiver: ProcessId, (set, generation): (u16, u64)) {
        self.control.tell(receiver, &Message::Ask { set, generation });
    }

    /// Notifies the sender of a set that this process has left a generation.
    pub fn say_left(&mut self, sender: ProcessId, (set, generation): (u16, u64)) {
        self.control.tell(sender, &Message::Left { set, generation });
    }

    /// Returns the parameters of a queue pair.
    #[inline]
    #[must_use]
    pub fn config(&self, qp: QpId) -> Option<QpConfig> {
        self.connections.get(qp.index()).map(|own| own.config)
    }

    fn begin(&mut self, transport: &mut S::Transport, index: usize) -> Result<(), ConnectError> {
        let own = &mut self.connections[index];
        let begun = transport.begin(QpId(index as u32));
        let peer = own.peer;
        match begun {
            Ok(end) => {
                (own.state, own.ours, own.with) = (QpState::Connecting, Some(end), None);
                (own.withdrawn, own.unmet, own.is_met) = (None, None, false);
                self.offer(index);
                self.meet(transport, index);
                Ok(())
            }
            Err(reason) => {
                own.state = QpState::Error;
                Err(ConnectError::System { peer, reason })
            }
        }
    }

    /// Sends the offer of an end to the peer, if the peer is connected. If the process is its own peer, stores the
    /// offer.
    fn offer(&mut self, index: usize) {
        let own = &self.connections[index];
        let (Some(end), peer) = (own.ours.clone(), own.peer) else { return };
        let unreliable = own.config.kind == QpKind::Unreliable;
        let offer = Offer { service: own.service, unreliable, connection_id: own.connection_id, end };
        if peer == self.me {
            self.control.peers[peer.index()].offers.insert(offer.service, offer);
        } else {
            self.control.tell(peer, &Message::Offer(offer));
        }
    }

    /// Connects an end to the peer's offer, if both exist.
    fn meet(&mut self, transport: &mut S::Transport, index: usize) {
        let own = &self.connections[index];
        let known = &self.control.peers[own.peer.index()];
        let (Some(offer), Some(ours)) = (known.offers.get(&own.service), &own.ours) else { return };
        if own.state != QpState::Connecting || own.with.is_some() {
            return;
        }
        let (peer, service, connection_id) = (own.peer, own.service, offer.connection_id);
        if offer.unreliable != (own.config.kind == QpKind::Unreliable) {
            let reason = format!("both made {service:?}, of different kinds: one is unreliable");
            self.control.refuse_peer(peer, reason);
            return;
        }
        let with = (connection_id, offer.end.clone());
        let known = own.unmet.is_some_and(|(unmet, _)| unmet == connection_id);
        if let Err(error) = transport.meet(QpId(index as u32), ours, &with.1) {
            self.connections[index].unmet = Some((connection_id, Instant::now()));
            if !known {
                self.control.refuse_peer(peer, format!("it offered a queue pair that cannot be connected: {error}"));
            }
            return;
        }
        let own = &mut self.connections[index];
        (own.with, own.unmet) = (Some(with), None);
        let is_met = own.is_met || peer == self.me;
        if peer != self.me {
            self.control.tell(peer, &Message::Ready { service, connection_id });
        }
        if is_met {
            self.connected(transport, index);
        }
    }

    /// Records that the peer accepts requests, and makes the end ready if it is connected to the peer's end.
    fn connected(&mut self, transport: &mut S::Transport, index: usize) {
        let own = &mut self.connections[index];
        own.is_met = true;
        let (Some(ours), Some((_, theirs))) = (&own.ours, &own.with) else { return };
        let (qp, peer) = (QpId(index as u32), own.peer);
        match transport.ready(qp, ours, theirs) {
            Ok(()) => {
                own.state = QpState::Ready;
                self.control.events.push_back(Event::Connected { qp, peer });
            }
            Err(error) => {
                self.control
                    .refuse_peer(peer, format!("a queue pair that it has connected cannot become ready: {error}"));
                self.break_connection(transport, index, Status::Flushed);
            }
        }
    }

    fn index_of(&self, peer: ProcessId, service: Service) -> Option<usize> {
        self.connections.iter().position(|own| (own.peer, own.service) == (peer, service))
    }

    /// Runs one round: accepts connections, dials, receives messages, and handles them.
    pub fn pump(&mut self, transport: &mut S::Transport) {
        self.report_broken(transport);
        for heard in self.control.pump() {
            match heard {
                PeerEvent::Joined(peer) => {
                    self.announce_grants(peer);
                    for index in 0..self.connections.len() {
                        if self.connections[index].peer == peer && self.connections[index].state != QpState::Error {
                            self.offer(index);
                        }
                    }
                }
                PeerEvent::Said(peer, message) => self.hear(transport, peer, message),
                PeerEvent::Lost(peer) => self.lose(transport, peer),
            }
        }
        for index in 0..self.connections.len() {
            if self.connections[index].withdrawn.is_some_and(|since| since.elapsed() > GRACE) {
                transport.drive();
                self.break_connection(transport, index, Status::RetryExceeded);
            }
            if self.connections[index].unmet.is_some_and(|(_, tried)| tried.elapsed() > AGAIN) {
                self.meet(transport, index);
            }
        }
        S::pump(self, transport);
        self.report_broken(transport);
    }

    fn hear(&mut self, transport: &mut S::Transport, peer: ProcessId, message: Message) {
        self.control.peers[peer.index()].taken = message == Message::Taken;
        match message {
            Message::Taken => {
                let reason =
                    "it reports that another process is connected under this process's id: give each an id of its own";
                self.control.refuse_peer(peer, reason.to_owned());
            }
            Message::Again => {
                self.control.peers[peer.index()].dial_later();
                let reason = format!("it was connected to an earlier start of this process: {}", started_again());
                self.control.refuse_peer(peer, reason);
            }
            Message::Offer(offer) => self.hear_offer(transport, peer, offer),
            Message::Ready { service, connection_id } => {
                if let Some(index) = self.index_of(peer, service)
                    && self.connections[index].connection_id == connection_id
                    && self.connections[index].state == QpState::Connecting
                {
                    self.connected(transport, index);
                }
            }
            Message::Withdraw { service, connection_id } => {
                let offers = &mut self.control.peers[peer.index()].offers;
                if offers.get(&service).is_some_and(|offer| offer.connection_id == connection_id) {
                    offers.remove(&service);
                }
                let Some(index) = self.index_of(peer, service) else { return };
                let own = &mut self.connections[index];
                own.is_met &= own.with.is_some();
                if own.is_with(connection_id) && own.state != QpState::Error {
                    own.withdrawn.get_or_insert_with(Instant::now);
                    transport.withdrawn(QpId(index as u32));
                }
                // The peer has dropped this end's offer together with its own. This end has not connected to the peer
                // yet, so it is offered again.
                if own.with.is_none() && own.state == QpState::Connecting {
                    self.offer(index);
                }
            }
            Message::Grant { purpose, key, base, bytes, access } => {
                let place = RemoteKey { key, base };
                transport.granted(peer, key);
                self.remotes.grant(peer, purpose, Granted { place, bytes, access });
            }
            Message::Revoke { purpose, key } => self.remotes.revoke(peer, purpose, key),
            Message::Ask { set, generation } => S::asked_to_leave(self, transport, peer, (set, generation)),
            Message::Left { set, generation } => S::left(self, peer, (set, generation)),
        }
    }

    fn hear_offer(&mut self, transport: &mut S::Transport, peer: ProcessId, offer: Offer) {
        let (service, connection_id) = (offer.service, offer.connection_id);
        self.control.peers[peer.index()].offers.insert(service, offer);
        if let Some(index) = self.index_of(peer, service) {
            let own = &mut self.connections[index];
            // The previous life of the peer's end may have connected to this end; the new life has not.
            own.is_met &= own.with.is_some();
            // The peer's end has a new life, so this end belongs to the old one.
            if own.with.is_some() && !own.is_with(connection_id) && own.state != QpState::Error {
                own.withdrawn.get_or_insert_with(Instant::now);
                transport.withdrawn(QpId(index as u32));
            }
            self.meet(transport, index);
        }
    }

    /// Handles the loss of a peer. The acknowledgements that it sent before are processed first.
    fn lose(&mut self, transport: &mut S::Transport, peer: ProcessId) {
        transport.drive();
        for index in 0..self.connections.len() {
            let own = &mut self.connections[index];
            if own.peer != peer {
                continue;
            }
            own.is_met = false;
            if own.state == QpState::Ready || own.with.is_some() {
                self.break_connection(transport, index, Status::RetryExceeded);
            }
        }
        S::lost(self, transport, peer);
        // An offer that arrived in the same round as the loss is also from before the loss.
        self.control.peers[peer.index()].offers.clear();
        self.remotes.forget(peer);
    }

    /// Breaks all queue pairs to a peer.
    pub fn break_all(&mut self, transport: &mut S::Transport, peer: ProcessId) {
        for index in 0..self.connections.len() {
            if self.connections[index].peer == peer {
                self.break_connection(transport, index, Status::RetryExceeded);
            }
        }
    }

    /// Breaks a queue pair, unless it is broken already. Outstanding requests fail with `status`.
    pub fn break_one(&mut self, transport: &mut S::Transport, qp: QpId, status: Status) {
        self.break_connection(transport, qp.index(), status);
    }

    fn break_connection(&mut self, transport: &mut S::Transport, index: usize, status: Status) {
        if self.connections[index].state != QpState::Error {
            transport.fail(QpId(index as u32), status);
            self.tell_broken(index);
        }
    }

    /// Records the queue pairs that broke by themselves.
    pub fn report_broken(&mut self, transport: &mut S::Transport) {
        while let Some(qp) = transport.next_broken() {
            if self.connections.get(qp.index()).is_some_and(|own| own.state != QpState::Error) {
                self.tell_broken(qp.index());
            }
        }
    }

    fn tell_broken(&mut self, index: usize) {
        let own = &mut self.connections[index];
        if let Some(set) = own.set {
            return S::broke(self, set);
        }
        (own.state, own.withdrawn, own.unmet) = (QpState::Error, None, None);
        let (peer, service, connection_id) = (own.peer, own.service, own.connection_id);
        own.with = None;
        // The peer's offer is valid only for the life that has just broken: the peer's end may have connected to that
        // life, whether or not this end has connected to the peer's. If the next life connected to that offer, each end
        // would be connected to an end that the other has abandoned, and this could repeat for ever. A peer that has
        // connected to no end offers again when it receives the withdrawal.
        self.control.peers[peer.index()].offers.remove(&service);
        if peer != self.me {
            self.control.tell(peer, &Message::Withdraw { service, connection_id });
        }
        self.control.events.push_back(Event::Disconnected { qp: QpId(index as u32), peer });
    }
}
