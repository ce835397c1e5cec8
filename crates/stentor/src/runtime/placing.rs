//! Obtains a client id in a running cluster.
//!
//! Client ids are tried one at a time. A try ends when the client may start, or when the id cannot be used:
//!
//! | state of the try | next |
//! |---|---|
//! | the fabric refuses the start because another process holds the id | the next id |
//! | for more than 0.3 s, a group has the maximum number of records of earlier processes of the id | the next id |
//! | for 1 s, the home group is unreachable; the client does not need it, and no id was requested | next home group |
//! | a process on another host holds the id | the next id |
//! | a majority of each group counts for flow control | the client starts |
//! | the timeout has passed, or the watcher gives up | an error |

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

/// Time that an obstacle to the use of a client id may last before the next id is tried.
const PATIENCE: Duration = Duration::from_millis(300);
/// Time for which a client that may start still waits for connected members that do not count for its flow control yet.
const MOMENT: Duration = Duration::from_millis(100);
/// Time that the home group of a client id may be unreachable.
const HOME_PATIENCE: Duration = Duration::from_secs(1);

/// An observer of a client that waits for its groups.
pub trait JoinWatch<F: FabricDiagnostics> {
    /// The reason why the observer gives up.
    type Error;

    /// Called when a client starts to wait with a client id.
    fn begin(&mut self) {}

    /// Examines the waiting client. Called repeatedly.
    ///
    /// # Errors
    /// Returns the reason to give up.
    fn look(&mut self, client: &mut Client<F>) -> Result<(), Self::Error>;

    /// Returns why the client did not start within the timeout.
    fn late(&mut self, client: &Client<F>) -> Self::Error;

    /// Receives messages, for example about client ids that were skipped.
    fn note(&mut self, text: &str);
}

/// The reason why no client id was obtained.
#[derive(Debug)]
pub enum JoinError<E> {
    /// The process cannot start on the fabric.
    Start(StartError),
    /// Waiting failed.
    Run(RunError),
    /// No client id can be used. An id cannot be used if a process holds it, if its home group is unreachable, or if a
    /// group has the maximum number of records of its earlier processes.
    NoPlace,
    /// The watcher gave up, or the timeout has passed.
    GivenUp(E),
}

/// The parameters of a client that is to start.
pub struct Placing<'a, F: FabricDiagnostics> {
    /// The cluster.
    pub plan: &'a ClusterRuntime,
    /// Starts the client with a client id.
    pub start: &'a dyn Fn(ClientId) -> Result<Client<F>, StartError>,
    /// Groups for whose members the client waits.
    pub to: &'a [GroupId],
    /// Mode in which the client waits.
    pub wait: WaitMode,
    /// Longest time to wait.
    pub timeout: Duration,
}

/// The reason why one client id was not obtained.
enum Refused<E> {
    /// Another process holds the client id.
    Taken,
    /// A group has the maximum number of records of earlier processes of the client id.
    Crowded,
    /// The home group of the client id is unreachable.
    Homeless(GroupId),
    /// No other client id would help.
    Failed(JoinError<E>),
}

/// The time since which a condition has held.
#[derive(Default)]
struct Lasting(Option<Instant>);

impl Lasting {
    /// Returns whether the condition has held for longer than `limit`. `holds` is `true` if the condition holds now.
    fn lasts(&mut self, holds: bool, now: Instant, limit: Duration) -> bool {
        self.0 = if holds { self.0.or(Some(now)) } else { None };
        self.0.is_some_and(|since| now - since > limit)
    }
}

/// Returns whether the error means that another process holds the client id.
fn is_taken(error: &StartError) -> bool {
    match error {
        StartError::Fabric(SeatError::AlreadyRunning { .. }) => true,
        // On loopback, each client id has its own address. Elsewhere, an unrelated process may use the address.
        #[cfg(feature = "roce")]
        StartError::Roce(RoceError::Port(PortError::Taken { address: IpAddr::V4(ip) })) => ip.is_loopback(),
        _ => false,
    }
}

impl<F: FabricDiagnostics> Placing<'_, F> {
    /// Obtains the requested client id or, without a request, the first one that can be used.
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
        // Client ids come first if their home group is needed anyway.
        let (near, far): (Vec<_>, Vec<_>) =
            places.map(ClientId).partition(|place| self.to.contains(&self.plan.topology().home(*place)));
        // Home groups that are unreachable: none of their client ids can be used.
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

    /// Starts the process of a client id. Fails at once if another process holds the id. Waits for up to five seconds
    /// while another process holds only a port or directory that the client needs.
    fn start<W: JoinWatch<F>>(&self, place: ClientId, watch: &mut W) -> Result<Client<F>, Refused<W::Error>> {
        // `None` means that another process holds the id, so the next one is tried at once.
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
            // A process on another host may hold the id. A report about a process that has just died disappears by
            // itself.
            if client.is_superseded() || displaced.lasts(client.fabric().is_displaced(), now, PATIENCE) {
                return Err(Refused::Taken);
            }
            let given_up = |error| Refused::Failed(JoinError::GivenUp(error));
            watch.look(&mut client).map_err(given_up)?;
            if now > until {
                return Err(given_up(watch.late(&client)));
            }
        }
        // A connected member that does not count yet must catch up afterwards, so the client waits for it briefly.
        let moment = Instant::now() + MOMENT;
        while !self.is_counted(&client) && Instant::now() < moment {
            round(&mut client)?;
        }
        Ok(client)
    }

    /// Returns whether every connected member of the groups in `to` counts for the client's flow control.
    fn is_counted(&self, client: &Client<F>) -> bool {
        let members = self.to.iter().flat_map(|group| client.topology().members(*group));
        members.into_iter().all(|process| client.counts_on(process) || !client.fabric().sees(process))
    }
}
