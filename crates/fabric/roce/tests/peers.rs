//! What a peer says when it cannot be one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use stentor_fabric_roce::driver::Mode;
use stentor_fabric_roce::endpoint::{Data, Request, Work};
use stentor_fabric_roce::peer::{Destination, Peer, PeerConfig, PeerError};

fn peer(last: u8) -> Peer {
    let mut config = PeerConfig::new(Ipv4Addr::new(127, 215, (std::process::id() % 251) as u8, last).into());
    config.mode = Some(Mode::Plain);
    Peer::open(config, 4).expect("sockets")
}

fn at(address: impl Into<IpAddr>) -> Destination {
    Destination { lid: 0, number: 77, psn: 1, address: address.into() }
}

#[test]
fn two_families_are_named() {
    let words = peer(1).connect(&at(Ipv6Addr::LOCALHOST)).unwrap_err().to_string();
    assert!(words.contains("::1 is there and 127.215.") && words.contains("both IPv6"), "{words}");
}

/// As with a path MTU that the interface does not take: the counters alone do not say why nothing is heard.
#[test]
fn what_the_kernel_has_against_packets_is_said() {
    let mut peer = peer(2);
    // Nothing goes from here to a network.
    peer.connect(&at([192, 0, 2, 1])).expect("connects");
    let request = Request::Send { data: Data::Inline(b"hello"), imm: None };
    peer.endpoint.post_send(peer.qp, &Work::signalled(1, request)).expect("posts");
    let error = peer.completion(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, PeerError::Failed { id: 1, .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains("unsent") && words.contains("took no packet to 192.0.2.1 ("), "{words}");
}
