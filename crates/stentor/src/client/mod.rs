//! Clients: programs that send commands and get replies.
//!
//! A [`Client`] is for threads and async tasks: cheap to clone, served by a thread of its own. A [`LocalClient`] is for one thread that
//! turns it. Both have a session, under which each command is applied once: see [`Session`].

mod asked;
mod builder;
mod call;
mod calls;
mod consistency;
mod core;
mod embedded;
mod error;
mod fates;
mod groups;
mod halts;
mod keeper;
mod lease;
mod local;
mod mail;
mod notifications;
mod origins;
mod prepared;
mod random;
mod receiver;
mod serve;
mod session;
mod wake;
#[cfg_attr(
    not(feature = "unstable-core"),
    allow(unreachable_pub, unused_imports, reason = "the feature `unstable-core` publishes it")
)]
mod watch;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use self::builder::ClientBuilder;
pub use self::call::{Answer, Call};
use self::calls::{Calls, Hold, Job};
pub use self::consistency::Consistency;
use self::core::Core;
use self::embedded::Guest;
pub(crate) use self::embedded::{Embedded, Seat, Turned};
use self::error::Problem;
pub use self::error::{CallError, ClientError, ClientErrorKind, Refused, Why};
pub use self::groups::Groups;
pub(crate) use self::keeper::Keeper;
pub use self::local::{LocalClient, Outcome, Replies, Request};
#[cfg(feature = "sim")]
pub(crate) use self::notifications::Inbox;
pub use self::notifications::Notification;
pub use self::prepared::{Prepared, Preparing};
pub use self::receiver::Notifications;
use self::serve::Server;
pub use self::session::{Session, Ticket};
#[cfg(feature = "unstable-core")]
pub use self::watch::OnSender;
#[cfg_attr(
    not(feature = "unstable-core"),
    allow(unreachable_pub, unused_imports, reason = "the feature `unstable-core` publishes it")
)]
pub use self::watch::{ClientWatch, SeesMulticast};
use crate::Position;
use crate::runtime::{FabricDiagnostics, wall_ns};

/// A client of a cluster: sends commands to groups and gets their replies. Cloning it is cheap; all clones share a session, and a thread
/// that serves them. One that is [embedded](crate::NodeHandle::client) in a node is served by the node's thread.
///
/// # The end of a client
/// | what ends it | calls under way | session |
/// |---|---|---|
/// | [`close`](Client::close) | are waited for | ends |
/// | [`leave`](Client::leave) | are waited for | lives on until its time is over, for a later process |
/// | drop of the last clone | go on while the process runs; nobody waits | ends after them |
/// | end of the process | go on, if they were sent | lives on until its time is over |
#[derive(Clone, Debug)]
pub struct Client(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    calls: Arc<Calls>,
    patience: Duration,
    clock_bound: Duration,
    thread: Mutex<Option<JoinHandle<()>>>,
    failure: Arc<Mutex<Option<ClientError>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.calls.close();
    }
}

/// Whether a position may be: no clock of a leader is ahead of true time by more than the bound. `heard`: a time that was.
fn check_time(position: Position, heard: u64, bound: Duration) -> Result<(), Refused> {
    let latest = heard.max(wall_ns()).saturating_add(bound.as_nanos() as u64);
    if position.latest() > latest { Err(Refused::AheadOfTime) } else { Ok(()) }
}

fn not_applied(why: Refused) -> Call {
    Call::ended(CallError::NotApplied(why))
}

/// A request is one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    /// The groups apply a command.
    Command,
    /// The groups answer a query.
    Query,
}

/// Ends the calls with the thread, even if that panics.
struct Ending(Arc<Calls>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Client {
    fn serve<F: FabricDiagnostics + Send + 'static>(core: Core<F>, builder: &ClientBuilder) -> Result<Client, Problem> {
        let thread_failed = |source| Problem::Start(crate::runtime::StartError::Thread { source });
        let seat = builder.seat();
        let keeper = seat.map(|seat| seat.keeper.clone());
        let calls = Arc::new(Calls::new(builder.calls, keeper).map_err(thread_failed)?);
        calls.know(core.key(), core.lives_until());
        let (patience, clock_bound) = (builder.patience, core.clock_bound());
        let failure = Arc::new(Mutex::new(None));
        if let Some(seat) = seat {
            (seat.adopt)(Box::new(Guest::new(core, &calls, &failure)));
            return Ok(Client(Arc::new(Handle { calls, patience, clock_bound, thread: Mutex::new(None), failure })));
        }
        let (served, failed, name) = (Arc::clone(&calls), Arc::clone(&failure), core.name().to_owned());
        let serve = move || {
            let _ending = Ending(Arc::clone(&served));
            if let Err(problem) = Server::new(core, served).run() {
                let error = ClientError::from(problem);
                log::error!("{name}: the client has ended: {error}");
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        let thread = thread::Builder::new().name("stentor client".to_owned()).spawn(serve).map_err(thread_failed)?;
        let thread = Mutex::new(Some(thread));
        Ok(Client(Arc::new(Handle { calls, patience, clock_bound, thread, failure })))
    }

    /// Sends a command to a group, or to several groups in one place of the global order. It waits its turn if there is no room for it now.
    ///
    /// The [`Call`] is a future, and can be waited for without a runtime, too. To drop it cancels nothing.
    #[inline]
    pub fn call(&self, to: impl Into<Groups>, command: &[u8]) -> Call {
        self.put(Job::Request(Ask::Command), Hold::Not, to.into(), command).unwrap_or_else(not_applied)
    }

    /// Prepares a command: it gets its [`Ticket`], and is not sent before [`Prepared::send`]. A program that writes the ticket down between
    /// the two can say in its next life what became of the command, whenever it dies.
    ///
    /// What is prepared has a place in the window. It is given up when it is dropped, or not sent within the client's patience.
    pub fn prepare(&self, to: impl Into<Groups>, command: &[u8]) -> Preparing {
        Preparing::new(
            self.put(Job::Request(Ask::Command), Hold::Until, to.into(), command).unwrap_or_else(not_applied),
        )
    }

    /// Asks the state machine of a group, or those of several groups: [`StateMachine::read`](crate::StateMachine::read) answers the query
    /// and changes nothing. `how` names the guarantee.
    ///
    /// The call is one as of a command. A query whose outcome is [not known](CallError::Unknown) can be asked again. Reads that are not
    /// [`Ordered`](Consistency::Ordered) have no ticket: they are answered, or [`NotApplied`](CallError::NotApplied).
    pub fn read(&self, at: impl Into<Groups>, query: &[u8], how: Consistency) -> Call {
        let job = if how == Consistency::Ordered { Job::Request(Ask::Query) } else { Job::Read(how) };
        self.put(job, Hold::Not, at.into(), query).unwrap_or_else(not_applied)
    }

    /// Settles a command whose outcome was [not known](CallError::Unknown), here or in an earlier process that had the session: returns the
    /// reply if it was applied, or closes it for good, which is [`Refused::Closed`]. A question that cannot be asked ends as
    /// [`Why::NotAsked`].
    pub fn resolve(&self, ticket: &Ticket) -> Call {
        let job = Job::Resolve(Box::new(ticket.clone()));
        let not_asked = |why| Call::ended(CallError::Unknown(ticket.clone(), Why::NotAsked(why)));
        self.put(job, Hold::Not, ticket.groups(), &[]).unwrap_or_else(not_asked)
    }

    /// Has all later commands of this session, of all clones, come after a [position](Answer::position) that another session was answered,
    /// in whatever groups. Of what this session was answered itself, that is so anyway.
    ///
    /// # Errors
    /// [`Refused::AheadOfTime`]: the position is ahead of the time that is known here by more than `clock_bound_ms` in `[limits]`. Nothing
    /// has changed then.
    pub fn observe(&self, position: Position) -> Result<(), Refused> {
        check_time(position, self.0.calls.heard(), self.0.clock_bound)?;
        self.0.calls.observe(position.latest());
        Ok(())
    }

    /// Returns what receives the notifications that state machines send to this session. All clones of the client have one queue, and the
    /// latest receiver gets what waits and what comes; an earlier one gets nothing any more. At most 1024 wait, and 1 MiB of theirs.
    #[must_use]
    pub fn notifications(&self) -> Notifications {
        Notifications::new(&self.0.calls)
    }

    fn put(&self, job: Job, hold: Hold, to: Groups, command: &[u8]) -> Result<Call, Refused> {
        let Handle { calls, patience, .. } = &*self.0;
        let slot = calls.put(job, hold, to, command, Instant::now() + *patience)?;
        Ok(Call::made(Arc::clone(calls), slot))
    }

    /// Returns the number of calls that may be made now without being [`Busy`](Refused::Busy).
    #[must_use]
    pub fn room(&self) -> usize {
        self.0.calls.room()
    }

    /// Returns the session: write it down to take it up in a later process.
    #[must_use]
    pub fn session(&self) -> Session {
        self.0.calls.session()
    }

    /// Returns the moment until which the session surely lives in all its groups: what it holds there, no other session has before then.
    /// `None`: that is not known, or a group has let the session end. The client renews the session at half of its time to live, so the moment moves on.
    ///
    /// It is the time to live after a renewal was sent, less twice the `clock_bound_ms` of `[limits]` and what clocks gain. A program that
    /// stands still, or is slow, looks at the clock again before it relies on it. Clocks that differ by more than the bound break it.
    #[must_use]
    pub fn lives_until(&self) -> Option<Instant> {
        self.0.calls.lives_until()
    }

    /// Returns why the client has ended, if it did by itself.
    #[must_use]
    pub fn failure(&self) -> Option<ClientError> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the session when all calls have ended, and waits for that, for as long as the client's patience lasts. Other clones can call
    /// nothing any more. Tickets of the session cannot be resolved any more: to keep them, [`leave`](Client::leave). If another clone
    /// has left, the session is not ended.
    ///
    /// # Errors
    /// Why the client had ended before.
    pub fn close(self) -> Result<(), ClientError> {
        self.0.calls.close();
        self.0.wait()
    }

    /// Leaves the session without ending it, when all calls have ended, and waits for that, for as long as the client's patience lasts.
    /// Other clones can call nothing any more. Returns what a later process [takes up](ClientBuilder::session). Nobody renews the session
    /// meanwhile: it lives on for half of its [time to live](ClientBuilder::session_ttl) at least, and for all of it at most.
    ///
    /// # Errors
    /// Why the client had ended before, or if another clone has closed it, which ends the session.
    pub fn leave(self) -> Result<Session, ClientError> {
        if !self.0.calls.leave() {
            return Err(Problem::Closed.into());
        }
        self.0.wait()?;
        Ok(self.session())
    }
}

impl Handle {
    /// Waits until the thread has ended.
    fn wait(&self) -> Result<(), ClientError> {
        if self.calls.is_own_thread() && !self.calls.wait_for_end(Instant::now()) {
            return Err(Problem::WouldDeadlock.into());
        }
        // Another clone that waits for the same thread holds the lock until it has ended.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.take().is_some_and(|thread| thread.join().is_err()) {
            return Err(Problem::Panicked.into());
        }
        // An embedded client has no thread. Its calls end within its patience, and its session a moment later.
        if !self.calls.wait_for_end(Instant::now() + 2 * self.patience) {
            return Err(Problem::NotEnded.into());
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

const _: () = {
    const fn shared<T: Clone + Send + Sync>() {}
    const fn sent<T: Send + Unpin>() {}
    shared::<Client>();
    sent::<Call>();
    sent::<Answer>();
    sent::<LocalClient>();
};
