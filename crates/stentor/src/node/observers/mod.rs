//! The member's side of observers: processes outside the group that follow its order.
//!
//! # Path of a command
//! The apply thread owns the [`Writer`]. While the member keeps a journal, the writer appends applied commands to a
//! block, and puts the block into the [`Tap`] after each batch. The observers' thread moves the blocks into the
//! journal, [`Kept`], and sends them to the observers, [`Served`].
//!
//! # Invariants
//! - Neither the protocol's thread nor the apply thread waits for the observers' thread. The tap is a lock-free queue,
//!   and records that exceed its bound are left out of the journal.
//! - Memory is bounded: the blocks in the tap and the journal take `observed_mib` and two of the longest commands, each
//!   observer takes one frame, and a state in transfer takes 16 pieces and 16 chunks of its writer. Up to 64 empty
//!   buffers are kept for reuse.
//! - A member has no journal before its first observer arrives, nor later than two minutes after the last one has left.
//!   Without a journal, its apply thread checks one flag for each command, and two flags for each batch.

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

/// Wakes the apply thread, so that it checks the tap.
pub(super) type Wake = Box<dyn Fn() + Send>;

/// The parameters of a member's observers' thread.
struct Terms {
    name: String,
    fingerprint: u64,
    group: GroupId,
    /// Maximum size of the journal, in bytes.
    most: usize,
}

/// The condition of a member when an observer connects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stands {
    pub(super) leads: bool,
    /// `true` if the member has no state of its group.
    pub(super) joins: bool,
}

/// The observers of a member, as seen by its protocol's thread.
pub(super) struct Observers {
    tap: Arc<Tap>,
    /// The parameters of the thread. `None` once a start was attempted.
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

    /// Hands over the connection of an observer. Starts the thread if this is the first observer.
    ///
    /// # Errors
    /// Returns an error if the connection or the thread cannot be set up.
    #[cold]
    pub(super) fn admit(&mut self, line: ObserverLine, stands: Stands) -> io::Result<()> {
        let line = match line {
            ObserverLine::Here(stream) => Line::unix(stream, LONGEST_ASKED, Vec::new())?,
            ObserverLine::There(line) => Line::tcp(line, LONGEST_ASKED),
        };
        if self.bell.is_none() {
            let bell = Arc::new(ring::make()?);
            let again = || io::Error::other("the thread of the observers could not be started before");
            let (terms, wake) = self.idle.take().ok_or_else(again)?;
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
    /// Makes the thread end after it has notified the observers that the member ends.
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
