//! Tests `fabric-ofi` on the providers of libfabric that work between processes of one host.

mod cat;
mod speed;

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::campaign::{Demo, shown_but, stentor};
use crate::cargo::{Context, run};
use crate::needs::Needs;
use crate::programs;
use crate::step::Outcome;
pub(crate) use cat::long;
pub(crate) use speed::step as speed;

/// The library and the programs that the steps on libfabric need, and the programs that create devices for their tests.
pub(crate) const NEEDS: Needs = Needs {
    things: &["libfabric.so.1", "fi_info", "fi_pingpong", "ip"],
    sources: &[
        "crates/fabric/ofi/tests",
        "crates/protocol/channel/tests/fabric/ofi.rs",
        "crates/bin/cli/tests/cli/ofi.rs",
        "crates/stentor/tests/library/ofi.rs",
        "crates/bin/bench/src/channel/pingpong.rs",
        "xtask/src/ofi",
    ],
};
/// Tests that need the library. The fields are the crate's folder, the test program, and further arguments. In programs
/// that also have other tests, the argument `ofi::` selects those that need the library.
const TESTS: [(&str, &str, &[&str]); 9] = [
    ("fabric/ofi", "calls", &[]),
    ("fabric/ofi", "conformance", &["--nocapture"]),
    ("fabric/ofi", "devices", &["--nocapture"]),
    ("fabric/ofi", "processes", &["--nocapture"]),
    ("fabric/ofi", "providers", &["--nocapture"]),
    ("fabric/ofi", "signals", &["--nocapture"]),
    ("protocol/channel", "fabric", &["ofi::"]),
    ("stentor", "library", &["ofi::"]),
    ("bin/cli", "cli", &["ofi::"]),
];
/// The providers of the demonstrations, and the option that restricts a provider.
const DEMOS: [(&str, Option<&str>); 5] = [
    ("tcp;ofi_rxm", None),
    ("shm", None),
    ("udp;ofi_rxd", None),
    ("tcp;ofi_rxm", Some("--as-efa")),
    ("udp;ofi_rxd", Some("--as-efa=efa-direct")),
];

/// Runs the tests that need the library, the demonstrations, and a transfer of a file of 1 GiB between two processes.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    for (folder, name, part) in TESTS {
        let command = || {
            programs::test(context, folder, name).map(|mut command| {
                command.args(part).arg("--include-ignored");
                command
            })
        };
        programs::ensure_some(&mut command()?)?;
        run(&mut command()?)?;
    }
    demos(context)?;
    cat::file(context)?;
    Ok(Outcome::Passed)
}

/// Runs demonstrations on each provider and checks every property. The demonstrations have real processes, and a leader
/// that is killed and restarted (not on the provider `shm`), or a Byzantine process.
fn demos(context: &Context) -> Result<()> {
    for (provider, restricted) in DEMOS {
        for more in [&["--groups", "1", "--messages-limit", "400"][..], &["--neb", "--messages-limit", "100"]] {
            let start = Instant::now();
            // A killed process may hold a lock in the memory that this provider shares. The other processes would then
            // wait for ever.
            let spared: &[&str] = if provider == "shm" && more[0] != "--neb" { &["--no-kill"] } else { &[] };
            let first = &["demo", "--json", "--fabric", "ofi", "--provider", provider][..];
            let arguments = [first, more, spared, restricted.as_slice()].concat();
            let (good, found): (_, Demo) = stentor(context, &arguments)?;
            // Without a kill no process returns, so M11 is not checked.
            shown_but(&found, if spared.is_empty() { &[] } else { &["M11"] })?;
            ensure!(good, "every property held, but the demonstration failed");
            let carrier = found.carrier.unwrap_or_default();
            ensure!(carrier.contains(&format!("provider {provider} ")), "the demonstration ran on {carrier:?}");
            ensure!(
                carrier.contains("restricted as EFA") == restricted.is_some(),
                "the demonstration ran on {carrier:?}"
            );
            let (deliveries, properties) = (found.deliveries, found.properties.len());
            let seconds = start.elapsed().as_secs_f64();
            println!("{carrier}: {deliveries} deliveries, {properties} properties ok, {seconds:.1} s");
        }
    }
    Ok(())
}
