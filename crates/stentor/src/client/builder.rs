//! The parameters and the start of a client.

#[cfg(feature = "unstable-core")]
use std::any::Any;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_fabric::{ProcessId, WaitMode};
use stentor_multicast::{Client as Sender, ClientId, GroupId};
use stentor_session::{Body, Envelope};

use super::core::Core;
use super::error::Problem;
use super::watch::ClientWatch;
use super::{Client, ClientError, Groups, LocalClient, Seat, Session};
use crate::Cluster;
use crate::config::{FabricKind, Limits};
use crate::runtime::{
    self, BindConfig, ClusterFabric, ClusterRuntime, FabricDiagnostics, ForeignPeers, JoinError, JoinWatch, Placing,
    with_fabric,
};

/// Default patience of a client.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before the client ids are tried again after none of them was free.
const PAUSE: Duration = Duration::from_millis(100);
/// Shortest time for the admission with a client id, if the client's patience allows it.
const ADMISSION: Duration = Duration::from_secs(1);
/// Default time to live of a session.
const TTL: Duration = Duration::from_secs(30);
/// Shortest time to live of a session. A renewal must still succeed after a group has been without a leader for a short
/// time.
const LEAST_TTL: Duration = Duration::from_secs(2);
/// Default number of calls that a client may have at a time.
const CALLS: u32 = 4096;

/// A builder of a client. [`Cluster::client`] creates one.
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
    /// The node's side of an embedded client.
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

    /// Begins a client that is embedded in a node.
    pub(crate) fn embedded(cluster: Cluster, seat: Seat) -> Self {
        ClientBuilder { seat: Some(seat), ..ClientBuilder::new(cluster) }
    }

    pub(super) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Sets the groups with which a new session begins. By default it begins with all groups of the cluster; a resumed
    /// session keeps its groups. A majority of each group must be reachable. Calls to other groups are possible: the
    /// first call to a group adds it to the session.
    pub fn groups(self, groups: impl Into<Groups>) -> Self {
        ClientBuilder { groups: Some(groups.into()), ..self }
    }

    /// Resumes a session of an earlier process. Another process that still uses the session can then make no more calls
    /// under it. By default, the client opens a new session.
    pub fn session(self, session: Session) -> Self {
        ClientBuilder { session: Some(session), ..self }
    }

    /// Sets how the client waits when it is idle. The default is [`WaitMode::ADAPTIVE`].
    pub fn wait(self, mode: WaitMode) -> Self {
        ClientBuilder { wait: mode, ..self }
    }

    /// Sets the address of this process, on fabrics between hosts only. An embedded client always has the address of
    /// its node.
    pub fn bind(self, address: IpAddr) -> Self {
        ClientBuilder { bind: Some(address), ..self }
    }

    /// Sets for how long the client waits for a free client id and its admission, then for the opening of its session,
    /// and for how long each call of a [`Client`] waits for its outcome. The default is 10 s. A process that replaces
    /// another one may therefore start while the other one still ends. If an id becomes free in the last second, the
    /// admission may take up to a second longer.
    pub fn patience(self, patience: Duration) -> Self {
        ClientBuilder { patience, ..self }
    }

    /// Sets the time to live of the session after its last renewal, from 2 s to 600 s. The default is 30 s. The client
    /// renews the session after half of this time, while it runs and its groups have majorities. If the client dies, or
    /// if a group loses its majority, the session therefore ends half of this time later at the earliest, and all of it
    /// at the latest. Until it expires, the session of a dead process occupies one of the `sessions` entries of
    /// `[limits]` in each of its groups.
    ///
    /// A program that relies on [`lives_until`](Client::lives_until) needs more than four times `clock_bound_ms` of
    /// `[limits]`, plus a second for slow renewals: with the default bound, 5 s or more. With less, that moment has
    /// passed before the next renewal.
    pub fn session_ttl(self, time: Duration) -> Self {
        ClientBuilder { ttl: time, ..self }
    }

    /// Sets how many calls a [`Client`] may have at a time, until they have ended and the program has dropped them and
    /// their answers. Further calls fail with [`Busy`](super::Refused::Busy). The default is 4096. At most `window` of
    /// `[limits]` commands and ordered reads are in flight; the others are queued. Calls to one group are sent in the
    /// order in which they were made.
    pub fn calls(self, most: u32) -> Self {
        ClientBuilder { calls: most.max(1), ..self }
    }

    /// Connects, opens the session and starts the client's thread. A client that is
    /// [embedded](crate::NodeHandle::client) in a node gets no thread: the node's thread serves it.
    ///
    /// # Errors
    /// Returns why the client did not connect, with the remedy.
    pub fn connect(self) -> Result<Client, ClientError> {
        let connected: Result<_, Problem> = with_fabric!(self.cluster.runtime().config().fabric(), F => {
            self.core::<F>().and_then(|core| Client::serve(core, &self))
        });
        Ok(connected?)
    }

    /// Connects and opens the session of a client that the caller drives, without a thread.
    ///
    /// # Errors
    /// Returns why the client did not connect, with the remedy.
    pub fn connect_local(self) -> Result<LocalClient, ClientError> {
        let connected: Result<_, Problem> = with_fabric!(self.cluster.runtime().config().fabric(), F => {
            self.core::<F>().and_then(|core| LocalClient::new(core.into()))
        });
        Ok(connected?)
    }

    /// Checks the parameters that can be checked before the start, for example whether the cluster's limits leave room
    /// for a session.
    ///
    /// # Errors
    /// Returns why no session is possible, with the remedy.
    #[cfg(feature = "unstable-core")]
    pub fn check(&self) -> Result<(), ClientError> {
        self.sound_groups()?;
        Ok(())
    }

    /// Opens a session through a multicast client that has already joined its groups and has its client id. `watch`
    /// sees every message of the session before it is multicast.
    ///
    /// # Errors
    /// Returns why the session was not opened, with the remedy.
    ///
    /// # Panics
    /// Panics if the client is on another fabric than the cluster.
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

    /// Checks the parameters. Returns the groups with which the session begins.
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
            let why = format!("group number {} does not belong to this cluster", unknown.0);
            return Err(Problem::Bytes { what: "groups", why });
        }
        check_limits(plan.config().limits(), plan.topology().groups())?;
        let between = LEAST_TTL..=Duration::from_nanos(plan.config().limits().sessions().ttl);
        if !between.contains(&self.ttl) {
            return Err(Problem::TimeToLive { asked: self.ttl, between });
        }
        Ok(to)
    }

    /// Opens or resumes the session.
    fn open<F: FabricDiagnostics>(&self, joined: (Sender<F>, ClientWatch), to: &[GroupId]) -> Result<Core<F>, Problem> {
        let mut core = Core::new(self.cluster.runtime(), joined, self.wait, self.patience, self.ttl)?;
        core.open(to, self.session.as_ref())?;
        Ok(core)
    }

    fn join<F: ClusterFabric>(&self, plan: &Arc<ClusterRuntime>, to: &[GroupId]) -> Result<Sender<F>, Problem> {
        // The path of a key file may be relative to the configuration file.
        let beside = BindConfig::beside(plan.file().unwrap_or(Path::new("")));
        let bind = match &self.seat {
            Some(seat) => seat.bind(plan)?,
            None => BindConfig { sockets: self.cluster.sockets().to_owned(), bind: self.bind, ..beside },
        };
        let start = |client: ClientId| plan.start_client::<F>(client, &bind);
        let (until, mut waits) = (Instant::now() + self.patience, false);
        loop {
            // An id that becomes free late still leaves time for the admission.
            let left = until.saturating_duration_since(Instant::now()).max(ADMISSION.min(self.patience));
            let placing = Placing { plan, start: &start, to, wait: self.wait, timeout: left };
            return match placing.join(None, &mut Watch::new(plan, to)) {
                Ok(client) => Ok(client),
                Err(JoinError::Start(error)) => Err(Problem::Start(error)),
                Err(JoinError::Run(error)) => Err(Problem::Run(error)),
                Err(JoinError::GivenUp(problem)) => Err(problem),
                Err(JoinError::NoPlace) if Instant::now() >= until => Err(Problem::NoPlace { patience: self.patience }),
                // A process that holds an id may be about to end, for example the predecessor of this one.
                Err(JoinError::NoPlace) => {
                    if !std::mem::replace(&mut waits, true) {
                        log::info!("no client id is free: waits up to {:?} until a client ends", self.patience);
                    }
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
        }
    }
}

/// Checks that the limits leave room for a session, even one that uses all groups.
fn check_limits(limits: &Limits, groups: usize) -> Result<(), Problem> {
    if limits.reply_bytes == 0 {
        return Err(Problem::NoReplies);
    }
    let needs = Envelope::BYTES + Body::HEAD_BYTES + groups * Body::PAIR_BYTES;
    if (limits.message_bytes as usize) < needs { Err(Problem::ShortMessages { needs }) } else { Ok(()) }
}

/// Reports the progress of a client's admission to the log, and ends it if members refuse the client for a reason that
/// does not pass.
struct Watch<'a> {
    plan: &'a ClusterRuntime,
    to: &'a [GroupId],
    foreign: ForeignPeers,
    /// The last refusal.
    refused: Option<String>,
}

impl<'a> Watch<'a> {
    fn new(plan: &'a ClusterRuntime, to: &'a [GroupId]) -> Self {
        Watch { plan, to, foreign: ForeignPeers::default(), refused: None }
    }

    /// Returns the groups whose majorities a client needs: those that it names, and the home group of its id.
    fn needed(&self, id: ClientId) -> impl Iterator<Item = GroupId> {
        let home = self.plan.topology().home(id);
        self.plan.topology().group_ids().filter(move |group| *group == home || self.to.contains(group))
    }

    /// Returns the members that refuse the client if the others of their group are no majority.
    fn verdict(&self, id: ClientId) -> Option<String> {
        let topology = self.plan.topology();
        self.needed(id).find_map(|group| {
            let members: Vec<ProcessId> = topology.members(group).collect();
            let enough = members.len() + 1 - topology.majority(group) as usize;
            self.foreign.verdict(enough, |process| members.contains(&process))
        })
    }
}

impl<F: FabricDiagnostics> JoinWatch<F> for Watch<'_> {
    type Error = Problem;

    fn begin(&mut self) {
        (self.foreign, self.refused) = (ForeignPeers::default(), None);
    }

    fn look(&mut self, client: &mut Sender<F>) -> Result<(), Problem> {
        let (now, name) = (Instant::now(), self.plan.name(client.fabric().me()));
        while let Some(refusal) = client.fabric_mut().next_refusal() {
            let told = refusal.tell(|process| self.plan.name(process).to_owned());
            log::warn!("{name}: {told}");
            self.foreign.note(&refusal, &told, now);
            self.refused = Some(told);
        }
        self.foreign.update(client.fabric());
        if !self.foreign.is_settled(now) {
            return Ok(());
        }
        self.verdict(client.id()).map_or(Ok(()), |who| Err(Problem::Foreign(who)))
    }

    fn late(&mut self, client: &Sender<F>) -> Problem {
        let members = self.needed(client.id()).flat_map(|group| self.plan.topology().members(group));
        let absent = members.filter(|process| !client.fabric().sees(*process));
        let absent: Vec<_> = absent.map(|process| self.plan.name(process).to_owned()).collect();
        if absent.is_empty() { Problem::Unanswered } else { Problem::Late { absent, refused: self.refused.take() } }
    }

    fn note(&mut self, text: &str) {
        log::info!("{text}");
    }
}
