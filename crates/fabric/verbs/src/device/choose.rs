//! Choice of the device, port and GID that a process uses.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use super::{Device, Gid, GidKind, Port, infiniband_gid, own_node};

/// Configured choices and facts about the process. [`choose`] selects what is not configured.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Wanted {
    /// Name of the device.
    pub device: Option<String>,
    /// Number of the port.
    pub port: Option<u8>,
    /// Index of the GID in the port's table.
    pub gid_index: Option<u32>,
    /// Address under which peers know this process. It selects the GID that represents this address, and thus the
    /// interface.
    pub address: Option<IpAddr>,
    /// GID of the InfiniBand port under the interface that has `address`, if that interface is IP over InfiniBand; see
    /// [`infiniband_gid`](super::infiniband_gid).
    pub infiniband: Option<Ipv6Addr>,
    /// NUMA node whose devices are preferred if several are suitable.
    pub numa_node: Option<u32>,
    /// NUMA node to which this process is bound; see [`own_node`](super::own_node). Used if `numa_node` is not set. On
    /// InfiniBand, it decides only between ports of one subnet, because processes on different nodes must reach each
    /// other.
    pub own_node: Option<u32>,
}

impl Wanted {
    /// Returns the facts about a process with this address, without any configured choices.
    #[must_use]
    pub fn here(root: &Path, address: Option<IpAddr>) -> Wanted {
        let infiniband = address.and_then(|address| infiniband_gid(root, address));
        Wanted { address, infiniband, own_node: own_node(root), ..Wanted::default() }
    }
}

/// Device, port and GID to use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Name of the device.
    pub device: String,
    /// Number of the port.
    pub port: u8,
    /// GID of the port.
    pub gid: Gid,
    /// Reason for the choice, for the user.
    pub why: String,
}

/// Reason why no device can be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// The machine has no RDMA device, or the container does not expose one.
    #[error(
        "there is no RDMA device: load the NIC's driver, or create a software device: rdma link add rxe0 type rxe netdev eth0"
    )]
    NoDevice,
    /// The configured device does not exist.
    #[error("there is no RDMA device {wanted}; available: {present}")]
    NoSuchDevice {
        /// Configured name.
        wanted: String,
        /// Names of the existing devices.
        present: String,
    },
    /// The kernel module for access from user space (`ib_uverbs`) serves none of the possible devices.
    #[error("{device} has no device file: run `modprobe ib_uverbs`; in a container, pass /dev/infiniband to it")]
    NoFile {
        /// Name of the first of these devices.
        device: String,
    },
    /// The configured port does not exist.
    #[error("no device has a port {wanted}; available: {present}")]
    NoSuchPort {
        /// Configured number.
        wanted: u8,
        /// Devices with their ports.
        present: String,
    },
    /// No port is active.
    #[error(
        "no port is active ({present}): connect the cable, set the network interface up, or on InfiniBand start a subnet manager"
    )]
    PortDown {
        /// Ports with their states.
        present: String,
    },
    /// No GID has the configured index, or the index exceeds 255.
    #[error("there is no GID {wanted}; available: {present}")]
    NoSuchGid {
        /// Index of the GID.
        wanted: u32,
        /// GIDs or indices that can be used.
        present: String,
    },
    /// The ports have no GIDs.
    #[error("no port has a GID ({present}): give the network interface an address")]
    NoGid {
        /// Ports without a GID.
        present: String,
    },
    /// No GID represents the address.
    #[error(
        "no GID represents {wanted}; available: {present}. Give the address to the interface of an RDMA device, create a device \
             for its interface (rdma link add rxe0 type rxe netdev INTERFACE), or configure device and GID"
    )]
    NoGidForAddress {
        /// Address of this process.
        wanted: IpAddr,
        /// GIDs that are set.
        present: String,
    },
}

/// A GID with its port and device.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    device: &'a Device,
    port: &'a Port,
    gid: &'a Gid,
}

/// Chooses a device, a port and a GID, among the active ports of devices with a device file. The criteria apply in this
/// order:
///
/// 1. The configured device, port and GID index.
/// 2. The GID that represents the process's address, or the InfiniBand port under the interface with that address. If
///    there is neither, any InfiniBand port.
/// 3. RoCE v2 before InfiniBand before RoCE v1.
/// 4. A routable GID before a link-local one.
/// 5. A device on the configured NUMA node. If no node is configured, a device on the process's node, if it is known to
///    reach the same peers.
/// 6. The first by name, port and index.
///
/// # Errors
/// See [`ChooseError`].
pub fn choose(devices: &[Device], wanted: &Wanted) -> Result<Choice, ChooseError> {
    let ports = usable_ports(devices, wanted)?;
    let all = candidates(&ports);
    if all.is_empty() {
        return Err(ChooseError::NoGid { present: listed(ports.iter().map(|port| at(*port))) });
    }
    let present = || listed(all.iter().map(|c| format!("{} {}", at((c.device, c.port)), c.gid)));
    let mut left = all.clone();
    if let Some(index) = wanted.gid_index {
        left.retain(|candidate| candidate.gid.index == index);
        if left.is_empty() {
            return Err(ChooseError::NoSuchGid { wanted: index, present: present() });
        }
    }
    if let Some(address) = wanted.address.filter(|address| !address.is_unspecified()) {
        let exact = left.iter().any(|candidate| candidate.gid.address() == address);
        left.retain(|c| if exact { c.gid.address() == address } else { c.gid.kind == GidKind::Ib });
        let under = |c: &Candidate<'_>| c.gid.kind == GidKind::Ib && Some(c.gid.bytes) == wanted.infiniband;
        if left.iter().any(under) {
            left.retain(under);
        }
        if left.is_empty() {
            return Err(ChooseError::NoGidForAddress { wanted: address, present: present() });
        }
    }
    let first = left.iter().min_by_key(|c| (c.gid.kind, Reverse(!c.gid.is_link_local())));
    let first = first.expect("an empty list was refused above");
    let best = left.iter().find(|c| c.is_as_good_as(first) && is_near(c, first, wanted)).unwrap_or(first);
    let (device, port) = (best.device.name.clone(), best.port.number);
    Ok(Choice { device, port, gid: best.gid.clone(), why: why(best, wanted, left.len()) })
}

impl Candidate<'_> {
    fn is_as_good_as(&self, other: &Candidate<'_>) -> bool {
        let rank = |c: &Candidate<'_>| (c.gid.kind, c.gid.is_link_local());
        rank(self) == rank(other)
    }
}

/// Returns whether a candidate's device is on the preferred NUMA node.
///
/// If the node is not configured, the candidate must also reach the same peers as `first`, which would be chosen without
/// this rule. On InfiniBand it must be in the same subnet. That is known only if the subnet number is not the default
/// one, which several subnets may have. Routers are assumed to connect all networks with RoCE v2, except for link-local
/// addresses. Packets of RoCE v1 pass no router, and a GID does not tell to which network its port belongs.
fn is_near(candidate: &Candidate<'_>, first: &Candidate<'_>, wanted: &Wanted) -> bool {
    let subnet = |c: &Candidate<'_>| (!c.gid.is_link_local()).then(|| c.gid.bytes.octets()[..8].to_owned());
    let is_reached = match first.gid.kind {
        GidKind::Ib => subnet(first).is_some_and(|own| subnet(candidate) == Some(own)),
        GidKind::RoceV2 => !first.gid.is_link_local(),
        GidKind::RoceV1 => false,
    };
    let is_on = |node: Option<u32>| node.is_some() && candidate.device.numa_node == node;
    match wanted.numa_node {
        Some(node) => is_on(Some(node)),
        None => is_on(wanted.own_node) && is_reached,
    }
}

/// Returns the active ports that match the configuration and belong to devices that have a device file.
fn usable_ports<'a>(devices: &'a [Device], wanted: &Wanted) -> Result<Vec<(&'a Device, &'a Port)>, ChooseError> {
    if devices.is_empty() {
        return Err(ChooseError::NoDevice);
    }
    let names = || listed(devices.iter().map(|device| device.name.clone()));
    let named: Vec<_> = devices.iter().filter(|d| wanted.device.as_ref().is_none_or(|name| *name == d.name)).collect();
    if let (Some(name), true) = (&wanted.device, named.is_empty()) {
        return Err(ChooseError::NoSuchDevice { wanted: name.clone(), present: names() });
    }
    let reachable: Vec<_> = named.iter().copied().filter(|device| device.file.is_some()).collect();
    if reachable.is_empty() {
        return Err(ChooseError::NoFile { device: named[0].name.clone() });
    }
    let all: Vec<_> = reachable.iter().flat_map(|d| d.ports.iter().map(|port| (*d, port))).collect();
    let numbered: Vec<_> = all.iter().copied().filter(|(_, p)| wanted.port.is_none_or(|n| n == p.number)).collect();
    if let (Some(number), true) = (wanted.port, numbered.is_empty()) {
        return Err(ChooseError::NoSuchPort { wanted: number, present: listed(all.into_iter().map(at)) });
    }
    let active: Vec<_> = numbered.iter().copied().filter(|(_, port)| port.is_active()).collect();
    if active.is_empty() {
        let state = |(device, port): &(&Device, &Port)| format!("{} is {}", at((device, port)), port.state);
        return Err(ChooseError::PortDown { present: listed(numbered.iter().map(state)) });
    }
    Ok(active)
}

fn candidates<'a>(ports: &[(&'a Device, &'a Port)]) -> Vec<Candidate<'a>> {
    let of = |(device, port): &(&'a Device, &'a Port)| {
        let (device, port) = (*device, *port);
        port.gids.iter().map(move |gid| Candidate { device, port, gid })
    };
    ports.iter().flat_map(of).collect()
}

fn why(best: &Candidate<'_>, wanted: &Wanted, left: usize) -> String {
    let mut reasons = Vec::new();
    if wanted.gid_index.is_some() {
        reasons.push("configured".to_owned());
    }
    if let Some(address) = wanted.address.filter(|address| best.gid.address() == *address) {
        reasons.push(format!("represents {address}"));
    } else if let (Some(address), true) = (wanted.address, wanted.infiniband == Some(best.gid.bytes)) {
        reasons.push(format!("the port under the interface of {address}"));
    }
    if left > 1 {
        let node = wanted.numa_node.or(wanted.own_node).filter(|node| best.device.numa_node == Some(*node));
        let near = node.map_or(String::new(), |node| format!(", on NUMA node {node}"));
        let reach = if best.gid.is_link_local() { "link-local only" } else { "a routable address" };
        reasons.push(format!("of {left} the best: {}, {reach}{near}", best.gid.kind));
    }
    if reasons.is_empty() { "the only candidate".to_owned() } else { reasons.join("; ") }
}

fn at((device, port): (&Device, &Port)) -> String {
    format!("{} port {}", device.name, port.number)
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::LinkLayer;
    use super::*;

    fn gid(index: u32, bytes: &str, kind: GidKind) -> Gid {
        Gid { index, bytes: bytes.parse().unwrap(), kind, interface: None }
    }

    fn device(name: &str, numa_node: u32, gids: Vec<Gid>) -> Device {
        let link =
            if gids.iter().any(|gid| gid.kind == GidKind::Ib) { LinkLayer::InfiniBand } else { LinkLayer::Ethernet };
        let port = Port { number: 1, link, state: "ACTIVE".into(), rate: String::new(), gids };
        let file = Some(PathBuf::from("/dev/infiniband/uverbs0"));
        Device { name: name.into(), file, numa_node: Some(numa_node), firmware: String::new(), ports: vec![port] }
    }

    /// Returns a device with the GIDs that a NIC with one IPv4 address has.
    fn card(name: &str, numa_node: u32, host: u8) -> Device {
        let (local, address) = (format!("fe80::{host}"), format!("::ffff:10.0.0.{host}"));
        let gids = vec![
            gid(0, &local, GidKind::RoceV1),
            gid(1, &local, GidKind::RoceV2),
            gid(2, &address, GidKind::RoceV1),
            gid(3, &address, GidKind::RoceV2),
        ];
        device(name, numa_node, gids)
    }

    fn chosen(devices: &[Device], wanted: &Wanted) -> (String, u32) {
        let choice = choose(devices, wanted).unwrap();
        (choice.device, choice.gid.index)
    }

    fn refused(devices: &[Device], wanted: &Wanted) -> String {
        choose(devices, wanted).unwrap_err().to_string()
    }

    #[test]
    fn roce_v2_with_a_routable_address_comes_first() {
        assert_eq!(chosen(&[card("a", 0, 1)], &Wanted::default()), ("a".into(), 3));
        let v1_only = device("a", 0, vec![gid(0, "fe80::1", GidKind::RoceV1), gid(5, "fd00::1", GidKind::RoceV1)]);
        assert_eq!(chosen(&[v1_only], &Wanted::default()), ("a".into(), 5));
        let v2_local = device("a", 0, vec![gid(0, "fd00::1", GidKind::RoceV1), gid(1, "fe80::1", GidKind::RoceV2)]);
        assert_eq!(chosen(&[v2_local], &Wanted::default()), ("a".into(), 1));
    }

    #[test]
    fn address_outranks_node_and_node_outranks_name() {
        let cards = [card("a", 0, 1), card("b", 1, 2), card("c", 1, 3)];
        assert_eq!(chosen(&cards, &Wanted::default()), ("a".into(), 3));
        let near = Wanted { numa_node: Some(1), ..Wanted::default() };
        assert_eq!(chosen(&cards, &near), ("b".into(), 3));
        let address = Wanted { address: Some("10.0.0.1".parse().unwrap()), ..near.clone() };
        assert_eq!(chosen(&cards, &address), ("a".into(), 3));
        assert!(choose(&cards, &near).unwrap().why.contains("NUMA node 1"));
        let far = Wanted { numa_node: Some(7), ..Wanted::default() };
        assert_eq!(chosen(&cards, &far), ("a".into(), 3), "a far device is better than none");
    }

    #[test]
    fn own_node_decides_only_within_one_network() {
        let cards = [card("a", 0, 1), card("b", 1, 2)];
        let own = Wanted { own_node: Some(1), ..Wanted::default() };
        assert_eq!(chosen(&cards, &own), ("b".into(), 3));
        assert!(choose(&cards, &own).unwrap().why.contains("NUMA node 1"));
        let configured = Wanted { numa_node: Some(0), ..own.clone() };
        assert_eq!(chosen(&cards, &configured), ("a".into(), 3), "the configured node comes first");
        let worse = device("c", 1, vec![gid(0, "fd00::1", GidKind::RoceV1)]);
        assert_eq!(chosen(&[card("a", 0, 1), worse], &own), ("a".into(), 3), "RoCE v2 outranks the node");
        // Packets of RoCE v1 and link-local packets pass no router.
        let ports = |bytes: [&str; 2], kind| {
            [0, 1].map(|node| device(&format!("p{node}"), node, vec![gid(0, bytes[node as usize], kind)]))
        };
        let routable = ["::ffff:10.0.0.1", "::ffff:10.1.0.1"];
        assert_eq!(chosen(&ports(routable, GidKind::RoceV2), &own).0, "p1");
        assert_eq!(chosen(&ports(routable, GidKind::RoceV1), &own).0, "p0");
        assert_eq!(chosen(&ports(["fe80::1", "fe80::2"], GidKind::RoceV2), &own).0, "p0");
        // Two rails in one subnet, in two subnets, or in two subnets with the default number.
        let rails = |first: &str, second: &str| {
            let rail = |name, node, prefix: &str| {
                device(name, node, vec![gid(0, &format!("{prefix}::2:c903:31:7c9{node}"), GidKind::Ib)])
            };
            [rail("ib0", 0, first), rail("ib1", 1, second)]
        };
        assert_eq!(chosen(&rails("fec0:1", "fec0:1"), &own).0, "ib1");
        assert_eq!(chosen(&rails("fec0:1", "fec0:2"), &own).0, "ib0");
        assert_eq!(chosen(&rails("fe80", "fe80"), &own).0, "ib0");
        let configured = Wanted { numa_node: Some(1), ..Wanted::default() };
        assert_eq!(chosen(&rails("fe80", "fe80"), &configured).0, "ib1", "a configured node applies across subnets");
    }

    #[test]
    fn configured_choice_is_used_even_if_it_is_worse() {
        let cards = [card("a", 0, 1), card("b", 1, 2)];
        let wanted = Wanted { device: Some("b".into()), port: Some(1), gid_index: Some(0), ..Wanted::default() };
        assert_eq!(chosen(&cards, &wanted), ("b".into(), 0));
    }

    #[test]
    fn address_on_infiniband_selects_the_port_under_its_interface() {
        let ib = device("ib", 0, vec![gid(0, "fe80::2:c903:31:7c91", GidKind::Ib)]);
        let wanted = Wanted { address: Some("10.1.0.1".parse().unwrap()), ..Wanted::default() };
        assert_eq!(chosen(&[card("a", 0, 1), ib.clone()], &wanted), ("ib".into(), 0));
        // If the interface with this address runs over an InfiniBand port, that port is chosen.
        let other = device("ib2", 1, vec![gid(0, "fe80::2:c903:31:7c92", GidKind::Ib)]);
        let under = Wanted { infiniband: Some(other.ports[0].gids[0].bytes), own_node: Some(0), ..wanted.clone() };
        let choice = choose(&[ib.clone(), other], &under).unwrap();
        assert_eq!((choice.device.as_str(), choice.why.as_str()), ("ib2", "the port under the interface of 10.1.0.1"));
        let gone = Wanted { infiniband: Some("fe80::9".parse().unwrap()), ..wanted };
        assert_eq!(chosen(&[ib], &gone), ("ib".into(), 0), "the GID of a device that does not exist is ignored");
    }

    #[test]
    fn errors_list_what_exists_and_a_remedy() {
        let cards = [card("a", 0, 1)];
        assert!(refused(&[], &Wanted::default()).contains("rdma link add"));
        assert!(refused(&cards, &Wanted { device: Some("x".into()), ..Wanted::default() }).ends_with("available: a"));
        assert!(refused(&cards, &Wanted { port: Some(2), ..Wanted::default() }).ends_with("available: a port 1"));
        assert!(
            refused(&cards, &Wanted { gid_index: Some(9), ..Wanted::default() }).contains("GID 3 RoCE v2 10.0.0.1")
        );
        let text = refused(&cards, &Wanted { address: Some("10.9.9.9".parse().unwrap()), ..Wanted::default() });
        assert!(text.contains("10.9.9.9") && text.contains("rdma link add"), "{text}");
        let mut bad = cards.clone();
        bad[0].ports[0].state = "DOWN".into();
        assert!(refused(&bad, &Wanted::default()).contains("a port 1 is DOWN"));
        let mut bad = cards.clone();
        bad[0].ports[0].gids.clear();
        assert!(refused(&bad, &Wanted::default()).contains("give the network interface an address"));
        let mut bad = cards;
        bad[0].file = None;
        assert!(refused(&bad, &Wanted::default()).contains("modprobe ib_uverbs"));
    }

    #[test]
    fn unspecified_address_is_ignored() {
        let wanted = Wanted { address: Some("0.0.0.0".parse().unwrap()), ..Wanted::default() };
        assert_eq!(chosen(&[card("a", 0, 1)], &wanted), ("a".into(), 3));
    }
}
