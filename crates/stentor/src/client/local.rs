//! A client without a thread, which its owner drives.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use stentor_fabric::Idle;
use stentor_multicast::GroupId;
use stentor_session as session;

use super::core::{Core, Finished, Name};
use super::error::Problem;
use super::notifications::Notification;
#[cfg(feature = "unstable-core")]
use super::watch::OnSender;
use super::{Ask, ClientError, Consistency, Groups, Refused, Session, Ticket, Why};
use crate::any_core::any_core;
use crate::node::Turn;
use crate::{Group, Position};

/// The identity of a command or read of a [`LocalClient`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Request(Name);

/// The outcome of a command: applied, not applied, or unknown.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The command was applied once in each of its groups.
    Applied(Replies<'a>),
    /// The command was applied, but the reply of this group is longer than `reply_bytes` in `[limits]`.
    ReplyTooLong(Group),
    /// The command was not applied in any group, and never will be.
    NotApplied(Refused),
    /// The command is applied once or never, and this client does not know which.
    Unknown(Why),
}

impl Outcome<'_> {
    /// Returns whether another process has resumed the session.
    pub(super) fn is_superseded(&self) -> bool {
        matches!(self, Outcome::NotApplied(Refused::Superseded) | Outcome::Unknown(Why::Superseded))
    }
}

/// The replies to a command, one for each of its groups.
#[derive(Clone, Copy, Debug)]
pub struct Replies<'a>(pub(super) Replied<'a>);

/// The source of the replies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replied<'a> {
    /// Replies to a request at a place in the order.
    Ordered(session::Replies<'a>),
    /// The answer to one read outside the order.
    Read { position: Position, bytes: &'a [u8] },
}

impl<'a> Replies<'a> {
    /// Returns the reply of the only group. With several groups, returns that of the first one in the order of the
    /// configuration.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.iter().next().map_or(&[], |(_, bytes)| bytes)
    }

    /// Returns the replies of all groups, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = (Group, &'a [u8])> + use<'a> {
        let (ordered, read) = match self.0 {
            Replied::Ordered(replies) => (Some(replies), None),
            Replied::Read { position, bytes } => (None, Some((position.applied_in, bytes))),
        };
        let ordered = ordered.into_iter().flat_map(session::Replies::iter);
        ordered.map(|reply| (Group(reply.group), reply.bytes.unwrap_or(&[]))).chain(read)
    }

    /// Returns the command's position in the global order, with the index in the first group. For a read outside the
    /// order, returns the position up to which the answer reflects the order.
    #[must_use]
    pub fn position(&self) -> Position {
        match self.0 {
            Replied::Read { position, .. } => position,
            Replied::Ordered(replies) => {
                let first = replies.iter().next().map(|reply| (reply.group, reply.position));
                let (group, position) = first.unwrap_or((GroupId(0), session::Position::default()));
                Position::of(group, &position)
            }
        }
    }
}

/// A client without a thread: its owner submits commands and calls [`turn`](LocalClient::turn). It takes no locks, and
/// it allocates nothing per command once every slot of its window has been used.
///
/// Dropping the client leaves the session open, as [`leave`](LocalClient::leave) does. [`close`](LocalClient::close)
/// ends the session.
pub struct LocalClient {
    core: AnyCore,
    /// A descriptor that is never readable, used if the fabric has none.
    never: OwnedFd,
    sleeps: bool,
}

impl std::fmt::Debug for LocalClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalClient").finish_non_exhaustive()
    }
}

any_core!($ pub(super) Shm(ShmFabric) if "shm", Roce(RoceFabric) if "roce", Verbs(VerbsFabric) if "verbs", Ofi(OfiFabric) if "ofi");

impl LocalClient {
    pub(super) fn new(core: AnyCore) -> Result<Self, Problem> {
        let never = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| Problem::System(error.into()))?;
        Ok(LocalClient { core, never, sleeps: false })
    }

    /// Sends a command. A later [`turn`](LocalClient::turn) reports its outcome.
    ///
    /// # Errors
    /// Returns why the command was not sent. It is then never applied. After [`Refused::Busy`] and
    /// [`Refused::Unavailable`], call `turn` and try again.
    #[inline]
    pub fn submit(&mut self, to: impl Into<Groups>, command: &[u8]) -> Result<Request, Refused> {
        let to = to.into();
        on!(&mut self.core, core => {
            let number = core.submit(Ask::Command, to.ids(), command)?;
            Ok(Request(core.name_of(number)))
        })
    }

    /// Reads from the state machine of a group. An `Ordered` read may also name several groups, and reads them at one
    /// place of the global order. See [`Client::read`](super::Client::read).
    ///
    /// # Errors
    /// Returns an error in the same cases as [`submit`](LocalClient::submit).
    pub fn submit_read(&mut self, to: impl Into<Groups>, query: &[u8], how: Consistency) -> Result<Request, Refused> {
        let to = to.into();
        on!(&mut self.core, core => {
            if how == Consistency::Ordered {
                let number = core.submit(Ask::Query, to.ids(), query)?;
                return Ok(Request(core.name_of(number)));
            }
            core.read(how, to.ids(), query).map(Request)
        })
    }

    /// Prepares a command: it gets its [ticket](LocalClient::ticket) before it is [sent](LocalClient::send). The
    /// command occupies a slot of the window until it is settled or [given up](LocalClient::give_up).
    ///
    /// # Errors
    /// Returns an error in the same cases as [`submit`](LocalClient::submit).
    pub fn prepare(&mut self, to: impl Into<Groups>, command: &[u8]) -> Result<Request, Refused> {
        let to = to.into();
        on!(&mut self.core, core => {
            let number = core.begin(Ask::Command, to.ids(), command)?;
            Ok(Request(core.name_of(number)))
        })
    }

    /// Sends a prepared command. `to` and `command` must equal the arguments of [`prepare`](LocalClient::prepare).
    ///
    /// # Errors
    /// Returns an error in the same cases as [`submit`](LocalClient::submit). After [`Refused::Busy`] and
    /// [`Refused::Unavailable`], call `turn` and try again.
    pub fn send(&mut self, request: Request, to: impl Into<Groups>, command: &[u8]) -> Result<(), Refused> {
        let to = to.into();
        on!(&mut self.core, core => {
            if request.0 != core.name_of(request.0.request) {
                return Err(Refused::OtherSession);
            }
            core.send(request.0.request, to.ids(), command)
        })
    }

    /// Gives up a prepared command, which is then never sent. Does nothing if it was sent.
    pub fn give_up(&mut self, request: Request) {
        on!(&mut self.core, core => {
            if request.0 == core.name_of(request.0.request) {
                core.not_sent(request.0.request);
            }
        });
    }

    /// Orders all later commands of this session after a [position](Replies::position) that another session received
    /// from any group. Positions that this session received itself need no call: later commands always follow them.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Client::observe`](super::Client::observe).
    pub fn observe(&mut self, position: Position) -> Result<(), Refused> {
        on!(&mut self.core, core => {
            super::check_time(position, core.heard(), core.plan().config().clock_bound())?;
            core.observe(position.latest());
        });
        Ok(())
    }

    /// Settles a command whose outcome is unknown. A later [`turn`](LocalClient::turn) reports the outcome under the
    /// returned request.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`submit`](LocalClient::submit).
    pub fn resolve(&mut self, ticket: &Ticket) -> Result<Request, Refused> {
        on!(&mut self.core, core => core.resolve(ticket))?;
        Ok(Request(Name::of(&ticket.0)))
    }

    /// Returns the ticket of a command that is not settled yet, for storage.
    #[must_use]
    pub fn ticket(&self, request: Request) -> Option<Ticket> {
        let ticket = on!(&self.core, core => core.ticket(request.0.request));
        ticket.filter(|ticket| Name::of(ticket) == request.0).cloned().map(Ticket)
    }

    /// Returns the name of the member that last answered this client as the leader of a group, as far as earlier
    /// [turns](LocalClient::turn) have received its answers. The value may be out of date; see
    /// [`Client::leader`](super::Client::leader).
    #[must_use]
    pub fn leader(&self, group: Group) -> Option<&str> {
        on!(&self.core, core => core.leaders().of(group.0).map(|process| core.plan().name(process)))
    }

    /// Returns the session. Store it to resume the session in a later process.
    #[must_use]
    pub fn session(&self) -> Session {
        on!(&self.core, core => Session(core.key()))
    }

    /// Returns the moment until which the session is certain to live; see
    /// [`Client::lives_until`](super::Client::lives_until).
    #[must_use]
    pub fn lives_until(&self) -> Option<Instant> {
        on!(&self.core, core => core.lives_until())
    }

    /// Runs one round and passes each outcome to `each` as it arrives. Returns whether to call again at once or to
    /// sleep on the client's descriptor.
    ///
    /// # Errors
    /// Returns why the client has ended. The outcome of every unsettled command is then unknown.
    #[inline]
    pub fn turn(&mut self, mut each: impl FnMut(Request, Outcome<'_>)) -> Result<Turn, ClientError> {
        let LocalClient { core, sleeps, .. } = self;
        let slept = std::mem::take(sleeps);
        on!(core, core => {
            if slept {
                core.woken()?;
            }
            loop {
                let worked = core.round(|finished| {
                    let Finished { name, outcome } = finished;
                    each(Request(name), outcome);
                })?;
                match core.idle(worked) {
                    Idle::Poll => return Ok(Turn::Busy),
                    Idle::Arm => {}
                    Idle::Sleep => {
                        *sleeps = true;
                        return Ok(Turn::Idle(Instant::now() + core.longest_sleep()));
                    }
                }
            }
        })
    }

    /// Returns the next notification to this session. At most 1024 notifications and 1 MiB are queued.
    pub fn take_notification(&mut self) -> Option<Notification> {
        on!(&mut self.core, core => core.take_notification())
    }

    /// Applies `what` to the underlying multicast client. Messages that it multicasts belong to no session.
    #[cfg(feature = "unstable-core")]
    pub fn on_sender<V: OnSender>(&mut self, what: V) -> V::Output {
        on!(&mut self.core, core => what.on(core.sender()))
    }

    /// Leaves the session without ending it. Returns the session, which a later process can
    /// [resume](super::ClientBuilder::session). The session lives for as long as after
    /// [`Client::leave`](super::Client::leave). This function waits for no outcome: first call `turn` until all
    /// outcomes have arrived, or keep the [tickets](LocalClient::ticket) of the unsettled commands.
    #[must_use = "the session cannot be resumed without it"]
    pub fn leave(self) -> Session {
        self.session()
    }

    /// Ends the session, and waits for at most 1 s until the groups have confirmed its end. Tickets of the session can
    /// no longer be resolved. In a group that does not confirm the end in time, the session lives until it expires, if
    /// the group has not received the end.
    ///
    /// # Errors
    /// Returns an error if waiting on the fabric fails. An end that is not confirmed is no error.
    pub fn close(mut self) -> Result<(), ClientError> {
        on!(&mut self.core, core => core.close()).map_err(ClientError::from)
    }
}

/// The descriptor is readable when there may be work after [`Turn::Idle`]. If the fabric has no descriptor, it is never
/// readable, and the owner sleeps until the time in `Idle`.
impl AsFd for LocalClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        on!(&self.core, core => core.descriptor()).unwrap_or_else(|| self.never.as_fd())
    }
}
