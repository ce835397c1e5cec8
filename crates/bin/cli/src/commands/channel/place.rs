//! The meeting place of the two sides, on each fabric.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use stentor::config::{KeyError, KeySource};
use stentor::runtime::{OfiFabric, RoceFabric, ShmFabric, StartError};
use stentor_fabric::ProcessId;
use stentor_fabric_ofi::OfiConfig;
use stentor_fabric_roce::driver::{PortError, source_address};
use stentor_fabric_roce::{NetConfig, RoceConfig, StartError as RoceError};
use stentor_fabric_shm::{ShmConfig, StartError as ShmError};

use stentor::runtime::as_pid;
use stentor_support::live::{directory, patiently, unstarted};
use stentor_support::{Failure, Output};
use xxhash_rust::xxh3::xxh3_128;

use crate::args::ChannelCat;

/// Name of the cluster of a transfer between hosts.
const CLUSTER: &str = "channel-cat";
/// Fingerprint of the protocol between the two sides. Another version is refused.
const FINGERPRINT: u64 = 1;
/// Longest message of the fabric, in bytes. A message carries one piece.
const FABRIC_BYTES: u32 = 128 << 10;
const OFI_BYTES: u32 = 512 << 10;
/// Number of addresses that a sender on this host tries.
const LOOPBACKS: u8 = 64;

/// Longest place that becomes a directory name unchanged, in characters.
const PLAIN: usize = 24;

/// Returns the name of the directory for a place. Different places have different names. The name contains the place
/// unchanged if that is a valid short file name, and otherwise a hash of 128 bits.
fn meeting_name(place: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    if place.is_empty() {
        return String::new();
    }
    if place.len() <= PLAIN && place.chars().all(is_plain) {
        return format!("cat-{place}");
    }
    // A place that is used unchanged contains no `_`. The hash is short, because the path of a socket has at most 107
    // bytes.
    format!("cat-_{:032x}", xxh3_128(place.as_bytes()))
}

/// Returns the id of this process. The listener is process 0.
fn me(args: &ChannelCat) -> ProcessId {
    ProcessId(u16::from(!args.listen))
}

/// Starts this side on shared memory.
pub(super) fn shm(args: &ChannelCat, output: Output) -> Result<ShmFabric, Failure> {
    let me = me(args);
    let cluster = meeting_name(&args.place);
    let name = if args.listen { "listener" } else { "sender" };
    let config = ShmConfig {
        directory: directory(args.directory.as_ref()),
        fingerprint: FINGERPRINT,
        message_bytes: FABRIC_BYTES,
        ..ShmConfig::new(&cluster, me, name, 2)
    };
    let start = || ShmFabric::start(config.clone());
    patiently(start, |text| output.note(text)).map_err(|error| match error {
        ShmError::AlreadyRunning { pid, .. } => Failure::usage(
            format_args!("there is a {name} already, {}", as_pid(pid)),
            &args.place,
            "wait for it to end, or use another PLACE on both sides",
        ),
        ShmError::Name { .. } => Failure::usage("a place has at least one letter", "PLACE", "name one"),
        error => unstarted(StartError::Fabric(error), Path::new(&args.place)),
    })
}

/// Starts this side on RoCEv2.
pub(super) fn roce(args: &ChannelCat, output: Output) -> Result<RoceFabric, Failure> {
    let listener = resolve(&args.place)?;
    let own = if args.listen { vec![listener] } else { senders(args, listener)? };
    let key = key(args, listener.ip(), own[0].ip())?;
    let traffic = &args.roce.network;
    let mut result = Err(Failure::usage("no address", &args.place, "name one with --bind"));
    for address in own {
        let addresses = if args.listen { vec![Some(address), None] } else { vec![Some(listener), Some(address)] };
        let net = NetConfig::new(CLUSTER, me(args), addresses).key(key.clone()).fingerprint(FINGERPRINT);
        let config = RoceConfig {
            pcap: traffic.pcap.clone(),
            chances: traffic.bad.chances(),
            seed: traffic.seed.wrapping_add(me(args).0.into()),
            ..RoceConfig::default()
        };
        // A sender may have other addresses to try, so it does not wait for this one.
        let started = if args.listen {
            patiently(|| RoceFabric::start(net.clone(), config.clone()), |text| output.note(text))
        } else {
            RoceFabric::start(net, config)
        };
        // Another transfer may use this address, and the next one may be free.
        let is_over = !matches!(started, Err(RoceError::Port(PortError::Taken { .. })));
        result = started.map_err(|error| unstarted(StartError::Roce(error), Path::new(&args.place)));
        if is_over {
            break;
        }
    }
    result
}

/// Starts this side on libfabric.
pub(super) fn ofi(args: &ChannelCat, output: Output) -> Result<OfiFabric, Failure> {
    let listener = resolve(&args.place)?;
    let addresses = if args.listen {
        vec![Some(listener), None]
    } else {
        // Endpoints have their own ports, so both sides may use one address.
        let beside = args.roce.bind.is_none() && listener.ip().is_loopback();
        let own = if beside { SocketAddr::new(listener.ip(), 0) } else { senders(args, listener)?[0] };
        vec![Some(listener), Some(own)]
    };
    let me = me(args);
    let own = addresses[me.index()].map_or(listener.ip(), |own| own.ip());
    let net = NetConfig::new(CLUSTER, me, addresses).key(key(args, listener.ip(), own)?).fingerprint(FINGERPRINT);
    let config = OfiConfig {
        providers: args.ofi.providers(),
        message_bytes: OFI_BYTES,
        mask: args.ofi.mask(),
        ..OfiConfig::default()
    };
    let start = || OfiFabric::start(net.clone(), config.clone()).map_err(StartError::Ofi);
    patiently(start, |text| output.note(text)).map_err(|error| unstarted(error, Path::new(&args.place)))
}

fn resolve(place: &str) -> Result<SocketAddr, Failure> {
    let unknown = |error: &dyn std::fmt::Display| {
        Failure::usage(format_args!("not an address: {error}"), place, "name HOST:PORT of the side that listens")
    };
    let mut found = place.to_socket_addrs().map_err(|error| unknown(&error))?;
    found.next().ok_or_else(|| unknown(&"the name has none"))
}

/// Returns the addresses that the sender may use. Packets have a fixed port, so each process needs its own address.
fn senders(args: &ChannelCat, listener: SocketAddr) -> Result<Vec<SocketAddr>, Failure> {
    let with_any_port = |ip: IpAddr| SocketAddr::new(ip, 0);
    if let Some(bind) = args.roce.bind {
        if bind.is_ipv4() != listener.is_ipv4() {
            let what = format_args!("{bind} here and {} there: packets do not go from IPv4 to IPv6", listener.ip());
            return Err(Failure::usage(what, "--bind", "give both sides IPv4 addresses, or both IPv6 addresses"));
        }
        return Ok(vec![with_any_port(bind)]);
    }
    if let IpAddr::V4(ip) = listener.ip()
        && ip.is_loopback()
    {
        let beside = |n| Ipv4Addr::new(127, ip.octets()[1], 255, n).into();
        return Ok((1..=LOOPBACKS).map(|n| with_any_port(beside(n))).collect());
    }
    let own = source_address(listener).map_err(|error| {
        Failure::usage(format_args!("no route: {error}"), &args.place, "name this side's address with --bind")
    })?;
    Ok(vec![with_any_port(own)])
}

fn key(args: &ChannelCat, listener: IpAddr, own: IpAddr) -> Result<Vec<u8>, Failure> {
    match &args.roce.key {
        Some(path) => KeySource::File(path.clone()).read(Path::new("")).map_err(|error: KeyError| {
            Failure::usage(error, path.display(), "`head -c 32 /dev/urandom | base64` makes one; copy it to both sides")
        }),
        None if listener.is_loopback() && own.is_loopback() => Ok(CLUSTER.into()),
        None => Err(Failure::usage(
            "no key: any process that reaches this host could send or listen",
            "--key",
            "write one with `head -c 32 /dev/urandom | base64 > key`, and name it on both sides",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn different_places_have_different_valid_file_names() {
        let long = "x".repeat(300);
        let places = [
            "backup",
            "Backup",
            "a b",
            "a/b",
            "a_b",
            "доход",
            "вывод",
            "备份",
            "数据",
            "é",
            "e\u{301}",
            " ",
            "..",
            "127.0.0.1:7300",
            &long,
            &long[1..],
            "a\nb",
            "\u{1f4e6}",
        ];
        let names: BTreeSet<_> = places.iter().map(|place| meeting_name(place)).collect();
        assert_eq!(names.len(), places.len(), "{names:?}");
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(names.iter().all(|name| name.len() <= 40 && name.chars().all(plain)), "{names:?}");
        assert_eq!(meeting_name("backup"), "cat-backup");
    }
}
