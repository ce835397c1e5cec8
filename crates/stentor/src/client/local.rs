//! A client that its owner turns.

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

/// The number of a command of a [`LocalClient`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Request(Name);

/// How a command ended: done, not done, or nobody here knows.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// It is applied, once in each of its groups.
    Applied(Replies<'a>),
    /// It is applied, and the reply of this group is longer than `reply_bytes` in `[limits]`.
    ReplyTooLong(Group),
    /// It is applied nowhere, and never will be.
    NotApplied(Refused),
    /// It is applied once, or never.
    Unknown(Why),
}

impl Outcome<'_> {
    /// Whether another process has taken the session up.
    pub(super) fn is_superseded(&self) -> bool {
        matches!(self, Outcome::NotApplied(Refused::Superseded) | Outcome::Unknown(Why::Superseded))
    }
}

/// One reply for each group of a command.
#[derive(Clone, Copy, Debug)]
pub struct Replies<'a>(pub(super) Replied<'a>);

/// Where the replies are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replied<'a> {
    /// At places of the order.
    Ordered(session::Replies<'a>),
    /// One answer outside the order.
    Read { position: Position, bytes: &'a [u8] },
}

impl<'a> Replies<'a> {
    /// Returns the reply of the only group; of several groups that of the first one, in the order of the configuration.
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

    /// Returns the place of the command in the global order, as the first group applied it; of a read the place up to which its answer
    /// contains the order.
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

/// A client without a thread: its owner submits commands and turns it. It takes no lock, and allocates nothing for a command once each place
/// of its window was used.
///
/// Whoever drops it leaves the session as [`leave`](LocalClient::leave) does; [`close`](LocalClient::close) ends it.
pub struct LocalClient {
    core: AnyCore,
    /// What stands for the descriptor of a fabric that has none: never readable.
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

    /// Sends a command. Its outcome comes in a later [`turn`](LocalClient::turn).
    ///
    /// # Errors
    /// Why it is not sent, and never will be. After [`Refused::Busy`] and [`Refused::Unavailable`] turn, and try again.
    #[inline]
    pub fn submit(&mut self, to: impl Into<Groups>, command: &[u8]) -> Result<Request, Refused> {
        let to = to.into();
        on!(&mut self.core, core => {
            let number = core.submit(Ask::Command, to.ids(), command)?;
            Ok(Request(core.name_of(number)))
        })
    }

    /// Asks the state machine of a group; if the read is `Ordered`, those of several groups at one place of the global order. See
    /// [`Client::read`](super::Client::read).
    ///
    /// # Errors
    /// As [`submit`](LocalClient::submit).
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

    /// Numbers a command, so that it has a [ticket](LocalClient::ticket) before it is [sent](LocalClient::send). It has a place in the window
    /// until it is settled, or [given up](LocalClient::give_up).
    ///
    /// # Errors
    /// As [`submit`](LocalClient::submit).
    pub fn prepare(&mut self, to: impl Into<Groups>, command: &[u8]) -> Result<Request, Refused> {
        let to = to.into();
        on!(&mut self.core, core => {
            let number = core.begin(Ask::Command, to.ids(), command)?;
            Ok(Request(core.name_of(number)))
        })
    }

    /// Sends a command that was prepared: the same command, to the same groups.
    ///
    /// # Errors
    /// As [`submit`](LocalClient::submit). After [`Refused::Busy`] and [`Refused::Unavailable`] turn, and try again.
    pub fn send(&mut self, request: Request, to: impl Into<Groups>, command: &[u8]) -> Result<(), Refused> {
        let to = to.into();
        on!(&mut self.core, core => {
            if request.0 != core.name_of(request.0.request) {
                return Err(Refused::OtherSession);
            }
            core.send(request.0.request, to.ids(), command)
        })
    }

    /// Gives up a command that was prepared: it is not sent, and never will be. Does nothing if it was sent.
    pub fn give_up(&mut self, request: Request) {
        on!(&mut self.core, core => {
            if request.0 == core.name_of(request.0.request) {
                core.not_sent(request.0.request);
            }
        });
    }

    /// Has all later commands of this session come after a [position](Replies::position) that another session was answered, in whatever
    /// groups. Of what this session was answered itself, that is so anyway.
    ///
    /// # Errors
    /// As [`Client::observe`](super::Client::observe).
    pub fn observe(&mut self, position: Position) -> Result<(), Refused> {
        on!(&mut self.core, core => {
            super::check_time(position, core.heard(), core.clock_bound())?;
            core.observe(position.latest());
        });
        Ok(())
    }

    /// Settles a command whose outcome is not known. The outcome comes in a later [`turn`](LocalClient::turn), under the number that is
    /// returned.
    ///
    /// # Errors
    /// As [`submit`](LocalClient::submit).
    pub fn resolve(&mut self, ticket: &Ticket) -> Result<Request, Refused> {
        on!(&mut self.core, core => core.resolve(ticket))?;
        Ok(Request(Name::of(&ticket.0)))
    }

    /// Returns what names a command whose outcome is not known yet, to be written down.
    #[must_use]
    pub fn ticket(&self, request: Request) -> Option<Ticket> {
        let ticket = on!(&self.core, core => core.ticket(request.0.request));
        ticket.filter(|ticket| Name::of(ticket) == request.0).cloned().map(Ticket)
    }

    /// Returns the session: write it down to take it up in a later process.
    #[must_use]
    pub fn session(&self) -> Session {
        on!(&self.core, core => Session(core.key()))
    }

    /// Returns the moment until which the session surely lives; see [`Client::lives_until`](super::Client::lives_until).
    #[must_use]
    pub fn lives_until(&self) -> Option<Instant> {
        on!(&self.core, core => core.lives_until())
    }

    /// Does one round. Each outcome is handed over as it comes. Says whether to turn again or to sleep on the client's descriptor.
    ///
    /// # Errors
    /// Why the client has ended. What was under way is unknown then.
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

    /// Returns the next notification to this session that has come, and was not taken. At most 1024 wait, and 1 MiB of theirs.
    pub fn take_notification(&mut self) -> Option<Notification> {
        on!(&mut self.core, core => core.take_notification())
    }

    /// Does something with the protocol's client. What is multicast there belongs to no session.
    #[cfg(feature = "unstable-core")]
    pub fn on_sender<V: OnSender>(&mut self, what: V) -> V::Output {
        on!(&mut self.core, core => what.on(core.sender()))
    }

    /// Leaves the session without ending it. Returns what a later process [takes up](super::ClientBuilder::session). It lives on for half of
    /// its [time to live](super::ClientBuilder::session_ttl) at least. Nothing is waited for: turn until the outcomes are there, or keep
    /// the [tickets](LocalClient::ticket) of what is under way.
    #[must_use = "the session cannot be taken up without it"]
    pub fn leave(self) -> Session {
        self.session()
    }

    /// Ends the session, and waits for that for a second at most. Its tickets cannot be resolved any more.
    ///
    /// # Errors
    /// Why the client had ended before.
    pub fn close(mut self) -> Result<(), ClientError> {
        on!(&mut self.core, core => core.close()).map_err(ClientError::from)
    }
}

/// Readable when there may be something to do, after [`Turn::Idle`].
impl AsFd for LocalClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        on!(&self.core, core => core.descriptor()).unwrap_or_else(|| self.never.as_fd())
    }
}
