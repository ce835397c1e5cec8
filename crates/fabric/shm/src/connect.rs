//! Queue pairs: creating them and connecting both ends.
//!
//! An end becomes known to the peer when it is *offered*, with a fresh queue, over the current connection. A queue pair
//! is ready at one end when that end was offered and the other end's offer has arrived. When an end breaks, it
//! withdraws its offer and forgets the other end's. Both ends must therefore be offered again before either is ready
//! again.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io;
use stentor_fabric::memory::WORD;
use stentor_fabric::{ConnectError, Event, OsError, ProcessId, QpConfig, QpId, QpState, Service, Status};

use crate::control::{PeerOffer, REFUSED_PAUSE};
use crate::fabric::ShmFabric;
use crate::mapping::Mapping;
use crate::message::Message;
use crate::qp::Qp;
use crate::queue::{Consumer, Producer, Shape};
use stentor_host::memfd;

impl ShmFabric {
    fn shape(&self, config: QpConfig) -> Shape {
        Shape::new(config.recv_depth, u64::from(self.config.message_bytes))
    }

    pub(crate) fn queue_bytes(&self, config: QpConfig) -> u64 {
        self.shape(config).words() * WORD as u64
    }

    pub(crate) fn make_qp(
        &mut self,
        peer: ProcessId,
        service: Service,
        config: QpConfig,
    ) -> Result<QpId, ConnectError> {
        if peer.0 >= self.config.processes {
            return Err(ConnectError::UnknownProcess(peer));
        }
        let depths = [
            ("send queue", config.send_depth, self.data.capabilities.max_send_depth),
            ("receive queue", config.recv_depth, self.data.capabilities.max_recv_depth),
        ];
        if let Some((what, asked, limit)) = depths.into_iter().find(|(_, asked, limit)| asked > limit) {
            return Err(ConnectError::TooDeep { what, asked, limit });
        }
        if self.find_qp(peer, service).is_some() {
            return Err(ConnectError::Duplicate { peer, service });
        }
        let (used, asked, limit) = (self.memory_bytes(), self.queue_bytes(config), self.config.max_bytes);
        if used.saturating_add(asked) > limit {
            let reason = format!("{asked} bytes for its queue on top of {used} are above max_bytes, {limit}");
            return Err(ConnectError::System { peer, reason });
        }
        if let Some(reason) = self.control.peers[peer.index()].refused.take() {
            return Err(ConnectError::Refused { peer, reason });
        }
        if peer == self.config.me {
            let queue = self.own_queue(config)?;
            let qp = self.data.add_qp(Qp::new(peer, service, config));
            self.tie(qp.index(), queue);
            return Ok(qp);
        }
        let qp = self.data.add_qp(Qp::new(peer, service, config));
        self.control.expect_connections();
        self.offer(qp.index());
        Ok(qp)
    }

    pub(crate) fn disconnect_qp(&mut self, qp: QpId) -> Result<(), ConnectError> {
        if self.data.qps.get(qp.index()).ok_or(ConnectError::UnknownQp(qp))?.state == QpState::Ready {
            self.data.flush();
            self.data.receive();
            self.data.fail(qp.index(), Status::Flushed);
        }
        Ok(())
    }

    pub(crate) fn reset_qp(&mut self, qp: QpId) -> Result<(), ConnectError> {
        let Qp { state, peer, config, .. } = *self.data.qps.get(qp.index()).ok_or(ConnectError::UnknownQp(qp))?;
        if state != QpState::Error {
            return Err(ConnectError::NotBroken { qp, state });
        }
        // The peer must receive the withdrawal of the old end before the offer of the new one.
        self.report_broken();
        if peer == self.config.me {
            let queue = self.own_queue(config)?;
            self.data.qps[qp.index()].reset();
            self.tie(qp.index(), queue);
            return Ok(());
        }
        self.data.qps[qp.index()].reset();
        self.control.expect_connections();
        self.offer(qp.index());
        Ok(())
    }

    pub(crate) fn find_qp(&self, peer: ProcessId, service: Service) -> Option<usize> {
        self.data.qps.iter().position(|qp| qp.peer == peer && qp.service == service)
    }

    /// Allocates the queue of a queue pair that is connected to itself, and maps it for both ends. The caller does this
    /// first: without a queue such a queue pair would wait for ever, because no peer connects later.
    fn own_queue(&self, config: QpConfig) -> Result<[Mapping; 2], ConnectError> {
        let shape = self.shape(config);
        let made = make_queue(shape)
            .and_then(|(queue, fd)| Ok([queue, Mapping::shared(fd.as_fd(), shape.words() as usize, false)?]));
        made.map_err(|error| ConnectError::System { peer: self.config.me, reason: no_memory(error) })
    }

    /// Connects a queue pair to itself.
    fn tie(&mut self, index: usize, [inbound, outbound]: [Mapping; 2]) {
        let (peer, config) = (self.data.qps[index].peer, self.data.qps[index].config);
        let shape = self.shape(config);
        let qp = &mut self.data.qps[index];
        let mut consumer = Consumer::new(shape);
        for receive in &qp.receives {
            consumer.post(inbound.words(), receive.span.bytes);
        }
        (qp.inbound, qp.outbound) = (Some((consumer, inbound)), Some((Producer::new(shape), outbound)));
        qp.state = QpState::Ready;
        self.control.events.push_back(Event::Connected { qp: QpId(index as u32), peer });
    }

    /// Offers an end to the peer, if the peer is connected.
    pub(crate) fn offer(&mut self, index: usize) {
        let qp = &self.data.qps[index];
        let (peer, service, config, epoch) = (qp.peer, qp.service, qp.config, qp.epoch);
        if qp.state != QpState::Connecting || qp.offered || self.control.peers[peer.index()].link.is_none() {
            return;
        }
        let shape = self.shape(config);
        let (queue, fd) = match make_queue(shape) {
            Ok(made) => made,
            Err(error) => {
                self.control.next_offers = Some(Instant::now() + REFUSED_PAUSE);
                return self.control.refuse_named(peer, &format!("cannot be connected, because {}", no_memory(error)));
            }
        };
        let qp = &mut self.data.qps[index];
        let mut consumer = Consumer::new(shape);
        for receive in &qp.receives {
            consumer.post(queue.words(), receive.span.bytes);
        }
        qp.inbound = Some((consumer, queue));
        qp.offered = true;
        let (ring_words, receives) = (shape.ring(), config.recv_depth);
        let message = Message::Offer { service, kind: config.kind, epoch, ring_words, receives };
        self.tell(peer, &message, &[fd]);
        self.pair(index);
    }

    /// Repeats the offers that failed because no queue could be allocated.
    pub(crate) fn offer_again(&mut self) {
        if self.control.next_offers.is_some_and(|at| at <= Instant::now()) {
            self.control.next_offers = None;
            (0..self.data.qps.len()).for_each(|index| self.offer(index));
        }
    }

    /// Makes the queue pair ready if both ends are offered.
    pub(crate) fn pair(&mut self, index: usize) {
        let qp = &mut self.data.qps[index];
        let Some(offer) = self.control.peers[qp.peer.index()].offers.get_mut(&qp.service) else { return };
        if qp.state != QpState::Connecting || !qp.offered {
            return;
        }
        let Some(queue) = offer.queue.take() else { return };
        qp.outbound = Some((Producer::new(offer.shape), queue));
        qp.state = QpState::Ready;
        self.control.events.push_back(Event::Connected { qp: QpId(index as u32), peer: qp.peer });
    }

    /// Handles the offer of a peer's end.
    pub(crate) fn offered(&mut self, peer: ProcessId, service: Service, offer: PeerOffer) -> Result<(), String> {
        let mine = self.find_qp(peer, service);
        if let Some(index) = mine {
            let qp = &self.data.qps[index];
            if qp.config.kind != offer.kind {
                let (ours, theirs) = (qp.config.kind, offer.kind);
                return Err(format!("{service:?} is {ours:?} here and {theirs:?} there"));
            }
            if qp.state == QpState::Ready {
                return Err(format!("{service:?} was offered again without being withdrawn"));
            }
        }
        self.control.peers[peer.index()].offers.insert(service, offer);
        if let Some(index) = mine {
            self.pair(index);
        }
        Ok(())
    }

    /// Handles the withdrawal of a peer's end.
    pub(crate) fn withdrawn(&mut self, peer: ProcessId, service: Service, epoch: u32) {
        let offers = &mut self.control.peers[peer.index()].offers;
        if offers.get(&service).is_none_or(|offer| offer.epoch != epoch) {
            return;
        }
        offers.remove(&service);
        if let Some(index) = self.find_qp(peer, service)
            && self.data.qps[index].state == QpState::Ready
        {
            self.data.flush();
            self.data.receive();
            self.data.fail(index, Status::Flushed);
        }
    }

    /// Reports broken queue pairs to the user and to their peers.
    pub(crate) fn report_broken(&mut self) {
        while let Some(index) = self.data.broken.pop() {
            let qp = &mut self.data.qps[index as usize];
            let (peer, service, epoch) = (qp.peer, qp.service, qp.epoch);
            let offered = std::mem::take(&mut qp.offered);
            self.control.events.push_back(Event::Disconnected { qp: QpId(index), peer });
            self.control.peers[peer.index()].offers.remove(&service);
            if offered {
                self.tell(peer, &Message::Withdraw { service, epoch }, &[]);
            }
        }
    }
}

fn no_memory(error: io::Errno) -> String {
    format!("no memory for a queue can be allocated: {}", OsError(error.raw_os_error()).with_remedy())
}

fn make_queue(shape: Shape) -> io::Result<(Mapping, Arc<OwnedFd>)> {
    let words = shape.words();
    let fd = memfd::create("stentor-queue", words * WORD as u64)?;
    let queue = Mapping::shared(fd.as_fd(), words as usize, false)?;
    memfd::finish(&fd)?;
    Ok((queue, Arc::new(fd)))
}
