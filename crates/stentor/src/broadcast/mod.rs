//! The broadcast of `[neb]`: every correct process hears the same of every sender, even if the sender lies.
//!
//! A [`Broadcast`] is one process of it. It has no thread: its owner turns it, and is told what was heard. On the way of a message there is no
//! dynamic call, no lock and, but for signatures, no allocation.
//!
//! # Calls
//! [`Cluster::broadcast`](crate::Cluster::broadcast) begins a builder, whose `start` gives a process. Then [`turn`](Broadcast::turn) again and
//! again, and [`send`](Broadcast::send) between turns.
//!
//! # One life
//! A process that has ended cannot take part again until the whole broadcast starts anew: what it had agreed to was in its memory. The others
//! refuse it, and its turns fail with [`BroadcastErrorKind::Refused`].

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

/// A process of a broadcast, on the thread that turns it.
pub struct Broadcast {
    core: AnyCore,
    descriptor: Descriptor,
    /// Whether the owner may have slept on the descriptor since the last turn.
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

    /// Broadcasts a message to all processes, this one included. Returns its sequence, from 0.
    ///
    /// # Errors
    /// Why it is not sent. After [`NotSent::NotBegun`] and [`NotSent::Full`] turn, and try again.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<u64, NotSent> {
        on!(&mut self.core, core => core.send(message))
    }

    /// Does what there is to do, without waiting, and tells `each` what was heard. Says whether to turn again, or to wait until the
    /// [descriptor](AsFd) is readable, which it is when the moment has come, too. [`Turn::Stopped`] says that an operator removed this
    /// process: drop it.
    ///
    /// # Errors
    /// Why the process cannot go on. Drop it.
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

    /// Does what there is to do, for programs without an event loop. Where there is nothing, it sleeps for `longest` at most, and never for
    /// longer than 5 ms. Returns false if an operator removed this process.
    ///
    /// # Errors
    /// As [`turn`](Broadcast::turn).
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

    /// Rounds until there is something to do, or to sleep: then returns for how long at most.
    #[inline]
    fn step(&mut self, each: &mut impl FnMut(Heard<'_>)) -> Result<Option<Duration>, BroadcastError> {
        if std::mem::take(&mut self.sleeps) {
            self.descriptor.woken();
            on!(&mut self.core, core => core.sleep(Duration::ZERO)).map_err(|problem| self.failed(problem))?;
        }
        on!(&mut self.core, core => core.turn(each)).map_err(|problem| self.failed(problem))
    }

    /// Returns whether messages go out: all others have been there, or as many as have to be for as long as the configuration says.
    #[must_use]
    pub fn has_begun(&mut self) -> bool {
        on!(&mut self.core, core => core.has_begun(now_ns()))
    }

    /// Returns the names of the processes that are not there now.
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

/// Readable when there may be something to do, after [`Turn::Idle`].
impl AsFd for Broadcast {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// For event loops that know descriptors by their numbers. The number means nothing once the process is dropped.
impl std::os::fd::AsRawFd for Broadcast {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.as_fd().as_raw_fd()
    }
}

const _: () = {
    const fn sent<T: Send>() {}
    sent::<Broadcast>();
};
