//! Two interfaces over an [`Endpoint`]: futures for any runtime, and blocking calls.
//!
//! A [`Hub`] owns the endpoint; [`Channel`]s are its connections. One thread calls [`Hub::turn`] repeatedly, from the
//! caller's event loop or through [`Hub::block_on`]. This module starts no threads and needs no runtime.
//!
//! # Cancel safety
//! Every future can be dropped at any time, for instance by a timeout or by a `select!`. The connection stays
//! consistent: the peer reads every sent message once and as a whole, and later calls work.
//!
//! | dropped future | effect |
//! |---|---|
//! | [`Channel::write`] | the message is not sent, or the channel sends the rest from a copy; see [`Write`] |
//! | [`Channel::read`] | none: parts that have arrived are kept for the next read |
//! | [`Channel::flush`] | none |
//! | [`Channel::close`] | if it was polled, this end has finished writing; a further `close` waits for the rest |

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stentor_fabric::{Backoff, Fabric, ProcessId, WaitError, WaitMode};
use thiserror::Error;

use crate::{ChannelError, Endpoint, Handle, Notice, OpenError, WriteError};

/// Number of turns after which the fabric's events are polled. A turn without other work polls them, too.
const HOUSEKEEP_TURNS: u32 = 64;
/// Longest sleep between two turns of [`Hub::block_on`]. It limits the time during which events of the fabric's control
/// plane are not polled.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// Reason why a call of a channel failed.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// The connection failed.
    #[error(transparent)]
    Failed(#[from] ChannelError),
    /// The call was refused and had no effect.
    #[error(transparent)]
    Refused(#[from] WriteError),
}

/// State that the hub keeps for a connection.
#[derive(Debug, Default)]
struct End {
    written: u64,
    error: Option<ChannelError>,
    closed: bool,
    /// Waker of the last task that waited in each [`Call`].
    waiting: [Option<Waker>; 4],
}

/// A call that a task can wait in. Used as an index of `End::waiting`.
#[derive(Debug, Clone, Copy)]
enum Call {
    Write,
    Flush,
    Read,
    Close,
}

struct State<F: Fabric> {
    endpoint: Endpoint<F>,
    ends: BTreeMap<Handle, End>,
    turns: u32,
    /// Wakers to call after this turn. The vector is empty between turns; its allocation is reused.
    woken: Vec<Waker>,
    /// Wakers that were replaced by newer ones. They are dropped after the next turn.
    replaced: Vec<Waker>,
}

/// An endpoint whose connections are [`Channel`]s. Clones share the endpoint.
pub struct Hub<F: Fabric> {
    state: Rc<RefCell<State<F>>>,
}

impl<F: Fabric> Clone for Hub<F> {
    fn clone(&self) -> Self {
        Hub { state: Rc::clone(&self.state) }
    }
}

impl<F: Fabric> State<F> {
    fn turn(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let mut worked = self.endpoint.step();
        if !worked || self.turns.is_multiple_of(HOUSEKEEP_TURNS) {
            worked |= self.endpoint.housekeep();
        }
        while let Some((handle, notice)) = self.endpoint.next_notice() {
            worked = true;
            let Some(end) = self.ends.get_mut(&handle) else { continue };
            match notice {
                Notice::Opened => {}
                Notice::Written(number) => end.written = number + 1,
                Notice::Failed(error) => end.error = Some(error),
                Notice::Closed => end.closed = true,
            }
        }
        if worked {
            let waiting = self.ends.values_mut().flat_map(|end| &mut end.waiting);
            self.woken.extend(waiting.filter_map(Option::take));
        }
        worked
    }
}

impl<F: Fabric> Hub<F> {
    /// Creates a hub that owns the endpoint.
    pub fn new(endpoint: Endpoint<F>) -> Self {
        let state = State { endpoint, ends: BTreeMap::new(), turns: 0, woken: Vec::new(), replaced: Vec::new() };
        Hub { state: Rc::new(RefCell::new(state)) }
    }

    /// Opens this end of a connection; see [`Endpoint::open`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, peer: ProcessId, number: u32) -> Result<Channel<F>, OpenError> {
        let mut state = self.state.borrow_mut();
        let handle = state.endpoint.open(peer, number)?;
        state.ends.insert(handle, End::default());
        Ok(Channel { state: Rc::clone(&self.state), handle, begun: 0, reading: Vec::new() })
    }

    /// Drives the endpoint once. If there was any work, wakes all waiting tasks and returns true. The credits that a
    /// read frees are sent in the next turn, so a caller must call `turn` between a read and a sleep.
    pub fn turn(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let worked = state.turn();
        if !(state.woken.is_empty() && state.replaced.is_empty()) {
            let mut woken = std::mem::take(&mut state.woken);
            let replaced = std::mem::take(&mut state.replaced);
            drop(state);
            // The hub must not be borrowed here: a waker may run or drop its task, and the task may use or own
            // channels.
            drop(replaced);
            woken.drain(..).for_each(Waker::wake);
            self.state.borrow_mut().woken = woken;
        }
        worked
    }

    /// Runs turns until a future is ready. Waits between turns in the mode `mode`.
    ///
    /// # Errors
    /// See [`WaitError`]. In case of an error, the future is dropped.
    pub fn block_on<T>(&self, mode: WaitMode, future: impl Future<Output = T>) -> Result<T, WaitError> {
        let value = self.block_on_until(mode, future, || false)?;
        Ok(value.expect("`None` is returned only if `is_over` returned true"))
    }

    /// Runs turns like [`block_on`](Hub::block_on), but also stops when `is_over` returns true. It then drops the
    /// future and returns `None`. The caller can end the connection with [`Channel::time_out`].
    ///
    /// # Errors
    /// See [`WaitError`].
    pub fn block_on_until<T>(
        &self,
        mode: WaitMode,
        future: impl Future<Output = T>,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<Option<T>, WaitError> {
        let mut future = pin!(future);
        let mut backoff = Backoff::new(mode);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let worked = self.turn();
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Ok(Some(value));
            }
            if is_over() {
                return Ok(None);
            }
            let endpoint = &mut self.state.borrow_mut().endpoint;
            let worked = worked || endpoint.is_due();
            backoff.pause(endpoint.fabric_mut(), worked, LONGEST_SLEEP)?;
        }
    }
}

/// One end of a connection. If it is dropped before it is closed, the connection is aborted.
pub struct Channel<F: Fabric> {
    state: Rc<RefCell<State<F>>>,
    handle: Handle,
    /// Number of messages that were handed over by a [`Write`], or whose rest the endpoint sends by itself.
    begun: u64,
    reading: Vec<u8>,
}

impl<F: Fabric> State<F> {
    fn end(&mut self, handle: Handle) -> &mut End {
        self.ends.entry(handle).or_default()
    }

    /// Returns `Poll::Pending` and stores the waker. The task is woken after the next turn that has any work. For each
    /// call of a connection, only the task that polled it last is woken.
    fn pending<T>(&mut self, handle: Handle, call: Call, context: &Context<'_>) -> Poll<T> {
        let waiting = &mut self.end(handle).waiting[call as usize];
        if !waiting.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            // Dropping a waker may drop a task that owns channels, which must not happen while the hub is borrowed.
            let replaced = waiting.replace(context.waker().clone());
            self.replaced.extend(replaced);
        }
        Poll::Pending
    }
}

impl<F: Fabric> Channel<F> {
    /// Hands a message over. The future returns the message's number once all of it is handed over. If the future is
    /// dropped before that, the message is sent as a whole or not at all; see [`Write`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn write<'a>(&'a mut self, message: &'a [u8]) -> Write<'a, F> {
        Write { channel: self, message, progress: Progress::New }
    }

    /// Returns the number of the next message, which is the number of messages that were or are being sent. After a
    /// [`Write`] was dropped, this number shows whether its message is sent nevertheless.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.begun
    }

    /// Returns ready once all messages that were handed over have been sent, or the connection has failed. A message is
    /// sent when the fabric has completed its operations.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let mut state = self.state.borrow_mut();
        let end = state.end(self.handle);
        match end.error {
            Some(error) => Poll::Ready(Err(error.into())),
            None if end.written >= self.begun => Poll::Ready(Ok(())),
            None => state.pending(self.handle, Call::Flush, context),
        }
    }

    /// Polls for the next message. The result is `None` when the peer has finished and all its messages were read.
    pub fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, CallError>>> {
        let mut state = self.state.borrow_mut();
        if state.endpoint.read(self.handle, &mut self.reading) {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.reading))));
        }
        if let Some(error) = state.end(self.handle).error {
            return Poll::Ready(Some(Err(error.into())));
        }
        if state.endpoint.has_ended(self.handle) {
            return Poll::Ready(None);
        }
        state.pending(self.handle, Call::Read, context)
    }

    /// Finishes writing. Returns ready once the connection is over: the peer has finished, too, and all its messages
    /// have been read, or the connection has failed. A message that is not handed over completely is an error.
    pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let mut state = self.state.borrow_mut();
        let end = state.end(self.handle);
        match (end.closed, end.error) {
            (true, Some(error)) => return Poll::Ready(Err(error.into())),
            (true, None) => return Poll::Ready(Ok(())),
            (false, Some(_)) => return state.pending(self.handle, Call::Close, context),
            (false, None) => {}
        }
        match state.endpoint.finish(self.handle) {
            Ok(()) | Err(WriteError::Closed) => state.pending(self.handle, Call::Close, context),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Finishes writing. The peer's messages can still be read.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn finish(&mut self) -> Result<(), CallError> {
        Ok(self.state.borrow_mut().endpoint.finish(self.handle)?)
    }

    /// Aborts the connection because the caller has measured a wait of `waited`. If the connection was open,
    /// [`write`](Self::write), [`read`](Self::read), [`flush`](Self::flush) and [`close`](Self::close) return an error
    /// that names the peer and this time, from the next [`Hub::turn`] on.
    pub fn time_out(&mut self, waited: Duration) {
        self.state.borrow_mut().endpoint.time_out(self.handle, waited);
    }

    /// Waits until [`poll_flush`](Channel::poll_flush) is ready.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn flush(&mut self) -> Result<(), CallError> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Waits until [`poll_read`](Channel::poll_read) is ready.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn read(&mut self) -> Option<Result<Vec<u8>, CallError>> {
        poll_fn(|context| self.poll_read(context)).await
    }

    /// Waits until [`poll_close`](Channel::poll_close) is ready. If the future is dropped, `close` can be called again.
    /// If the channel is dropped before it is closed, the connection is aborted.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn close(&mut self) -> Result<(), CallError> {
        poll_fn(|context| self.poll_close(context)).await
    }
}

impl<F: Fabric> Drop for Channel<F> {
    fn drop(&mut self) {
        let removed = {
            let mut state = self.state.borrow_mut();
            state.endpoint.abort(self.handle);
            state.ends.remove(&self.handle)
        };
        // The wakers may hold the last references to tasks that own channels, so they must not be dropped while the hub
        // is borrowed.
        drop(removed);
    }
}

/// The future of [`Channel::write`]. It returns the message's number once all of the message is handed over to the
/// fabric.
///
/// # Cancel safety
/// The future can be dropped at any time; the next write is not affected.
///
/// - If nothing of the message had been sent, not even its length, the write had no effect, and
///   [`Channel::next_number`] has its earlier value.
/// - Otherwise the peer will read the whole message, unless the connection fails. The drop copies the bytes that are
///   left into memory of the channel. The copy costs time, and memory until its bytes are sent, for at most one message
///   per connection. Until then the next write and the next [`flush`](Channel::flush) wait. A write that is not dropped
///   makes no such copy.
///
/// A future that is leaked instead of dropped (`mem::forget`) leaves its message unfinished; further writes then return
/// [`WriteError::Busy`].
#[must_use = "futures do nothing unless polled"]
pub struct Write<'a, F: Fabric> {
    channel: &'a mut Channel<F>,
    message: &'a [u8],
    progress: Progress,
}

/// Progress of a write.
#[derive(Debug, Clone, Copy)]
enum Progress {
    New,
    /// The message with this number was begun, but perhaps not handed over completely.
    Begun(u64),
    Done(Result<u64, CallError>),
}

impl<F: Fabric> Write<'_, F> {
    /// Hands over more of the message. Returns its number once all of it is handed over.
    fn advance(&mut self, state: &mut State<F>) -> Result<Option<u64>, CallError> {
        let handle = self.channel.handle;
        if let Some(error) = state.end(handle).error {
            return Err(error.into());
        }
        let number = match self.progress {
            Progress::Begun(number) => number,
            Progress::Done(result) => return result.map(Some),
            Progress::New => match state.endpoint.begin(handle, self.message.len() as u64) {
                Ok(number) => number,
                Err(WriteError::Busy { .. }) if state.endpoint.is_detached(handle) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
        };
        self.progress = Progress::Begun(number);
        let is_whole = state.endpoint.hand_over(handle, self.message)?;
        Ok(is_whole.then_some(number))
    }
}

impl<F: Fabric> Future for Write<'_, F> {
    type Output = Result<u64, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let write = self.get_mut();
        let state = Rc::clone(&write.channel.state);
        let mut state = state.borrow_mut();
        let result = match write.advance(&mut state) {
            Ok(None) => return state.pending(write.channel.handle, Call::Write, context),
            Ok(Some(number)) => {
                write.channel.begun = number + 1;
                Ok(number)
            }
            Err(error) => Err(error),
        };
        write.progress = Progress::Done(result);
        Poll::Ready(result)
    }
}

impl<F: Fabric> Drop for Write<'_, F> {
    fn drop(&mut self) {
        let Progress::Begun(number) = self.progress else { return };
        let detached = self.channel.state.borrow_mut().endpoint.detach(self.channel.handle, self.message);
        // `detached` is never an error, because the message is the one that was begun.
        if detached == Ok(true) {
            self.channel.begun = number + 1;
        }
    }
}
