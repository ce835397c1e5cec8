//! What an address may look like.

use std::net::{IpAddr, SocketAddr};

use super::error::Problem;

/// Refuses an address that is not `host:port`, or that nobody can reach. Names are not resolved here.
pub(super) fn check(address: &str) -> Result<(), Problem> {
    reason(address).map_or(Ok(()), |reason| Err(Problem::BadAddress { address: address.to_owned(), reason }))
}

fn reason(address: &str) -> Option<&'static str> {
    if let Ok(socket) = address.parse::<SocketAddr>() {
        return ip_reason(socket.ip()).or((socket.port() == 0).then_some("port 0 names no port"));
    }
    let Some((host, port)) = address.rsplit_once(':') else {
        return Some("the port is missing");
    };
    match port.parse::<u16>() {
        Err(_) => return Some("the port is not a number from 1 to 65535"),
        Ok(0) => return Some("port 0 names no port"),
        Ok(_) => {}
    }
    if host.contains(':') {
        return Some("an IPv6 address stands in brackets");
    }
    // All labels numeric: meant as IPv4, and it did not parse as one.
    if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Some("the host is not a valid IPv4 address");
    }
    (!is_host_name(host)).then_some("the host is neither an IP address nor a host name")
}

fn ip_reason(ip: IpAddr) -> Option<&'static str> {
    if ip.is_unspecified() {
        return Some("nobody can reach the unspecified address");
    }
    ip.is_multicast().then_some("a process does not listen on a multicast address")
}

/// RFC 1123: labels of 1 to 63 letters, digits and inner hyphens; 253 characters in all.
fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(label)
}
