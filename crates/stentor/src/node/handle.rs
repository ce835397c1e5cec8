//! A node on a thread of its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use super::error::Problem;
use super::hosted::{Host, Mailbox};
use super::{Node, NodeError, Status, Stopper};
use crate::state_machine::StateMachine;

/// A node that runs on a thread of its own. If this is dropped, the node is told to stop, and nobody waits for that.
#[must_use = "the node stops when this is dropped"]
pub struct NodeHandle<S> {
    name: String,
    stopper: Stopper,
    mailbox: Mailbox<S>,
    thread: Option<JoinHandle<Result<S, NodeError>>>,
}

impl<S> std::fmt::Debug for NodeHandle<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeHandle").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<S: StateMachine> NodeHandle<S> {
    pub(super) fn spawn(name: String, mut node: Node<S>, mailbox: Mailbox<S>) -> io::Result<Self> {
        let stopper = node.stopper();
        let own = name.clone();
        let run = move || {
            // A machine that has panicked is not used again.
            match catch_unwind(AssertUnwindSafe(|| node.run())) {
                Ok(ended) => ended.map(|()| node.into_machine()),
                Err(_) => Err(NodeError { name: own, problem: Problem::Panicked }),
            }
        };
        let thread = thread::Builder::new().name(format!("stentor {name}")).spawn(run)?;
        Ok(NodeHandle { name, stopper, mailbox, thread: Some(thread) })
    }

    /// Returns how the node and its group stand. The node answers between two rounds, within 50 ms if it is at rest.
    ///
    /// # Errors
    /// If the node has ended: [`stop`](NodeHandle::stop) returns why. Or if the node's own thread asks, in `apply` for example: it would
    /// wait for itself.
    pub fn status(&self) -> Result<Status, NodeError> {
        self.ask(|host| host.status())
    }

    /// Looks at the value between two commands, on the node's thread, which answers nobody meanwhile.
    ///
    /// # Errors
    /// As [`status`](NodeHandle::status).
    ///
    /// # Panics
    /// If `look` does. The node goes on.
    pub fn inspect<T: Send + 'static>(&self, look: impl FnOnce(&S) -> T + Send + 'static) -> Result<T, NodeError> {
        let looked = self.ask(|host| catch_unwind(AssertUnwindSafe(|| look(host.machine()))))?;
        Ok(looked.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Asks another member to lead. [`status`](NodeHandle::status) says when it does.
    ///
    /// # Errors
    /// As [`Node::hand_over`], or if the node has ended.
    pub fn hand_over(&self, to: &str) -> Result<(), NodeError> {
        let to = to.to_owned();
        self.ask(move |host| host.hand_over(&to))?
    }

    /// Returns whether the node has ended, by itself or because a [`stopper`](NodeHandle::stopper) stopped it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns what stops the node, from any thread and from handlers of signals.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Stops the node, which hands over if it leads, and waits for its end. Returns the value.
    ///
    /// # Errors
    /// Why the node had ended before.
    pub fn stop(mut self) -> Result<S, NodeError> {
        self.stopper.stop();
        let gone = || Err(NodeError { name: self.name.clone(), problem: Problem::Gone });
        self.thread.take().map_or_else(gone, |thread| thread.join().unwrap_or_else(|_| gone()))
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Host<S>) -> T + Send + 'static,
    ) -> Result<T, NodeError> {
        if self.thread.as_ref().is_some_and(|own| own.thread().id() == thread::current().id()) {
            return Err(NodeError { name: self.name.clone(), problem: Problem::Itself });
        }
        let (answer, answered) = sync_channel(1);
        // Whoever asked may have gone.
        self.mailbox.put(Box::new(move |host| drop(answer.send(question(host)))));
        let gone = || NodeError { name: self.name.clone(), problem: Problem::Gone };
        loop {
            match answered.recv_timeout(std::time::Duration::from_millis(100)) {
                Ok(answer) => return Ok(answer),
                // What was asked for after the last round is never answered.
                Err(_) if self.has_ended() => return answered.try_recv().map_err(|_| gone()),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }
}

impl<S> Drop for NodeHandle<S> {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}
