//! The builder of a node.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use stentor_fabric::{ProcessId, WaitMode};
#[cfg(feature = "roce")]
use stentor_fabric_roce::driver::{Junction, Sharing};
use stentor_host::{StandingSeat, system};
use stentor_multicast::ProcessRole;

use super::apply::{Applier, ApplyThread, Bounds};
use super::berth::Berth;
use super::clients::Turner;
use super::handle::NodeHandle;
use super::hooks::{Hooks, Voice};
use super::hosted::{Host, Hosted, Requests};
use super::journal::Journal;
use super::machine::Machine;
use super::observers::Observers;
use super::sleeper::Sleeper;
use super::{Node, StartError, Stopper};
use crate::config::FabricKind;
use crate::operator::Place;
use crate::runtime::{
    self, BindConfig, ClusterFabric, ClusterRuntime, InUse, Role, patiently, refuse_twin, with_fabric,
};
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
    /// The configuration of the fabric, where it does not follow from the cluster.
    told: Option<BindConfig>,
}

/// Other threads reach a node by these.
type Asked<S> = (Requests<S>, Turner, Sleeper);

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
            told: None,
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
    /// command. Without it that is 1024 commands or 4 MiB. Fewer commands wait if they take long: those of about 0.2 ms, but 16 at least. Clients are slowed down from there on. A member that is told to stop, that is
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
        NodeHandle::spawn(name.clone(), node, mailbox).map_err(|source| {
            let cause = Box::new(runtime::StartError::Thread { source });
            StartError { name, address: None, cause }
        })
    }

    /// Replaces what the fabric is told besides the configuration, and with it the directory of the cluster and the address of
    /// [`bind`](NodeBuilder::bind). The node chooses `sharing` itself.
    #[cfg(feature = "unstable-core")]
    pub fn bind_with(self, told: BindConfig) -> Self {
        NodeBuilder { told: Some(told), ..self }
    }

    /// Starts the node as [`start`](NodeBuilder::start) does, with hooks. The state machine runs on the thread of the protocol, so that the
    /// hooks see what it applies.
    ///
    /// # Errors
    /// Why it does not start.
    #[cfg(feature = "unstable-core")]
    pub fn start_hooked<H: Hooks>(self, hooks: H) -> Result<Node<S>, runtime::StartError> {
        NodeBuilder { apply: ApplyThread::Protocol, ..self }.start_by(Requests::default(), hooks)
    }

    fn start_with(self, mailbox: Requests<S>) -> Result<Node<S>, StartError> {
        let (name, plan) = (self.name.clone(), Arc::clone(self.cluster.runtime()));
        let address = || {
            let me = plan.process(&name).ok()?;
            plan.source()?.addresses.get(me.index()).cloned()
        };
        let journal = Journal::new(&plan, &name);
        self.start_by(mailbox, journal).map_err(|cause| StartError {
            name: name.clone(),
            address: address(),
            cause: Box::new(cause),
        })
    }

    fn start_by<H: Hooks>(self, mailbox: Requests<S>, hooks: H) -> Result<Node<S>, runtime::StartError> {
        const { assert!(S::VERSION >= 1 && S::VERSION <= 4096, "the `VERSION` of a state machine is 1 to 4096") };
        let stopper = Stopper::default();
        let never = eventfd(0, EventfdFlags::CLOEXEC).map_err(system("make an eventfd"))?;
        // The file of a key may be relative to that of the configuration.
        let beside = BindConfig::beside(self.cluster.runtime().file().unwrap_or(Path::new("")));
        let bind = BindConfig { sockets: self.cluster.sockets().to_owned(), bind: self.bind, ..beside };
        let (bind, beside) = shared(self.told.clone().unwrap_or(bind));
        let (cluster, turner) = (self.cluster.clone(), Turner::default());
        let sleeper = stopper.sleeper.clone();
        let member = cluster.runtime().process(&self.name)?;
        let host = self.host((mailbox.clone(), turner.clone(), sleeper.clone()), bind, hooks)?;
        let looks = host.looks();
        let berth = Berth { cluster, bind: beside, member, mailbox, looks: looks.clone(), turner, sleeper };
        Ok(Node { host, stopper, never, looks, berth })
    }

    fn host<H: Hooks>(
        self,
        asked: Asked<S>,
        bind: BindConfig,
        hooks: H,
    ) -> Result<Box<dyn Host<S>>, runtime::StartError> {
        let NodeBuilder { cluster, name, state, wait, apply, bounds, .. } = self;
        let plan = Arc::clone(cluster.runtime());
        if plan.config().fabric() == FabricKind::Sim {
            return Err(runtime::StartError::Simulated);
        }
        let me = plan.process(&name)?;
        let Some(ProcessRole::Member { group, .. }) = plan.topology().role(me) else {
            return Err(runtime::StartError::Role(name, "member of a group"));
        };
        let (group, voice) = (Group(group), hooks.voice(&name));
        let applier = Applier::new(state, (&name, &voice), group, &plan);
        let applier = applier.map_err(|source| runtime::StartError::State { source })?;
        let observers = {
            let (looks, sleeper) = (applier.looks().clone(), asked.2.clone());
            // The apply thread looks after it was woken; where that is the protocol's, it is woken as well.
            let wake = move || {
                looks.put(Box::new(|_| ()));
                sleeper.wake();
            };
            Observers::new(&name, group.0, &plan, applier.tap(), Box::new(wake))
        };
        with_fabric!(plan.config().fabric(), F => {
            let place = place::<F>(&plan, me, bind.sockets.clone(), &voice)?;
            let start = {
                let plan = Arc::clone(&plan);
                move || {
                    let start = || F::start_in(&plan, Role::Groups, me, &bind);
                    plan.joining_on(patiently(start, InUse::in_use, |text| voice(log::Level::Info, text))?, me)
                }
            };
            let member = start()?;
            let machine = Machine::start(applier, apply, bounds, wait, asked.2.clone());
            let machine = machine.map_err(|source| runtime::StartError::Thread { source })?;
            let member = (member, Box::new(start) as _);
            Ok(Box::new(Hosted::new(&plan, member, (machine, observers), wait, asked, place, hooks)?))
        })
    }
}

/// Refuses a second process of the name on this host. Takes the place where commands of the host find the node, unless the fabric has one.
fn place<F: ClusterFabric>(
    plan: &ClusterRuntime,
    me: ProcessId,
    directory: PathBuf,
    voice: &Voice,
) -> Result<Option<StandingSeat>, runtime::StartError> {
    let (name, source, voice) = (plan.name(me), plan.source(), Arc::clone(voice));
    if F::MEETS_IN_DIRECTORY {
        source.map_or(Ok(()), |source| refuse_twin(&source, name, me, |text| voice(log::Level::Info, text)))?;
        return Ok(None);
    }
    let say = move |text: &str| voice(log::Level::Warn, text);
    Place { directory, meeting: plan.meeting_name(), me, name, source }.take("stentor leader", say)
}

/// Has a member share its address with the clients that are embedded in its process. Returns how the member starts, and how they do.
fn shared(bind: BindConfig) -> (BindConfig, BindConfig) {
    #[cfg(feature = "roce")]
    {
        let junction = Junction::default();
        let beside = BindConfig { sharing: Sharing::Beside(junction.clone()), ..bind.clone() };
        (BindConfig { sharing: Sharing::Main(junction), ..bind }, beside)
    }
    #[cfg(not(feature = "roce"))]
    (bind.clone(), bind)
}
