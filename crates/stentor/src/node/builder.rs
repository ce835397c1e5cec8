//! The builder of a node.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use stentor_fabric::WaitMode;
use stentor_host::system;
use stentor_multicast::ProcessRole;

use super::apply::{Applier, ApplyThread, Bounds};
use super::handle::NodeHandle;
use super::hosted::{Host, Hosted, Requests};
use super::machine::Machine;
use super::{Node, StartError, Stopper};
use crate::config::FabricKind;
use crate::runtime::{self, BindConfig, ClusterFabric, InUse, Role, patiently, with_fabric};
use crate::state_machine::StateMachine;
use crate::{Cluster, Group};

/// A node that is being put together. [`Cluster::node`] begins one.
#[derive(Debug)]
#[must_use = "a builder does nothing until it starts or spawns"]
pub struct NodeBuilder<S> {
    cluster: Cluster,
    name: String,
    state: S,
    wait: WaitMode,
    bind: Option<IpAddr>,
    apply: ApplyThread,
    bounds: Bounds,
}

impl<S: StateMachine> NodeBuilder<S> {
    pub(crate) fn new(cluster: Cluster, name: &str, state: S) -> Self {
        NodeBuilder {
            cluster,
            name: name.to_owned(),
            state,
            wait: WaitMode::ADAPTIVE,
            bind: None,
            apply: ApplyThread::default(),
            bounds: Bounds::default(),
        }
    }

    /// Sets what the node does while it has nothing to do. Without it that is [`WaitMode::ADAPTIVE`]. [`Node::turn`] spins and yields in
    /// this mode, too; in a mode that never sleeps it is never [idle](super::Turn::Idle).
    pub fn wait(self, mode: WaitMode) -> Self {
        NodeBuilder { wait: mode, ..self }
    }

    /// Chooses among the addresses that the node's name in the configuration has on this host. Fabrics between hosts only.
    pub fn bind(self, address: IpAddr) -> Self {
        NodeBuilder { bind: Some(address), ..self }
    }

    /// Sets the thread on which the state machine runs. Without it that is a [thread of its own](ApplyThread::Own).
    pub fn apply_on(self, thread: ApplyThread) -> Self {
        NodeBuilder { apply: thread, ..self }
    }

    /// Sets how much may wait to be applied before the member delivers no more: so many commands, or so many bytes of them; at least one
    /// command. Without it that is 1024 commands or 4 MiB. Clients are slowed down from there on. A member that is told to stop, that is
    /// frozen, or that takes over a state does that behind what waits: a machine that needs long for a command should have a short queue.
    pub fn apply_queue(self, commands: usize, bytes: usize) -> Self {
        NodeBuilder { bounds: Bounds { commands: commands.max(1), bytes: bytes.max(1) }, ..self }
    }

    /// Starts the node for this thread. It does nothing until it is run or turned. If its port or its place is still held by a process that
    /// was killed, this waits for up to five seconds.
    ///
    /// # Errors
    /// Why it does not start, with the remedy.
    pub fn start(self) -> Result<Node<S>, StartError> {
        self.start_with(Requests::default())
    }

    /// Starts the node on a thread of its own, which has the name `stentor NAME`.
    ///
    /// # Errors
    /// As [`start`](NodeBuilder::start).
    pub fn spawn(self) -> Result<NodeHandle<S>, StartError> {
        let (name, mailbox) = (self.name.clone(), Requests::default());
        let node = self.start_with(mailbox.clone())?;
        let failed = |source| runtime::StartError::Thread { source };
        NodeHandle::spawn(name.clone(), node, mailbox)
            .map_err(|error| StartError { name, cause: Box::new(failed(error)) })
    }

    fn start_with(self, mailbox: Requests<S>) -> Result<Node<S>, StartError> {
        let name = self.name.clone();
        let failed = |cause| StartError { name: name.clone(), cause: Box::new(cause) };
        let stopper = Stopper::default();
        let never =
            eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(system("make an eventfd")(error).into()))?;
        let host = self.host(mailbox).map_err(failed)?;
        let looks = host.looks();
        Ok(Node { host, stopper, never, looks })
    }

    fn host(self, mailbox: Requests<S>) -> Result<Box<dyn Host<S>>, runtime::StartError> {
        let NodeBuilder { cluster, name, state, wait, bind, apply, bounds } = self;
        let plan = Arc::clone(cluster.runtime());
        if plan.config().fabric() == FabricKind::Sim {
            return Err(runtime::StartError::Simulated);
        }
        let me = plan.process(&name)?;
        let Some(ProcessRole::Member { group, .. }) = plan.topology().role(me) else {
            return Err(runtime::StartError::Role(name, "member of a group"));
        };
        let group = Group(group);
        // The file of a key may be relative to that of the configuration.
        let beside = BindConfig::beside(plan.file().unwrap_or(Path::new("")));
        let bind = BindConfig { sockets: cluster.sockets().to_owned(), bind, ..beside };
        let applier =
            Applier::new(state, &name, group, &plan).map_err(|source| runtime::StartError::State { source })?;
        with_fabric!(plan.config().fabric(), F => {
            let start = {
                let plan = Arc::clone(&plan);
                move || {
                    let start = || F::start_in(&plan, Role::Groups, me, &bind);
                    plan.joining_on(patiently(start, InUse::in_use, |text| log::info!("{name}: {text}"))?, me)
                }
            };
            let member = start()?;
            let machine = Machine::start(applier, apply, bounds, wait);
            let machine = machine.map_err(|source| runtime::StartError::Thread { source })?;
            Ok(Box::new(Hosted::new(&plan, member, Box::new(start), machine, wait, mailbox)?))
        })
    }
}
