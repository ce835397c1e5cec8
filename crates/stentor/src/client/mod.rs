//! Clients: programs that send commands to groups and receive their replies.
//!
//! A [`Client`] serves threads and async tasks: it is cheap to clone and has a thread of its own. A [`LocalClient`]
//! belongs to one thread, which calls its `turn`. Both have a [`Session`], under which the groups apply each command
//! once.
//!
//! A call passes through `calls` to the serving thread in `serve`, which drives `core`. `core` joins the session
//! protocol (`stentor-session`) to the client side of the multicast (`stentor-multicast`).

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
mod leaders;
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
use self::leaders::Leaders;
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
use crate::runtime::{ClusterRuntime, FabricDiagnostics, wall_ns};
use crate::{Group, Position};

/// A client of a cluster: sends commands to groups and returns their replies. Cloning it is cheap. All clones share one
/// session and one serving thread. A client that is [embedded](crate::NodeHandle::client) in a node is served by the
/// node's thread instead.
///
/// # How a client ends
/// | event | calls in flight | session |
/// |---|---|---|
/// | [`close`](Client::close) | are awaited | ends |
/// | [`leave`](Client::leave) | are awaited | lives until it expires, for a later process |
/// | drop of the last clone | continue while the process runs | ends after them |
/// | end of the process | continue, if they were sent | lives until it expires |
#[derive(Clone, Debug)]
pub struct Client(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    calls: Arc<Calls>,
    patience: Duration,
    plan: Arc<ClusterRuntime>,
    leaders: Arc<Leaders>,
    thread: Mutex<Option<JoinHandle<()>>>,
    failure: Arc<Mutex<Option<ClientError>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.calls.close();
    }
}

/// Checks that a position is not in the future: no leader's clock is ahead of true time by more than `bound`. `heard`
/// is the latest order time that this client knows, in nanoseconds since 1970.
fn check_time(position: Position, heard: u64, bound: Duration) -> Result<(), Refused> {
    let latest = heard.max(wall_ns()).saturating_add(bound.as_nanos() as u64);
    if position.latest() > latest { Err(Refused::AheadOfTime) } else { Ok(()) }
}

fn not_applied(why: Refused) -> Call {
    Call::ended(CallError::NotApplied(why))
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    /// The groups apply a command.
    Command,
    /// The groups answer a query.
    Query,
}

/// Ends all calls when it is dropped: when the serving thread ends, even by a panic, or when an embedded client ends.
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
        let (patience, plan, leaders) = (builder.patience, Arc::clone(core.plan()), Arc::clone(core.leaders()));
        let failure = Arc::new(Mutex::new(None));
        if let Some(seat) = seat {
            (seat.adopt)(Box::new(Guest::new(core, &calls, &failure)));
            let thread = Mutex::new(None);
            return Ok(Client(Arc::new(Handle { calls, patience, plan, leaders, thread, failure })));
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
        Ok(Client(Arc::new(Handle { calls, patience, plan, leaders, thread, failure })))
    }

    /// Sends a command to one or several groups. All of them apply it at one place of the global order. If the window
    /// is full, the command waits for its turn.
    ///
    /// The returned [`Call`] is a future. Without a runtime, [`Call::wait`] waits for it. Dropping it does not cancel
    /// the command.
    #[inline]
    pub fn call(&self, to: impl Into<Groups>, command: &[u8]) -> Call {
        self.put(Job::Request(Ask::Command), Hold::Not, to.into(), command).unwrap_or_else(not_applied)
    }

    /// Prepares a command: assigns its [`Ticket`], but does not send it before [`Prepared::send`]. A program that
    /// stores the ticket before it sends the command can find out the command's outcome after a crash.
    ///
    /// A prepared command occupies a slot of the window. It is abandoned if it is dropped, or if it is not sent within
    /// the client's [patience](ClientBuilder::patience).
    pub fn prepare(&self, to: impl Into<Groups>, command: &[u8]) -> Preparing {
        Preparing::new(
            self.put(Job::Request(Ask::Command), Hold::Until, to.into(), command).unwrap_or_else(not_applied),
        )
    }

    /// Reads from the state machine of one or several groups: [`StateMachine::read`](crate::StateMachine::read) answers
    /// the query and changes nothing. `how` selects the guarantee.
    ///
    /// The result is a [`Call`], as for a command. A query whose outcome is [unknown](CallError::Unknown) can be
    /// repeated. Reads other than [`Ordered`](Consistency::Ordered) have no ticket, and their outcome is never unknown.
    pub fn read(&self, at: impl Into<Groups>, query: &[u8], how: Consistency) -> Call {
        let job = if how == Consistency::Ordered { Job::Request(Ask::Query) } else { Job::Read(how) };
        self.put(job, Hold::Not, at.into(), query).unwrap_or_else(not_applied)
    }

    /// Settles a command whose outcome is [unknown](CallError::Unknown). This process or an earlier process with the
    /// same session sent the command. Returns the reply if the command was applied. If it was not applied, the groups
    /// close it for good, and the call ends with [`Refused::Closed`]. The outcome stays unknown if the question cannot
    /// be sent ([`Why::NotAsked`]), or if a group does not answer in time or no longer keeps the outcome.
    pub fn resolve(&self, ticket: &Ticket) -> Call {
        let job = Job::Resolve(Box::new(ticket.clone()));
        let not_asked = |why| Call::ended(CallError::Unknown(ticket.clone(), Why::NotAsked(why)));
        self.put(job, Hold::Not, ticket.groups(), &[]).unwrap_or_else(not_asked)
    }

    /// Orders all later commands of this session, from all clones, after a [position](Answer::position) that another
    /// session received from any group. Positions that this session received itself need no call: later commands always
    /// follow them.
    ///
    /// # Errors
    /// Returns [`Refused::AheadOfTime`] if the position is ahead of the time that this client knows by more than
    /// `clock_bound_ms` in `[limits]`. The call then has no effect.
    pub fn observe(&self, position: Position) -> Result<(), Refused> {
        check_time(position, self.0.calls.heard(), self.0.plan.config().clock_bound())?;
        self.0.calls.observe(position.latest());
        Ok(())
    }

    /// Returns a receiver of the notifications that state machines send to this session. All clones share one queue of
    /// at most 1024 notifications and 1 MiB. The newest receiver gets all notifications that are queued or arrive
    /// later. Earlier receivers get no more notifications.
    #[must_use]
    pub fn notifications(&self) -> Notifications {
        Notifications::new(&self.0.calls)
    }

    fn put(&self, job: Job, hold: Hold, to: Groups, command: &[u8]) -> Result<Call, Refused> {
        let Handle { calls, patience, .. } = &*self.0;
        let slot = calls.put(job, hold, to, command, Instant::now() + *patience)?;
        Ok(Call::made(Arc::clone(calls), slot))
    }

    /// Returns the number of calls that can be made now without the error [`Busy`](Refused::Busy).
    #[must_use]
    pub fn room(&self) -> usize {
        self.0.calls.room()
    }

    /// Returns the name of the member that last answered this client as the leader of a group: it replied to a command
    /// or to an [ordered](Consistency::Ordered) read, answered a read at the [leader](Consistency::Leader), or sent a
    /// notification. Returns `None` if no member has done so yet, or if the group belongs to another cluster. If a call
    /// has returned an answer, that answer is already taken into account.
    ///
    /// The value may be out of date: the named member may have failed, and another one may lead by now. The client
    /// learns from answers only, so an idle client may not notice a new leader. A read at the leader updates the value.
    /// Use the value for displays, for tests, and to place work near the leader, and never for a decision that is wrong
    /// if another member leads.
    #[must_use]
    pub fn leader(&self, group: Group) -> Option<&str> {
        self.0.leaders.of(group.0).map(|process| self.0.plan.name(process))
    }

    /// Returns the session. Store it to resume the session in a later process.
    #[must_use]
    pub fn session(&self) -> Session {
        self.0.calls.session()
    }

    /// Returns the moment until which the session is certain to live in all its groups: until then, no other session
    /// can obtain what this one holds there. Returns `None` if that moment is not known, if a group has ended the
    /// session, or if the client has ended. The client renews the session after half of its time to live, so the moment
    /// advances.
    ///
    /// The moment is the time at which the last answered renewal was sent, plus the time to live, minus twice
    /// `clock_bound_ms` of `[limits]`, minus the clock slew. If groups differ, the earliest moment counts. With a short
    /// [time to live](ClientBuilder::session_ttl), the moment has passed before the next renewal. A program that was
    /// suspended or is slow must check the clock again before it relies on the moment. The guarantee fails if clocks of
    /// members differ by more than the bound.
    #[must_use]
    pub fn lives_until(&self) -> Option<Instant> {
        self.0.calls.lives_until()
    }

    /// Returns why the client ended, if it ended because of an error.
    #[must_use]
    pub fn failure(&self) -> Option<ClientError> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all calls have ended, then ends the session, and waits for its end. Calls end within the client's
    /// [patience](ClientBuilder::patience). The wait for the session's end takes at most 1 s; if the groups do not
    /// answer, the session lives until it expires. No clone can make calls any more. Tickets of the session can no
    /// longer be resolved; use [`leave`](Client::leave) if they must be. If another clone has called `leave`, the
    /// session does not end.
    ///
    /// # Errors
    /// Returns the error that ended the client. For an embedded client, returns an error if this thread serves the
    /// client, or if its calls did not end in time. An end of the session that the groups have not confirmed is no
    /// error.
    pub fn close(self) -> Result<(), ClientError> {
        self.0.calls.close();
        self.0.wait()
    }

    /// Waits until all calls have ended, then leaves the session without ending it. Calls end within the client's
    /// [patience](ClientBuilder::patience). No clone can make calls any more. Returns the session, which a later
    /// process can [resume](ClientBuilder::session). In the meantime no process renews the session: it lives for at
    /// most its [time to live](ClientBuilder::session_ttl), and for at least half of it if its groups have answered the
    /// renewals so far.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`close`](Client::close), and if another clone has called `close`, which
    /// ends the session.
    pub fn leave(self) -> Result<Session, ClientError> {
        if !self.0.calls.leave() {
            return Err(Problem::Closed.into());
        }
        self.0.wait()?;
        Ok(self.session())
    }
}

impl Handle {
    /// Waits until the serving thread has ended.
    fn wait(&self) -> Result<(), ClientError> {
        if self.calls.is_own_thread() && !self.calls.wait_for_end(Instant::now()) {
            return Err(Problem::WouldDeadlock.into());
        }
        // Another clone that joins the same thread holds the lock until the thread has ended.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.take().is_some_and(|thread| thread.join().is_err()) {
            return Err(Problem::Panicked.into());
        }
        // An embedded client has no thread. Its calls end within its patience, and its session shortly afterwards.
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
