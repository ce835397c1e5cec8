//! Finds the InfiniBand port under the network interface that has this process's address.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use stentor_host::interface_of;

/// Offset of the port's GID in the hardware address of an IP-over-InfiniBand interface, which begins with a queue pair
/// number. Hardware addresses of other interfaces are shorter.
const GID_AT: usize = 4;

/// Returns the GID of the InfiniBand port under the interface that has this address. Returns `None` if no interface has
/// the address, or if the interface is not IP over InfiniBand. GIDs of other interfaces are derived from their
/// addresses.
#[must_use]
pub fn infiniband_gid(root: &Path, address: IpAddr) -> Option<Ipv6Addr> {
    gid_under(root, &interface_of(address)?)
}

fn gid_under(root: &Path, interface: &str) -> Option<Ipv6Addr> {
    let text = fs::read_to_string(root.join("class/net").join(interface).join("address")).ok()?;
    let bytes: Vec<u8> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    let gid: [u8; 16] = bytes.get(GID_AT..)?.try_into().ok()?;
    Some(gid.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_testutil::TempDir;

    #[test]
    fn infiniband_port_is_found_by_its_interfaces_hardware_address() {
        let ib = "80:00:00:49:fe:80:00:00:00:00:00:01:00:02:c9:03:00:31:7c:91";
        let tree =
            TempDir::with_lines(&[("class/net/ib0/address", ib), ("class/net/eth0/address", "02:00:00:00:00:01")]);
        assert_eq!(gid_under(&tree, "ib0"), Some("fe80::1:2:c903:31:7c91".parse().unwrap()));
        assert_eq!((gid_under(&tree, "eth0"), gid_under(&tree, "ib1")), (None, None));
    }

    #[test]
    fn other_interfaces_have_no_infiniband_gid() {
        assert_eq!(infiniband_gid(Path::new("/sys"), "127.0.0.1".parse().unwrap()), None);
    }
}
