//! Checks of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::error::Problem;

/// Refuses an address that is not `host:port`, or whose form shows that no process can reach it. Names are not resolved
/// here.
pub(super) fn check(address: &str) -> Result<(), Problem> {
    reason(address).map_or(Ok(()), |reason| Err(Problem::BadAddress { address: address.to_owned(), reason }))
}

/// Returns the canonical spelling of an address: equal addresses have equal texts.
pub(super) fn canonical(address: &str) -> String {
    address.parse::<SocketAddr>().map_or_else(|_| address.to_ascii_lowercase(), |socket| socket.to_string())
}

/// Returns the canonical spelling of the host of an address.
pub(super) fn host(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(socket) => socket.ip().to_string(),
        Err(_) => address.rsplit_once(':').unwrap_or_default().0.to_ascii_lowercase(),
    }
}

fn reason(address: &str) -> Option<&'static str> {
    if let Some(inside) = address.strip_prefix('[') {
        let Some((host, port)) = inside.rsplit_once("]:") else { return Some("the port is missing") };
        return ipv6_reason(host).or_else(|| port_reason(port));
    }
    let Some((host, port)) = address.rsplit_once(':') else {
        return Some("the port is missing");
    };
    if let Some(reason) = port_reason(port) {
        return Some(reason);
    }
    if host.contains(':') {
        return Some("an IPv6 address must be in brackets");
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return ip_reason(ip.into()).or_else(|| ipv4_reason(ip));
    }
    // A host of digits and dots was meant as IPv4, and it did not parse as an IPv4 address.
    if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Some("the host is not a valid IPv4 address");
    }
    (!is_host_name(host)).then_some("the host is neither an IP address nor a host name")
}

fn port_reason(port: &str) -> Option<&'static str> {
    match port.parse::<u16>() {
        Err(_) => Some("the port is not a number from 1 to 65535"),
        Ok(0) => Some("port 0 names no port"),
        Ok(_) => None,
    }
}

/// Checks the text in brackets. Scopes are refused: a scope names an interface of one host, but the configuration is
/// the same on all hosts.
fn ipv6_reason(host: &str) -> Option<&'static str> {
    let (ip, scope) = host.split_once('%').map_or((host, None), |(ip, scope)| (ip, Some(scope)));
    let Ok(ip) = ip.parse::<Ipv6Addr>() else {
        return Some("the text in brackets is not a valid IPv6 address");
    };
    if ip.is_unicast_link_local() {
        return Some(
            "a link-local address means another host on each interface, and the scope another interface on each host; use a \
             global or unique-local (fd00::/8) address",
        );
    }
    if ip.to_ipv4_mapped().is_some() {
        return Some("it is an IPv4 address; write it as one, without brackets and ::ffff:");
    }
    ip_reason(ip.into())
        .or_else(|| scope.map(|_| "only link-local addresses have a scope; leave out `%` and what follows"))
}

fn ipv4_reason(ip: Ipv4Addr) -> Option<&'static str> {
    (ip.octets()[0] == 0 || ip.is_broadcast()).then_some("no host has this address")
}

fn ip_reason(ip: IpAddr) -> Option<&'static str> {
    if ip.is_unspecified() {
        return Some("no process can reach the unspecified address");
    }
    ip.is_multicast().then_some("a process does not listen on a multicast address")
}

/// Checks a host name by RFC 1123: labels of 1 to 63 letters, digits and inner hyphens, 253 characters in all.
fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(label)
}
