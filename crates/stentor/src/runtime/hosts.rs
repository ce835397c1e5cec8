//! Resolves the host names of a configuration at start, concurrently and with a time limit.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use stentor_fabric_net::HostName;

use super::address::AddressError;
use crate::config::MemberConfig;

/// Time limit for the resolution of names at the start of a process. The names of other processes are resolved again
/// later.
const PATIENCE: Duration = Duration::from_secs(5);

/// The addresses of one member, all of one host, or the reason why there are none.
pub(super) type Found = Result<Vec<SocketAddr>, AddressError>;

/// Returns the names and addresses of the members in a configuration.
pub(super) fn names<'a>(members: impl IntoIterator<Item = &'a MemberConfig>) -> Vec<Option<HostName>> {
    let name =
        |member: &MemberConfig| HostName { process: member.id().to_owned(), address: member.address().to_owned() };
    members.into_iter().map(|member| Some(name(member))).collect()
}

/// Resolves the names of all members; a name that cannot be resolved is an error of its member only. `own` is the index
/// of a member whose address is known, and that address. The name of this member is not resolved.
pub(super) fn resolve<'a>(
    members: impl IntoIterator<Item = &'a MemberConfig>,
    own: Option<(usize, IpAddr)>,
) -> Vec<Found> {
    let until = Instant::now() + PATIENCE;
    let begin = |(at, member): (usize, &'a MemberConfig)| {
        let told = own.filter(|(me, _)| *me == at).and_then(|(_, ip)| Some(SocketAddr::new(ip, port(member)?)));
        (member, told.map_or_else(|| Look::begin(member.address()), |told| Look::Done(Ok(vec![told]))))
    };
    let looks: Vec<_> = members.into_iter().enumerate().map(begin).collect();
    looks.into_iter().map(|(member, look)| usable(member, look.end(until))).collect()
}

fn port(member: &MemberConfig) -> Option<u16> {
    member.address().rsplit_once(':')?.1.parse().ok()
}

/// A name lookup in progress.
enum Look {
    Done(std::io::Result<Vec<SocketAddr>>),
    Begun(std::sync::mpsc::Receiver<std::io::Result<Vec<SocketAddr>>>),
}

impl Look {
    fn begin(address: &str) -> Look {
        if let Ok(address) = address.parse() {
            return Look::Done(Ok(vec![address]));
        }
        let (found, look) = channel();
        let name = address.to_owned();
        let work = move || drop(found.send(name.to_socket_addrs().map(Iterator::collect)));
        match thread::Builder::new().name("names".to_owned()).spawn(work) {
            Ok(_) => Look::Begun(look),
            Err(error) => Look::Done(Err(error)),
        }
    }

    fn end(self, until: Instant) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Look::Done(found) => found,
            Look::Begun(look) => {
                look.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or_else(|_| {
                    let what = format!("no answer from the resolver for {PATIENCE:?}");
                    Err(std::io::Error::new(std::io::ErrorKind::TimedOut, what))
                })
            }
        }
    }
}

/// Returns the addresses of a member that are usable on all hosts.
fn usable(member: &MemberConfig, found: std::io::Result<Vec<SocketAddr>>) -> Found {
    let (process, address) = (member.id().to_owned(), member.address().to_owned());
    let found = match found {
        Ok(found) => found,
        Err(source) => return Err(AddressError::Unknown { process, address, source }),
    };
    let (local, usable): (Vec<_>, Vec<_>) = found.into_iter().map(canonical).partition(|at| is_link_local(at.ip()));
    match (usable.is_empty(), local.first()) {
        (false, _) => Ok(usable),
        (true, None) => Err(AddressError::None { process, address }),
        (true, Some(at)) => Err(AddressError::LinkLocal { process, address, found: *at }),
    }
}

/// Converts an IPv4-mapped IPv6 address to an IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V4(ip), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Returns whether an address designates a different host on each interface. IPv4's link-local addresses (169.254/16)
/// do not: their route binds them to one interface.
pub(super) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if Ipv6Addr::is_unicast_link_local(&ip))
}

/// Returns whether IPv4 is used, or `None` if that is undecided. The family of `bind` decides if there is one.
/// Otherwise, IPv4 is used if every host found has an IPv4 address, and else IPv6 if every host has an IPv6 address.
pub(super) fn is_ipv4(found: &[Found], bind: Option<IpAddr>) -> Option<bool> {
    if let Some(bind) = bind {
        return Some(bind.is_ipv4());
    }
    let mut all = found.iter().flatten().peekable();
    all.peek()?;
    let has = |v4: bool| move |found: &Vec<SocketAddr>| found.iter().any(|address| address.is_ipv4() == v4);
    if all.clone().all(has(true)) {
        return Some(true);
    }
    all.all(has(false)).then_some(false)
}

/// Picks one address of a host. If a family is decided, prefers an address of this family, and then one that other
/// hosts can reach to a loopback address.
pub(super) fn pick(found: &[SocketAddr], v4: Option<bool>) -> Option<SocketAddr> {
    let rank = |address: &&SocketAddr| {
        (v4.is_some_and(|v4| v4 != address.is_ipv4()), v4.is_some() && address.ip().is_loopback())
    };
    found.iter().min_by_key(rank).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn common_address_family_is_picked_and_loopback_last() {
        let both = || Ok(vec![at("[::1]:7"), at("127.0.1.1:7"), at("10.0.0.1:7")]);
        let found = [both(), Ok(vec![at("10.0.0.2:7")])];
        assert_eq!(is_ipv4(&found, None), Some(true));
        assert_eq!(pick(found[0].as_ref().unwrap(), Some(true)), Some(at("10.0.0.1:7")));
        assert_eq!(is_ipv4(&[both(), Ok(vec![at("[fd00::2]:7")])], None), Some(false));
        assert_eq!(is_ipv4(&[Ok(vec![at("[fd00::2]:7")]), Ok(vec![at("10.0.0.2:7")])], None), None);
        assert_eq!(is_ipv4(&[], Some([10, 0, 0, 1].into())), Some(true));
        assert_eq!(pick(&[at("127.0.0.1:7")], Some(false)), Some(at("127.0.0.1:7")), "it is the only one");
    }

    #[test]
    fn mapped_address_is_ipv4_and_only_ipv6_link_local_is_refused() {
        assert_eq!(canonical(at("[::ffff:10.0.0.1]:7")), at("10.0.0.1:7"));
        assert!(is_link_local(at("[fe80::1]:7").ip()) && is_link_local(at("[febf::1%3]:7").ip()));
        assert!(!is_link_local(at("[fec0::1]:7").ip()) && !is_link_local(at("169.254.0.1:7").ip()));
    }
}
