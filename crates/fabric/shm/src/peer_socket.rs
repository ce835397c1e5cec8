//! A connection to one peer.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::message::Message;
use crate::socket;

/// Maximum number of packets that wait for a peer that does not read. Beyond it the connection counts as dead.
const MAX_OUTBOX: usize = 4096;

/// A packet and its descriptors.
type Packet = (Vec<u8>, Vec<Arc<OwnedFd>>);

/// A connected socket and the packets that could not be sent yet.
#[derive(Debug)]
pub(crate) struct PeerSocket {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) pid: i32,
    outbox: VecDeque<Packet>,
    /// `true` if the connection is over, for example because a send has failed or too many packets wait, or if it was
    /// moved out.
    pub(crate) dead: bool,
}

impl PeerSocket {
    pub(crate) fn new(socket: OwnedFd, pid: i32) -> Self {
        PeerSocket { socket: Arc::new(socket), pid, outbox: VecDeque::new(), dead: false }
    }

    /// Moves this connection out, and leaves a dead one in its place.
    pub(crate) fn take(&mut self) -> PeerSocket {
        let (socket, pid, dead) = (Arc::clone(&self.socket), self.pid, self.dead);
        self.dead = true;
        PeerSocket { socket, pid, outbox: std::mem::take(&mut self.outbox), dead }
    }

    /// Sends a message, or queues it until the peer reads.
    pub(crate) fn send(&mut self, message: &Message, fds: &[Arc<OwnedFd>]) {
        if self.outbox.len() >= MAX_OUTBOX {
            self.dead = true;
            return;
        }
        self.outbox.push_back((message.encode(), fds.to_vec()));
        self.drain();
    }

    /// Returns whether packets wait to be sent.
    pub(crate) fn is_behind(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends the waiting packets.
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
