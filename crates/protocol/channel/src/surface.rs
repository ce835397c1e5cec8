//! Two surfaces over an [`Endpoint`]: futures for any runtime, and calls that block.
//!
//! A [`Hub`] owns the endpoint, [`Channel`]s are its connections. Somebody calls [`Hub::turn`] again and again, from the same
//! thread: an event loop of the caller's, or [`Hub::block_on`]. Nothing here starts threads or needs a runtime.
//!
//! # Cancel safety
//! Every future can be dropped at any time, for instance by a timeout or by a `select!`. The connection stays in order: the
//! peer reads whole messages, each once, and the next call works as if the dropped one had returned.
//!
//! | dropped future | effect |
//! |---|---|
//! | [`Channel::write`] | if no byte had left, none: the message is not sent. Otherwise the channel copies the bytes that are left and sends them by itself; see [`Write`] |
//! | [`Channel::read`] | none: the parts that have arrived are kept for the next read |
//! | [`Channel::flush`] | none |
//! | [`Channel::close`] | this end has finished writing; a further `close` waits for the rest |

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

/// Events of the fabric are asked for once in so many turns, and whenever there is nothing else to do.
const HOUSEKEEP_TURNS: u32 = 64;
/// The longest sleep, in which nothing of the fabric's control plane is heard.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// Why a call of a channel did not work.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// The connection failed.
    #[error(transparent)]
    Failed(#[from] ChannelError),
    /// The message was not taken.
    #[error(transparent)]
    Refused(#[from] WriteError),
}

/// What is known of a connection besides what the endpoint knows.
#[derive(Debug, Default)]
struct End {
    written: u64,
    error: Option<ChannelError>,
    closed: bool,
    /// The last waker of each [`Call`].
    waiting: [Option<Waker>; 4],
}

/// What a task waits for.
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
    /// What is woken after this turn; empty between turns, its room is kept.
    woken: Vec<Waker>,
    /// Wakers that others took the place of; dropped after the next turn.
    replaced: Vec<Waker>,
}

/// An endpoint whose connections are [`Channel`]s. Clones are the same one.
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
    /// Takes over an endpoint.
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

    /// Does what there is to do and wakes whom it concerns. Whether there was anything; what follows from a read is done in the
    /// next turn, so who has read takes one more before it sleeps.
    pub fn turn(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let worked = state.turn();
        if !(state.woken.is_empty() && state.replaced.is_empty()) {
            let mut woken = std::mem::take(&mut state.woken);
            let replaced = std::mem::take(&mut state.replaced);
            drop(state);
            // A waker may run its task, or drop it, and a task uses or owns channels.
            drop(replaced);
            woken.drain(..).for_each(Waker::wake);
            self.state.borrow_mut().woken = woken;
        }
        worked
    }

    /// Takes turns until a future is ready; between them waits as `mode` says.
    ///
    /// # Errors
    /// See [`WaitError`]; the future is dropped then.
    pub fn block_on<T>(&self, mode: WaitMode, future: impl Future<Output = T>) -> Result<T, WaitError> {
        let value = self.block_on_until(mode, future, || false)?;
        Ok(value.expect("`None` only when it is over"))
    }

    /// The same until `is_over` says that it takes too long: `None`, and the future is dropped. What its connection does not
    /// come out of by itself, [`Channel::time_out`] ends.
    ///
    /// # Errors
    /// As there.
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

/// One end of a connection. Dropped before it is closed, it is given up.
pub struct Channel<F: Fabric> {
    state: Rc<RefCell<State<F>>>,
    handle: Handle,
    /// Messages that were handed over, or that the endpoint hands over by itself.
    begun: u64,
    reading: Vec<u8>,
}

impl<F: Fabric> State<F> {
    fn end(&mut self, handle: Handle) -> &mut End {
        self.ends.entry(handle).or_default()
    }

    /// Not yet: the task is woken at the next turn in which something happens. One task waits for each call of a connection:
    /// the last one that polled.
    fn pending<T>(&mut self, handle: Handle, call: Call, context: &Context<'_>) -> Poll<T> {
        let waiting = &mut self.end(handle).waiting[call as usize];
        if !waiting.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            // To drop a waker may drop a task that owns channels: not while the hub is borrowed.
            let replaced = waiting.replace(context.waker().clone());
            self.replaced.extend(replaced);
        }
        Poll::Pending
    }
}

impl<F: Fabric> Channel<F> {
    /// Hands a message over: its number, when all of it is. Dropped before that, the message is sent as a whole or not at all;
    /// see [`Write`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn write<'a>(&'a mut self, message: &'a [u8]) -> Write<'a, F> {
        Write { channel: self, message, progress: Progress::New }
    }

    /// The number of the next message, which is how many were sent or are being sent. It says what became of a message whose
    /// [`Write`] was dropped.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.begun
    }

    /// Ready when all messages that were handed over are sent: their bytes are the peer's NIC's.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let mut state = self.state.borrow_mut();
        let end = state.end(self.handle);
        match end.error {
            Some(error) => Poll::Ready(Err(error.into())),
            None if end.written >= self.begun => Poll::Ready(Ok(())),
            None => state.pending(self.handle, Call::Flush, context),
        }
    }

    /// The next message; `None` when the peer has finished and everything was read.
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

    /// Finishes writing; ready when the peer has finished, too, everything was read, and the connection is over.
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

    /// Nothing more will be written. The peer's messages can still be read.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn finish(&mut self) -> Result<(), CallError> {
        Ok(self.state.borrow_mut().endpoint.finish(self.handle)?)
    }

    /// Gives the connection up because this end has waited for so long, by the caller's clock. Whatever is asked of it from
    /// here on says so, with the peer's name.
    pub fn time_out(&mut self, waited: Duration) {
        self.state.borrow_mut().endpoint.time_out(self.handle, waited);
    }

    /// [`poll_flush`](Channel::poll_flush) as a future.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn flush(&mut self) -> Result<(), CallError> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// [`poll_read`](Channel::poll_read) as a future.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn read(&mut self) -> Option<Result<Vec<u8>, CallError>> {
        poll_fn(|context| self.poll_read(context)).await
    }

    /// [`poll_close`](Channel::poll_close) as a future. Dropped, it can be called again; a channel that is dropped before it
    /// is closed is given up.
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
        // Its wakers may be the last that hold tasks with channels: not while the hub is borrowed.
        drop(removed);
    }
}

/// The future of [`Channel::write`]: ready with the message's number when all of it is handed over to the fabric.
///
/// # Cancel safety
/// It can be dropped at any time; the next write is not affected.
///
/// - If no byte of the message had left, the write had no effect, and [`Channel::next_number`] is what it was before.
/// - Otherwise the peer will read the whole message. The drop copies the bytes that are left into memory of the channel, which
///   costs one copy of them and as much memory until they are sent: at most one message per connection. The next write waits
///   until then, and so does the next [`flush`](Channel::flush). A write that is not dropped makes no such copy.
///
/// A future that is leaked instead of dropped (`mem::forget`) leaves its message begun: further writes then answer
/// [`WriteError::Busy`].
#[must_use = "futures do nothing unless polled"]
pub struct Write<'a, F: Fabric> {
    channel: &'a mut Channel<F>,
    message: &'a [u8],
    progress: Progress,
}

/// How far a write is.
#[derive(Debug, Clone, Copy)]
enum Progress {
    New,
    /// Part of the message with this number may be left.
    Begun(u64),
    Done(Result<u64, CallError>),
}

impl<F: Fabric> Write<'_, F> {
    /// Goes on with the message; its number, when all of it is handed over.
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
        // Never an error: the message is the one that was begun.
        if detached == Ok(true) {
            self.channel.begun = number + 1;
        }
    }
}
