//! Tests the errors of peers that cannot communicate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use stentor_fabric_roce::driver::Mode;
use stentor_fabric_roce::endpoint::{Data, Request, Work};
use stentor_fabric_roce::peer::{Destination, Peer, PeerConfig, PeerError};

fn peer(last: u8) -> Peer {
    let mut config = PeerConfig::new(Ipv4Addr::new(127, 215, (std::process::id() % 251) as u8, last).into());
    config.mode = Some(Mode::Plain);
    Peer::open(config, 4).expect("the peer opens its sockets")
}

fn at(address: impl Into<IpAddr>) -> Destination {
    Destination { lid: 0, number: 77, psn: 1, address: address.into() }
}

#[test]
fn addresses_of_two_families_are_reported() {
    let words = peer(1).connect(&at(Ipv6Addr::LOCALHOST)).unwrap_err().to_string();
    assert!(words.contains("the peer has ::1 and this side 127.215.") && words.contains("both IPv6"), "{words}");
}

/// The error must contain the kernel's reason, for instance a path MTU that the interface does not accept. The counters
/// alone do not show the reason.
#[test]
fn error_of_the_kernel_is_reported() {
    let mut peer = peer(2);
    // The kernel refuses packets from a loopback address to another network.
    peer.connect(&at([192, 0, 2, 1])).expect("the queue pair connects");
    let request = Request::Send { data: Data::Inline(b"hello"), imm: None };
    peer.endpoint.post_send(peer.qp, &Work::signalled(1, request)).expect("the request is posted");
    let error = peer.completion(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, PeerError::Failed { id: 1, .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains("unsent") && words.contains("refused a packet to 192.0.2.1 ("), "{words}");
}
