//! `fabric-ofi` on the providers of libfabric that work between processes of one host.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::campaign::{Demo, shown_but, stentor};
use crate::cargo::{Context, capture, run};
use crate::programs;
use crate::roce::{has, work_folder};
use crate::runner::Outcome;

/// The library, and `fi_info` and `fi_pingpong`, as Debian names them.
const PACKAGES: [&str; 2] = ["libfabric1", "libfabric-bin"];
const INSTALL: [&str; 4] = ["install", "-y", "-qq", "--no-install-recommends"];
/// Tests that need the library, and of other crates' the part that does.
const TESTS: [(&str, &str, &[&str]); 6] = [
    ("fabric-ofi", "conformance", &["--nocapture"]),
    ("fabric-ofi", "processes", &["--nocapture"]),
    ("fabric-ofi", "providers", &["--nocapture"]),
    ("fabric-ofi", "signals", &["--nocapture"]),
    ("channel", "fabric", &["ofi::"]),
    ("cli", "cli", &["ofi::"]),
];
/// What the demonstrations run on, and as what.
const DEMOS: [(&str, Option<&str>); 5] = [
    ("tcp;ofi_rxm", None),
    ("shm", None),
    ("udp;ofi_rxd", None),
    ("tcp;ofi_rxm", Some("--as-efa")),
    ("udp;ofi_rxd", Some("--as-efa=efa-direct")),
];
/// Where the two sides of a transfer meet, and on what.
const PLACE: &str = "127.0.0.1:7397";
const CAT: &str = "tcp;ofi_rxm";
/// Bytes of the file.
const CAT_BYTES: u64 = 1 << 30;

/// Installs what is missing, if this is root on a Debian; otherwise says what to install.
pub(crate) fn programs() -> Result<()> {
    let folders = [format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH), "/usr/lib64".into(), "/usr/lib".into()];
    let library = folders.iter().any(|folder| Path::new(folder).join("libfabric.so.1").exists());
    if library && has("fi_info") {
        return Ok(());
    }
    let remedy = format!("apt-get install --no-install-recommends {}", PACKAGES.join(" "));
    let (_, user) = capture(Command::new("id").arg("-u"))?;
    if user.trim() != "0" || !has("apt-get") {
        bail!("libfabric.so.1 or fi_info is not installed; run: {remedy}");
    }
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(INSTALL).args(PACKAGES))?;
    if has("fi_info") { Ok(()) } else { bail!("still not there: fi_info; run: {remedy}") }
}

/// Runs the tests that need the library, the demonstrations, and a file of a gibibyte from one process to another.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    programs()?;
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
    cat(context, CAT_BYTES)?;
    Ok(Outcome::Passed)
}

/// Real processes, a leader that is killed and comes back, a process that lies: every property, on each provider.
fn demos(context: &Context) -> Result<()> {
    for (provider, restricted) in DEMOS {
        for more in [&["--groups", "1", "--messages-limit", "400"][..], &["--neb", "--messages-limit", "100"]] {
            let start = Instant::now();
            // Who is killed may have a lock in the memory that this provider shares, and then the others wait for ever.
            let spared: &[&str] = if provider == "shm" && more[0] != "--neb" { &["--no-kill"] } else { &[] };
            let first = &["demo", "--json", "--fabric", "ofi", "--provider", provider][..];
            let arguments = [first, more, spared, restricted.as_slice()].concat();
            let (good, found): (_, Demo) = stentor(context, &[], &arguments)?;
            // Nobody comes back who was not killed.
            shown_but(&found, if spared.is_empty() { &[] } else { &["M11"] })?;
            ensure!(good, "the demonstration was sound but failed");
            let carrier = found.carrier.unwrap_or_default();
            ensure!(carrier.contains(&format!("provider {provider} ")), "it ran on {carrier:?}");
            ensure!(carrier.contains("restricted as EFA") == restricted.is_some(), "it ran on {carrier:?}");
            let (deliveries, properties) = (found.deliveries, found.properties.len());
            let seconds = start.elapsed().as_secs_f64();
            println!("{carrier}: {deliveries} deliveries, {properties} properties ok, {seconds:.1} s");
        }
    }
    Ok(())
}

/// One file through `stentor channel cat`.
fn cat(context: &Context, bytes: u64) -> Result<()> {
    let program = programs::stentor(context)?;
    let work = work_folder("cat")?;
    let (file, copy) = (work.join("file"), work.join("copy"));
    write(&file, bytes)?;
    let side = |more: &[&str], path: &Path| -> Result<Child> {
        let mut command = Command::new(&program);
        command.args(["channel", "cat", PLACE, "--fabric", "ofi", "--provider", CAT, "--json"]).args(more).arg(path);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
    };
    let listener = side(&["--listen", "--output"], &copy)?;
    let sender = side(&["--input"], &file)?;
    let [sent, received] = [sender, listener].map(report);
    let (sent, received) = (sent?, received?);
    ensure!(sent["bytes"] == bytes && received["bytes"] == bytes, "{sent} {received}");
    ensure!(sent["sha256"] == received["sha256"] && sent["sha256"].is_string(), "{sent} {received}");
    run(Command::new("cmp").args([&file, &copy]))?;
    println!("{bytes} bytes over {}: {:.1} s, {:.0} MB/s", sent["carrier"], sent["seconds"], sent["mb_per_s"]);
    std::fs::remove_dir_all(&work)?;
    Ok(())
}

/// What a side says at the end.
fn report(side: Child) -> Result<Value> {
    let output = side.wait_with_output()?;
    ensure!(output.status.success(), "`stentor channel cat` ended with {}; its message is above", output.status);
    serde_json::from_slice(&output.stdout).context("the document of `stentor channel cat`")
}

/// A file no two kilobytes of which are equal.
fn write(path: &Path, bytes: u64) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    // George Marsaglia's xorshift.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..bytes / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    file.flush()?;
    Ok(())
}
