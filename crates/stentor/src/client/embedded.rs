//! Clients that are embedded in a node: the node's loop runs them, so they need no thread.

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

/// The result of one round of an embedded client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turned {
    /// The client had no work.
    Idle,
    /// The client did some work.
    Worked,
    /// The client has ended and can be dropped.
    Ended,
}

/// A client that a node runs, on any fabric.
pub(crate) trait Embedded: Send {
    /// Runs one round.
    fn turn(&mut self) -> Turned;
    /// Arms the fabric, before the last round ahead of a sleep.
    fn arm(&mut self);
    /// Returns for how long the node may sleep. The node has armed its fabric before. Returns `None` if a call has
    /// arrived, so that the node must not sleep. Every later call wakes the node.
    fn may_sleep(&mut self) -> Option<Duration>;
    /// Resumes after the node has slept, or has decided not to sleep.
    fn woken(&mut self);
    /// Returns the descriptor that becomes readable on an event of the client's own fabric endpoint. Calls wake the
    /// node by other means.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Accepts no more calls. The session ends when the remaining calls have ended.
    fn close(&self);
}

/// The parts of a node that an embedded client uses.
#[derive(Clone)]
pub(crate) struct Seat {
    /// The client's start parameters, derived from the member's.
    pub(crate) bind: BindConfig,
    pub(crate) member: ProcessId,
    pub(crate) keeper: Keeper,
    /// Hands the client over to the node. The client is dropped if the node has ended.
    pub(crate) adopt: Arc<dyn Fn(Box<dyn Embedded>) + Send + Sync>,
}

impl Seat {
    /// Returns the client's start parameters: it binds to the member's address.
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

/// A client that serves its calls within the node's loop.
pub(super) struct Guest<F: FabricDiagnostics> {
    server: Server<F>,
    name: String,
    calls: Arc<Calls>,
    failure: Arc<Mutex<Option<ClientError>>>,
    /// Deadline of the wait for the session's end. `None` while the session is not ending.
    ends: Option<Instant>,
    has_failed: bool,
    /// Ends all remaining calls when it is dropped, which happens after all other fields are dropped.
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

    /// Runs one round. Returns whether there was any work, or `None` if the client has ended.
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
