//! Taking a client's place in a running cluster.
//!
//! A place is tried at a time. A try ends when the client may begin, or when the place is of no use:
//!
//! | state of the try | next |
//! |---|---|
//! | the fabric refuses the start because another process has the place | the next place |
//! | a group keeps too much of earlier processes of the place, for longer than 0.3 s | the next place |
//! | the group that numbers the place's processes is not there for 1 s, and is not needed otherwise | the next place of another home |
//! | another process has taken the place, on another host | the next place |
//! | a majority of each group counts | the client begins |
//! | the time is over, or the watcher says so | an error |

#[cfg(feature = "roce")]
use std::net::IpAddr;
use std::time::{Duration, Instant};

use stentor_fabric::{Backoff, WaitMode};
#[cfg(feature = "roce")]
use stentor_fabric_roce::{StartError as RoceError, driver::PortError};
use stentor_host::StartError as SeatError;
use stentor_multicast::{Client, ClientId, GroupId};

use super::cluster::{ClusterRuntime, StartError};
use super::fabric_diagnostics::FabricDiagnostics;
use super::in_use::{InUse, patiently};
use super::run_loop::{Housekeeper, RunError, client_round};

/// How long what keeps a process out of a place may last before another one is looked at.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long a client that may begin waits for those who are there and do not count yet.
const MOMENT: Duration = Duration::from_millis(100);
/// For how long the home group of a place may not be there.
const HOME_PATIENCE: Duration = Duration::from_secs(1);

/// Who looks on while a client waits for its groups.
pub trait JoinWatch<F: FabricDiagnostics> {
    /// Why it gives up.
    type Error;

    /// A client waits in a place from here on.
    fn begin(&mut self) {}

    /// Looks at the client that waits, again and again.
    ///
    /// # Errors
    /// Why to give up.
    fn look(&mut self, client: &mut Client<F>) -> Result<(), Self::Error>;

    /// Says why the client that waited for the whole time was not let in.
    fn late(&mut self, client: &Client<F>) -> Self::Error;

    /// Hears what is worth telling: of places that were skipped, for example.
    fn note(&mut self, text: &str);
}

/// Why no place was taken.
#[derive(Debug)]
pub enum JoinError<E> {
    /// The process does not start on the fabric.
    Start(StartError),
    /// Waiting failed.
    Run(RunError),
    /// All places that could be taken have a process, or need a group that is not there.
    NoPlace,
    /// The watcher gave up.
    GivenUp(E),
}

/// Which client is wanted.
pub struct Placing<'a, F: FabricDiagnostics> {
    /// The cluster.
    pub plan: &'a ClusterRuntime,
    /// Starts the client of a place.
    pub start: &'a dyn Fn(ClientId) -> Result<Client<F>, StartError>,
    /// The groups whose members it waits for.
    pub to: &'a [GroupId],
    /// What it does while it waits.
    pub wait: WaitMode,
    /// The longest wait.
    pub timeout: Duration,
}

/// Why a place was not taken.
enum Refused<E> {
    /// There is a process in it.
    Taken,
    /// A group keeps too much of what earlier processes of it left.
    Crowded,
    /// The group that numbers its processes is not there.
    Homeless(GroupId),
    /// No place is better.
    Failed(JoinError<E>),
}

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

/// Whether there is a process in a client's place already.
fn is_taken(error: &StartError) -> bool {
    match error {
        StartError::Fabric(SeatError::AlreadyRunning { .. }) => true,
        // On loopback a place has an address; elsewhere somebody else may have it.
        #[cfg(feature = "roce")]
        StartError::Roce(RoceError::Port(PortError::Taken { address: IpAddr::V4(ip) })) => ip.is_loopback(),
        _ => false,
    }
}

impl<F: FabricDiagnostics> Placing<'_, F> {
    /// Takes the place that is asked for, or the first that is free.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join<W: JoinWatch<F>>(
        &self,
        asked: Option<ClientId>,
        watch: &mut W,
    ) -> Result<Client<F>, JoinError<W::Error>> {
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
            match self.take(place, asked, until, watch) {
                Ok(client) => return Ok(client),
                Err(Refused::Taken) => {}
                Err(Refused::Crowded) => {
                    watch.note(&format!(
                        "`{name}`: a group keeps what many earlier processes of it left, until another group answers; it is skipped"
                    ));
                }
                Err(Refused::Homeless(group)) => {
                    let home = self.plan.group_name(group);
                    watch.note(&format!(
                        "`{name}`: its home group {home} is not there; it is skipped, like all others of that home"
                    ));
                    homeless.push(group);
                }
                Err(Refused::Failed(error)) => return Err(error),
            }
        }
        Err(JoinError::NoPlace)
    }

    /// Starts the process of a place, and waits for up to some seconds while a process that was killed still has it.
    fn start<W: JoinWatch<F>>(&self, place: ClientId, watch: &mut W) -> Result<Client<F>, Refused<W::Error>> {
        // `None`: another process is in its place, so the next place is tried at once.
        let start = || (self.start)(place).map_err(|error| if is_taken(&error) { None } else { Some(error) });
        let started = patiently(start, |error| error.as_ref()?.in_use(), |text| watch.note(text));
        started.map_err(|error| error.map_or(Refused::Taken, |error| Refused::Failed(JoinError::Start(error))))
    }

    fn take<W: JoinWatch<F>>(
        &self,
        place: ClientId,
        asked: Option<ClientId>,
        until: Instant,
        watch: &mut W,
    ) -> Result<Client<F>, Refused<W::Error>> {
        let mut client = self.start(place, watch)?;
        let (mut backoff, mut housekeeper) = (Backoff::new(self.wait), Housekeeper::default());
        let mut round = |client: &mut Client<F>| {
            client_round(client, &mut backoff, &mut housekeeper, false)
                .map_err(|error| Refused::Failed(JoinError::Run(error)))
        };
        client.open_only(self.to);
        let (mut crowded, mut displaced, mut homeless) = (Lasting::default(), Lasting::default(), Lasting::default());
        let home = self.plan.topology().home(place);
        let may_skip = asked.is_none() && !self.to.contains(&home);
        watch.begin();
        while !client.is_connected(self.to) {
            round(&mut client)?;
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
            let given_up = |error| Refused::Failed(JoinError::GivenUp(error));
            watch.look(&mut client).map_err(given_up)?;
            if now > until {
                return Err(given_up(watch.late(&client)));
            }
        }
        // Whoever is there and does not count yet has to catch up afterwards: it gets a moment.
        let moment = Instant::now() + MOMENT;
        while !self.is_counted(&client) && Instant::now() < moment {
            round(&mut client)?;
        }
        Ok(client)
    }

    /// Whether every member that is there counts.
    fn is_counted(&self, client: &Client<F>) -> bool {
        let members = self.to.iter().flat_map(|group| client.topology().members(*group));
        members.into_iter().all(|process| client.counts_on(process) || !client.fabric().sees(process))
    }
}
