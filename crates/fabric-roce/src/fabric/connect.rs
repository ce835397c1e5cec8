//! Queue pairs: made by both ends, brought together over the bootstrap connection, broken, reset.
//!
//! Both ends offer their queue pair. Who has the other's offer can receive, and says so; who hears that can send. So no
//! packet goes before the other end takes it.

use std::time::{Duration, Instant};

use stentor_fabric::{ConnectError, Event, ProcessId, QpConfig, QpId, QpKind, QpState, Service, Status};
use stentor_wire::{Psn, RnrTimer};

use super::control::{Heard, nonce, started_again};
use super::message::{Message, Offer};
use super::regions::domain;
use super::{DEPTH_LIMIT, RoceFabric};
use crate::endpoint::{Path, Sending, State};
use stentor_fabric::RemoteRegion;

/// One queue pair, as this process sees it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: ProcessId,
    pub(super) service: Service,
    pub(super) config: QpConfig,
    pub(super) state: QpState,
    /// Counts its lives.
    epoch: u32,
    psn: u32,
    /// The peer's epoch that this life is connected to.
    with: Option<u32>,
    /// The peer said that its end is broken: what it had to say before may still be on its way.
    withdrawn: Option<Instant>,
}

/// How long packets may be slower than the bootstrap connection.
const GRACE: Duration = Duration::from_millis(30);
/// Code of the transport timeout: 134 ms.
const TIMEOUT: u8 = 15;
/// READs and atomics at the same time.
const RD_ATOMIC: u8 = 16;
/// "Receiver not ready" in a row before giving up.
const RNR_RETRIES: u8 = 6;

impl RoceFabric {
    pub(super) fn make_qp(
        &mut self,
        peer: ProcessId,
        service: Service,
        config: QpConfig,
    ) -> Result<QpId, ConnectError> {
        if peer.index() >= self.config.addresses.len() {
            return Err(ConnectError::UnknownProcess(peer));
        }
        for (what, asked) in [("send queue", config.send_depth), ("receive queue", config.recv_depth)] {
            if asked > DEPTH_LIMIT {
                return Err(ConnectError::TooDeep { what, asked, limit: DEPTH_LIMIT });
            }
        }
        if self.connections.iter().any(|other| (other.peer, other.service) == (peer, service)) {
            return Err(ConnectError::Duplicate { peer, service });
        }
        let number = std::iter::repeat_with(|| self.endpoint.create(fresh_number(), domain(peer), config));
        let qp = number.take(1000).flatten().next();
        let reason = "no free queue pair number".to_owned();
        let qp = qp.ok_or(ConnectError::System { peer, reason })?;
        self.connections.push(Connection {
            peer,
            service,
            config,
            state: QpState::Connecting,
            epoch: u32::from_be_bytes(nonce()) & 0xffff,
            psn: fresh_number(),
            with: None,
            withdrawn: None,
        });
        self.begin(qp.index());
        Ok(qp)
    }

    pub(super) fn reset_qp(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.report_broken();
        let own = self.connections.get_mut(qp.index()).ok_or(ConnectError::UnknownQp(qp))?;
        if own.state != QpState::Error {
            return Err(ConnectError::NotBroken { qp, state: own.state });
        }
        own.epoch += 1;
        (own.state, own.psn) = (QpState::Connecting, fresh_number());
        self.endpoint.reset(qp).map_err(|_| ConnectError::UnknownQp(qp))?;
        while !self.endpoint.renumber(qp, fresh_number()) {}
        self.begin(qp.index());
        Ok(())
    }

    /// A life of a queue pair begins.
    fn begin(&mut self, index: usize) {
        let qp = QpId(index as u32);
        let begun = self.endpoint.init(qp);
        debug_assert_eq!(begun, Ok(()));
        let own = &mut self.connections[index];
        (own.with, own.withdrawn) = (None, None);
        self.offer(index);
        self.meet(index);
    }

    fn own_offer(&self, index: usize) -> Offer {
        let own = &self.connections[index];
        Offer {
            service: own.service,
            unreliable: own.config.kind == QpKind::Unreliable,
            epoch: own.epoch,
            number: self.endpoint.number(QpId(index as u32)).unwrap_or_default(),
            psn: own.psn,
            mtu: self.config.mtu,
            runs: self.pump.port().takes_runs(),
        }
    }

    /// Tells the peer, if it is there. For a connection to itself the process is the peer.
    fn offer(&mut self, index: usize) {
        let offer = self.own_offer(index);
        let peer = self.connections[index].peer;
        if peer == self.config.me {
            let known = &mut self.control.peers[peer.index()];
            known.address = Some(self.pump.port().address());
            known.offers.insert(offer.service, offer);
        } else {
            self.control.tell(peer, &Message::Offer(offer));
        }
    }

    /// Connects to the peer's offer, if both are there.
    fn meet(&mut self, index: usize) {
        let own = &self.connections[index];
        let known = &self.control.peers[own.peer.index()];
        let (Some(offer), Some(address)) = (known.offers.get(&own.service).copied(), known.address) else { return };
        if own.state != QpState::Connecting || own.with.is_some() {
            return;
        }
        let (peer, service, epoch) = (own.peer, own.service, offer.epoch);
        let qp = QpId(index as u32);
        let ours = self.own_offer(index);
        if offer.unreliable != ours.unreliable {
            let me = self.config.me;
            self.control.refuse(format!("{peer} and {me} made {service:?} of different kinds: one is unreliable"));
            return;
        }
        let Ok(envelope) = self.pump.port().envelope(address) else { return };
        self.pump.port_mut().run_to(address, offer.runs);
        let path = Path {
            envelope,
            dest_qp: offer.number,
            expected_psn: Psn::new(offer.psn),
            mtu: ours.mtu.min(offer.mtu),
            max_dest_rd_atomic: RD_ATOMIC,
            min_rnr_timer: RnrTimer::at_least(self.config.rnr_timeout / u32::from(RNR_RETRIES)),
        };
        if let Err(error) = self.endpoint.ready_to_receive(qp, path) {
            self.control.refuse(format!("{peer} offered a queue pair that cannot be: {error}"));
            return;
        }
        self.connections[index].with = Some(epoch);
        if peer == self.config.me {
            self.connected(index);
        } else {
            self.control.tell(peer, &Message::Ready { service, epoch });
        }
    }

    /// The peer takes requests.
    fn connected(&mut self, index: usize) {
        let own = &mut self.connections[index];
        let qp = QpId(index as u32);
        let sending = Sending {
            timeout: TIMEOUT,
            rnr_retries: RNR_RETRIES,
            max_rd_atomic: RD_ATOMIC,
            window: self.config.window,
            ..Sending::new(Psn::new(own.psn))
        };
        if self.endpoint.ready_to_send(qp, sending).is_ok() {
            own.state = QpState::Ready;
            self.control.events.push_back(Event::Connected { qp, peer: own.peer });
        }
    }

    fn index_of(&self, peer: ProcessId, service: Service) -> Option<usize> {
        self.connections.iter().position(|own| (own.peer, own.service) == (peer, service))
    }

    /// One round of the control plane.
    pub(super) fn pump_control(&mut self) {
        self.last_pump = Instant::now();
        self.report_broken();
        for heard in self.control.pump() {
            match heard {
                Heard::Joined(peer) => {
                    self.announce_grants(peer);
                    for index in 0..self.connections.len() {
                        if self.connections[index].peer == peer && self.connections[index].state != QpState::Error {
                            self.offer(index);
                        }
                    }
                }
                Heard::Said(peer, message) => self.hear(peer, &message),
                Heard::Lost(peer) => self.lose(peer),
            }
        }
        for index in 0..self.connections.len() {
            if self.connections[index].withdrawn.is_some_and(|since| since.elapsed() > GRACE) {
                self.drive();
                self.break_connection(index, Status::RetryExceeded);
            }
        }
        self.report_broken();
        if let Err(error) = self.watch() {
            self.failure.get_or_insert(error.to_string());
        }
    }

    fn hear(&mut self, peer: ProcessId, message: &Message) {
        self.control.peers[peer.index()].taken = *message == Message::Taken;
        match *message {
            Message::Taken => {
                let me = self.config.me;
                self.control.refuse(format!("{peer} says that another process is connected as {me}"));
            }
            Message::Again => {
                let me = self.config.me;
                self.control.peers[peer.index()].dial_later();
                self.control.refuse(format!("{peer} knew {me} before it was started again: {}", started_again()));
            }
            Message::Offer(offer) => {
                self.control.peers[peer.index()].offers.insert(offer.service, offer);
                if let Some(index) = self.index_of(peer, offer.service) {
                    let own = &mut self.connections[index];
                    // A new life of the peer's end: ours belongs to the old one.
                    if own.with.is_some_and(|with| with != offer.epoch) && own.state != QpState::Error {
                        own.withdrawn.get_or_insert_with(Instant::now);
                    }
                    self.meet(index);
                }
            }
            Message::Ready { service, epoch } => {
                if let Some(index) = self.index_of(peer, service)
                    && self.connections[index].epoch == epoch
                    && self.connections[index].state == QpState::Connecting
                {
                    self.connected(index);
                }
            }
            Message::Withdraw { service, epoch } => {
                let offers = &mut self.control.peers[peer.index()].offers;
                if offers.get(&service).is_some_and(|offer| offer.epoch == epoch) {
                    offers.remove(&service);
                }
                if let Some(index) = self.index_of(peer, service)
                    && self.connections[index].with == Some(epoch)
                    && self.connections[index].state != QpState::Error
                {
                    self.connections[index].withdrawn.get_or_insert_with(Instant::now);
                }
            }
            Message::Grant { purpose, key, bytes, .. } => {
                self.remotes.insert((peer, purpose), RemoteRegion { peer, key: key.into(), bytes });
            }
            Message::Revoke { purpose, key } => {
                if self.remotes.get(&(peer, purpose)).is_some_and(|region| region.key == u64::from(key)) {
                    self.remotes.remove(&(peer, purpose));
                }
            }
        }
    }

    /// A peer is gone. What it acknowledged before is taken in first.
    fn lose(&mut self, peer: ProcessId) {
        self.drive();
        for index in 0..self.connections.len() {
            let own = &self.connections[index];
            if own.peer == peer && (own.state == QpState::Ready || own.with.is_some()) {
                self.break_connection(index, Status::RetryExceeded);
            }
        }
        self.remotes.retain(|(owner, _), _| *owner != peer);
    }

    /// Breaks a queue pair that is not broken.
    fn break_connection(&mut self, index: usize, status: Status) {
        if self.connections[index].state != QpState::Error {
            let broken = self.endpoint.break_qp(QpId(index as u32), status);
            debug_assert_eq!(broken, Ok(()));
            self.tell_broken(index);
        }
    }

    /// Queue pairs that the endpoint broke.
    fn report_broken(&mut self) {
        while let Some(qp) = self.endpoint.next_broken() {
            if self.endpoint.state(qp) == Some(State::Error) && self.connections[qp.index()].state != QpState::Error {
                self.tell_broken(qp.index());
            }
        }
    }

    fn tell_broken(&mut self, index: usize) {
        let own = &mut self.connections[index];
        (own.state, own.withdrawn) = (QpState::Error, None);
        let (peer, service, epoch) = (own.peer, own.service, own.epoch);
        // The peer's offer was for this life alone.
        let with = own.with.take();
        let offers = &mut self.control.peers[peer.index()].offers;
        if offers.get(&service).is_some_and(|offer| Some(offer.epoch) == with) {
            offers.remove(&service);
        }
        if peer != self.config.me {
            self.control.tell(peer, &Message::Withdraw { service, epoch });
        }
        self.control.events.push_back(Event::Disconnected { qp: QpId(index as u32), peer });
    }

    /// The state as posts see it: a queue pair may have broken a moment ago.
    pub(super) fn state_of(&self, qp: QpId) -> Option<QpState> {
        let own = self.connections.get(qp.index())?;
        let broken = self.endpoint.state(qp) == Some(State::Error);
        Some(if broken { QpState::Error } else { own.state })
    }
}

fn fresh_number() -> u32 {
    // 0 and 1 are the management queue pairs, 0xffffff is multicast.
    u32::from_be_bytes(nonce()) % 0xff_fff0 + 2
}
