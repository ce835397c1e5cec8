//! A connection to one peer.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::message::Message;
use crate::socket;

/// Packets that may wait for a peer that does not read. It is dead to us after that.
const MAX_OUTBOX: usize = 4096;

/// A packet and its descriptors.
type Packet = (Vec<u8>, Vec<Arc<OwnedFd>>);

/// A connected socket and what could not be sent yet.
#[derive(Debug)]
pub(crate) struct PeerSocket {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) pid: i32,
    outbox: VecDeque<Packet>,
    /// Sending failed: the other end is gone.
    pub(crate) dead: bool,
}

impl PeerSocket {
    pub(crate) fn new(socket: OwnedFd, pid: i32) -> Self {
        PeerSocket { socket: Arc::new(socket), pid, outbox: VecDeque::new(), dead: false }
    }

    /// This link, leaving a dead one.
    pub(crate) fn take(&mut self) -> PeerSocket {
        let (socket, pid, dead) = (Arc::clone(&self.socket), self.pid, self.dead);
        self.dead = true;
        PeerSocket { socket, pid, outbox: std::mem::take(&mut self.outbox), dead }
    }

    /// Sends a message, now or when the peer reads.
    pub(crate) fn send(&mut self, message: &Message, fds: &[Arc<OwnedFd>]) {
        if self.outbox.len() >= MAX_OUTBOX {
            self.dead = true;
            return;
        }
        self.outbox.push_back((message.encode(), fds.to_vec()));
        self.drain();
    }

    /// Whether something waits to be sent.
    pub(crate) fn is_behind(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends what waits.
    pub(crate) fn drain(&mut self) {
        while let Some((bytes, fds)) = self.outbox.front() {
            let borrowed: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            match socket::send(&self.socket, bytes, &borrowed) {
                Ok(true) => {
                    self.outbox.pop_front();
                }
                Ok(false) => return,
                Err(_) => {
                    self.dead = true;
                    self.outbox.clear();
                }
            }
        }
    }
}
