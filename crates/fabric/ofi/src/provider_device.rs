//! Choice among a provider's devices by their location.
//!
//! The first device that libfabric lists may be on the far side of the host. If every process used it, the other
//! devices would be idle.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use stentor_fabric_net::sysfs;

/// Distance of a device whose NUMA node is unknown. It is larger than any distance that the firmware reports.
const UNKNOWN: u32 = u32::MAX;
/// Distance of a node from itself.
const SAME: u32 = 10;
/// Distance of another node if the firmware reports none.
const OTHER: u32 = 255;

/// A device that a provider offers, with its location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderDevice {
    /// Name of the provider: `efa`, `tcp;ofi_rxm`, …
    pub provider: String,
    /// The provider's name for the device (a domain).
    pub name: String,
    /// Network of the device, if the provider's devices may be on networks that cannot reach each other.
    pub network: Option<String>,
    /// PCI address (`0000:10:1b.0`), as libfabric reports it.
    pub bus: Option<String>,
    /// NUMA node to which the device is attached, if the kernel knows it.
    pub node: Option<u32>,
}

impl fmt::Display for ProviderDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bus = self.bus.as_ref().map(|bus| format!("PCI {bus}"));
        let node = self.node.map(|node| format!("NUMA node {node}"));
        let places: Vec<_> = bus.into_iter().chain(node).collect();
        if places.is_empty() { f.write_str(&self.name) } else { write!(f, "{} ({})", self.name, places.join(", ")) }
    }
}

/// Location of a process on its host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Here {
    /// NUMA node to which the process is bound; `None` if it may run on several.
    pub node: Option<u32>,
    /// Distances of all nodes from the process's node, as pairs of node and distance. The firmware reports them; 10 is
    /// the distance of the node itself.
    pub distances: Vec<(u32, u32)>,
    /// Index of this process among the processes of its host. Processes that are equally near to several devices use
    /// the devices in turn.
    pub turn: usize,
}

impl Here {
    /// Returns the location of this process, according to sysfs below `root`.
    #[must_use]
    pub fn now(root: &Path, turn: usize) -> Here {
        let node = sysfs::own_node(root);
        let distances = node.map(|node| sysfs::distances(root, node)).unwrap_or_default();
        Here { node, distances, turn }
    }

    /// Returns the distance of a device on the NUMA node `device`. For a process that is not bound to a node, all
    /// devices are equally near.
    fn distance(&self, device: Option<u32>) -> u32 {
        let Some(own) = self.node else { return SAME };
        let Some(node) = device else { return UNKNOWN };
        let told = self.distances.iter().find(|(other, _)| *other == node).map(|(_, distance)| *distance);
        told.unwrap_or(if node == own { SAME } else { OTHER })
    }
}

/// Returns the index of the device to use and the reason for the choice, or `None` if there are no devices.
///
/// If a device has several descriptions, only the first one is considered, because libfabric lists the best first. Only
/// devices on the network of the first device are considered, because processes that use different devices must reach
/// each other.
#[must_use]
pub fn nearest(devices: &[ProviderDevice], here: &Here) -> Option<(usize, String)> {
    let first = devices.first()?;
    let mut told = HashSet::new();
    let reached = devices.iter().enumerate().filter(|(_, device)| device.network == first.network);
    let all: Vec<_> = reached.filter(|(_, device)| told.insert(&device.name)).collect();
    let least = all.iter().map(|(_, device)| here.distance(device.node)).min()?;
    let near: Vec<_> = all.iter().filter(|(_, device)| here.distance(device.node) == least).collect();
    let turn = here.turn % near.len();
    let (at, device) = *near[turn];
    if all.len() == 1 {
        let is_alone = devices.iter().all(|other| other.name == device.name);
        return Some((at, if is_alone { "the only device" } else { "the only device on its network" }.to_owned()));
    }
    let place = match (here.node, device.node) {
        (Some(own), Some(node)) if own == node => format!("next to this process's NUMA node {own}"),
        (Some(own), Some(node)) => format!("nearest to NUMA node {own}, on node {node}"),
        (Some(own), None) => format!("equally near to NUMA node {own}, because the kernel reports no locations"),
        (None, _) => "equally near, because this process is bound to no NUMA node".to_owned(),
    };
    let (all, near) = (all.len(), near.len());
    let why = if near == 1 {
        format!("of {all} devices, the one {place}")
    } else {
        format!("of {all} devices, {near} are {place}; this process uses number {} of them", turn + 1)
    };
    Some((at, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, node: Option<u32>) -> ProviderDevice {
        ProviderDevice { provider: "efa".into(), name: name.into(), network: None, bus: None, node }
    }

    /// Returns the devices of a host with two processors and four NICs.
    fn four() -> Vec<ProviderDevice> {
        [("a", 0), ("b", 0), ("c", 1), ("d", 1)].map(|(name, node)| device(name, Some(node))).into()
    }

    fn here(node: Option<u32>, turn: usize) -> Here {
        Here { node, distances: vec![(0, 10), (1, 21)], turn }
    }

    fn taken(devices: &[ProviderDevice], here: &Here) -> String {
        devices[nearest(devices, here).unwrap().0].name.clone()
    }

    #[test]
    fn processes_use_the_devices_of_their_node_in_turn() {
        let on = |node, distances: &[(u32, u32)], turn| {
            taken(&four(), &Here { node: Some(node), distances: distances.to_vec(), turn })
        };
        let from_zero = [(0, 10), (1, 21)];
        let from_one = [(0, 21), (1, 10)];
        assert_eq!([0, 1, 2, 3].map(|turn| on(0, &from_zero, turn)), ["a", "b", "a", "b"]);
        assert_eq!([0, 1, 2, 3].map(|turn| on(1, &from_one, turn)), ["c", "d", "c", "d"]);
        assert_eq!(on(1, &[], 0), "c", "the firmware reports no distances");
    }

    #[test]
    fn process_without_a_node_uses_all_devices_in_turn() {
        let turns = [0, 1, 2, 3, 4].map(|turn| taken(&four(), &here(None, turn)));
        assert_eq!(turns, ["a", "b", "c", "d", "a"]);
    }

    #[test]
    fn distance_decides_without_a_local_device_and_unknown_nodes_come_last() {
        let devices = [device("lost", None), device("far", Some(3)), device("near", Some(2)), device("nigh", Some(2))];
        let distances = vec![(0, 10), (1, 12), (2, 17), (3, 28)];
        let at = |turn| taken(&devices, &Here { node: Some(0), distances: distances.clone(), turn });
        assert_eq!([0, 1, 2].map(at), ["near", "nigh", "near"]);
        let unplaced = [device("a", None), device("b", None)];
        assert_eq!([0, 1].map(|turn| taken(&unplaced, &here(Some(0), turn))), ["a", "b"]);
    }

    #[test]
    fn device_counts_once_and_other_networks_are_ignored() {
        // Each NIC has several descriptions, of which the best comes first.
        let twice = [device("a", Some(0)), device("a", Some(0)), device("b", Some(0)), device("b", Some(0))];
        let at = |turn| nearest(&twice, &here(Some(0), turn)).unwrap().0;
        assert_eq!([0, 1, 2].map(at), [0, 2, 0]);
        let on = |name: &str, network: &str, node| ProviderDevice {
            network: Some(network.into()),
            ..device(name, Some(node))
        };
        let apart = [on("eth0", "10.0.0.0/24", 0), on("eth1", "10.0.1.0/24", 1), on("eth2", "10.0.0.0/24", 1)];
        assert_eq!(taken(&apart, &Here { node: Some(1), ..Here::default() }), "eth2");
        assert_eq!(taken(&apart[..2], &Here { node: Some(1), ..Here::default() }), "eth0");
        assert_eq!(nearest(&[], &Here::default()), None);
    }

    #[test]
    fn reason_of_the_choice_is_reported() {
        let why = |devices: &[ProviderDevice], here: &Here| nearest(devices, here).unwrap().1;
        assert_eq!(why(&four()[..1], &here(Some(1), 5)), "the only device");
        let next = why(&four(), &here(Some(0), 3));
        assert_eq!(next, "of 4 devices, 2 are next to this process's NUMA node 0; this process uses number 2 of them");
        let one = why(&four()[1..3], &here(Some(0), 0));
        assert_eq!(one, "of 2 devices, the one next to this process's NUMA node 0");
        let on = |network: &str| ProviderDevice { network: Some(network.into()), ..device(network, None) };
        assert_eq!(why(&[on("a"), on("b")], &here(None, 1)), "the only device on its network");
        assert!(why(&four(), &here(None, 1)).contains("bound to no NUMA node; this process uses number 2"));
        let placed = ProviderDevice { bus: Some("0000:10:1b.0".into()), ..device("rdmap16s27-rdm", Some(1)) };
        assert_eq!(placed.to_string(), "rdmap16s27-rdm (PCI 0000:10:1b.0, NUMA node 1)");
        assert_eq!(device("lo", None).to_string(), "lo");
    }
}
