//! RoCEv2 against other implementations: the Linux kernel's Soft-RoCE as the peer, Wireshark's dissector, and fuzzing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use stentor_testutil::TempDir;

use crate::cargo::{Context, capture, run};
use crate::guest::Guest;
use crate::needs::Needs;
use crate::programs::{self, executable};
use crate::step::Outcome;

/// The programs and headers that are needed to build and run the peer's programs.
const PEER: Needs = Needs {
    things: &["gcc", "stdio.h", "infiniband/verbs.h", "ip", "rdma", "busybox", "ibv_rc_pingpong", "rxe.driver"],
    sources: &[
        "crates/fabric/roce/tests/peer",
        "crates/fabric/roce/tests/real_peer.rs",
        "crates/fabric/roce/examples/beside_kernel",
        "xtask/src/roce.rs",
    ],
};
const NAMESPACES: Needs = Needs {
    things: &["ip"],
    sources: &[
        "crates/bin/cli/tests/namespaces/hosts.sh",
        "crates/bin/cli/tests/namespaces/run.sh",
        "crates/bin/cli/tests/namespaces/partial.sh",
        "crates/bin/cli/tests/namespaces/interfaces.sh",
        "crates/bin/cli/tests/namespaces/mtu.sh",
    ],
};
const SWITCH: Needs = Needs {
    things: &["gcc", "stdio.h", "infiniband/verbs.h", "ip", "rdma", "busybox", "rxe.driver", "tshark"],
    sources: &[
        "crates/switch/soft-switch/tests/kernel",
        "crates/switch/soft-switch/tests/kernel.rs",
        "crates/switch/soft-switch/tests/capture",
        "crates/bin/cli/tests/guests/sets.sh",
        "crates/fabric/verbs/tests/sets.rs",
    ],
};
const TSHARK: Needs = Needs {
    things: &["tshark"],
    sources: &[
        "crates/fabric/roce/tests/tshark.rs",
        "crates/switch/soft-switch/tests/tshark.rs",
        "crates/switch/soft-switch/tests/capture",
    ],
};

/// All lists of needs of these steps. A test compares them with the programs that scripts and tests call.
#[cfg(test)]
pub(crate) const NEEDS: [&Needs; 4] = [&PEER, &NAMESPACES, &SWITCH, &TSHARK];

/// Duration of each fuzz target, in seconds.
const FUZZ_SECONDS: &str = "15";

/// Runs the stock ping-pong and a test program on the kernel's Soft-RoCE, as peers of the RoCEv2 endpoint.
pub(crate) fn peer(context: &Context) -> Result<Outcome> {
    let guest = Guest::ready(context, &PEER)?;
    let (stentor, test) = (programs::stentor(context)?, programs::test_program(context, "fabric/roce", "real_peer")?);
    let script = context.root.join("crates/fabric/roce/tests/peer/run.sh");
    run(guest.command("unshare").arg("-rn").arg(script).arg(guest.folder()).arg(stentor).arg(test))?;
    golden(context, &guest)?;
    Ok(Outcome::Passed)
}

/// Captures the packets that the kernel sends to itself for atomics and on unreliable connections, and compares the
/// packets of `fabric-roce` with them.
fn golden(context: &Context, guest: &Guest) -> Result<()> {
    let work = TempDir::new();
    let source = context.root.join("crates/fabric/roce/tests/peer/golden.c");
    run(Command::new("gcc").arg(source).args(["-O1", "-Wall"]).arg("-o").arg(work.join("golden")).arg("-libverbs"))?;
    in_guest(context, guest, "crates/fabric/roce/tests/peer/golden.sh", &work, "")?;
    run(programs::test(context, "fabric/roce", "endpoint")?.arg("golden::").env("STENTOR_GOLDEN", &work))?;
    Ok(())
}

/// Time after which a guest counts as hung, in seconds. It is three times the longest run on a slow machine.
const GUEST_SECONDS: &str = "900";

/// Runs a script of the repository, `NAME.sh`, in a guest. The guest leaves `NAME.log` in the work folder. The script
/// receives that folder as `WORK` and its own folder as `HERE`.
pub(crate) fn in_guest(context: &Context, guest: &Guest, path: &str, work: &Path, more: &str) -> Result<()> {
    let path = context.root.join(path);
    let peer = path.parent().unwrap_or(Path::new("/"));
    let set = format!("export WORK='{}' HERE='{}' {more}\n", work.display(), peer.display());
    let text = fs::read_to_string(&path)?;
    let script = work.join("script.sh");
    fs::write(&script, set + &text)?;
    let (good, console) = capture(guest.boot(&script).env("UML_TIMEOUT", GUEST_SECONDS))?;
    let name = path.with_extension("log");
    let log = name.file_name().map(|name| work.join(name)).unwrap_or_default();
    print!("{}", fs::read_to_string(log).unwrap_or_default());
    if !good {
        print!("{console}");
        bail!("the guest of {} failed: its output is above", path.display());
    }
    Ok(())
}

/// Number of rounds of each measurement in the guest.
const ROUNDS: usize = 5;

/// Measures the endpoint of `fabric-roce` and the kernel's Soft-RoCE in one guest.
pub(crate) fn beside_kernel(context: &Context) -> Result<Outcome> {
    let guest = Guest::ready(context, &PEER)?;
    let example = ["build", "--release", "-p", "stentor-fabric-roce", "--example", "beside_kernel"];
    let program = executable(&mut context.cargo(example), "crates/fabric/roce", "beside_kernel")?;
    let peer = context.root.join("crates/fabric/roce/tests/peer");
    let work = TempDir::new();
    let compile = ["-O2", "-Wall", "-shared", "-fPIC", "-libverbs"];
    run(Command::new("gcc").arg(peer.join("shim.c")).args(compile).arg("-o").arg(work.join("shim.so")))?;
    in_guest(
        context,
        &guest,
        "crates/fabric/roce/tests/peer/beside.sh",
        &work,
        &format!("PROGRAM='{}' ROUNDS={ROUNDS}", program.display()),
    )?;
    Ok(Outcome::Passed)
}

/// Number of lines that are multicast between namespaces.
const LINES: &str = "1000";

/// Runs a cluster in three network namespaces: on a good network, on one that loses packets, with links cut in one
/// direction and in both, with two interfaces in each namespace, and with links that carry only short packets.
pub(crate) fn namespaces(context: &Context) -> Result<Outcome> {
    NAMESPACES.ensure()?;
    let stentor = programs::stentor(context)?;
    let script = context.root.join("crates/bin/cli/tests/namespaces/run.sh");
    for network in [&[][..], &["--drop-chance", "0.01"]] {
        run(Command::new("unshare").arg("-rnm").arg(&script).arg(&stentor).arg(LINES).args(network))?;
    }
    for script in ["partial.sh", "interfaces.sh", "mtu.sh"] {
        let script = context.root.join("crates/bin/cli/tests/namespaces").join(script);
        run(Command::new("unshare").arg("-rnm").arg(&script).arg(&stentor))?;
    }
    Ok(Outcome::Passed)
}

/// Number of lines that are multicast with the switch and without it.
const COPIED_LINES: &str = "60";

/// Tests the software switch between the RoCEv2 endpoint and queue pairs of a guest's kernel, and then fan-out sets of
/// processes on `verbs`.
pub(crate) fn switch_guests(context: &Context) -> Result<Outcome> {
    let guest = Guest::ready(context, &SWITCH)?;
    let test = programs::test_program(context, "switch/soft-switch", "kernel")?;
    let script = context.root.join("crates/switch/soft-switch/tests/kernel/run.sh");
    run(guest.command("unshare").arg("-rn").arg(script).arg(guest.folder()).arg(test))?;
    let test = programs::test_program(context, "fabric/verbs", "sets")?;
    let stentor = programs::stentor(context)?;
    let set = format!("TEST='{}' STENTOR='{}' LINES={COPIED_LINES}", test.display(), stentor.display());
    let work = TempDir::new();
    in_guest(context, &guest, "crates/bin/cli/tests/guests/sets.sh", &work, &set)?;
    Ok(Outcome::Passed)
}

/// Checks Wireshark's dissection of a capture of every operation.
pub(crate) fn tshark(context: &Context) -> Result<Outcome> {
    TSHARK.ensure()?;
    run(context.test(&["tshark"]).args(["--", "--ignored"]))?;
    Ok(Outcome::Passed)
}

/// Runs the fuzz targets: mutated packets and an adversary.
pub(crate) fn fuzz(context: &Context) -> Result<Outcome> {
    fuzz_for(context, FUZZ_SECONDS)
}

/// Runs the fuzz targets of each crate for this time.
pub(crate) fn fuzz_for(context: &Context, seconds: &str) -> Result<Outcome> {
    for folder in ["fabric/wire", "fabric/roce", "switch/dataplane", "switch/soft-switch"] {
        let mut command = programs::test(context, folder, "fuzz")?;
        run(command.arg("--nocapture").env("STENTOR_FUZZ_SECONDS", seconds))?;
    }
    Ok(Outcome::Passed)
}
