//! Tests queue pairs of `fabric-verbs` on the Linux kernel's Soft-RoCE, and the findings of `stentor doctor` there.

mod speed;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use stentor_testutil::TempDir;

use crate::cargo::{Context, run};
use crate::guest::Guest;
use crate::needs::Needs;
use crate::programs;
use crate::roce;
use crate::step::Outcome;

pub(crate) use speed::step as speed;

const TESTED: Needs = Needs {
    things: &["ip", "tc", "rdma", "busybox", "rxe.driver", "valgrind"],
    sources: &["crates/fabric/verbs/tests", "crates/bin/cli/tests/guests/doctor.sh", "xtask/src/verbs/mod.rs"],
};
const DEMOS: Needs = Needs {
    things: &["ip", "rdma", "busybox", "rxe.driver"],
    sources: &[
        "crates/bin/cli/tests/guests/demos.sh",
        "crates/bin/cli/tests/guests/run.sh",
        "crates/bin/cli/tests/guests/guest.sh",
        "crates/fabric/verbs/tests/device.sh",
    ],
};

/// All lists of needs of these steps. A test compares them with the programs that scripts and tests call.
#[cfg(test)]
pub(crate) const NEEDS: [&Needs; 3] = [&TESTED, &DEMOS, &speed::NEEDS];

/// The doctor's text about the guest's only device: see `device.sh`.
const TAKEN: &str = "it would use rxe0 port 1, GID 1 RoCE v2 10.0.0.1 on d0";
/// The doctor's text about the ordering that the device guarantees.
const GRANTED: &str = "the bytes of a WRITE land in any order";
/// The doctor's texts for a user who may not open the device, and for a user who may not lock memory: see `doctor.sh`.
const HINDERED: [(&str, &str); 2] = [
    ("closed.json", "allow this user /dev/infiniband/uverbs*"),
    ("unlocked.json", "raise the limit of locked memory (ulimit -l"),
];

/// The tests that need a device, with the script that sets up the guest for each.
const TESTS: [(&str, &str); 6] = [
    ("rxe", "guest.sh"),
    ("kills", "guest.sh"),
    ("rounds", "guest.sh"),
    ("fence", "guest.sh"),
    ("locked", "guest.sh"),
    ("vanish", "guest.sh"),
];
/// The tests of the conformance suite, which take as long as all other tests together.
const CONFORMANCE: [(&str, &str); 2] = [("conformance", "guest.sh"), ("interop", "interop.sh")];

/// The test of every operation, which runs under valgrind.
const CHECKED: &str = "rxe";
/// A test in the file of [`CHECKED`] that makes faults on purpose, and the names of its faults. Valgrind must report
/// each of them.
const PLANTED: (&str, [&str; 2]) = ("faults_that_valgrind_must_report", ["overrun", "leak"]);
/// The exit code of valgrind when it has found a fault.
const SEEN: i32 = 9;

/// Returns valgrind's command line. Valgrind reports memory of the tested process, of libibverbs and of its provider
/// that is used out of bounds, used after it was freed, or leaked. Uses of undefined bytes are not reported, because
/// the bytes that the kernel writes count as undefined.
fn memcheck(context: &Context) -> String {
    let known = context.root.join("crates/fabric/verbs/tests/valgrind.supp");
    let leaks = "--leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite";
    format!("valgrind --undef-value-errors=no {leaks} --error-exitcode={SEEN} --suppressions={}", known.display())
}

/// Checks that valgrind, run as in the guest, reports each planted fault, and reports nothing without one.
fn sees_planted(context: &Context, test: &Path) -> Result<()> {
    let (name, faults) = PLANTED;
    for fault in faults.into_iter().chain([""]) {
        let line = format!("{} '{}' --ignored --exact {name}", memcheck(context), test.display());
        let status = Command::new("sh").args(["-c", &line]).env("STENTOR_PLANTED", fault).status()?;
        let wanted = if fault.is_empty() { 0 } else { SEEN };
        ensure!(status.code() == Some(wanted), "planted `{fault}`: valgrind ended with {status}, not {wanted}");
    }
    println!("valgrind reports the planted faults: {}", faults.join(", "));
    Ok(())
}

/// Runs the doctor and the tests that need a device, except for the conformance suite.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let guest = Guest::ready(context, &TESTED)?;
    let work = TempDir::new();
    in_guests(context, &guest, &TESTS, &work)?;
    let set = format!("STENTOR='{}'", programs::stentor(context)?.display());
    roce::in_guest(context, &guest, "crates/bin/cli/tests/guests/doctor.sh", &work, &set)?;
    doctor(&work)?;
    Ok(Outcome::Passed)
}

/// Runs the conformance suite on verbs, and between verbs and `fabric-roce`.
pub(crate) fn conformance(context: &Context) -> Result<Outcome> {
    let guest = Guest::ready(context, &TESTED)?;
    let work = TempDir::new();
    in_guests(context, &guest, &CONFORMANCE, &work)?;
    Ok(Outcome::Passed)
}

/// Runs tests in guests that have a device, each test in a separate guest.
fn in_guests(context: &Context, guest: &Guest, tests: &[(&str, &str)], work: &Path) -> Result<()> {
    for (name, script) in tests {
        let test = programs::test_program(context, "fabric/verbs", name)?;
        if *name == CHECKED {
            sees_planted(context, &test)?;
        }
        let under = if *name == CHECKED { memcheck(context) } else { String::new() };
        let set = format!("TEST='{}' UNDER='{under}'", test.display());
        let start = Instant::now();
        let script = format!("crates/fabric/verbs/tests/{script}");
        let ran = roce::in_guest(context, guest, &script, work, &set);
        println!("{name}: the guest took {:.1} s", start.elapsed().as_secs_f64());
        ran?;
    }
    Ok(())
}

/// The runs of a cluster over several guests in which a guest loses its link or its power for a while: the number of
/// guests, the affected guest, the fault, and whether a switch copies the client's writes.
const CUTS: [(&str, &str, &str, &str); 3] = [("2", "2", "cut", "switch"), ("3", "1", "cut", ""), ("3", "1", "off", "")];
/// Number of messages of the cluster over several guests.
const MESSAGES: &str = "150";

/// Runs the demos in one guest, and then multicast over the devices of several guests that a bridge joins.
pub(crate) fn guests(context: &Context) -> Result<Outcome> {
    let guest = Guest::ready(context, &DEMOS)?;
    let stentor = programs::stentor(context)?;
    let work = TempDir::new();
    let set = format!("STENTOR='{}'", stentor.display());
    roce::in_guest(context, &guest, "crates/bin/cli/tests/guests/demos.sh", &work, &set)?;
    let script = context.root.join("crates/bin/cli/tests/guests/run.sh");
    for (guests, cut, how, switch) in CUTS {
        let mut command = guest.command("unshare");
        command.args(["-rnpf", "--mount-proc", "--kill-child"]).arg(&script).arg(guest.folder()).arg(&stentor);
        run(command.args(["verbs", guests, cut, MESSAGES, how, switch]))?;
    }
    Ok(Outcome::Passed)
}

/// Checks that the doctor has found library, device and port, and would use the right GID. Also checks that it names
/// the obstacle for a user who may not use the device.
fn doctor(work: &Path) -> Result<()> {
    let document = |name: &str| -> Result<Value> {
        let text = fs::read_to_string(work.join(name)).with_context(|| format!("the doctor left no {name}"))?;
        serde_json::from_str(&text).with_context(|| format!("the doctor's {name}"))
    };
    judge(&document("all.json")?)?;
    for (name, remedy) in HINDERED {
        judge_hindered(&document(name)?, remedy).with_context(|| name)?;
    }
    Ok(())
}

fn judge_hindered(document: &Value, remedy: &str) -> Result<()> {
    let verbs = &document["fabrics"]["verbs"];
    let why = verbs["why"].as_str().unwrap_or_default();
    if verbs["available"] != false || !why.contains(remedy) {
        bail!("the doctor should report verbs as unavailable because of `{remedy}`, but reports `{verbs}`");
    }
    println!("doctor, verbs: {why}");
    Ok(())
}

fn judge(document: &Value) -> Result<()> {
    let findings = document["findings"].as_array().context("the doctor's document has no findings")?;
    for what in ["libibverbs", "RDMA modules", "RDMA device", "RDMA port"] {
        if !findings.iter().any(|finding| finding["what"] == what && finding["state"] == "ok") {
            bail!("the doctor does not find: {what}");
        }
    }
    let why = document["fabrics"]["verbs"]["why"].as_str().unwrap_or_default();
    for told in [TAKEN, GRANTED] {
        if !why.contains(told) {
            bail!("the doctor's text about verbs lacks `{told}`: `{why}`");
        }
    }
    println!("doctor, verbs: {why}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_findings_of_the_doctor_are_detected() {
        let found = |what: &str| json!({"what": what, "state": "ok"});
        let all = ["libibverbs", "RDMA modules", "RDMA device", "RDMA port"].map(found);
        let said =
            |findings: &[Value], why: &str| judge(&json!({"findings": findings, "fabrics": {"verbs": {"why": why}}}));
        let why = format!("{TAKEN}; {GRANTED}");
        assert!(said(&all, &why).is_ok());
        assert!(said(&all, TAKEN).unwrap_err().to_string().contains(GRANTED));
        assert!(said(&all, GRANTED).unwrap_err().to_string().contains("GID 1"));
        assert!(said(&all[..3], &why).unwrap_err().to_string().contains("RDMA port"));
        assert!(judge(&json!({})).is_err());
        let hindered = |available: bool| {
            judge_hindered(&json!({"fabrics": {"verbs": {"available": available, "why": "do so"}}}), "do so")
        };
        assert!(hindered(false).is_ok() && hindered(true).is_err() && judge_hindered(&json!({}), "do so").is_err());
    }
}
