//! Taking a client's place in a running cluster.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use stentor::config::FabricKind;
use stentor::runtime::{
    Client, ClientId, ClusterRuntime, FabricDiagnostics, GroupId, Housekeeper, StartError, WaitMode, client_round,
};
use stentor_fabric::{Backoff, ProcessId};
use stentor_fabric_roce::StartError as RoceError;
use stentor_fabric_roce::driver::PortError;
use stentor_host::StartError as ShmError;

use super::{Busy, MEND_NAME, Missed, Refusals, Waiting, missed, patiently, unstarted, whereabouts};
use crate::Failure;

/// How long what keeps a process out of a place may last before another one is looked at.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long a client that may begin waits for those who are there and do not count yet.
const MOMENT: Duration = Duration::from_millis(100);
/// For how long the home group of a place may not be there.
const HOME_PATIENCE: Duration = Duration::from_secs(1);

/// Since when something has lasted.
#[derive(Default)]
struct Lasting(Option<Instant>);

impl Lasting {
    /// Whether it has lasted for longer than `limit`, if it holds now.
    fn lasts(&mut self, holds: bool, now: Instant, limit: Duration) -> bool {
        self.0 = if holds { self.0.or(Some(now)) } else { None };
        self.0.is_some_and(|since| now - since > limit)
    }
}

/// A client that has begun: a majority of each of its groups counts.
pub struct Joined<F: FabricDiagnostics> {
    /// The client.
    pub client: Client<F>,
    /// Its id.
    pub id: ClientId,
}

/// Where and how to join.
pub struct Joining<'a, F: FabricDiagnostics> {
    /// The cluster.
    pub plan: &'a ClusterRuntime,
    /// The configuration's file, for errors.
    pub config: &'a Path,
    /// Starts the client of a place.
    pub start: &'a dyn Fn(ClientId) -> Result<Client<F>, StartError>,
    /// Where the processes meet, for errors.
    pub meet: String,
    /// The directory that was named, for errors.
    pub directory: Option<&'a Path>,
    /// The groups whose members it waits for.
    pub to: Vec<GroupId>,
    /// What it does while it waits.
    pub wait: WaitMode,
    /// The longest wait.
    pub timeout: Duration,
    /// Why to give up, looked at again and again.
    pub check: &'a dyn Fn() -> Result<(), Failure>,
}

/// Why a place was not taken.
enum Refused {
    /// There is a process in it.
    Taken,
    /// A group keeps too much of what earlier processes of it left.
    Crowded,
    /// The group that numbers its processes is not there.
    Homeless(GroupId),
    /// No place is better.
    Failed(Failure),
}

/// Whether there is a process in a client's place already.
fn is_taken(error: &StartError) -> bool {
    match error {
        StartError::Fabric(ShmError::AlreadyRunning { .. }) => true,
        // On loopback a place has an address; elsewhere somebody else may have it.
        StartError::Roce(RoceError::Port(PortError::Taken { address: IpAddr::V4(ip) })) => ip.is_loopback(),
        _ => false,
    }
}

/// Why a client did not start; `None`: another process is in its place, so the next place is tried at once.
struct Unstarted(Option<StartError>);

impl Busy for Unstarted {
    fn busy(&self) -> Option<String> {
        self.0.as_ref()?.busy()
    }
}

impl<'a, F: FabricDiagnostics> Joining<'a, F> {
    /// To all groups of a cluster whose processes this program has started; `meet` is where.
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

    /// Takes the place that is asked for, or the first that is free; `note` hears of those that were skipped.
    pub fn join(&self, asked: Option<ClientId>, mut note: impl FnMut(&str)) -> Result<Joined<F>, Failure> {
        let until = Instant::now() + self.timeout;
        let places = match asked {
            Some(place) => place.0..place.0 + 1,
            None => 0..self.plan.topology().clients() as u16,
        };
        // Those first whose home is a group that is needed anyway.
        let (near, far): (Vec<_>, Vec<_>) =
            places.map(ClientId).partition(|place| self.to.contains(&self.plan.topology().home(*place)));
        // Home groups that are not there: none of their places can be had.
        let mut homeless = Vec::new();
        for place in near.into_iter().chain(far) {
            if homeless.contains(&self.plan.topology().home(place)) {
                continue;
            }
            let name = self.plan.name(self.plan.topology().client_process(place));
            match self.take(place, asked, until, &mut note) {
                Ok(joined) => return Ok(joined),
                Err(Refused::Taken) => {}
                Err(Refused::Crowded) => {
                    note(&format!(
                        "`{name}`: a group keeps what many earlier processes of it left, until another group answers; it is skipped"
                    ));
                }
                Err(Refused::Homeless(group)) => {
                    let home = self.plan.group_name(group);
                    note(&format!(
                        "`{name}`: its home group {home} is not there; it is skipped, like all others of that home"
                    ));
                    homeless.push(group);
                }
                Err(Refused::Failed(failure)) => return Err(failure),
            }
        }
        let remedy = "wait until a client ends, or start the groups that are down; or give the cluster more places: `clients` in [limits]";
        Err(match asked {
            Some(_) => Failure::usage(
                "this client is running, or a group that it needs is down",
                "--client",
                "name another, or none: then a free one is taken",
            ),
            None => Failure::run("no client's place is free", self.config.display(), remedy),
        })
    }

    fn take(
        &self,
        place: ClientId,
        asked: Option<ClientId>,
        until: Instant,
        note: &mut impl FnMut(&str),
    ) -> Result<Joined<F>, Refused> {
        let start = || match (self.start)(place) {
            Ok(client) => Ok(client),
            Err(error) if is_taken(&error) => Err(Unstarted(None)),
            Err(error) => Err(Unstarted(Some(error))),
        };
        let mut client = patiently(start, &mut *note).map_err(|Unstarted(error)| match error {
            None => Refused::Taken,
            Some(error) => Refused::Failed(unstarted(error, self.config)),
        })?;
        let (mut backoff, mut housekeeper) = (Backoff::new(self.wait), Housekeeper::default());
        client.open_only(&self.to);
        let (mut crowded, mut displaced, mut homeless) = (Lasting::default(), Lasting::default(), Lasting::default());
        let home = self.plan.topology().home(place);
        let may_skip = asked.is_none() && !self.to.contains(&home);
        let (mut refusals, mut waiting) = (Refusals::default(), Waiting::default());
        let named = |process| self.plan.name(process).to_owned();
        while !client.is_connected(&self.to) {
            client_round(&mut client, &mut backoff, &mut housekeeper, false)
                .map_err(|error| Refused::Failed(Failure::run(error, "waiting", "report this as a bug")))?;
            let now = Instant::now();
            if crowded.lasts(client.is_crowded(), now, PATIENCE) {
                return Err(Refused::Crowded);
            }
            let seen = self.plan.topology().members(home).filter(|process| client.fabric().sees(*process)).count();
            let is_homeless = may_skip && seen < self.plan.topology().majority(home) as usize;
            if homeless.lasts(is_homeless, now, HOME_PATIENCE) {
                return Err(Refused::Homeless(home));
            }
            // Another host's process may be in it; one that died just now is not any more.
            if client.is_superseded() || displaced.lasts(client.fabric().is_displaced(), now, PATIENCE) {
                return Err(Refused::Taken);
            }
            (self.check)().map_err(Refused::Failed)?;
            refusals.take(client.fabric_mut(), named, &mut *note);
            let is_member = |process: ProcessId| process.index() < self.plan.topology().all_members();
            if let Some(failure) = refusals.final_word(1, is_member, &self.config.display()) {
                return Err(Refused::Failed(failure));
            }
            let whom = || {
                let where_is = |process| whereabouts(self.plan, process, client.fabric().unresolved(process));
                self.absent(&client).map(where_is).collect()
            };
            waiting.look(now, whom).iter().for_each(|text| note(text));
            if now > until {
                return Err(Refused::Failed(self.nobody(&client, refusals.last())));
            }
        }
        // Whoever is there and does not count yet has to catch up afterwards: it gets a moment.
        let moment = Instant::now() + MOMENT;
        let seen = |client: &Client<F>| {
            self.to
                .iter()
                .flat_map(|group| client.topology().members(*group))
                .all(|process| client.counts_on(process) || !client.fabric().sees(process))
        };
        while !seen(&client) && Instant::now() < moment {
            client_round(&mut client, &mut backoff, &mut housekeeper, false)
                .map_err(|error| Refused::Failed(Failure::run(error, "waiting", "report this as a bug")))?;
        }
        Ok(Joined { client, id: place })
    }

    /// Members of the groups that are meant, and of the home group of the place.
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
            "a client waits for a majority of each group that it multicasts to, and of the home group of its place: `stentor leader show` \
             says which group does not work, and why"
                .to_owned(),
        )
    }

    /// What is wrong if these members are not connected, and what to do.
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
            "a client begins when a majority of each group that it multicasts to is up, and of the home group of its place: start those that \
             do not run with `stentor node --config {}{named} --id ID`{}",
            self.config.display(),
            if is_shm && named.is_empty() { ", with the same --directory if one is named" } else { "" }
        ));
        (what, remedies.join("; "))
    }
}

/// Names of the processes of these groups that are not connected.
pub fn absent<F: FabricDiagnostics>(plan: &ClusterRuntime, client: &Client<F>, to: &[GroupId]) -> Vec<String> {
    let members = to.iter().flat_map(|group| plan.topology().members(*group));
    let gone = |process: &ProcessId| !client.fabric().sees(*process);
    members.filter(gone).map(|process| plan.name(process).to_owned()).collect()
}
