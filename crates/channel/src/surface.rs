//! Two surfaces over an [`Endpoint`]: futures for any runtime, and calls that block.
//!
//! A [`Hub`] owns the endpoint, [`Channel`]s are its connections. Somebody calls [`Hub::turn`] again and again, from the same
//! thread: an event loop of the caller's, or [`Hub::block_on`]. Nothing here starts threads or needs a runtime.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
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
    waiting: Vec<Waker>,
}

struct State<F: Fabric> {
    endpoint: Endpoint<F>,
    ends: BTreeMap<Handle, End>,
    turns: u32,
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
            self.ends.values_mut().flat_map(|end| end.waiting.drain(..)).for_each(Waker::wake);
        }
        worked
    }
}

impl<F: Fabric> Hub<F> {
    /// Takes over an endpoint.
    pub fn new(endpoint: Endpoint<F>) -> Self {
        Hub { state: Rc::new(RefCell::new(State { endpoint, ends: BTreeMap::new(), turns: 0 })) }
    }

    /// Opens this end of a connection; see [`Endpoint::open`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, peer: ProcessId, number: u32) -> Result<Channel<F>, OpenError> {
        let mut state = self.state.borrow_mut();
        let handle = state.endpoint.open(peer, number)?;
        state.ends.insert(handle, End::default());
        Ok(Channel { state: Rc::clone(&self.state), handle, writing: None, begun: 0, reading: Vec::new() })
    }

    /// Does what there is to do and wakes whom it concerns. Whether there was anything; what follows from a read is done in the
    /// next turn, so who has read takes one more before it sleeps.
    pub fn turn(&self) -> bool {
        self.state.borrow_mut().turn()
    }

    /// Takes turns until a future is ready; between them waits as `mode` says.
    ///
    /// # Errors
    /// See [`WaitError`]; the future is dropped then.
    pub fn block_on<T>(&self, mode: WaitMode, future: impl Future<Output = T>) -> Result<T, WaitError> {
        let value = self.block_on_until(mode, future, || false)?;
        Ok(value.expect("it is not given up"))
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
    /// The message that is being handed over.
    writing: Option<u64>,
    /// Messages handed over wholly.
    begun: u64,
    reading: Vec<u8>,
}

impl<F: Fabric> State<F> {
    fn end(&mut self, handle: Handle) -> &mut End {
        self.ends.entry(handle).or_default()
    }

    /// Not yet: whoever asks is woken at the next turn in which something happens.
    fn pending<T>(&mut self, handle: Handle, context: &Context<'_>) -> Poll<T> {
        self.end(handle).waiting.push(context.waker().clone());
        Poll::Pending
    }
}

impl<F: Fabric> Channel<F> {
    /// Hands a message over; ready with its number when all of it is. Until then it is called with the same message.
    pub fn poll_write(&mut self, context: &mut Context<'_>, message: &[u8]) -> Poll<Result<u64, CallError>> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(error) = state.end(self.handle).error {
            return Poll::Ready(Err(error.into()));
        }
        let number = match self.writing {
            Some(number) => number,
            None => match state.endpoint.begin(self.handle, message.len() as u64) {
                Ok(number) => number,
                Err(error) => return Poll::Ready(Err(error.into())),
            },
        };
        self.writing = Some(number);
        if !state.endpoint.hand_over(self.handle, message) {
            return state.pending(self.handle, context);
        }
        self.writing = None;
        self.begun = number + 1;
        Poll::Ready(Ok(number))
    }

    /// Ready when all messages that were handed over are sent: their bytes are the peer's NIC's.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let mut state = self.state.borrow_mut();
        let end = state.end(self.handle);
        match end.error {
            Some(error) => Poll::Ready(Err(error.into())),
            None if end.written >= self.begun => Poll::Ready(Ok(())),
            None => state.pending(self.handle, context),
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
        state.pending(self.handle, context)
    }

    /// Finishes writing; ready when the peer has finished, too, everything was read, and the connection is over.
    pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let mut state = self.state.borrow_mut();
        let end = state.end(self.handle);
        match (end.closed, end.error) {
            (true, Some(error)) => return Poll::Ready(Err(error.into())),
            (true, None) => return Poll::Ready(Ok(())),
            (false, Some(_)) => return state.pending(self.handle, context),
            (false, None) => {}
        }
        match state.endpoint.finish(self.handle) {
            Ok(()) | Err(WriteError::Closed) => state.pending(self.handle, context),
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

    /// [`poll_write`](Channel::poll_write) as a future.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn write(&mut self, message: &[u8]) -> Result<u64, CallError> {
        poll_fn(|context| self.poll_write(context, message)).await
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

    /// [`poll_close`](Channel::poll_close) as a future.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn close(mut self) -> Result<(), CallError> {
        poll_fn(|context| self.poll_close(context)).await
    }
}

impl<F: Fabric> Drop for Channel<F> {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.endpoint.abort(self.handle);
        state.ends.remove(&self.handle);
    }
}
