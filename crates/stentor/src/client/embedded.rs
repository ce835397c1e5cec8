//! A client in the process of a node, which turns it in its own loop: it has no thread.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stentor_fabric::ProcessId;

use super::calls::Calls;
use super::core::Core;
use super::error::Problem;
use super::keeper::Keeper;
use super::serve::Server;
use super::{ClientError, Ending};
use crate::config::FabricKind;
use crate::runtime::{BindConfig, ClusterRuntime, FabricDiagnostics};

/// What a round of an embedded client did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turned {
    /// Nothing.
    Idle,
    /// There was something.
    Worked,
    /// It has ended: drop it.
    Ended,
}

/// A client that a node turns, whatever its fabric.
pub(crate) trait Embedded: Send {
    /// Does one round.
    fn turn(&mut self) -> Turned;
    /// Arms the fabric, before the last round ahead of a sleep.
    fn arm(&mut self);
    /// Returns for how long the node, which has armed, may sleep. `None`: not at all, because a call came. Whoever makes a call from here on
    /// wakes the node.
    fn may_sleep(&mut self) -> Option<Duration>;
    /// The node has slept, or has not.
    fn woken(&mut self);
    /// What becomes readable when something lands at the client's own end of the fabric. A call wakes the node.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// No call comes any more: the session ends when those that there are have ended.
    fn close(&self);
}

/// What a client needs to be embedded in a node.
#[derive(Clone)]
pub(crate) struct Seat {
    /// How the client starts beside the member.
    pub(crate) bind: BindConfig,
    pub(crate) member: ProcessId,
    pub(crate) keeper: Keeper,
    /// Hands the client over to the node. It is dropped if the node has ended.
    pub(crate) adopt: Arc<dyn Fn(Box<dyn Embedded>) + Send + Sync>,
}

impl Seat {
    /// Returns how the client starts: at the member's address.
    pub(super) fn bind(&self, plan: &ClusterRuntime) -> Result<BindConfig, Problem> {
        let is_local = plan.config().fabric() == FabricKind::Shm;
        let address = match self.bind.bind {
            None if !is_local => Some(plan.address(self.member).map_err(crate::runtime::StartError::from)?),
            bind => bind,
        };
        Ok(BindConfig { bind: address, ..self.bind.clone() })
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("bind", &self.bind).finish_non_exhaustive()
    }
}

/// A client that serves its calls where it is turned.
pub(super) struct Guest<F: FabricDiagnostics> {
    server: Server<F>,
    name: String,
    calls: Arc<Calls>,
    failure: Arc<Mutex<Option<ClientError>>>,
    /// Since when its session ends: nobody waits longer than until then.
    ends: Option<Instant>,
    has_failed: bool,
    /// Dropped last: whatever is under way ends with it.
    _ending: Ending,
}

impl<F: FabricDiagnostics> Guest<F> {
    pub(super) fn new(core: Core<F>, calls: &Arc<Calls>, failure: &Arc<Mutex<Option<ClientError>>>) -> Self {
        Guest {
            name: core.name().to_owned(),
            server: Server::new(core, Arc::clone(calls)),
            calls: Arc::clone(calls),
            failure: Arc::clone(failure),
            ends: None,
            has_failed: false,
            _ending: Ending(Arc::clone(calls)),
        }
    }

    /// Returns whether there was anything; `None`: it has ended.
    fn round(&mut self) -> Result<Option<bool>, Problem> {
        let worked = self.server.turn()?;
        if let Some(until) = self.ends {
            let goes_on = !self.server.has_closed() && Instant::now() < until;
            return Ok(goes_on.then_some(worked));
        }
        if !self.server.is_drained() {
            return Ok(Some(worked));
        }
        if self.calls.is_left() {
            return Ok(None);
        }
        self.ends = self.server.begin_close();
        Ok(self.ends.map(|_| true))
    }

    #[cold]
    fn fail(&mut self, problem: Problem) {
        let error = ClientError::from(problem);
        log::error!("{}: the client has ended: {error}", self.name);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.has_failed = true;
    }
}

impl<F: FabricDiagnostics + Send> Embedded for Guest<F> {
    fn turn(&mut self) -> Turned {
        if self.has_failed {
            return Turned::Ended;
        }
        match self.round() {
            Ok(Some(true)) => Turned::Worked,
            Ok(Some(false)) => Turned::Idle,
            Ok(None) => Turned::Ended,
            Err(problem) => {
                self.fail(problem);
                Turned::Ended
            }
        }
    }

    fn arm(&mut self) {
        self.server.arm();
    }

    fn may_sleep(&mut self) -> Option<Duration> {
        self.server.may_sleep(self.ends.is_some())
    }

    fn woken(&mut self) {
        if let Err(problem) = self.server.woken() {
            self.fail(problem);
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.server.descriptor()
    }

    fn close(&self) {
        self.calls.close();
    }
}
