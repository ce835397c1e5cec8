//! `stentor doctor`: what this machine can do, and which fabrics work here.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, UdpSocket};

use serde::Serialize;
use stentor_support::{Failure, Human, Output, Style, Verdict};

use crate::machine::{self, Finding, State};

#[derive(Serialize)]
struct Diagnosis {
    findings: Vec<Finding>,
    fabrics: BTreeMap<&'static str, FabricState>,
}

#[derive(Serialize)]
struct FabricState {
    available: bool,
    /// The way that data would really take; none when it is not available.
    path: Option<String>,
    why: String,
}

/// Exit code 1 only when `shm` does not work here: everything else has a fabric to fall back to by configuration.
pub(super) fn run(output: Output) -> Result<Verdict, Failure> {
    let findings = machine::findings();
    let fabrics = fabrics(&findings);
    let usable = fabrics["shm"].available;
    output.report(&Diagnosis { findings, fabrics })?;
    Ok(Verdict::of(usable))
}

fn fabrics(findings: &[Finding]) -> BTreeMap<&'static str, FabricState> {
    let state = |available: bool, path: Option<&str>, why: String| FabricState {
        available,
        path: path.map(str::to_owned),
        why,
    };
    let sim = state(true, Some("one thread, no input or output"), "needs nothing".to_owned());
    let (ofi, why) = machine::ofi_would_take();
    let path = "libfabric, by endpoints of a provider; TCP at the address of each process";
    let ofi = state(ofi, ofi.then_some(path), why);
    let (verbs, why) = machine::verbs_would_take();
    let path = "libibverbs, by the queue pairs of an RDMA device; TCP at the address of each process";
    let verbs = state(verbs, verbs.then_some(path), why);
    BTreeMap::from([("sim", sim), ("shm", shm(findings)), ("roce", roce()), ("verbs", verbs), ("ofi", ofi)])
}

/// Each process takes the port at an address of its own, which only its configuration names: here any port is tried.
fn roce() -> FabricState {
    match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(_) => FabricState {
            available: true,
            path: Some("UDP sockets, port 4791 at the address of each process".to_owned()),
            why: "a UDP socket was made here".to_owned(),
        },
        Err(error) => FabricState { available: false, path: None, why: format!("no UDP socket can be made: {error}") },
    }
}

fn shm(findings: &[Finding]) -> FabricState {
    let missing: Vec<_> = findings.iter().filter(|finding| finding.state == State::Missing).collect();
    if missing.is_empty() {
        let directory = machine::runtime_directory();
        let path = format!("stores into sealed memfd mappings; sockets in {}", directory.display());
        return FabricState { available: true, path: Some(path), why: "a process of it was started here".to_owned() };
    }
    let why = missing.iter().map(|finding| format!("{}: {}", finding.what, finding.detail)).collect::<Vec<_>>();
    FabricState { available: false, path: None, why: why.join("; ") }
}

impl Human for Diagnosis {
    fn human(&self, style: Style) -> String {
        let mut text = String::new();
        for Finding { what, state, detail, remedy } in &self.findings {
            let state = match state {
                State::Ok => style.good("ok     "),
                State::Info => "info   ".to_owned(),
                State::Limited => style.fair("limited"),
                State::Missing => style.bad("missing"),
            };
            let _ = writeln!(text, "{state}  {what:24} {detail}");
            if let Some(remedy) = remedy {
                let _ = writeln!(text, "{:35}remedy: {remedy}", "");
            }
        }
        text.push_str("\nfabrics\n");
        for (name, FabricState { available, path, why }) in &self.fabrics {
            let state = if *available { style.good("available  ") } else { style.bad("unavailable") };
            let path = path.as_deref().map_or(String::new(), |path| format!("{path}; "));
            let _ = writeln!(text, "  {name:6} {state}  {path}{why}");
        }
        text
    }
}
