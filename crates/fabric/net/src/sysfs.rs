//! The location of this process and of devices on their host, from the kernel's files below `/sys`.

use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};

/// Root of the kernel's files.
pub const ROOT: &str = "/sys";

/// Returns the text of a file without surrounding white space, or `None` if there is none or the file cannot be read.
#[must_use]
pub fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the names in a directory, in order.
#[must_use]
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns the NUMA node to which this process is bound, which is the node with all processors that the process may
/// use. Returns `None` if the process may use processors of several nodes, because it then moves between them. Also
/// returns `None` if there is only one node.
#[must_use]
pub fn own_node(root: &Path) -> Option<u32> {
    let set = sched_getaffinity(None).ok()?;
    let own: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect();
    node_of(root, &own)
}

/// Returns the NUMA node that has all these processors, if the host has several nodes.
fn node_of(root: &Path, own: &[usize]) -> Option<u32> {
    let all = nodes(root);
    let list = |node: u32| line(&node_path(root, node).join("cpulist")).unwrap_or_default();
    let has = |list: &str| own.iter().all(|processor| is_listed(list, *processor));
    all.iter().copied().find(|node| all.len() > 1 && !own.is_empty() && has(&list(*node)))
}

/// Returns the numbers of the NUMA nodes, in rising order.
fn nodes(root: &Path) -> Vec<u32> {
    let all = names(&root.join("devices/system/node"));
    let mut numbers: Vec<u32> = all.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn node_path(root: &Path, node: u32) -> std::path::PathBuf {
    root.join(format!("devices/system/node/node{node}"))
}

/// Returns whether a list in the kernel's format, such as `0-3,8`, contains a processor.
fn is_listed(list: &str, processor: usize) -> bool {
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.trim().parse(), last.trim().parse()), (Ok(first), Ok(last)) if (first..=last).contains(&processor))
    })
}

/// Returns each NUMA node with its distance from the node `from`, according to the firmware. The distance of a node
/// from itself is 10.
#[must_use]
pub fn distances(root: &Path, from: u32) -> Vec<(u32, u32)> {
    let told = line(&node_path(root, from).join("distance")).unwrap_or_default();
    let told = told.split_whitespace().map_while(|distance| distance.parse().ok());
    nodes(root).into_iter().zip(told).collect()
}

/// Returns the NUMA node of a device: by its address on the PCI bus (`0000:10:1b.0`), otherwise by its name as an RDMA
/// device or as a network interface. A place at which the kernel reports -1, which means unknown, is skipped.
#[must_use]
pub fn device_node(root: &Path, bus: Option<&str>, names: &[&str]) -> Option<u32> {
    let at_bus = bus.map(|bus| root.join("bus/pci/devices").join(bus));
    let by_name = |class: &'static str| names.iter().map(move |name| root.join(class).join(name).join("device"));
    let places = at_bus.into_iter().chain(by_name("class/infiniband")).chain(by_name("class/net"));
    places.filter_map(|place| line(&place.join("numa_node"))?.parse().ok()).next()
}

/// Returns the RDMA devices of one PCI vendor, for example `0x1d0f`.
#[must_use]
pub fn rdma_devices_of(root: &Path, vendor: &str) -> Vec<String> {
    let class = root.join("class/infiniband");
    let mut all = names(&class);
    all.retain(|name| line(&class.join(name).join("device/vendor")).is_some_and(|found| found == vendor));
    all
}

#[cfg(test)]
mod tests {

    use stentor_testutil::TempDir;

    use super::*;

    #[test]
    fn a_process_has_a_node_only_if_it_is_bound_to_one() {
        let tree = TempDir::with_lines(&[
            ("devices/system/node/node0/cpulist", "0-3,8-11"),
            ("devices/system/node/node1/cpulist", "4-7,12"),
            ("devices/system/node/node2/cpulist", ""),
            ("devices/system/node/possible", "0-2"),
        ]);
        let node = |own: &[usize]| node_of(&tree, own);
        assert_eq!((node(&[0]), node(&[2, 9, 11]), node(&[4, 12]), node(&[12])), (Some(0), Some(0), Some(1), Some(1)));
        assert_eq!((node(&[3, 4]), node(&[13]), node(&[])), (None, None, None));
        let one = TempDir::with_lines(&[("devices/system/node/node0/cpulist", "0-1")]);
        assert_eq!(node_of(&one, &[0]), None, "there is nothing to choose");
        assert_eq!(node_of(Path::new("/nonexistent"), &[0]), None);
    }

    #[test]
    fn distances_go_by_the_numbers_of_nodes_not_by_their_names() {
        let tree = TempDir::with_lines(&[
            ("devices/system/node/node0/cpulist", "0"),
            ("devices/system/node/node2/distance", "21 10 17"),
            ("devices/system/node/node10/cpulist", "1"),
        ]);
        assert_eq!(distances(&tree, 2), [(0, 21), (2, 10), (10, 17)]);
        assert_eq!(distances(&tree, 7), []);
    }

    #[test]
    fn a_device_is_found_by_its_bus_before_its_name() {
        let tree = TempDir::with_lines(&[
            ("bus/pci/devices/0000:10:1b.0/numa_node", "1"),
            ("bus/pci/devices/0000:10:1c.0/numa_node", "-1"),
            ("class/infiniband/rdmap16s27/device/numa_node", "0"),
            ("class/infiniband/rdmap16s27/device/vendor", "0x1d0f"),
            ("class/infiniband/mlx5_0/device/vendor", "0x15b3"),
            ("class/net/eth1/device/numa_node", "2"),
        ]);
        let node = |bus: &str, names: &[&str]| device_node(&tree, Some(bus), names);
        assert_eq!(node("0000:10:1b.0", &["rdmap16s27"]), Some(1));
        assert_eq!(node("0000:10:1c.0", &["rdmap16s27"]), Some(0), "the bus reports no node");
        assert_eq!(device_node(&tree, None, &["none", "eth1"]), Some(2));
        assert_eq!(device_node(&tree, None, &["lo"]), None);
        assert_eq!(rdma_devices_of(&tree, "0x1d0f"), ["rdmap16s27"]);
    }
}
