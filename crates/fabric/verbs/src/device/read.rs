//! Reader of `/sys/class/infiniband`.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use stentor_fabric_net::sysfs::{line, names};

use super::{Device, Gid, GidKind, LinkLayer, Port};

/// Returns all devices below `root` (`/sys`), sorted by name. The list is empty if the kernel's RDMA modules are not
/// loaded, or if a container hides the devices.
#[must_use]
pub fn devices(root: &Path) -> Vec<Device> {
    names(&root.join("class/infiniband")).into_iter().map(|name| device(root, name)).collect()
}

/// Returns the current index of a GID in a port's table, or `None` if the table does not contain it. Checks the index
/// in `wanted` first.
#[must_use]
pub fn index_of(root: &Path, device: &str, port: u8, wanted: &Gid) -> Option<u32> {
    let path = root.join("class/infiniband").join(device).join("ports").join(port.to_string());
    let stands = |gid: &Gid| (gid.bytes, gid.kind, &gid.interface) == (wanted.bytes, wanted.kind, &wanted.interface);
    // The link layer matters only if the table does not report RoCE v2.
    let link = if wanted.kind == GidKind::Ib { LinkLayer::InfiniBand } else { LinkLayer::Ethernet };
    let at = |index: &str| gid(&path, link, index).filter(stands).map(|gid| gid.index);
    at(&wanted.index.to_string()).or_else(|| names(&path.join("gids")).iter().find_map(|index| at(index)))
}

fn device(root: &Path, name: String) -> Device {
    let path = root.join("class/infiniband").join(&name);
    let mut ports: Vec<_> = names(&path.join("ports")).iter().filter_map(|number| port(&path, number)).collect();
    ports.sort_by_key(|port| port.number);
    Device {
        file: file(root, &name),
        numa_node: numa_node(root, &path),
        firmware: line(&path.join("fw_ver")).unwrap_or_default(),
        ports,
        name,
    }
}

/// Returns the character device that `ib_uverbs` has created for the device.
fn file(root: &Path, name: &str) -> Option<PathBuf> {
    let class = root.join("class/infiniband_verbs");
    let is_its = |entry: &String| line(&class.join(entry).join("ibdev")).is_some_and(|device| device == name);
    names(&class).into_iter().find(is_its).map(|entry| Path::new("/dev/infiniband").join(entry))
}

/// Returns the device's NUMA node. For a software device, it is the node of the network interface under the device. The
/// kernel reports -1 for an unknown node, which becomes `None`.
fn numa_node(root: &Path, path: &Path) -> Option<u32> {
    let under = || line(&path.join("parent")).map(|parent| root.join("class/net").join(parent));
    let of = |path: &Path| line(&path.join("device/numa_node"))?.parse().ok();
    of(path).or_else(|| of(&under()?))
}

fn port(device: &Path, number: &str) -> Option<Port> {
    let path = device.join("ports").join(number);
    let state = line(&path.join("state")).unwrap_or_default();
    let link =
        if line(&path.join("link_layer"))? == "InfiniBand" { LinkLayer::InfiniBand } else { LinkLayer::Ethernet };
    let mut gids: Vec<_> = names(&path.join("gids")).iter().filter_map(|index| gid(&path, link, index)).collect();
    gids.sort_by_key(|gid| gid.index);
    Some(Port {
        number: number.parse().ok()?,
        link,
        // The text has the form `4: ACTIVE`.
        state: state.rsplit(": ").next().unwrap_or_default().to_owned(),
        rate: line(&path.join("rate")).unwrap_or_default(),
        gids,
    })
}

/// Returns an entry of the GID table, or `None` if the entry is not set.
fn gid(port: &Path, link: LinkLayer, index: &str) -> Option<Gid> {
    let bytes: Ipv6Addr = line(&port.join("gids").join(index))?.parse().ok()?;
    if bytes.is_unspecified() {
        return None;
    }
    let kind = match (line(&port.join("gid_attrs/types").join(index)).as_deref(), link) {
        (Some("RoCE v2"), _) => GidKind::RoceV2,
        (_, LinkLayer::InfiniBand) => GidKind::Ib,
        // This is `IB/RoCE v1`, or the type that kernels before 4.5 reported on Ethernet.
        (_, LinkLayer::Ethernet) => GidKind::RoceV1,
    };
    let interface = line(&port.join("gid_attrs/ndevs").join(index));
    Some(Gid { index: index.parse().ok()?, bytes, kind, interface })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use stentor_testutil::TempDir;

    const RXE: [(&str, &str); 14] = [
        ("class/infiniband/rxe0/fw_ver", ""),
        ("class/infiniband/rxe0/parent", "eth0"),
        ("class/net/eth0/device/numa_node", "1"),
        ("class/infiniband/rxe0/ports/1/state", "4: ACTIVE"),
        ("class/infiniband/rxe0/ports/1/link_layer", "Ethernet"),
        ("class/infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)"),
        ("class/infiniband/rxe0/ports/1/gids/0", "fe80:0000:0000:0000:10d4:77ff:fef9:10de"),
        ("class/infiniband/rxe0/ports/1/gid_attrs/types/0", "RoCE v2"),
        ("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth0"),
        ("class/infiniband/rxe0/ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
        ("class/infiniband/rxe0/ports/1/gid_attrs/types/10", "IB/RoCE v1"),
        ("class/infiniband/rxe0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"),
        ("class/infiniband_verbs/uverbs0/ibdev", "rxe0"),
        ("class/infiniband_verbs/abi_version", "6"),
    ];

    #[test]
    fn device_is_read_with_its_ports_and_set_gids() {
        let tree = TempDir::with_lines(&RXE);
        let found = devices(&tree);
        assert_eq!(found.len(), 1);
        let Device { name, file, numa_node, ports, .. } = &found[0];
        assert_eq!((name.as_str(), *numa_node), ("rxe0", Some(1)));
        assert_eq!(file.as_deref(), Some(Path::new("/dev/infiniband/uverbs0")));
        assert!(ports.len() == 1 && ports[0].is_active() && ports[0].link == LinkLayer::Ethernet, "{ports:?}");
        let gids: Vec<_> = ports[0].gids.iter().map(ToString::to_string).collect();
        assert_eq!(gids, ["GID 0 RoCE v2 fe80::10d4:77ff:fef9:10de on eth0", "GID 10 RoCE v1 10.0.0.1"]);
    }

    #[test]
    fn unknown_node_and_infiniband_gids_are_read() {
        let tree = TempDir::with_lines(&[
            ("class/infiniband/mlx5_0/device/numa_node", "-1"),
            ("class/infiniband/mlx5_0/ports/1/state", "1: DOWN"),
            ("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand"),
            ("class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0031:7c91"),
            ("class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1"),
        ]);
        let found = devices(&tree);
        assert_eq!((found[0].numa_node, found[0].file.clone()), (None, None));
        assert_eq!(found[0].ports[0].gids[0].kind, GidKind::Ib);
        assert!(!found[0].ports[0].is_active());
    }

    #[test]
    fn gid_is_found_at_its_current_index() {
        let tree = TempDir::with_lines(&RXE);
        let first = devices(&tree)[0].ports[0].gids[0].clone();
        let index = |wanted: &Gid| index_of(&tree, "rxe0", 1, wanted);
        assert_eq!(index(&first), Some(0));
        assert_eq!(index(&Gid { index: 7, ..first.clone() }), Some(0), "the GID has moved to another index");
        assert_eq!(
            index(&Gid { kind: GidKind::RoceV1, ..first.clone() }),
            None,
            "a GID with the same address and another packet format is another GID"
        );
        let moved = tree.join("class/infiniband/rxe0/ports/1");
        fs::write(moved.join("gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000\n").unwrap();
        assert_eq!(index(&first), None);
        for (what, text) in [("gids/3", first.bytes.to_string()), ("gid_attrs/types/3", "RoCE v2".into())] {
            fs::write(moved.join(what), text).unwrap();
        }
        fs::write(moved.join("gid_attrs/ndevs/3"), "eth0").unwrap();
        assert_eq!(index(&first), Some(3));
    }

    #[test]
    fn machine_without_rdma_has_no_devices() {
        assert_eq!(devices(Path::new("/nonexistent")), []);
    }
}
