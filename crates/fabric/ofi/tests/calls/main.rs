//! Compares the results of the contract's calls on a libfabric provider with recorded results.
//!
//! Two processes run the script of `crates/fabric/net/tests/calls`. `calls.txt` contains their calls and the
//! completions, events and errors that they receive, but not the operations of the provider. If results change on
//! purpose, record them again with `STENTOR_RECORD=1 cargo test -p stentor-fabric-ofi --test calls --
//! --include-ignored` and give the reason in the commit message.

#[path = "../../../net/tests/calls/mod.rs"]
mod calls;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use calls::log;
use calls::script::Script;
use stentor_fabric::ProcessId;
use stentor_fabric_ofi::{NetConfig, OfiConfig, OfiFabric};

/// Port of the control connections.
const TCP_PORT: u16 = 4795;

/// Returns an address of this host that no other test uses.
fn address(process: u8) -> Option<SocketAddr> {
    let second = 64 + (std::process::id() % 128) as u8;
    Some(SocketAddr::new(Ipv4Addr::new(127, second, 77, 1 + process).into(), TCP_PORT))
}

fn start(me: ProcessId) -> OfiFabric {
    let net = NetConfig::new("calls", me, vec![address(0), address(1)]).key(*b"a key of this test");
    let config = OfiConfig {
        providers: vec!["tcp;ofi_rxm".to_owned()],
        // The script waits until a queue pair fails because of this timeout.
        rnr_timeout: Duration::from_millis(100),
        // On a busy machine, a peer that works may confirm a fence slowly.
        fence_timeout: Duration::from_secs(30),
        ..OfiConfig::default()
    };
    OfiFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn results_match_the_recording() {
    let mut script = Script::new(start);
    script.run();
    script.end();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls/calls.txt");
    log::compare(&file, "stentor-fabric-ofi", "calls");
}
