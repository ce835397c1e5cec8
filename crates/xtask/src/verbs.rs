//! Queue pairs of `fabric-verbs` on the Linux kernel's Soft-RoCE, and what `stentor doctor` says there.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::cargo::Context;
use crate::roce;
use crate::runner::Outcome;

/// What the guest's one device is: see `guest.sh`.
const TAKEN: &str = "it would take rxe0 port 1, GID 1 RoCE v2 10.0.0.1 on d0";

/// Runs the tests that need a device in a guest that has one.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    roce::programs()?;
    let rxe = roce::rxe(context)?;
    let stentor = roce::executable(context, &["build", "-p", "stentor-cli", "--bin", "stentor"])?;
    let test = roce::executable(context, &["test", "--no-run", "-p", "stentor-fabric-verbs", "--test", "rxe"])?;
    let work = roce::work_folder("verbs")?;
    let set = format!("TEST='{}' STENTOR='{}'", test.display(), stentor.display());
    let start = Instant::now();
    let ran = roce::in_guest(context, &rxe, "crates/fabric-verbs/tests/guest.sh", &work, &set);
    println!("the guest took {:.1} s", start.elapsed().as_secs_f64());
    let told = ran.and_then(|()| doctor(&work.join("doctor.json")));
    fs::remove_dir_all(&work)?;
    told.map(|()| Outcome::Passed)
}

/// The doctor has found library, device and port, and would take the right GID.
fn doctor(file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).context("the doctor left nothing")?;
    judge(&serde_json::from_str(&text).context("the doctor's document")?)
}

fn judge(document: &Value) -> Result<()> {
    let findings = document["findings"].as_array().context("the doctor's document has no findings")?;
    for what in ["libibverbs", "RDMA modules", "RDMA device", "RDMA port"] {
        if !findings.iter().any(|finding| finding["what"] == what && finding["state"] == "ok") {
            bail!("the doctor does not find: {what}");
        }
    }
    let why = document["fabrics"]["verbs"]["why"].as_str().unwrap_or_default();
    if !why.contains(TAKEN) {
        bail!("of verbs the doctor says `{why}`, not `{TAKEN}`");
    }
    println!("doctor, verbs: {why}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_doctor_that_misses_something_is_seen() {
        let found = |what: &str| json!({"what": what, "state": "ok"});
        let all = ["libibverbs", "RDMA modules", "RDMA device", "RDMA port"].map(found);
        let said =
            |findings: &[Value], why: &str| judge(&json!({"findings": findings, "fabrics": {"verbs": {"why": why}}}));
        assert!(said(&all, TAKEN).is_ok());
        assert!(said(&all, "it would take rxe0 port 1, GID 0").unwrap_err().to_string().contains("GID 1"));
        assert!(said(&all[..3], TAKEN).unwrap_err().to_string().contains("RDMA port"));
        assert!(judge(&json!({})).is_err());
    }
}
