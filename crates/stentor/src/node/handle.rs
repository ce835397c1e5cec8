//! A node on a thread of its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::apply::Looks;
use super::berth::Berth;
use super::error::Problem;
use super::hosted::{Host, Requests};
use super::{Node, NodeError, Status, Stopper};
use crate::Position;
use crate::client::ClientBuilder;
use crate::state_machine::StateMachine;

/// A node that runs on a thread of its own. Dropping the handle asks the node to stop, without waiting for that.
#[must_use = "the node stops when this is dropped"]
pub struct NodeHandle<S> {
    name: String,
    stopper: Stopper,
    mailbox: Requests<S>,
    looks: Looks<S>,
    berth: Berth<S>,
    thread: Option<JoinHandle<Result<S, NodeError>>>,
}

impl<S> std::fmt::Debug for NodeHandle<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeHandle").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<S: StateMachine> NodeHandle<S> {
    pub(super) fn spawn(name: String, mut node: Node<S>, mailbox: Requests<S>) -> io::Result<Self> {
        let (stopper, looks, berth) = (node.stopper(), node.looks.clone(), node.berth.clone());
        let own = name.clone();
        let run = move || match catch_unwind(AssertUnwindSafe(|| node.run())) {
            Ok(ended) => ended.and_then(|()| node.into_machine()),
            Err(_) => Err(NodeError { name: own, problem: Problem::Panicked(None) }),
        };
        let thread = thread::Builder::new().name(format!("stentor {name}")).spawn(run)?;
        Ok(NodeHandle { name, stopper, mailbox, looks, berth, thread: Some(thread) })
    }

    /// Returns the status of the node and its group. The node answers between two rounds, and is woken if it sleeps.
    ///
    /// # Errors
    /// Returns an error if the node has ended; [`stop`](NodeHandle::stop) returns the reason. Also returns an error on
    /// the node's own thread, for example within `apply` if that runs on the [protocol's
    /// thread](super::NodeBuilder::apply_on), because it would deadlock.
    pub fn status(&self) -> Result<Status, NodeError> {
        self.ask(|host| host.status())
    }

    /// Returns a builder of a client that is embedded in this node, for a server that is its own client. The client
    /// needs no thread, and on `roce` no address of its own. It occupies one of the cluster's client ids, and as much
    /// memory as any client. It continues when another member leads, and ends with the node.
    ///
    /// [`connect`](ClientBuilder::connect) waits until the groups are reachable. On the thread that runs the node and
    /// on the thread that applies its commands, both `connect` and waiting for a call fail with
    /// [`WouldDeadlock`](crate::Refused::WouldDeadlock). These threads can poll a call. [`ClientBuilder::wait`] applies
    /// only while the client connects; later the node's mode applies. On `verbs` and `ofi`, embedded clients are not
    /// supported yet.
    pub fn client(&self) -> ClientBuilder {
        self.berth.builder()
    }

    /// Calls `look` with the state machine between two commands, on the thread that applies them, and waits for the
    /// result. The protocol continues meanwhile, unless commands are applied on its thread.
    ///
    /// # Errors
    /// Returns an error if the node has ended, or if its state machine has panicked or was outvoted. Also returns an
    /// error on the thread that runs the node and on the apply thread, because it would deadlock.
    ///
    /// # Panics
    /// Panics if `look` panics. The node continues.
    pub fn inspect<T: Send + 'static>(&self, look: impl FnOnce(&S) -> T + Send + 'static) -> Result<T, NodeError> {
        if self.looks.is_own_thread() || self.is_own_thread() {
            return Err(self.failed(Problem::Itself));
        }
        let answer = looked(&self.looks, look);
        // If the protocol's thread applies commands, it must wake up to answer.
        self.stopper.sleeper.wake();
        answer.wait(&self.name, || self.has_ended())
    }

    /// Asks another member to take over leadership. [`status`](NodeHandle::status) shows when that member leads.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Node::hand_over`]. Also returns an error if the node has ended, and on
    /// the node's own thread, because it would deadlock.
    pub fn hand_over(&self, to: &str) -> Result<(), NodeError> {
        let to = to.to_owned();
        self.ask(move |host| host.hand_over(&to))?
    }

    /// Returns whether the node has ended, because of an error or because a [`stopper`](NodeHandle::stopper) stopped
    /// it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns a handle that stops the node, from any thread and from signal handlers.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Stops the node and waits for its end. The node first hands over if it leads. Returns the state machine after it
    /// has applied all delivered commands. Waits for that for at most 10 s.
    ///
    /// # Errors
    /// Returns the error that had ended the node before. Also returns an error if its state machine has panicked, was
    /// outvoted, or takes longer than 10 s.
    pub fn stop(mut self) -> Result<S, NodeError> {
        self.stopper.stop();
        let gone = || Err(NodeError { name: self.name.clone(), problem: Problem::Gone });
        self.thread.take().map_or_else(gone, |thread| thread.join().unwrap_or_else(|_| gone()))
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Host<S>) -> T + Send + 'static,
    ) -> Result<T, NodeError> {
        if self.is_own_thread() {
            return Err(self.failed(Problem::Itself));
        }
        let (answer, answered) = sync_channel(1);
        // The send fails if the caller no longer waits.
        self.mailbox.put(Box::new(move |host| drop(answer.send(question(host)))));
        self.stopper.sleeper.wake();
        wait(&answered, || self.has_ended()).ok_or_else(|| self.failed(Problem::Gone))
    }

    /// Returns whether the calling thread is the node's own.
    fn is_own_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|own| own.thread().id() == thread::current().id())
    }

    fn failed(&self, problem: Problem) -> NodeError {
        NodeError { name: self.name.clone(), problem }
    }
}

/// Waits for an answer. Returns `None` if it will never arrive.
fn wait<T>(answered: &Receiver<T>, has_ended: impl Fn() -> bool) -> Option<T> {
    loop {
        match answered.recv_timeout(Duration::from_millis(100)) {
            Ok(answer) => return Some(answer),
            // A request after the last round is never answered.
            Err(_) if has_ended() => return answered.try_recv().ok(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// The pending answer of a look.
pub(super) struct Looked<T>(Receiver<Result<thread::Result<T>, Position>>);

/// Sends a look to the thread that applies commands.
pub(super) fn looked<S, T: Send + 'static>(looks: &Looks<S>, look: impl FnOnce(&S) -> T + Send + 'static) -> Looked<T> {
    let (answer, answered) = sync_channel(1);
    looks.put(Box::new(move |machine| {
        let looked = machine.map(|machine| catch_unwind(AssertUnwindSafe(|| look(machine))));
        // The send fails if the caller no longer waits.
        let _ = answer.send(looked);
    }));
    Looked(answered)
}

impl<T> Looked<T> {
    pub(super) fn wait(self, name: &str, has_ended: impl Fn() -> bool) -> Result<T, NodeError> {
        let failed = |problem| NodeError { name: name.to_owned(), problem };
        let looked = wait(&self.0, has_ended).ok_or_else(|| failed(Problem::Gone))?;
        let looked = looked.map_err(|at| failed(Problem::Panicked(Some(at))))?;
        Ok(looked.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<S> Drop for NodeHandle<S> {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}
