//! Which of a provider's devices is taken, by where it is: the first one that libfabric tells of may be on the far side of the
//! host, and if every process took it the others would carry nothing.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use stentor_fabric_net::sysfs;

/// Farther than any node that the firmware tells of.
const UNKNOWN: u32 = u32::MAX;
/// The distance of a node from itself; of another one of which nothing is said.
const SAME: u32 = 10;
const OTHER: u32 = 255;

/// A device that a provider offers, as far as its place matters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderDevice {
    /// The provider: `efa`, `tcp;ofi_rxm`, …
    pub provider: String,
    /// The device, as the provider names it (a domain).
    pub name: String,
    /// The network it is on, where devices of one provider are on networks that do not reach each other.
    pub network: Option<String>,
    /// Its place on the PCI bus (`0000:10:1b.0`), as libfabric tells it.
    pub bus: Option<String>,
    /// The NUMA node it is next to, where the kernel knows.
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

/// Where a process is among the devices of its host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Here {
    /// The NUMA node that it is kept on; none where it may run on several.
    pub node: Option<u32>,
    /// How far each node is from that one, as the firmware says; 10 is the node itself.
    pub distances: Vec<(u32, u32)>,
    /// Which process of its host it is: those that are equally near to several devices take them in turns.
    pub turn: usize,
}

impl Here {
    /// This process, by the kernel's tree (`/sys`).
    #[must_use]
    pub fn now(root: &Path, turn: usize) -> Here {
        let node = sysfs::own_node(root);
        let distances = node.map(|node| sysfs::distances(root, node)).unwrap_or_default();
        Here { node, distances, turn }
    }

    /// How far a device on a node is. To who is on no node all are equally near.
    fn distance(&self, device: Option<u32>) -> u32 {
        let Some(own) = self.node else { return SAME };
        let Some(node) = device else { return UNKNOWN };
        let told = self.distances.iter().find(|(other, _)| *other == node).map(|(_, distance)| *distance);
        told.unwrap_or(if node == own { SAME } else { OTHER })
    }
}

/// The device to take, as its place in the list, and why. Of several descriptions of one device the first counts, because
/// libfabric puts the best first. Devices on another network than the first one are left alone: processes that take different
/// ones must reach each other. None of nothing.
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
        (Some(own), None) => format!("equally near to NUMA node {own}, as the kernel tells no places"),
        (None, _) => "equally near, as this process is kept on no NUMA node".to_owned(),
    };
    let (all, near) = (all.len(), near.len());
    let why = if near == 1 {
        format!("of {all} devices the one {place}")
    } else {
        format!("of {all} devices {near} are {place}; number {} of them by turns", turn + 1)
    };
    Some((at, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, node: Option<u32>) -> ProviderDevice {
        ProviderDevice { provider: "efa".into(), name: name.into(), network: None, bus: None, node }
    }

    /// As a host with two processors and four cards.
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
    fn processes_take_the_devices_of_their_node_in_turns_and_not_the_first_one() {
        let on = |node, distances: &[(u32, u32)], turn| {
            taken(&four(), &Here { node: Some(node), distances: distances.to_vec(), turn })
        };
        let from_zero = [(0, 10), (1, 21)];
        let from_one = [(0, 21), (1, 10)];
        assert_eq!([0, 1, 2, 3].map(|turn| on(0, &from_zero, turn)), ["a", "b", "a", "b"]);
        assert_eq!([0, 1, 2, 3].map(|turn| on(1, &from_one, turn)), ["c", "d", "c", "d"]);
        assert_eq!(on(1, &[], 0), "c", "a firmware that tells no distances");
    }

    #[test]
    fn who_is_on_no_node_takes_all_in_turns() {
        let turns = [0, 1, 2, 3, 4].map(|turn| taken(&four(), &here(None, turn)));
        assert_eq!(turns, ["a", "b", "c", "d", "a"]);
    }

    #[test]
    fn without_a_device_on_the_node_the_distance_decides_and_an_unknown_place_comes_last() {
        let devices = [device("lost", None), device("far", Some(3)), device("near", Some(2)), device("nigh", Some(2))];
        let distances = vec![(0, 10), (1, 12), (2, 17), (3, 28)];
        let at = |turn| taken(&devices, &Here { node: Some(0), distances: distances.clone(), turn });
        assert_eq!([0, 1, 2].map(at), ["near", "nigh", "near"]);
        let unplaced = [device("a", None), device("b", None)];
        assert_eq!([0, 1].map(|turn| taken(&unplaced, &here(Some(0), turn))), ["a", "b"]);
    }

    #[test]
    fn one_device_counts_once_and_another_network_not_at_all() {
        // Each card has several descriptions, the best first.
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
    fn the_reason_is_told() {
        let why = |devices: &[ProviderDevice], here: &Here| nearest(devices, here).unwrap().1;
        assert_eq!(why(&four()[..1], &here(Some(1), 5)), "the only device");
        let next = why(&four(), &here(Some(0), 3));
        assert_eq!(next, "of 4 devices 2 are next to this process's NUMA node 0; number 2 of them by turns");
        let one = why(&four()[1..3], &here(Some(0), 0));
        assert_eq!(one, "of 2 devices the one next to this process's NUMA node 0");
        let on = |network: &str| ProviderDevice { network: Some(network.into()), ..device(network, None) };
        assert_eq!(why(&[on("a"), on("b")], &here(None, 1)), "the only device on its network");
        assert!(why(&four(), &here(None, 1)).contains("kept on no NUMA node; number 2 of them"));
        let placed = ProviderDevice { bus: Some("0000:10:1b.0".into()), ..device("rdmap16s27-rdm", Some(1)) };
        assert_eq!(placed.to_string(), "rdmap16s27-rdm (PCI 0000:10:1b.0, NUMA node 1)");
        assert_eq!(device("lo", None).to_string(), "lo");
    }
}
