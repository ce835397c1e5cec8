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

/// A node that runs on a thread of its own. If this is dropped, the node is told to stop, and nobody waits for that.
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

    /// Returns how the node and its group stand. The node answers between two rounds. If it sleeps, it is woken.
    ///
    /// # Errors
    /// If the node has ended: [`stop`](NodeHandle::stop) returns why. Or if the node's own thread asks, in `apply` for example where that is
    /// the thread that [applies](super::NodeBuilder::apply_on): it would wait for itself.
    pub fn status(&self) -> Result<Status, NodeError> {
        self.ask(|host| host.status())
    }

    /// Begins a client in this process that the node turns: a server that is its own client. It needs no thread, and on `roce` no address
    /// of its own. It takes one of the cluster's places for clients, and as much memory as any client. It goes on when another member
    /// leads, and ends with the node.
    ///
    /// [`connect`](ClientBuilder::connect) waits until the groups are there. Neither that nor a call is waited for on the node's own thread,
    /// in `apply` for example: each is an error there, [`WouldDeadlock`](crate::Refused::WouldDeadlock). A call that is polled is none.
    /// [`ClientBuilder::wait`] counts while the client connects; afterwards the node's mode does. On `verbs` and `ofi` there are no such
    /// clients yet.
    pub fn client(&self) -> ClientBuilder {
        self.berth.builder()
    }

    /// Looks at the value between two commands, on the thread that applies them. The protocol goes on meanwhile.
    ///
    /// # Errors
    /// If the node has ended, or its state machine has panicked. Or if the apply thread itself asks: it would wait for itself.
    ///
    /// # Panics
    /// If `look` does. The node goes on.
    pub fn inspect<T: Send + 'static>(&self, look: impl FnOnce(&S) -> T + Send + 'static) -> Result<T, NodeError> {
        if self.looks.is_own_thread() || self.is_own_thread() {
            return Err(self.failed(Problem::Itself));
        }
        let answer = looked(&self.looks, look);
        // The protocol's thread may be the one that answers.
        self.stopper.sleeper.wake();
        answer.wait(&self.name, || self.has_ended())
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

    /// Stops the node, which hands over if it leads, and waits for its end. Returns the value after all commands that were delivered, for
    /// which it waits up to 10 s.
    ///
    /// # Errors
    /// Why the node had ended before; or if its state machine has panicked, or takes longer.
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
        // Whoever asked may have gone.
        self.mailbox.put(Box::new(move |host| drop(answer.send(question(host)))));
        self.stopper.sleeper.wake();
        wait(&answered, || self.has_ended()).ok_or_else(|| self.failed(Problem::Gone))
    }

    /// Whether the thread of the protocol asks itself.
    fn is_own_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|own| own.thread().id() == thread::current().id())
    }

    fn failed(&self, problem: Problem) -> NodeError {
        NodeError { name: self.name.clone(), problem }
    }
}

/// Waits for an answer. `None`: it does not come any more.
fn wait<T>(answered: &Receiver<T>, has_ended: impl Fn() -> bool) -> Option<T> {
    loop {
        match answered.recv_timeout(Duration::from_millis(100)) {
            Ok(answer) => return Some(answer),
            // What was asked for after the last round is never answered.
            Err(_) if has_ended() => return answered.try_recv().ok(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// The answer of a look.
pub(super) struct Looked<T>(Receiver<Result<thread::Result<T>, Position>>);

/// Leaves a look for the thread that applies.
pub(super) fn looked<S, T: Send + 'static>(looks: &Looks<S>, look: impl FnOnce(&S) -> T + Send + 'static) -> Looked<T> {
    let (answer, answered) = sync_channel(1);
    looks.put(Box::new(move |machine| {
        let looked = machine.map(|machine| catch_unwind(AssertUnwindSafe(|| look(machine))));
        // Whoever asked may have gone.
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
