//! What a client is told, and its start.

#[cfg(feature = "unstable-core")]
use std::any::Any;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::WaitMode;
use stentor_multicast::{Client as Sender, ClientId, GroupId};
use stentor_session::{Body, Envelope};

use super::core::Core;
use super::error::Problem;
use super::watch::ClientWatch;
use super::{Client, ClientError, Groups, LocalClient, Seat, Session};
use crate::Cluster;
use crate::config::{FabricKind, Limits};
use crate::runtime::{
    self, BindConfig, ClusterFabric, ClusterRuntime, FabricDiagnostics, JoinError, JoinWatch, Placing, with_fabric,
};

/// For how long a client waits by default.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a session lives by default that nobody renews.
const TTL: Duration = Duration::from_secs(30);
/// The shortest life of a session: a renewal must get through while a group has no leader for a moment.
const LEAST_TTL: Duration = Duration::from_secs(2);
/// Calls that may wait at a time by default.
const CALLS: u32 = 4096;

/// A client that is being put together. [`Cluster::client`] begins one.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    pub(super) cluster: Cluster,
    groups: Option<Groups>,
    session: Option<Session>,
    pub(super) wait: WaitMode,
    bind: Option<IpAddr>,
    pub(super) patience: Duration,
    ttl: Duration,
    pub(super) calls: u32,
    /// Of a client that is embedded in a node.
    seat: Option<Seat>,
}

impl ClientBuilder {
    pub(crate) fn new(cluster: Cluster) -> Self {
        ClientBuilder {
            cluster,
            groups: None,
            session: None,
            wait: WaitMode::ADAPTIVE,
            bind: None,
            patience: PATIENCE,
            ttl: TTL,
            calls: CALLS,
            seat: None,
        }
    }

    /// Begins a client that a node turns.
    pub(crate) fn embedded(cluster: Cluster, seat: Seat) -> Self {
        ClientBuilder { seat: Some(seat), ..ClientBuilder::new(cluster) }
    }

    pub(super) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Names the groups with which the session begins. A majority of each must be there. Without this it begins with all groups of the
    /// cluster. Calls to other groups are possible: the first one to a group takes it into the session.
    pub fn groups(self, groups: impl Into<Groups>) -> Self {
        ClientBuilder { groups: Some(groups.into()), ..self }
    }

    /// Takes up a session that an earlier process had. Whoever has it now can call nothing under it any more. Without this a new session is
    /// opened.
    pub fn session(self, session: Session) -> Self {
        ClientBuilder { session: Some(session), ..self }
    }

    /// Sets what the client does while it has nothing to do. Without it that is [`WaitMode::ADAPTIVE`].
    pub fn wait(self, mode: WaitMode) -> Self {
        ClientBuilder { wait: mode, ..self }
    }

    /// Chooses this process's address. Fabrics between hosts only. An embedded client has that of its node in any case.
    pub fn bind(self, address: IpAddr) -> Self {
        ClientBuilder { bind: Some(address), ..self }
    }

    /// Sets for how long the client waits to be let in, and for how long a call waits for its outcome; 10 s without it.
    pub fn patience(self, patience: Duration) -> Self {
        ClientBuilder { patience, ..self }
    }

    /// Sets how long the session lives if nobody renews it: 2 s to 600 s, and 30 s without this. The client renews it as long as it runs and
    /// its groups have majorities. So this is how long a later process has to take it up, and how long a group may be without a majority
    /// before the session ends there. A session of a process that died takes one of `sessions` places in `[limits]` until then.
    pub fn session_ttl(self, time: Duration) -> Self {
        ClientBuilder { ttl: time, ..self }
    }

    /// Sets how many calls of a [`Client`] may wait at a time, in the order in which they were made; 4096 without it. More are refused with
    /// [`Busy`](super::Refused::Busy). How many of them are under way to a group at a time is `window` in `[limits]`.
    pub fn calls(self, most: u32) -> Self {
        ClientBuilder { calls: most.max(1), ..self }
    }

    /// Connects, opens the session, and starts the thread that serves the client. A client that is [embedded](crate::NodeHandle::client) in
    /// a node is served by that node's thread from then on.
    ///
    /// # Errors
    /// Why it is not let in, with the remedy.
    pub fn connect(self) -> Result<Client, ClientError> {
        let connected: Result<_, Problem> = with_fabric!(self.cluster.runtime().config().fabric(), F => {
            self.core::<F>().and_then(|core| Client::serve(core, &self))
        });
        Ok(connected?)
    }

    /// Connects and opens the session of a client that the caller turns: it has no thread and no lock, and allocates nothing for a command.
    ///
    /// # Errors
    /// Why it is not let in, with the remedy.
    pub fn connect_local(self) -> Result<LocalClient, ClientError> {
        let connected: Result<_, Problem> = with_fabric!(self.cluster.runtime().config().fabric(), F => {
            self.core::<F>().and_then(|core| LocalClient::new(core.into()))
        });
        Ok(connected?)
    }

    /// Checks what can be checked before anything starts: whether the cluster's sizes leave room for a session, for example.
    ///
    /// # Errors
    /// Why no session is possible, with the remedy.
    #[cfg(feature = "unstable-core")]
    pub fn check(&self) -> Result<(), ClientError> {
        self.sound_groups()?;
        Ok(())
    }

    /// Opens the session of a client that has joined its groups: the protocol's client of a place, which counts there. `watch` sees all
    /// that is multicast from here on.
    ///
    /// # Errors
    /// Why the session is not opened, with the remedy.
    ///
    /// # Panics
    /// If the client is on another fabric than the cluster.
    #[cfg(feature = "unstable-core")]
    pub fn connect_local_on<F: ClusterFabric + 'static>(
        self,
        joined: Sender<F>,
        watch: ClientWatch,
    ) -> Result<LocalClient, ClientError> {
        let to = self.sound_groups()?;
        let joined: Box<dyn Any> = Box::new(joined);
        let connected: Result<_, Problem> = with_fabric!(self.cluster.runtime().config().fabric(), F => {
            let joined = joined.downcast::<Sender<F>>().expect("the client is on the cluster's fabric");
            self.open((*joined, watch), &to).and_then(|core| LocalClient::new(core.into()))
        });
        Ok(connected?)
    }

    fn core<F: ClusterFabric>(&self) -> Result<Core<F>, Problem> {
        let plan = self.cluster.runtime();
        if plan.config().fabric() == FabricKind::Sim {
            return Err(Problem::Start(runtime::StartError::Simulated));
        }
        if let Some(seat) = &self.seat {
            if seat.keeper.is_own_thread() {
                return Err(Problem::WouldDeadlock);
            }
            if matches!(plan.config().fabric(), FabricKind::Verbs | FabricKind::Ofi) {
                return Err(Problem::NotEmbedded(plan.config().fabric().name()));
            }
        }
        let to = self.sound_groups()?;
        let sender = self.join::<F>(plan, &to)?;
        self.open((sender, ClientWatch::default()), &to)
    }

    /// Returns the groups with which the session begins, if a session is possible.
    fn sound_groups(&self) -> Result<Vec<GroupId>, Problem> {
        let plan = self.cluster.runtime();
        let mut to = self.groups.as_ref().map_or(Vec::new(), |groups| groups.ids().to_vec());
        to.extend(self.session.iter().flat_map(Session::groups));
        if to.is_empty() {
            to.extend(plan.topology().group_ids());
        }
        to.sort_unstable();
        to.dedup();
        if let Some(unknown) = to.iter().find(|group| !plan.topology().has_group(**group)) {
            let why = format!("group number {} is none of this cluster", unknown.0);
            return Err(Problem::Bytes { what: "groups of this cluster", why });
        }
        check_limits(plan.config().limits(), plan.topology().groups())?;
        let between = LEAST_TTL..=Duration::from_nanos(plan.config().limits().sessions().ttl);
        if !between.contains(&self.ttl) {
            return Err(Problem::TimeToLive { asked: self.ttl, between });
        }
        Ok(to)
    }

    /// Opens the session, or takes it up.
    fn open<F: FabricDiagnostics>(&self, joined: (Sender<F>, ClientWatch), to: &[GroupId]) -> Result<Core<F>, Problem> {
        let mut core = Core::new(self.cluster.runtime(), joined, self.wait, self.patience, self.ttl)?;
        core.open(to, self.session.as_ref())?;
        Ok(core)
    }

    fn join<F: ClusterFabric>(&self, plan: &Arc<ClusterRuntime>, to: &[GroupId]) -> Result<Sender<F>, Problem> {
        // The file of a key may be relative to that of the configuration.
        let beside = BindConfig::beside(plan.file().unwrap_or(Path::new("")));
        let bind = match &self.seat {
            Some(seat) => seat.bind(plan)?,
            None => BindConfig { sockets: self.cluster.sockets().to_owned(), bind: self.bind, ..beside },
        };
        let start = |client: ClientId| plan.start_client::<F>(client, &bind);
        let placing = Placing { plan, start: &start, to, wait: self.wait, timeout: self.patience };
        placing.join(None, &mut Watch { plan, to }).map_err(|error| match error {
            JoinError::Start(error) => Problem::Start(error),
            JoinError::Run(error) => Problem::Run(error),
            JoinError::NoPlace => Problem::NoPlace,
            JoinError::GivenUp(problem) => problem,
        })
    }
}

/// Whether a session is possible with these sizes, also when it uses all groups.
fn check_limits(limits: &Limits, groups: usize) -> Result<(), Problem> {
    if limits.reply_bytes == 0 {
        return Err(Problem::NoReplies);
    }
    let needs = Envelope::BYTES + Body::HEAD_BYTES + groups * Body::PAIR_BYTES;
    if (limits.message_bytes as usize) < needs { Err(Problem::ShortMessages { needs }) } else { Ok(()) }
}

/// Says in the log what a client waits for.
struct Watch<'a> {
    plan: &'a ClusterRuntime,
    to: &'a [GroupId],
}

impl<F: FabricDiagnostics> JoinWatch<F> for Watch<'_> {
    type Error = Problem;

    fn look(&mut self, client: &mut Sender<F>) -> Result<(), Problem> {
        let name = self.plan.name(client.fabric().me());
        while let Some(refusal) = client.fabric_mut().next_refusal() {
            log::warn!("{name}: {}", refusal.tell(|process| self.plan.name(process).to_owned()));
        }
        Ok(())
    }

    fn late(&mut self, client: &Sender<F>) -> Problem {
        let topology = self.plan.topology();
        let home = topology.home(client.id());
        let needed = topology.group_ids().filter(|group| *group == home || self.to.contains(group));
        let members = needed.flat_map(|group| topology.members(group));
        let absent = members.filter(|process| !client.fabric().sees(*process));
        let absent: Vec<_> = absent.map(|process| self.plan.name(process).to_owned()).collect();
        if absent.is_empty() { Problem::Unanswered } else { Problem::Late { absent } }
    }

    fn note(&mut self, text: &str) {
        log::info!("{text}");
    }
}
