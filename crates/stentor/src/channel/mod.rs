//! Channels: ordered messages between two processes.
//!
//! A [`Channel`] is one end. It has no thread: the caller's own calls drive it. So a message travels between the caller
//! and the network card without a thread switch, a lock, a dynamic call or, once buffers have grown, an allocation. A
//! serving thread, like that of [`Client`](crate::Client), would add two wake-ups to each message, which cost more than
//! the message itself.
//!
//! A channel can be used in three ways, in any mixture:
//!
//! - Blocking calls with a timeout: [`send_timeout`](Channel::send_timeout), [`recv_timeout`](Channel::recv_timeout).
//! - Futures for any executor: [`send`](Channel::send), [`recv`](Channel::recv). If they have to sleep, a thread of
//!   this process, shared by all channels, wakes them.
//! - An event loop: call [`try_send`](Channel::try_send), [`try_recv`](Channel::try_recv), then
//!   [`turn`](Channel::turn). After [`Turn::Idle`], wait for the [descriptor](AsFd). The descriptor also becomes
//!   readable when a timeout is due, so the loop needs no timer.
//!
//! # Progress
//! Only the channel's calls make progress. On shared memory, sent messages arrive without further calls. On a network,
//! lost packets are retransmitted only in later calls; [`flush`](Channel::flush) and [`close`](Channel::close) wait for
//! that. If the receiver does not read, messages stay at the sender once the window is full.
//!
//! # Order of calls
//! Call `start` or `open`, then any of `ready`, `send`, `recv`, `flush`, `finish` and `turn` in any order, then `close`
//! or drop. After an error of kind [`PeerGone`](ChannelErrorKind::PeerGone), [`Mismatch`](ChannelErrorKind::Mismatch)
//! or [`Failed`](ChannelErrorKind::Failed), drop the channel. After any other error of these calls the channel remains
//! usable.

mod builder;
mod core;
mod error;
mod place;
mod sending;
mod start;
mod waker;

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use self::core::{Core, Progress, Step};
use self::error::Problem;
use self::waker::Wakes;
use crate::Turn;
use crate::any_core::any_core;
use crate::descriptor::Descriptor;

pub use builder::ChannelBuilder;
pub use error::{ChannelError, ChannelErrorKind};
pub use sending::Sending;

/// Number of attempts of a future, while there is work, before its executor gets a turn.
const ATTEMPTS: u32 = 64;

/// The result of an attempt to receive a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Received {
    /// A message was received into the buffer.
    Message,
    /// There is no message now. The buffer is unchanged.
    Nothing,
    /// There will be no more messages: the other end has finished, and all its messages were read.
    End,
}

/// One end of a channel: it exchanges messages with one other process, in order and exactly once.
///
/// Dropping a channel aborts it: the other end gets an error, and may not receive the last messages.
/// [`close`](Channel::close) ends it in order.
pub struct Channel {
    place: String,
    core: AnyCore,
    descriptor: Descriptor,
    /// The registration that wakes the channel's futures. `None` until a future has had to sleep.
    wakes: Option<Wakes>,
    /// `true` if the owner may have slept on the descriptor since the last turn.
    sleeps: bool,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("place", &self.place).field("sent", &self.sent()).finish_non_exhaustive()
    }
}

any_core!($ Shm(ShmFabric) if "shm", Roce(RoceFabric) if "roce", Ofi(OfiFabric) if "ofi");

impl Channel {
    /// Returns a builder of the end that listens at a place. On shared memory a place is any text of at least one
    /// character; on `roce` and `ofi` it is `HOST:PORT`.
    pub fn listen(place: &str) -> ChannelBuilder {
        ChannelBuilder::at(place, true)
    }

    /// Returns a builder of the end that connects to a place; see [`listen`](Channel::listen). Either end may be opened
    /// first.
    pub fn connect(place: &str) -> ChannelBuilder {
        ChannelBuilder::at(place, false)
    }

    fn new(core: AnyCore, place: &str) -> Result<Channel, Problem> {
        let descriptor = on!(&core, core => Descriptor::new(core.descriptor()));
        let descriptor = descriptor.map_err(|source| Problem::System { what: "make a descriptor", source })?;
        Ok(Channel { place: place.to_owned(), core, descriptor, wakes: None, sleeps: false })
    }

    fn failed(&self, problem: Problem) -> ChannelError {
        ChannelError::new(&self.place, problem)
    }

    // -------------------------------------------------------------------------------------------------- event loops

    /// Sends a message if there is room for it now. Returns whether it is sent. If only the beginning of the message
    /// fits, the message counts as sent: the channel copies the rest, and accepts no other message until the rest has
    /// left.
    ///
    /// # Errors
    /// Returns why the message was not sent. It is then never sent.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool, ChannelError> {
        on!(&mut self.core, core => core.try_send(message)).map_err(|problem| self.failed(problem))
    }

    /// Receives the next message, if it has arrived, and replaces the content of `message`. Buffers are swapped, not
    /// copied.
    ///
    /// # Errors
    /// Returns why no more messages will arrive. Messages that arrived before the failure are returned first.
    #[inline]
    pub fn try_recv(&mut self, message: &mut Vec<u8>) -> Result<Received, ChannelError> {
        let looked = on!(&mut self.core, core => match core.read(message) {
            Ok(Received::Nothing) if core.round() => core.read(message),
            looked => looked,
        });
        looked.map_err(|problem| self.failed(problem))
    }

    /// Makes progress without waiting. Returns [`Turn::Busy`] if there may be more work, or [`Turn::Idle`] if the
    /// caller can sleep until the descriptor is readable. Never returns [`Turn::Stopped`].
    ///
    /// Call this when [`try_send`](Channel::try_send) or [`try_recv`](Channel::try_recv) could do nothing, and repeat
    /// those calls while the result is `Busy`.
    ///
    /// # Errors
    /// Returns an error if the operating system cannot wait. Failures of the channel itself are returned by the other
    /// calls.
    #[inline]
    pub fn turn(&mut self) -> Result<Turn, ChannelError> {
        match self.step()? {
            Step::Worked | Step::Spin => Ok(Turn::Busy),
            Step::Sleep(longest) => Ok(Turn::Idle(Instant::now() + longest)),
        }
    }

    #[inline]
    fn step(&mut self) -> Result<Step, ChannelError> {
        if std::mem::take(&mut self.sleeps) {
            self.descriptor.woken();
            on!(&mut self.core, core => core.woken()).map_err(|problem| self.failed(problem))?;
        }
        let step = on!(&mut self.core, core => core.step());
        if let Step::Sleep(longest) = step {
            self.sleeps = true;
            self.descriptor.sleep_for(longest).map_err(|error| self.system("set a timer", error))?;
        }
        Ok(step)
    }

    fn system(&self, what: &'static str, source: io::Error) -> ChannelError {
        self.failed(Problem::System { what, source })
    }

    // ------------------------------------------------------------------------------------------------------- futures

    /// Waits until the other end is open.
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    /// Returns why the two ends cannot be connected.
    pub async fn ready(&mut self) -> Result<(), ChannelError> {
        poll_fn(|context| self.poll_until(context, Channel::opened)).await
    }

    /// Sends a message. The future completes when the message is handed to the fabric, which may be before it arrives
    /// at the other end. See [`Sending`] for the effect of dropping the future.
    ///
    /// # Errors
    /// Returns why the message is not sent. After [`ChannelErrorKind::PeerGone`] its beginning may have been sent.
    pub fn send<'a>(&'a mut self, message: &'a [u8]) -> Sending<'a> {
        Sending::new(self, message)
    }

    /// Receives the next message and replaces the content of `message`. Returns `false` if the other end has finished
    /// and everything was read.
    ///
    /// Dropping the future loses nothing: the received parts of a message are kept for the next call.
    ///
    /// # Errors
    /// Returns why no more messages will arrive.
    pub async fn recv(&mut self, message: &mut Vec<u8>) -> Result<bool, ChannelError> {
        poll_fn(|context| self.poll_recv(context, message)).await
    }

    /// Receives like [`recv`](Channel::recv), for hand-written futures. The task that polled last is woken.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`recv`](Channel::recv).
    pub fn poll_recv(&mut self, context: &mut Context<'_>, message: &mut Vec<u8>) -> Poll<Result<bool, ChannelError>> {
        self.poll_until(context, |channel| channel.received(message))
    }

    /// Waits until the fabric has carried all sent messages to the memory of the other end.
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    /// Returns an error if the channel has failed. Whether the messages have arrived then remains unknown.
    pub async fn flush(&mut self) -> Result<(), ChannelError> {
        poll_fn(|context| self.poll_until(context, Channel::flushed)).await
    }

    /// Finishes sending, and waits until the other end has finished, too. Messages that the other end still sends are
    /// not read. Drop the channel afterwards.
    ///
    /// If the future is dropped, `close` can be called again.
    ///
    /// # Errors
    /// Returns why the channel did not end in order.
    pub async fn close(&mut self) -> Result<(), ChannelError> {
        poll_fn(|context| self.poll_until(context, Channel::closed)).await
    }

    /// Repeats `attempt` while there is work, until it succeeds. If it does not succeed, the task is woken when there
    /// may be work.
    fn poll_until<T>(
        &mut self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Channel) -> Result<Option<T>, ChannelError>,
    ) -> Poll<Result<T, ChannelError>> {
        for _ in 0..ATTEMPTS {
            if let Some(value) = attempt(self)? {
                return Poll::Ready(Ok(value));
            }
            match self.step()? {
                Step::Worked => {}
                Step::Spin => break,
                Step::Sleep(_) => {
                    self.wake_later(context).map_err(|error| self.system("have a task woken", error))?;
                    return Poll::Pending;
                }
            }
        }
        // There is more work, or it is too early to sleep: let other tasks run first.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn wake_later(&mut self, context: &Context<'_>) -> io::Result<()> {
        if self.wakes.is_none() {
            self.wakes = Some(Wakes::new(self.descriptor.as_fd())?);
        }
        self.wakes.as_ref().map_or(Ok(()), |wakes| wakes.wake(context.waker()))
    }

    // ---------------------------------------------------------------------------------------------- calls that block

    /// Waits until the other end is open, for at most `longest`.
    ///
    /// # Errors
    /// Returns [`ChannelErrorKind::PeerAbsent`] if the other end is not open in time, or the reason why the two ends
    /// cannot be connected.
    pub fn ready_timeout(&mut self, longest: Duration) -> Result<(), ChannelError> {
        let until = Instant::now().checked_add(longest);
        let opened = on!(&mut self.core, core => core.block(until, |core| core.opened()));
        match opened.map_err(|problem| self.failed(problem))? {
            Some(()) => Ok(()),
            None => Err(on!(&mut self.core, core => core.absent(longest))).map_err(|problem| self.failed(problem)),
        }
    }

    /// Sends a message, and waits for room for at most `longest`. After a timeout the message is not sent, unless its
    /// beginning has left already: then the channel sends the rest, as for [`try_send`](Channel::try_send), and the
    /// call succeeds.
    ///
    /// # Errors
    /// Returns why the message is not sent: [`ChannelErrorKind::TimedOut`] if there was no room in time.
    pub fn send_timeout(&mut self, message: &[u8], longest: Duration) -> Result<(), ChannelError> {
        let (until, mut progress) = (Instant::now().checked_add(longest), Progress::New);
        let sent = on!(&mut self.core, core => {
            let push = core.block(until, |core| Ok(core.push(message, &mut progress)?.then_some(())));
            let is_sent = core.let_go(message, &mut progress);
            push.map(|pushed| pushed.or(is_sent.then_some(())))
        });
        self.in_time(sent, "sending", longest)
    }

    /// Receives the next message and replaces the content of `message`. Waits for at most `longest`. Returns `false` if
    /// the other end has finished and everything was read. A timeout loses nothing: the received parts of a message are
    /// kept.
    ///
    /// # Errors
    /// Returns [`ChannelErrorKind::TimedOut`] if no message arrived in time, or the reason why no more messages will
    /// arrive.
    pub fn recv_timeout(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<bool, ChannelError> {
        let until = Instant::now().checked_add(longest);
        let received = on!(&mut self.core, core => core.block(until, |core| Ok(found(core.read(message)?))));
        self.in_time(received, "receiving", longest)
    }

    /// Waits like [`flush`](Channel::flush), for at most `longest`.
    ///
    /// # Errors
    /// Returns [`ChannelErrorKind::TimedOut`], or an error of [`flush`](Channel::flush).
    pub fn flush_timeout(&mut self, longest: Duration) -> Result<(), ChannelError> {
        let until = Instant::now().checked_add(longest);
        let flushed = on!(&mut self.core, core => core.block(until, |core| core.flushed()));
        self.in_time(flushed, "flushing", longest)
    }

    /// Closes like [`close`](Channel::close), and waits for at most `longest`. If the channel is dropped after a
    /// timeout, it is aborted.
    ///
    /// # Errors
    /// Returns [`ChannelErrorKind::TimedOut`], or an error of [`close`](Channel::close).
    pub fn close_timeout(&mut self, longest: Duration) -> Result<(), ChannelError> {
        let until = Instant::now().checked_add(longest);
        let closed = on!(&mut self.core, core => core.block(until, |core| core.close()));
        self.in_time(closed, "closing", longest)
    }

    fn in_time<T>(
        &self,
        done: Result<Option<T>, Problem>,
        what: &'static str,
        waited: Duration,
    ) -> Result<T, ChannelError> {
        let done = done.and_then(|done| done.ok_or(Problem::TimedOut { what, waited }));
        done.map_err(|problem| self.failed(problem))
    }

    // ------------------------------------------------------------------------------------------------------ the rest

    /// Ends sending. The other end receives all sent messages, and then the end. Messages of the other end can still be
    /// received.
    ///
    /// # Errors
    /// Returns an error if a leaked future of [`send`](Channel::send) had sent only a part of its message.
    pub fn finish(&mut self) -> Result<(), ChannelError> {
        on!(&mut self.core, core => core.finish()).map_err(|problem| self.failed(problem))
    }

    /// Returns the number of messages that were sent or that the channel is sending by itself. After a future of
    /// [`send`](Channel::send) was dropped, the number shows whether its message was sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        on!(&self.core, core => core.sent())
    }

    fn opened(&mut self) -> Result<Option<()>, ChannelError> {
        on!(&mut self.core, core => core.opened()).map_err(|problem| self.failed(problem))
    }

    fn push(&mut self, message: &[u8], progress: &mut Progress) -> Result<bool, ChannelError> {
        on!(&mut self.core, core => core.push(message, progress)).map_err(|problem| self.failed(problem))
    }

    fn let_go(&mut self, message: &[u8], progress: &mut Progress) {
        on!(&mut self.core, core => core.let_go(message, progress));
    }

    fn received(&mut self, message: &mut Vec<u8>) -> Result<Option<bool>, ChannelError> {
        on!(&mut self.core, core => core.read(message)).map(found).map_err(|problem| self.failed(problem))
    }

    fn flushed(&mut self) -> Result<Option<()>, ChannelError> {
        on!(&mut self.core, core => core.flushed()).map_err(|problem| self.failed(problem))
    }

    fn closed(&mut self) -> Result<Option<()>, ChannelError> {
        on!(&mut self.core, core => core.close()).map_err(|problem| self.failed(problem))
    }
}

fn found(received: Received) -> Option<bool> {
    match received {
        Received::Message => Some(true),
        Received::End => Some(false),
        Received::Nothing => None,
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        on!(&mut self.core, core => core.give_up());
    }
}

/// The descriptor is readable when there may be work after [`Turn::Idle`].
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The number of the channel's descriptor, for event loops that identify descriptors by number, such as that of tokio.
/// The number is invalid once the channel is dropped.
impl std::os::fd::AsRawFd for Channel {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.as_fd().as_raw_fd()
    }
}

const _: () = {
    const fn sent<T: Send>() {}
    sent::<Channel>();
    sent::<Sending<'_>>();
};
