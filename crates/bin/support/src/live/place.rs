//! Joins a running cluster as a client: claims a client id and waits for members.

use std::path::Path;
use std::time::{Duration, Instant};

use stentor::config::FabricKind;
use stentor::runtime::{
    Client, ClientId, ClusterRuntime, FabricDiagnostics, GroupId, JoinError, JoinWatch, Placing, StartError, WaitMode,
};
use stentor_fabric::ProcessId;

use super::{MEND_NAME, Missed, Refusals, Waiting, missed, unstarted, whereabouts};
use crate::Failure;

/// A client that has joined, and may multicast: a majority of each of its groups has been counted in for flow control.
pub struct Joined<F: FabricDiagnostics> {
    /// The client.
    pub client: Client<F>,
    /// Client id of the client.
    pub id: ClientId,
}

/// Parameters of a client that joins a cluster.
pub struct Joining<'a, F: FabricDiagnostics> {
    /// The cluster.
    pub plan: &'a ClusterRuntime,
    /// The configuration file, for error messages.
    pub config: &'a Path,
    /// Starts the client with a given id.
    pub start: &'a dyn Fn(ClientId) -> Result<Client<F>, StartError>,
    /// The place where the processes meet, for error messages.
    pub meet: String,
    /// The directory that the user named, for error messages.
    pub directory: Option<&'a Path>,
    /// The groups whose members the client waits for.
    pub to: Vec<GroupId>,
    /// Wait mode of the polling loop.
    pub wait: WaitMode,
    /// Longest time to wait for members.
    pub timeout: Duration,
    /// Function that returns an error if the client should stop waiting. It is called repeatedly.
    pub check: &'a dyn Fn() -> Result<(), Failure>,
}

/// The hooks that are called while a client waits to join. They report what it waits for, and may end the wait.
struct Watch<'a, 'b, F: FabricDiagnostics, N> {
    joining: &'a Joining<'b, F>,
    note: N,
    refusals: Refusals,
    waiting: Waiting,
}

impl<F: FabricDiagnostics, N: FnMut(&str)> JoinWatch<F> for Watch<'_, '_, F, N> {
    type Error = Failure;

    fn begin(&mut self) {
        (self.refusals, self.waiting) = (Refusals::default(), Waiting::default());
    }

    fn look(&mut self, client: &mut Client<F>) -> Result<(), Failure> {
        let Joining { plan, config, check, .. } = self.joining;
        check()?;
        let named = |process| plan.name(process).to_owned();
        self.refusals.take(client.fabric_mut(), named, &mut self.note);
        let is_member = |process: ProcessId| process.index() < plan.topology().all_members();
        if let Some(failure) = self.refusals.final_word(1, is_member, &config.display()) {
            return Err(failure);
        }
        let whom = || {
            let where_is = |process| whereabouts(plan, process, client.fabric().unresolved(process));
            self.joining.absent(client).map(where_is).collect()
        };
        self.waiting.look(Instant::now(), whom).iter().for_each(|text| (self.note)(text));
        Ok(())
    }

    fn late(&mut self, client: &Client<F>) -> Failure {
        self.joining.nobody(client, self.refusals.last())
    }

    fn note(&mut self, text: &str) {
        (self.note)(text);
    }
}

impl<'a, F: FabricDiagnostics> Joining<'a, F> {
    /// Returns the parameters of a client that waits for all groups of a cluster whose processes this program has
    /// started. The processes meet in `meet`.
    pub fn to_all(
        plan: &'a ClusterRuntime,
        config: &'a Path,
        meet: &Path,
        start: &'a dyn Fn(ClientId) -> Result<Client<F>, StartError>,
    ) -> Self {
        Joining {
            plan,
            config,
            start,
            meet: meet.display().to_string(),
            directory: None,
            to: plan.topology().group_ids().collect(),
            wait: WaitMode::ADAPTIVE,
            timeout: Duration::from_secs(60),
            check: &|| Ok(()),
        }
    }

    /// Claims the client id `asked`, or the first one that can be used. Calls `note` with messages, for example about
    /// missing members, refused connections, and client ids that cannot be used.
    pub fn join(&self, asked: Option<ClientId>, note: impl FnMut(&str)) -> Result<Joined<F>, Failure> {
        let Joining { plan, start, wait, timeout, .. } = *self;
        let mut watch = Watch { joining: self, note, refusals: Refusals::default(), waiting: Waiting::default() };
        let placing = Placing { plan, start, to: &self.to, wait, timeout };
        match placing.join(asked, &mut watch) {
            Ok(client) => Ok(Joined { id: client.id(), client }),
            Err(JoinError::Start(error)) => Err(unstarted(error, self.config)),
            Err(JoinError::Run(error)) => Err(Failure::run(error, "waiting", "report this as a bug")),
            Err(JoinError::GivenUp(failure)) => Err(failure),
            Err(JoinError::NoPlace) => Err(self.no_place(asked)),
        }
    }

    fn no_place(&self, asked: Option<ClientId>) -> Failure {
        let remedy = "wait until a client ends, or start the groups that are down; or raise the number of client ids: `clients` in [limits]";
        match asked {
            Some(_) => Failure::usage(
                "this client is running, or a group that it needs is down",
                "--client",
                "name another client id, or leave it out to use a free one",
            ),
            None => Failure::run("no client id is free", self.config.display(), remedy),
        }
    }

    /// Returns the disconnected members of the requested groups and of the client's home group.
    fn absent<'b>(&'b self, client: &'b Client<F>) -> impl Iterator<Item = ProcessId> + 'b {
        let topology = self.plan.topology();
        let home = topology.home(client.id());
        let groups = topology.group_ids().filter(move |group| *group == home || self.to.contains(group));
        let members = groups.flat_map(|group| topology.members(group));
        members.filter(|process| !client.fabric().sees(*process))
    }

    fn nobody(&self, client: &Client<F>, refused: Option<&str>) -> Failure {
        let absent: Vec<_> = self.absent(client).collect();
        let (what, remedy) = if absent.is_empty() { self.unanswered() } else { self.not_there(client, &absent) };
        let place = format!("{}, {}", self.config.display(), self.meet);
        match refused {
            Some(why) => Failure::run(
                format_args!("{what}; the last connection was refused: {why}"),
                place,
                format_args!("mend that first; {remedy}"),
            ),
            None => Failure::run(what, place, remedy),
        }
    }

    fn unanswered(&self) -> (String, String) {
        (
            "all members are there, but they do not answer".to_owned(),
            "a client waits for a majority of each group that it multicasts to, and of the home group of its client id: `stentor leader show` \
             says which group does not work, and why"
                .to_owned(),
        )
    }

    /// Returns an error message and a remedy for members that are not connected.
    fn not_there(&self, client: &Client<F>, absent: &[ProcessId]) -> (String, String) {
        let names =
            |all: &[ProcessId]| all.iter().map(|process| self.plan.name(*process)).collect::<Vec<_>>().join(", ");
        let mut what = format!("not there after {:.0?}: {}", self.timeout, names(absent));
        let unresolved: Vec<_> =
            absent.iter().copied().filter(|process| client.fabric().unresolved(*process).is_some()).collect();
        let mut remedies = Vec::new();
        if !unresolved.is_empty() {
            what += &format!("; the host name cannot be resolved here of: {}", names(&unresolved));
            remedies.push(MEND_NAME.to_owned());
        }
        let is_shm = self.plan.config().fabric() == FabricKind::Shm;
        let directory = super::directory(self.directory.map(Path::to_owned).as_ref());
        let missed = missed(self.plan, absent, is_shm.then_some(&directory));
        missed.iter().for_each(|missed| what += &format!("; {}", missed.text()));
        remedies.extend(Missed::remedies(&missed));
        let named = self.directory.map_or(String::new(), |directory| format!(" --directory {}", directory.display()));
        remedies.push(format!(
            "a client begins when a majority of each group that it multicasts to is up, and of the home group of its client id: start those that \
             do not run with `stentor node --config {}{named} --id ID`{}",
            self.config.display(),
            if is_shm && named.is_empty() { ", with the same --directory if one is named" } else { "" }
        ));
        (what, remedies.join("; "))
    }
}

/// Returns the names of the members of these groups that are not connected.
pub fn absent<F: FabricDiagnostics>(plan: &ClusterRuntime, client: &Client<F>, to: &[GroupId]) -> Vec<String> {
    let members = to.iter().flat_map(|group| plan.topology().members(*group));
    let gone = |process: &ProcessId| !client.fabric().sees(*process);
    members.filter(gone).map(|process| plan.name(process).to_owned()).collect()
}
