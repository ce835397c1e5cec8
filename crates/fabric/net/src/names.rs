//! Names of hosts, resolved again at every attempt to connect, because a process may restart at another address.
//!
//! Resolving can block for seconds, so threads of this module do it, never the polling thread. A peer whose name cannot
//! be resolved keeps its last address. Other lookups are delayed only if all threads of this module are blocked.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Maximum number of concurrent lookups; more names wait.
const WORKERS: usize = 4;
/// Maximum number of notes that are kept.
const MAX_NOTES: usize = 64;

/// A process and its address in the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostName {
    /// Name of the process in messages.
    pub process: String,
    /// `host:port`; a host that is an IP address is not resolved.
    pub address: String,
}

/// A function that looks a name up and may block.
pub(crate) type LookUp = fn(&str) -> io::Result<Vec<SocketAddr>>;

fn system(name: &str) -> io::Result<Vec<SocketAddr>> {
    name.to_socket_addrs().map(Iterator::collect)
}

type Found = (usize, io::Result<Vec<SocketAddr>>);

/// The state of a peer's name.
#[derive(Debug, Default)]
struct Known {
    name: Option<HostName>,
    /// `true` while a lookup is in progress.
    asked: bool,
    /// All addresses of the last lookup that this process can reach: one for each network interface of the host.
    all: Vec<SocketAddr>,
    /// The last error, which is reported only once.
    fault: Option<String>,
}

/// The names of all peers.
#[derive(Debug)]
pub(crate) struct Names {
    known: Vec<Known>,
    look_up: LookUp,
    asks: Option<Sender<(usize, String)>>,
    answers: (Sender<Found>, Receiver<Found>),
    pub(crate) notes: VecDeque<String>,
}

impl Names {
    pub(crate) fn new(names: Vec<Option<HostName>>, processes: usize) -> Names {
        let mut known: Vec<_> = names.into_iter().map(|name| Known { name, ..Known::default() }).collect();
        known.resize_with(processes, Known::default);
        Names { known, look_up: system, asks: None, answers: channel(), notes: VecDeque::new() }
    }

    /// Creates the names of two processes, the first of which has these addresses.
    #[cfg(test)]
    pub(crate) fn of_interfaces(all: Vec<SocketAddr>) -> Names {
        let mut names = Names::new(Vec::new(), 2);
        names.known[0].all = all;
        names
    }

    /// Returns the reason why a peer's name had no address at the last attempt.
    pub(crate) fn fault(&self, peer: usize) -> Option<&str> {
        self.known.get(peer)?.fault.as_deref()
    }

    fn note(&mut self, text: String) {
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(text);
    }

    /// Returns the text that denotes a peer in log lines: its name and address, or its number if they are unknown.
    pub(crate) fn shown(&self, peer: usize) -> String {
        match self.known.get(peer).and_then(|known| known.name.as_ref()) {
            Some(HostName { process, address }) => format!("`{process}` ({address})"),
            None => format!("process {peer}"),
        }
    }

    /// Warns if this process has a loopback address and a peer does not, or the other way round. They reach each other
    /// only if they are on one host, because a loopback address always means the host on which it is used.
    pub(crate) fn warn_of_loopback(&mut self, me: usize, own: IpAddr, addresses: &[Option<SocketAddr>]) {
        let elsewhere =
            |address: &Option<SocketAddr>| address.is_some_and(|at| at.ip().is_loopback() != own.is_loopback());
        let Some(peer) = addresses.iter().position(elsewhere) else { return };
        let (mine, peer_is, at) = (self.shown(me), self.shown(peer), addresses[peer].map(|at| at.ip()));
        let Some(at) = at else { return };
        let text = if own.is_loopback() {
            format!(
                "{mine} listens at {own}, a loopback address, which other hosts cannot reach, and {peer_is} is at {at}: give the \
                 name an address of a network interface in this host's /etc/hosts (Debian's says 127.0.1.1 for the own host), or \
                 write the address into the configuration of all; --bind does not help clients and `leader show` on this host, \
                 which look the name up"
            )
        } else {
            format!(
                "{peer_is} is at {at} here, a loopback address, which is this host itself, and {mine} is at {own}: if they are on \
                 different hosts, give the name an address of a network interface (/etc/hosts)"
            )
        };
        self.note(text);
    }

    /// Starts a lookup of a peer's name, unless one is in progress.
    pub(crate) fn ask(&mut self, peer: usize) {
        let look_up = self.look_up;
        let Some(known) = self.known.get_mut(peer) else { return };
        let Some(HostName { address, .. }) = known.name.as_ref().filter(|_| !known.asked) else { return };
        if address.parse::<SocketAddr>().is_ok() {
            return;
        }
        let answers = &self.answers.0;
        let asks = self.asks.get_or_insert_with(|| workers(look_up, answers));
        known.asked = asks.send((peer, address.clone())).is_ok();
    }

    /// Returns the address to try after a failed one: a name has an address for each network interface of its host, and
    /// the process listens at only one of them.
    pub(crate) fn after(&self, peer: usize, tried: SocketAddr) -> SocketAddr {
        let all = self.known.get(peer).map_or(&[][..], |known| &known.all);
        let next = all.iter().position(|address| *address == tried).map(|at| (at + 1) % all.len());
        next.map_or(tried, |next| all[next])
    }

    /// Collects the results of lookups. Returns the peers whose address has changed.
    pub(crate) fn take(&mut self, own: IpAddr, addresses: &mut [Option<SocketAddr>]) -> Vec<usize> {
        let mut changed = Vec::new();
        while let Ok((peer, found)) = self.answers.1.try_recv() {
            self.known[peer].asked = false;
            match found.map_err(|error| error.to_string()).and_then(|found| reachable(&found, own)) {
                Ok(all) => {
                    self.known[peer].fault = None;
                    let before = addresses[peer];
                    let (first, stays) = (all[0], before.is_some_and(|before| all.contains(&before)));
                    self.known[peer].all = all;
                    if stays {
                        continue;
                    }
                    addresses[peer] = Some(first);
                    let was = before.map_or_else(String::new, |before| format!(", not at {} any more", before.ip()));
                    let text = format!("{} is at {} now{was}", self.shown(peer), first.ip());
                    self.note(text);
                    changed.push(peer);
                }
                Err(fault) => {
                    if self.known[peer].fault.replace(fault.clone()).as_ref() != Some(&fault) {
                        let still = if addresses[peer].is_some() { "; its last address is used" } else { "" };
                        let text = format!(
                            "the address of {} cannot be resolved: {fault}{still}; it is tried again at every attempt to connect; \
                             mend the name on this host (/etc/hosts, DNS), or write the address into the configuration of all",
                            self.shown(peer)
                        );
                        self.note(text);
                    }
                }
            }
        }
        changed
    }
}

/// Returns the addresses of a name that this process, at `own`, can reach. If the name has loopback and other
/// addresses, returns only those of the same kind as `own`: a loopback address reaches only its own host.
fn reachable(found: &[SocketAddr], own: IpAddr) -> Result<Vec<SocketAddr>, String> {
    let mut all: Vec<_> = found.iter().filter(|address| address.is_ipv4() == own.is_ipv4()).copied().collect();
    let near = |address: &SocketAddr| address.ip().is_loopback() == own.is_loopback();
    if all.iter().any(near) {
        all.retain(near);
    }
    match found.first() {
        _ if !all.is_empty() => Ok(all),
        Some(other) => {
            Err(format!("it is {}, this process is at {own}: IPv4 and IPv6 cannot reach each other", other.ip()))
        }
        None => Err("the name has no address".to_owned()),
    }
}

/// Starts threads that look names up until the sender is dropped.
fn workers(look_up: LookUp, answers: &Sender<Found>) -> Sender<(usize, String)> {
    let (asks, asked) = channel::<(usize, String)>();
    let asked = Arc::new(Mutex::new(asked));
    for _ in 0..WORKERS {
        let (asked, answers) = (Arc::clone(&asked), answers.clone());
        let work = move || {
            loop {
                let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((peer, name)) = next else { return };
                if answers.send((peer, look_up(&name))).is_err() {
                    return;
                }
            }
        };
        // If no thread starts, there are no lookups, and the last addresses are used.
        drop(thread::Builder::new().name("names".to_owned()).spawn(work));
    }
    asks
}

/// Returns the address from which this host sends to `peer`.
///
/// # Errors
/// Returns an error if there is no route.
pub fn source_address(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let probe = std::net::UdpSocket::bind(any)?;
    probe.connect(peer)?;
    Ok(probe.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn names(look_up: LookUp) -> Names {
        let name = |n: u8| Some(HostName { process: format!("g1.{n}"), address: format!("node-{n}:7101") });
        Names { look_up, ..Names::new(vec![name(1), name(2), None], 3) }
    }

    fn taken(names: &mut Names, addresses: &mut [Option<SocketAddr>], until: impl Fn(&Names) -> bool) -> Vec<usize> {
        let (since, mut changed) = (Instant::now(), Vec::new());
        while !until(names) {
            changed.extend(names.take(OWN, addresses));
            assert!(since.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
        changed
    }

    #[test]
    fn a_moved_name_is_reported_once_with_an_address_of_the_right_family() {
        let mut names = names(|_| Ok(vec!["[fd00::1]:7101".parse().unwrap(), "10.0.0.2:7101".parse().unwrap()]));
        let mut addresses = [Some("10.0.0.1:7101".parse().unwrap()), None, None];
        for round in 0..2 {
            names.ask(0);
            names.ask(2);
            let changed = taken(&mut names, &mut addresses, |names| !names.known[0].asked);
            assert_eq!(changed, if round == 0 { vec![0] } else { vec![] });
        }
        assert_eq!(addresses[0], Some("10.0.0.2:7101".parse().unwrap()));
        assert_eq!(names.notes, ["`g1.1` (node-1:7101) is at 10.0.0.2 now, not at 10.0.0.1 any more"]);
    }

    #[test]
    fn addresses_of_several_interfaces_are_tried_in_turn() {
        let mut names = names(|_| Ok(["[fd00::1]:7", "127.0.1.1:7", "10.0.0.2:7", "10.1.0.2:7"].map(at).to_vec()));
        let mut addresses = [Some(at("10.1.0.2:7")), None, None];
        names.ask(0);
        assert!(taken(&mut names, &mut addresses, |names| !names.known[0].asked).is_empty());
        assert_eq!((addresses[0], names.notes.len()), (Some(at("10.1.0.2:7")), 0), "it still has that address");
        let mut tried = vec![at("10.1.0.2:7")];
        for _ in 0..2 {
            tried.push(names.after(0, tried[tried.len() - 1]));
        }
        assert_eq!(tried, ["10.1.0.2:7", "10.0.0.2:7", "10.1.0.2:7"].map(at));
        assert_eq!(names.after(1, at("10.0.0.7:7")), at("10.0.0.7:7"), "nothing else is known");
    }

    #[test]
    fn an_unresolvable_name_affects_one_process_and_is_reported_once() {
        let mut names = names(|name| match name {
            "node-1:7101" => Err(io::Error::other("no such name")),
            _ => Ok(vec!["10.0.0.2:7101".parse().unwrap()]),
        });
        let mut addresses = [None; 3];
        for _ in 0..3 {
            (0..3).for_each(|peer| names.ask(peer));
            taken(&mut names, &mut addresses, |names| names.known.iter().all(|known| !known.asked));
        }
        assert_eq!(addresses, [None, Some("10.0.0.2:7101".parse().unwrap()), None]);
        let about = |note: &&String| note.contains("`g1.1` (node-1:7101) cannot be resolved: no such name");
        assert_eq!(names.notes.iter().filter(about).count(), 1, "{:?}", names.notes);
    }

    #[test]
    fn a_hanging_lookup_delays_no_other() {
        let mut names = names(|name| {
            if name == "node-1:7101" {
                thread::sleep(Duration::from_secs(3600));
            }
            Ok(vec!["10.0.0.2:7101".parse().unwrap()])
        });
        let mut addresses = [None; 3];
        let since = Instant::now();
        for _ in 0..8 {
            names.ask(0);
        }
        names.ask(1);
        taken(&mut names, &mut addresses, |names| !names.known[1].asked);
        assert!(addresses[1].is_some() && since.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn loopback_beside_another_address_causes_a_warning() {
        let mut names = names(|_| Ok(Vec::new()));
        let at = |ip: [u8; 4]| Some(SocketAddr::from((ip, 7101)));
        names.warn_of_loopback(0, [127, 0, 1, 1].into(), &[at([127, 0, 1, 1]), at([10, 9, 0, 2]), None]);
        let said = names.notes.pop_back().unwrap();
        assert!(
            said.contains("`g1.1`") && said.contains("127.0.1.1, a loopback") && said.contains("10.9.0.2"),
            "{said}"
        );
        names.warn_of_loopback(1, [10, 9, 0, 2].into(), &[at([127, 0, 1, 1]), at([10, 9, 0, 2]), None]);
        assert!(names.notes.pop_back().unwrap().contains("`g1.1` (node-1:7101) is at 127.0.1.1 here"));
        names.warn_of_loopback(0, [127, 0, 0, 1].into(), &[at([127, 0, 0, 1]), at([127, 0, 0, 2]), None]);
        names.warn_of_loopback(0, [10, 0, 0, 1].into(), &[at([10, 0, 0, 1]), at([10, 0, 0, 2]), None]);
        assert!(names.notes.is_empty());
    }
}
