//! The resolution of the place at which the two ends of a channel meet, on each fabric.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_fabric_net::source_address;
use xxhash_rust::xxh3::xxh3_128;

use super::error::Problem;
use crate::Cluster;
use crate::config::{FabricKind, KeySource};

/// Prefix of the names of the meetings of all [`Channel`](super::Channel)s. The ends of `stentor channel cat` use
/// another prefix, because they speak a protocol of their own.
const PREFIX: &str = "channel";
/// Fingerprint of the protocol between the two ends at a place.
const FINGERPRINT: u64 = 1;
/// Number of loopback addresses that a connecting end tries on `roce`.
const LOOPBACKS: u8 = 64;
/// Maximum length of a place that is used as a name unchanged.
const PLAIN: usize = 24;

/// The way in which the two ends find each other.
#[derive(Clone, Debug)]
pub(super) enum Meeting {
    /// One end listens at a place, and the other one connects.
    Place { place: String, listens: bool },
    /// The ends are two processes of a configuration.
    Cluster { cluster: Cluster, me: String, peer: String },
}

/// The resolved parameters of one end, ready to start.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) me: ProcessId,
    /// The names of the two processes. On fabrics that distinguish the two, the first process listens.
    pub(super) names: [String; 2],
    pub(super) meeting: String,
    /// The addresses of the listener and of the other end, as far as they are known.
    pub(super) addresses: [Option<SocketAddr>; 2],
    /// All addresses that a connecting end at a place may take, in the order in which they are tried. Empty for other
    /// ends.
    pub(super) others: Vec<SocketAddr>,
    pub(super) key: Vec<u8>,
    pub(super) fingerprint: u64,
    #[cfg_attr(not(feature = "shm"), allow(dead_code, reason = "only shared memory meets in a directory"))]
    pub(super) directory: PathBuf,
}

/// The options of an end that the caller has set.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    pub(super) fabric: FabricKind,
    pub(super) directory: PathBuf,
    pub(super) bind: Option<IpAddr>,
    /// The location of the key: `env:NAME` or `file:PATH`.
    pub(super) key: Option<String>,
    /// The providers of libfabric, in the order in which they are tried. If empty, the configuration decides, or the
    /// best provider is used.
    pub(super) providers: Vec<String>,
}

impl Wishes {
    fn key(&self) -> Result<Option<KeySource>, Problem> {
        let bad = || impossible("the key must say where it is, not what it is", "write `env:NAME` or `file:PATH`");
        self.key.as_ref().map(|place| KeySource::parse(place).ok_or_else(bad)).transpose()
    }
}

pub(super) fn impossible(what: impl Into<String>, remedy: &'static str) -> Problem {
    Problem::Impossible { what: what.into(), remedy }
}

/// Returns the name of the meeting at a place. Different places have different names. A short place of plain characters
/// is used unchanged. For all other places, which may be invalid or too long as file names, the name is a 128-bit hash.
fn meeting_name(place: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    if place.len() <= PLAIN && place.chars().all(is_plain) {
        return format!("{PREFIX}-{place}");
    }
    // No unchanged place contains `_`. The hash replaces the whole place, because the path of a socket is limited to
    // 107 bytes.
    format!("{PREFIX}-_{:032x}", xxh3_128(place.as_bytes()))
}

impl Meeting {
    /// Describes the end for error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Meeting::Place { place, listens: true } => format!("at {place}, which listens"),
            Meeting::Place { place, listens: false } => format!("to {place}"),
            Meeting::Cluster { cluster, me, peer } => format!("{me} to {peer} of {}", cluster.name()),
        }
    }

    /// Resolves the parameters of this end, and the address of the other one if it is known.
    pub(super) fn spot(&self, wishes: &Wishes) -> Result<Spot, Problem> {
        match self {
            Meeting::Place { place, listens } => at_place(place, *listens, wishes),
            Meeting::Cluster { cluster, me, peer } => in_cluster(cluster, me, peer, wishes),
        }
    }
}

fn at_place(place: &str, listens: bool, wishes: &Wishes) -> Result<Spot, Problem> {
    if place.is_empty() {
        return Err(impossible("a place has at least one letter", "name one"));
    }
    let mut spot = Spot {
        me: ProcessId(u16::from(!listens)),
        names: ["listener".to_owned(), "connector".to_owned()],
        meeting: meeting_name(place),
        addresses: [None, None],
        others: Vec::new(),
        key: PREFIX.into(),
        fingerprint: FINGERPRINT,
        directory: wishes.directory.clone(),
    };
    if !wishes.fabric.is_between_hosts() {
        return Ok(spot);
    }
    // Hosts share no directory, so meetings have no distinct names there: the address and the key identify them.
    spot.meeting = PREFIX.to_owned();
    let listener = resolve(place)?;
    spot.addresses[0] = Some(listener);
    if !listens {
        let own = own_addresses(listener, wishes)?;
        spot.addresses[1] = own.first().copied();
        spot.others = own;
    }
    let own = spot.addresses[spot.me.index()].map_or(listener.ip(), |own| own.ip());
    match wishes.key()? {
        Some(key) => spot.key = read(&key, Path::new(""))?,
        None if listener.ip().is_loopback() && own.is_loopback() => {}
        None => {
            return Err(impossible(
                "there is no key, so every process that reaches this host could send",
                "write one with `head -c 32 /dev/urandom | base64 > FILE`, and pass it to both ends by `key`",
            ));
        }
    }
    Ok(spot)
}

fn in_cluster(cluster: &Cluster, me: &str, peer: &str, wishes: &Wishes) -> Result<Spot, Problem> {
    let plan = cluster.runtime();
    let process = |name: &str| {
        let process = plan.process(name).map_err(Problem::Start)?;
        plan.check_member(process).map_err(Problem::Start)?;
        Ok::<ProcessId, Problem>(process)
    };
    let (own, other) = (process(me)?, process(peer)?);
    if own == other {
        return Err(impossible(format!("`{me}` is both ends"), "name two processes"));
    }
    let names = if own < other { [me, peer] } else { [peer, me] }.map(str::to_owned);
    let (first, second) = (own.min(other), own.max(other));
    let mut spot = Spot {
        me: ProcessId(u16::from(own > other)),
        names,
        meeting: meeting_name(&format!("{}.{}.{}", cluster.name(), first.0, second.0)),
        addresses: [None, None],
        others: Vec::new(),
        key: Vec::new(),
        fingerprint: plan.config().fingerprint(),
        directory: wishes.directory.clone(),
    };
    if !wishes.fabric.is_between_hosts() {
        return Ok(spot);
    }
    let members: Vec<_> = plan.config().groups().iter().flat_map(|group| group.members()).collect();
    for (place, process) in [first, second].into_iter().enumerate() {
        let address = members.get(process.index()).map_or("", |member| member.address());
        spot.addresses[place] = Some(resolve(address)?);
    }
    if let (Some(bind), Some(own)) = (wishes.bind, &mut spot.addresses[spot.me.index()]) {
        own.set_ip(bind);
    }
    let beside = plan.file().and_then(Path::parent).unwrap_or(Path::new(""));
    let key = wishes.key()?;
    let key = key.as_ref().or(plan.config().key());
    spot.key = read(key.ok_or(Problem::Start(crate::config::KeyError::Unnamed.into()))?, beside)?;
    Ok(spot)
}

fn read(key: &KeySource, beside: &Path) -> Result<Vec<u8>, Problem> {
    key.read(beside).map_err(|error| Problem::Start(error.into()))
}

fn resolve(place: &str) -> Result<SocketAddr, Problem> {
    let unknown = |what: String| impossible(what, "name HOST:PORT of the end that listens");
    let mut found = place.to_socket_addrs().map_err(|error| unknown(format!("not an address: {error}")))?;
    found.next().ok_or_else(|| unknown("the name has no address".to_owned()))
}

/// Returns the possible addresses of a connecting end. On `roce` all packets use one port, so each end needs an address
/// of its own.
fn own_addresses(listener: SocketAddr, wishes: &Wishes) -> Result<Vec<SocketAddr>, Problem> {
    let with_any_port = |ip: IpAddr| SocketAddr::new(ip, 0);
    if let Some(bind) = wishes.bind {
        if bind.is_ipv4() != listener.is_ipv4() {
            let what = format!("{bind} here and {} there: packets do not go from IPv4 to IPv6", listener.ip());
            return Err(impossible(what, "give both ends addresses of one kind"));
        }
        return Ok(vec![with_any_port(bind)]);
    }
    if wishes.fabric == FabricKind::Ofi && listener.ip().is_loopback() {
        return Ok(vec![with_any_port(listener.ip())]);
    }
    if let IpAddr::V4(ip) = listener.ip()
        && ip.is_loopback()
    {
        let beside = |n| Ipv4Addr::new(127, ip.octets()[1], 255, n).into();
        return Ok((1..=LOOPBACKS).map(|n| with_any_port(beside(n))).collect());
    }
    let no_route = |error| impossible(format!("no route: {error}"), "name this end's address with `bind`");
    Ok(vec![with_any_port(source_address(listener).map_err(no_route)?)])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn different_places_have_different_and_valid_file_names() {
        let long = "x".repeat(300);
        let places = ["backup", "Backup", "a b", "a/b", "a_b", "é", "e\u{301}", " ", "..", "a:7", &long, &long[1..]];
        let names: BTreeSet<_> = places.iter().map(|place| meeting_name(place)).collect();
        assert_eq!(names.len(), places.len(), "{names:?}");
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(names.iter().all(|name| name.len() <= 44 && name.chars().all(plain)), "{names:?}");
    }
}
