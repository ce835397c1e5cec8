//! The non-equivocating broadcast of `[neb]`: no two correct processes deliver different messages of a sender under one
//! number, even if the sender is Byzantine.
//!
//! A [`Broadcast`] is one process of the broadcast. It has no thread: its owner drives it by calls of
//! [`turn`](Broadcast::turn), which report what was received. The path of a message has no dynamic call, no lock and,
//! except for signatures, no allocation.
//!
//! # Use
//! [`Cluster::broadcast`](crate::Cluster::broadcast) returns a builder, whose `start` creates a process. Call
//! [`turn`](Broadcast::turn) repeatedly, and [`send`](Broadcast::send) between turns.
//!
//! # Restarts
//! A process that has ended cannot rejoin until the whole broadcast starts anew, because its agreements were in its
//! memory. The other processes refuse it, and its turns fail with [`BroadcastErrorKind::Refused`].

mod builder;
mod core;
mod error;
mod heard;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use self::core::Core;
use self::error::Problem;
use crate::Turn;
use crate::any_core::any_core;
use crate::descriptor::Descriptor;
use crate::runtime::now_ns;

pub use builder::BroadcastBuilder;
pub use error::{BroadcastError, BroadcastErrorKind, NotSent};
pub use heard::{Equivocation, Heard};
#[doc(inline)]
pub use stentor_neb::FaultModel;

/// A process of a broadcast, on the thread that drives it.
pub struct Broadcast {
    core: AnyCore,
    descriptor: Descriptor,
    /// `true` if the owner may have slept on the descriptor since the last turn.
    sleeps: bool,
}

impl std::fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broadcast").field("name", &self.name()).finish_non_exhaustive()
    }
}

any_core!($ Shm(ShmFabric) if "shm", Roce(RoceFabric) if "roce", Verbs(VerbsFabric) if "verbs", Ofi(OfiFabric) if "ofi");

impl Broadcast {
    fn new(core: AnyCore) -> Result<Broadcast, Problem> {
        let descriptor = on!(&core, core => Descriptor::new(core.descriptor()));
        let descriptor = descriptor.map_err(|source| Problem::System { what: "make a descriptor", source })?;
        Ok(Broadcast { core, descriptor, sleeps: false })
    }

    /// Broadcasts a message to all processes, including this one. Returns its sequence number, from 0.
    ///
    /// # Errors
    /// Returns why the message is not sent. After [`NotSent::NotBegun`] and [`NotSent::Full`], call
    /// [`turn`](Broadcast::turn) and try again.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<u64, NotSent> {
        on!(&mut self.core, core => core.send(message))
    }

    /// Makes progress without waiting, and passes each received event to `each`. Returns [`Turn::Busy`] if the caller
    /// should call `turn` again at once, or [`Turn::Idle`] if the caller can wait until the [descriptor](AsFd) is
    /// readable. The descriptor also becomes readable at the time in `Idle`. [`Turn::Stopped`] means that an operator
    /// removed this process: drop it.
    ///
    /// # Errors
    /// Returns why the process cannot continue. Drop the process then.
    #[inline]
    pub fn turn(&mut self, mut each: impl FnMut(Heard<'_>)) -> Result<Turn, BroadcastError> {
        let longest = self.step(&mut each)?;
        if on!(&self.core, core => core.has_left()) {
            return Ok(Turn::Stopped);
        }
        let Some(longest) = longest else { return Ok(Turn::Busy) };
        self.sleeps = true;
        let set = self.descriptor.sleep_for(longest);
        set.map_err(|source| self.failed(Problem::System { what: "set a timer", source }))?;
        Ok(Turn::Idle(Instant::now() + longest))
    }

    /// Makes progress, for programs without an event loop. If there is no work, sleeps for at most `longest` and at
    /// most 5 ms. Returns `false` if an operator removed this process.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`turn`](Broadcast::turn).
    pub fn turn_or_sleep(
        &mut self,
        longest: Duration,
        mut each: impl FnMut(Heard<'_>),
    ) -> Result<bool, BroadcastError> {
        let own = self.step(&mut each)?;
        if on!(&self.core, core => core.has_left()) {
            return Ok(false);
        }
        if let Some(own) = own {
            on!(&mut self.core, core => core.sleep(own.min(longest))).map_err(|problem| self.failed(problem))?;
        }
        Ok(true)
    }

    /// Runs one or several rounds. Returns for how long the process can sleep, or `None` if another round should
    /// follow.
    #[inline]
    fn step(&mut self, each: &mut impl FnMut(Heard<'_>)) -> Result<Option<Duration>, BroadcastError> {
        if std::mem::take(&mut self.sleeps) {
            self.descriptor.woken();
            on!(&mut self.core, core => core.sleep(Duration::ZERO)).map_err(|problem| self.failed(problem))?;
        }
        on!(&mut self.core, core => core.turn(each)).map_err(|problem| self.failed(problem))
    }

    /// Returns whether messages can be sent: all other processes have been connected at one time or, in mode `quorum`,
    /// enough of them for `patience_ms` of `[neb]`.
    #[must_use]
    pub fn has_begun(&mut self) -> bool {
        on!(&mut self.core, core => core.has_begun(now_ns()))
    }

    /// Returns the names of the processes that are not connected now.
    #[must_use]
    pub fn absent(&self) -> Vec<&str> {
        on!(&self.core, core => core.absent())
    }

    /// Returns the name of this process.
    #[must_use]
    pub fn name(&self) -> &str {
        on!(&self.core, core => core.name())
    }

    fn failed(&self, problem: Problem) -> BroadcastError {
        BroadcastError::new(self.name(), problem)
    }
}

/// The descriptor is readable when there may be work after [`Turn::Idle`].
impl AsFd for Broadcast {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The number of the process's descriptor, for event loops that identify descriptors by number. The number is invalid
/// once the process is dropped.
impl std::os::fd::AsRawFd for Broadcast {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.as_fd().as_raw_fd()
    }
}

const _: () = {
    const fn sent<T: Send>() {}
    sent::<Broadcast>();
};
