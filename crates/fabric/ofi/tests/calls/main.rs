//! What two processes get from the contract on a provider of libfabric is as it was recorded.
//!
//! They go through the script of `crates/fabric/net/tests/calls`. `calls.txt` has what they call, and the completions, events and
//! errors that they get; what the provider is asked for is not in there. Whoever changes results on purpose records them anew with
//! `STENTOR_RECORD=1 cargo test -p stentor-fabric-ofi --test calls -- --include-ignored`, and says in the commit why.

#[path = "../../../net/tests/calls/mod.rs"]
mod calls;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use calls::log;
use calls::script::Script;
use stentor_fabric::ProcessId;
use stentor_fabric_ofi::{NetConfig, OfiConfig, OfiFabric};

/// The port of the connections over which processes meet.
const TCP_PORT: u16 = 4795;

/// Addresses of this host that no other test has.
fn address(process: u8) -> Option<SocketAddr> {
    let second = 64 + (std::process::id() % 128) as u8;
    Some(SocketAddr::new(Ipv4Addr::new(127, second, 77, 1 + process).into(), TCP_PORT))
}

fn start(me: ProcessId) -> OfiFabric {
    let net = NetConfig::new("calls", me, vec![address(0), address(1)]).key(*b"a key of this test");
    let config = OfiConfig {
        providers: vec!["tcp;ofi_rxm".to_owned()],
        // The script waits for a queue pair that gives up.
        rnr_timeout: Duration::from_millis(100),
        // A machine that does something else at the same time is slow, not silent.
        fence_timeout: Duration::from_secs(30),
        ..OfiConfig::default()
    };
    OfiFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn results_are_as_recorded() {
    let mut script = Script::new(start);
    script.run();
    script.end();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls/calls.txt");
    log::compare(&file, "stentor-fabric-ofi", "calls");
}
