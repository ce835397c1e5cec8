//! The builder of a node.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use stentor_election::Heartbeat;
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
use super::journal::{Elect, Journal};
use super::machine::Machine;
use super::observers::Observers;
use super::sleeper::Sleeper;
use super::{Node, StartError, Stopper};
use crate::config::FabricKind;
use crate::operator::{NodeElection, Place};
use crate::runtime::{
    self, BindConfig, ClusterFabric, ClusterRuntime, ElectionDriver, InUse, Role, patiently, refuse_twin, with_fabric,
};
use crate::state_machine::StateMachine;
use crate::{Cluster, Group};

/// A builder of a node. [`Cluster::node`] creates one.
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
    /// The fabric's parameters, if they do not follow from the cluster.
    told: Option<BindConfig>,
}

/// The channels by which other threads reach a node.
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

    /// Sets how the node waits when it is idle. The default is [`WaitMode::ADAPTIVE`]. [`Node::turn`] spins and yields
    /// according to the mode, too. In a mode that never sleeps it never returns [`Idle`](super::Turn::Idle).
    pub fn wait(self, mode: WaitMode) -> Self {
        NodeBuilder { wait: mode, ..self }
    }

    /// Sets the IP address of the node, in place of an address of its host name in the configuration. For fabrics
    /// between hosts only.
    pub fn bind(self, address: IpAddr) -> Self {
        NodeBuilder { bind: Some(address), ..self }
    }

    /// Sets the thread on which the state machine runs. The default is a [thread of its own](ApplyThread::Own).
    pub fn apply_on(self, thread: ApplyThread) -> Self {
        NodeBuilder { apply: thread, ..self }
    }

    /// Sets the bounds of the apply queue: a number of commands (at least 1) and their size in bytes. While either
    /// bound is reached, the member delivers nothing, which slows clients down. The default is 1024 commands and 4 MiB.
    /// If commands take long, the queue holds fewer of them: about 0.2 ms of work, but at least 16 commands, or as many
    /// as the bound allows if that is less. Without an apply thread, there is no queue.
    ///
    /// A stop, a freeze and the restoration of a state take effect after the queued commands. So a machine that needs
    /// long for a command should have a short queue.
    pub fn apply_queue(self, commands: usize, bytes: usize) -> Self {
        NodeBuilder { bounds: Bounds { commands: commands.max(1), bytes: bytes.max(1) }, ..self }
    }

    /// Starts the node. The caller must then run it: see [`Node::run`] and [`Node::turn`]. If a killed process still
    /// holds the node's port or directory entry, this function waits for up to 5 s until it is free.
    ///
    /// # Errors
    /// Returns why the node does not start, with the remedy.
    pub fn start(self) -> Result<Node<S>, StartError> {
        self.start_with(Requests::default(), heartbeats())
    }

    /// Starts the node on a thread of its own, which is named `stentor NAME`.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`start`](NodeBuilder::start). Also returns an error if the thread cannot
    /// be started.
    pub fn spawn(self) -> Result<NodeHandle<S>, StartError> {
        let (name, mailbox) = (self.name.clone(), Requests::default());
        let node = self.start_with(mailbox.clone(), heartbeats())?;
        NodeHandle::spawn(name.clone(), node, mailbox).map_err(|source| {
            let cause = Box::new(runtime::StartError::Thread { source });
            StartError { name, address: None, cause }
        })
    }

    /// Replaces the fabric's parameters, and thereby the directory of the cluster and the address of
    /// [`bind`](NodeBuilder::bind). The node still sets `sharing` itself.
    #[cfg(feature = "unstable-core")]
    pub fn bind_with(self, told: BindConfig) -> Self {
        NodeBuilder { told: Some(told), ..self }
    }

    /// Starts the node like [`start`](NodeBuilder::start), with hooks. The state machine runs on the protocol's thread,
    /// so that the hooks see the commands that it applies.
    ///
    /// # Errors
    /// Returns why the node does not start.
    #[cfg(feature = "unstable-core")]
    pub fn start_hooked<H: Hooks>(self, hooks: H) -> Result<Node<S>, runtime::StartError> {
        NodeBuilder { apply: ApplyThread::Protocol, ..self }.start_by(Requests::default(), hooks)
    }

    /// Starts the node like [`start`](NodeBuilder::start), with an election of the program in place of heartbeats.
    /// `election` creates the election of this member, at the start of the node and when the node starts over. All
    /// members of a group need the same kind of election.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`start`](NodeBuilder::start), and the error of `election`.
    #[cfg(feature = "unstable-core")]
    pub fn start_elected<E: NodeElection>(
        self,
        election: impl Fn(&ClusterRuntime, ProcessId) -> Result<E, runtime::StartError> + Send + 'static,
    ) -> Result<Node<S>, StartError> {
        let elect: Elect<E> = Box::new(move |plan, me| Ok(ElectionDriver::configured(election(plan, me)?, plan, me)));
        self.start_with(Requests::default(), elect)
    }

    fn start_with<E: NodeElection>(self, mailbox: Requests<S>, elect: Elect<E>) -> Result<Node<S>, StartError> {
        let (name, plan) = (self.name.clone(), Arc::clone(self.cluster.runtime()));
        let address = || {
            let me = plan.process(&name).ok()?;
            plan.source()?.addresses.get(me.index()).cloned()
        };
        let journal = Journal::new(&plan, &name, elect);
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
        // The path of a key file may be relative to the configuration file.
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
            // The empty look wakes the apply thread. If that is the protocol's thread, the sleeper wakes it.
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

/// Returns what creates the election by heartbeats.
fn heartbeats() -> Elect<Heartbeat> {
    Box::new(|plan, me| Ok(ElectionDriver::heartbeat(plan, me)?))
}

/// Creates the directory entry through which commands of `stentor` on this host reach the node, unless the fabric
/// creates one. Returns an error if another process of this name runs on this host.
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

/// On `roce`, lets the member share its address with the clients that are embedded in its process. Returns the start
/// parameters of the member and of the clients.
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
