//! The interface of this process's address, as far as it matters to the choice of a device.

use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::ptr;

/// Hardware addresses of IP over InfiniBand are a queue pair, and then, here, the port's GID; those of others are shorter.
const GID_AT: usize = 4;

/// The GID of the InfiniBand port under the interface that has this address; none if it is on an interface of another kind,
/// whose GIDs are made of its addresses, or on none.
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

/// The name of the interface that has this address, in the network namespace of this process.
fn interface_of(address: IpAddr) -> Option<String> {
    let mut list = ptr::null_mut();
    // SAFETY: the list is written during the call; it is given back below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return None;
    }
    let (mut entry, mut found) = (list, None);
    while !entry.is_null() && found.is_none() {
        // SAFETY: an entry of the list, which was not given back yet.
        let one = unsafe { &*entry };
        // SAFETY: as its family says, which `ip_of` asks first.
        if unsafe { ip_of(one.ifa_addr) } == Some(address) {
            // SAFETY: every entry has a name, a string inside the list.
            found = unsafe { CStr::from_ptr(one.ifa_name) }.to_str().ok().map(str::to_owned);
        }
        entry = one.ifa_next;
    }
    // SAFETY: it is the list that came, and nobody looks at it again.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// The IP address in a socket address, if it is one.
///
/// # Safety
/// A null pointer, or a socket address with as many bytes as its family has, aligned for all families.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: each kind begins with its family; what follows is there as the caller promises.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let raw = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from(u32::from_be(raw)).into())
            }
            libc::AF_INET6 => Some(Ipv6Addr::from((*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr).into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_testutil::TempDir;

    #[test]
    fn an_infiniband_port_is_known_by_the_hardware_address_of_its_interface() {
        let ib = "80:00:00:49:fe:80:00:00:00:00:00:01:00:02:c9:03:00:31:7c:91";
        let tree =
            TempDir::with_lines(&[("class/net/ib0/address", ib), ("class/net/eth0/address", "02:00:00:00:00:01")]);
        assert_eq!(gid_under(&tree, "ib0"), Some("fe80::1:2:c903:31:7c91".parse().unwrap()));
        assert_eq!((gid_under(&tree, "eth0"), gid_under(&tree, "ib1")), (None, None));
    }

    #[test]
    fn the_interface_of_an_address_is_found() {
        assert_eq!(interface_of("127.0.0.1".parse().unwrap()).as_deref(), Some("lo"));
        assert_eq!(interface_of("192.0.2.77".parse().unwrap()), None, "an address of documentation");
        assert_eq!(infiniband_gid(Path::new("/sys"), "127.0.0.1".parse().unwrap()), None);
    }
}
