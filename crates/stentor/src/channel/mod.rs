//! Channels: ordered messages between two processes.
//!
//! A [`Channel`] is one end. It has no thread: whoever calls it turns it, so a message goes from the caller to the network card and back
//! without a hop, a lock, a dynamic call or, once buffers have grown, an allocation. A thread that served it, as that of
//! [`Client`](crate::Client) does, would add two wake-ups to each message, which cost more than the message.
//!
//! The same channel can be used in three ways, and in all of them by turns:
//!
//! - Calls that block for so long at most: [`send_timeout`](Channel::send_timeout), [`recv_timeout`](Channel::recv_timeout).
//! - Futures for any executor: [`send`](Channel::send), [`recv`](Channel::recv). When they have to sleep, one thread of the process wakes
//!   them.
//! - In an event loop: [`try_send`](Channel::try_send), [`try_recv`](Channel::try_recv), then [`turn`](Channel::turn); wait for the
//!   [descriptor](AsFd) after [`Turn::Idle`]. The descriptor tells the time as well, so the loop needs no timer.
//!
//! # What nobody does for you
//! A channel is turned by its calls, and by nothing else. What has been sent arrives without further calls on shared memory; where packets
//! are lost they are sent again in later calls only. [`flush`](Channel::flush) and [`close`](Channel::close) wait for that. Messages that
//! are not read are held at the sender, once the window is full.
//!
//! # Calls
//! `start` or `open`; then any of `ready`, `send`, `recv`, `flush`, `finish`, `turn` in any order; then `close`, or drop. After an error whose
//! kind is [`PeerGone`](ChannelErrorKind::PeerGone), [`Mismatch`](ChannelErrorKind::Mismatch) or [`Failed`](ChannelErrorKind::Failed) every
//! call returns such an error. After another kind the channel goes on.

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

/// Attempts of a future before its executor has a turn, while there is something to do.
const ATTEMPTS: u32 = 64;

/// The result of a look for a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Received {
    /// A message, which is in the buffer now.
    Message,
    /// Nothing now. The buffer is as it was.
    Nothing,
    /// Nothing any more: the other end has finished, and everything was read.
    End,
}

/// One end of a channel: messages to one other process, and from it, in order, each once.
///
/// A channel that is dropped is given up: the other end gets an error, and may not read what was sent last. [`close`](Channel::close) ends
/// it in order.
pub struct Channel {
    place: String,
    core: AnyCore,
    descriptor: Descriptor,
    /// What wakes its futures, once one had to sleep.
    wakes: Option<Wakes>,
    /// Whether the owner may have slept on the descriptor since the last turn.
    sleeps: bool,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("place", &self.place).field("sent", &self.sent()).finish_non_exhaustive()
    }
}

any_core!($ Shm(ShmFabric) if "shm", Roce(RoceFabric) if "roce", Ofi(OfiFabric) if "ofi");

impl Channel {
    /// Begins the end that listens at a place. On shared memory a place is any text; on `roce` and `ofi` it is `HOST:PORT`.
    pub fn listen(place: &str) -> ChannelBuilder {
        ChannelBuilder::at(place, true)
    }

    /// Begins the end that connects to a place; see [`listen`](Channel::listen). Either end may be opened first.
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

    /// Sends a message if there is room for it now. Returns whether it is sent. A message of which only the beginning has room is sent: the
    /// channel keeps a copy of the rest, and there is no room until that has gone.
    ///
    /// # Errors
    /// Why it is not sent, and never will be.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool, ChannelError> {
        on!(&mut self.core, core => core.try_send(message)).map_err(|problem| self.failed(problem))
    }

    /// Puts the next message in place of what `message` holds, if it has arrived. Buffers are exchanged, not copied.
    ///
    /// # Errors
    /// Why no message comes any more. What had arrived before was read.
    #[inline]
    pub fn try_recv(&mut self, message: &mut Vec<u8>) -> Result<Received, ChannelError> {
        let looked = on!(&mut self.core, core => match core.read(message) {
            Ok(Received::Nothing) if core.round() => core.read(message),
            looked => looked,
        });
        looked.map_err(|problem| self.failed(problem))
    }

    /// Does what there is to do, without waiting. Says whether to look again ([`Turn::Busy`]), or to wait until the descriptor is readable
    /// ([`Turn::Idle`]). It never says [`Turn::Stopped`].
    ///
    /// Call it when [`try_send`](Channel::try_send) or [`try_recv`](Channel::try_recv) had nothing to do, and try again while it is busy.
    ///
    /// # Errors
    /// If the system refuses to wait. A failure of the channel itself is returned by the other calls.
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

    /// Waits until the other end is there.
    ///
    /// Dropped, it has no effect.
    ///
    /// # Errors
    /// Why the other end does not come to terms with this one.
    pub async fn ready(&mut self) -> Result<(), ChannelError> {
        poll_fn(|context| self.poll_until(context, Channel::opened)).await
    }

    /// Sends a message. It is ready when the message is handed over, which may be before the other end has it. See [`Sending`] for what
    /// becomes of a message whose future is dropped.
    ///
    /// # Errors
    /// Why it is not sent. After [`ChannelErrorKind::PeerGone`] the beginning of it may have been.
    pub fn send<'a>(&'a mut self, message: &'a [u8]) -> Sending<'a> {
        Sending::new(self, message)
    }

    /// Puts the next message in place of what `message` holds. Returns false if the other end has finished, and everything was read.
    ///
    /// Dropped, it loses nothing: the parts of a message that have arrived are kept for the next call.
    ///
    /// # Errors
    /// Why no message comes any more.
    pub async fn recv(&mut self, message: &mut Vec<u8>) -> Result<bool, ChannelError> {
        poll_fn(|context| self.poll_recv(context, message)).await
    }

    /// Receives as [`recv`](Channel::recv), for futures that are written by hand. The task that polled last is woken.
    ///
    /// # Errors
    /// As [`recv`](Channel::recv).
    pub fn poll_recv(&mut self, context: &mut Context<'_>, message: &mut Vec<u8>) -> Poll<Result<bool, ChannelError>> {
        self.poll_until(context, |channel| channel.received(message))
    }

    /// Waits until the fabric has carried everything that was sent to the other end's memory.
    ///
    /// Dropped, it has no effect.
    ///
    /// # Errors
    /// Why that is not known, and never will be.
    pub async fn flush(&mut self) -> Result<(), ChannelError> {
        poll_fn(|context| self.poll_until(context, Channel::flushed)).await
    }

    /// Finishes, and waits until the other end has finished as well. What it still sends is not read. Drop the channel then.
    ///
    /// Dropped, it can be called again.
    ///
    /// # Errors
    /// Why the channel did not end in order.
    pub async fn close(&mut self) -> Result<(), ChannelError> {
        poll_fn(|context| self.poll_until(context, Channel::closed)).await
    }

    /// Tries until it succeeds; has the task woken when there is something to do.
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
        // There is more to do, or it is too early to sleep: other tasks come first.
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

    /// Waits until the other end is there, for so long at most.
    ///
    /// # Errors
    /// [`ChannelErrorKind::PeerAbsent`] if it is not there in time; why it does not come to terms with this one.
    pub fn ready_timeout(&mut self, longest: Duration) -> Result<(), ChannelError> {
        let until = Instant::now().checked_add(longest);
        let opened = on!(&mut self.core, core => core.block(until, |core| core.opened()));
        match opened.map_err(|problem| self.failed(problem))? {
            Some(()) => Ok(()),
            None => Err(on!(&mut self.core, core => core.absent(longest))).map_err(|problem| self.failed(problem)),
        }
    }

    /// Sends a message; waits for room for so long at most. When the time is over the message is not sent, unless some of it has left: then
    /// it is sent, as by [`try_send`](Channel::try_send).
    ///
    /// # Errors
    /// Why it is not sent: [`ChannelErrorKind::TimedOut`] if there was no room in time.
    pub fn send_timeout(&mut self, message: &[u8], longest: Duration) -> Result<(), ChannelError> {
        let (until, mut progress) = (Instant::now().checked_add(longest), Progress::New);
        let sent = on!(&mut self.core, core => {
            let push = core.block(until, |core| Ok(core.push(message, &mut progress)?.then_some(())));
            let is_sent = core.let_go(message, &mut progress);
            push.map(|pushed| pushed.or(is_sent.then_some(())))
        });
        self.in_time(sent, "sending", longest)
    }

    /// Puts the next message in place of what `message` holds; waits for so long at most. Returns false if the other end has finished, and
    /// everything was read. When the time is over nothing is lost: parts that have arrived are kept.
    ///
    /// # Errors
    /// [`ChannelErrorKind::TimedOut`] if no message came in time; why none comes any more.
    pub fn recv_timeout(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<bool, ChannelError> {
        let until = Instant::now().checked_add(longest);
        let received = on!(&mut self.core, core => core.block(until, |core| Ok(found(core.read(message)?))));
        self.in_time(received, "receiving", longest)
    }

    /// Waits as [`flush`](Channel::flush), for so long at most.
    ///
    /// # Errors
    /// [`ChannelErrorKind::TimedOut`], or as there.
    pub fn flush_timeout(&mut self, longest: Duration) -> Result<(), ChannelError> {
        let until = Instant::now().checked_add(longest);
        let flushed = on!(&mut self.core, core => core.block(until, |core| core.flushed()));
        self.in_time(flushed, "flushing", longest)
    }

    /// Closes as [`close`](Channel::close), and waits for so long at most. The channel is given up then, if it is dropped.
    ///
    /// # Errors
    /// [`ChannelErrorKind::TimedOut`], or as there.
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

    /// Sends nothing more. The other end reads everything that was sent, and then the end; its messages can still be received.
    ///
    /// # Errors
    /// Why what was sent does not arrive.
    pub fn finish(&mut self) -> Result<(), ChannelError> {
        on!(&mut self.core, core => core.finish()).map_err(|problem| self.failed(problem))
    }

    /// Returns how many messages were sent, or are being sent by the channel itself. It says what became of a message whose future was
    /// dropped.
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

/// Readable when there may be something to do, after [`Turn::Idle`].
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// For event loops that know descriptors by their numbers, such as that of tokio. The number means nothing once the channel is dropped.
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
