//! Network interfaces: the interface that has an address, and its MTU.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::ptr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Returns the name of the interface that has this address, in the network namespace of this process. The loopback
/// interface has all of 127.0.0.0/8.
#[must_use]
pub fn interface_of(address: IpAddr) -> Option<String> {
    let address = match address {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        other => other,
    };
    let mut list = ptr::null_mut();
    // SAFETY: the call writes only `list`, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return None;
    }
    let (mut entry, mut found) = (list, None);
    while !entry.is_null() && found.is_none() {
        // SAFETY: `entry` is an element of the list, which is not freed yet.
        let one = unsafe { &*entry };
        // SAFETY: `ifa_addr` is null or points to a socket address of the size of its family, as `ip_of` requires.
        if unsafe { ip_of(one.ifa_addr) } == Some(address) {
            // SAFETY: every entry has a name: a NUL-terminated string inside the list.
            found = unsafe { CStr::from_ptr(one.ifa_name) }.to_str().ok().map(str::to_owned);
        }
        entry = one.ifa_next;
    }
    // SAFETY: `list` is the list that `getifaddrs` returned, and it is not used again.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Returns the IP address of a socket address, or `None` if it has another family.
///
/// # Safety
/// `address` must be null, or point to a socket address with as many bytes as its family has, aligned for all families.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family, and the caller guarantees the bytes that follow.
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

/// Returns the MTU of an interface: the maximum length of an IP packet with its header, in bytes.
///
/// # Errors
/// Returns the error of the operating system, for instance if this network namespace has no such interface.
pub fn mtu_of(interface: &str) -> io::Result<u32> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `ifreq` consists of plain numbers and bytes, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: `request` is an `ifreq` with a NUL-terminated name, and lives until the call returns.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has initialized this field of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_interface_of_an_address_is_found() {
        assert_eq!(interface_of(ip("127.0.0.1")).as_deref(), Some("lo"));
        assert_eq!(interface_of(ip("127.3.2.1")).as_deref(), Some("lo"));
        assert_eq!(interface_of(ip("192.0.2.77")), None, "an address of documentation");
    }

    #[test]
    fn an_interface_has_an_mtu_and_an_unknown_one_is_refused() {
        let told = std::fs::read_to_string("/sys/class/net/lo/mtu").expect("the kernel's tree");
        assert_eq!(mtu_of("lo").expect("lo exists").to_string(), told.trim());
        assert!(mtu_of("none-of-these").is_err());
        assert_eq!(mtu_of(&"x".repeat(40)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
