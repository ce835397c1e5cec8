//! Tests that a process with unsent packets does not sleep when it waits for an event.

use std::net::Ipv4Addr;
use std::time::Duration;

use stentor_fabric::Span;
use stentor_fabric_roce::driver::Mode;
use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_fabric_roce::peer::{Destination, Peer, PeerConfig};

/// Posts a WRITE of more packets than one call sends. No packet arrives that would wake the process to send the rest,
/// because no process uses the destination address.
#[test]
fn process_with_unsent_packets_does_not_sleep() {
    const BYTES: u32 = 1 << 20;
    let address = |last| Ipv4Addr::new(127, 213, (std::process::id() % 251) as u8, last);
    let mut config = PeerConfig::new(address(1).into());
    (config.mtu, config.mode, config.window) = (256, Some(Mode::Plain), 1 << 16);
    let mut peer = Peer::open(config, 4).expect("the peer opens its sockets");
    let region = peer.endpoint.memory_mut().register(BYTES as usize / 8, 0);
    // No process uses this address.
    peer.connect(&Destination { lid: 0, number: 77, psn: 1, address: address(2).into() })
        .expect("the queue pair connects");
    let data = Data::Region(Span { region, offset: 0, bytes: BYTES });
    let request = Request::Write { data, remote: Remote::default(), imm: None };
    peer.endpoint.post_send(peer.qp, &Work::signalled(1, request)).expect("the request is posted");
    let longest = Duration::from_secs(60);
    loop {
        let before = peer.endpoint.counters().sent;
        peer.pump.send(&mut peer.endpoint);
        let sent = peer.endpoint.counters().sent;
        assert!(sent > before || peer.pump.port().counters().full > 0);
        if sent >= u64::from(BYTES / 256) {
            break;
        }
        let idle = peer.pump.idle(&peer.endpoint, longest);
        assert!(idle < Duration::from_millis(1), "{sent} packets are sent, and the process would sleep for {idle:?}");
    }
}
