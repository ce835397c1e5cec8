//! The member's side of observers.
//!
//! # The way of a command
//! The [`Writer`] is the apply thread's. While somebody observes it appends what was applied to a block, and puts the block into the [`Tap`]
//! after each batch. A thread of its own takes the blocks into [`Kept`], the journal, and sends them to the [`Served`].
//!
//! # Invariants
//! - Neither the protocol's thread nor the apply thread waits for the thread of observers: the tap is a queue without a lock, and what does
//!   not fit into its bound is left out of the journal.
//! - The bounds: blocks in the tap and in the journal together `observed_mib` and two of the longest commands; a frame for each observer;
//!   of a state that is given, 16 pieces.
//! - A member that nobody observes has no journal, and its apply thread looks at one flag for each command and for each batch.

mod convoy;
mod kept;
mod ring;
mod served;
mod server;
mod tap;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use stentor_multicast::GroupId;

use super::mailbox::Mailbox;
use crate::observer::frame::LONGEST_ASKED;
use crate::observer::line::Line;
use crate::operator::ObserverLine;
use crate::runtime::ClusterRuntime;
use server::{Arrival, Server};

pub(super) use tap::{Applied, Tap, Writer};

/// Wakes the apply thread, so that it looks at the tap.
pub(super) type Wake = Box<dyn Fn() + Send>;

/// What a member's thread of observers is told at its start.
struct Terms {
    name: String,
    fingerprint: u64,
    group: GroupId,
    /// Bytes of the journal.
    most: usize,
}

/// How a member stands when an observer comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stands {
    pub(super) leads: bool,
    /// It has no state of its group.
    pub(super) joins: bool,
}

/// The observers of a member, as its protocol's thread has them.
pub(super) struct Observers {
    tap: Arc<Tap>,
    /// What the thread is started with; `None`: it was.
    idle: Option<(Terms, Wake)>,
    arrivals: Mailbox<Arrival>,
    /// Wakes the thread.
    bell: Option<Arc<OwnedFd>>,
}

impl Observers {
    pub(super) fn new(name: &str, group: GroupId, runtime: &ClusterRuntime, tap: &Arc<Tap>, wake: Wake) -> Self {
        let terms =
            Terms { name: name.to_owned(), fingerprint: runtime.config().fingerprint(), group, most: tap.journal() };
        Observers { tap: Arc::clone(tap), idle: Some((terms, wake)), arrivals: Mailbox::default(), bell: None }
    }

    /// Takes the line of an observer.
    ///
    /// # Errors
    /// If there can be no thread for it.
    #[cold]
    pub(super) fn admit(&mut self, line: ObserverLine, stands: Stands) -> io::Result<()> {
        let line = match line {
            ObserverLine::Here(stream) => Line::unix(stream, LONGEST_ASKED, Vec::new())?,
            ObserverLine::There(line) => Line::tcp(line, LONGEST_ASKED),
        };
        if let Some((terms, wake)) = self.idle.take() {
            let bell = Arc::new(ring::make()?);
            let name = format!("{} observers", terms.name);
            let server = Server::new(&terms, Arc::clone(&self.tap), wake, self.arrivals.clone(), Arc::clone(&bell));
            self.tap.open(Arc::clone(&bell));
            if let Err(error) = std::thread::Builder::new().name(name).spawn(move || server.run()) {
                self.arrivals.close();
                return Err(error);
            }
            self.bell = Some(bell);
        }
        self.arrivals.put(Arrival::Line(line, stands));
        self.bell.iter().for_each(|bell| ring::ring(bell));
        Ok(())
    }
}

impl Observers {
    /// The thread tells the observers that the member ends, and ends.
    pub(super) fn close(&mut self) {
        self.arrivals.put(Arrival::End);
        self.bell.iter().for_each(|bell| ring::ring(bell));
    }
}

impl Drop for Observers {
    fn drop(&mut self) {
        self.close();
    }
}
