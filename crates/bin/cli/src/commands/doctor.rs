//! `stentor doctor`: the capabilities of this machine, and the fabrics that work here.

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
    /// The path that data would take; `None` if the fabric is not available.
    path: Option<String>,
    why: String,
}

/// Runs the command. The exit code is 1 if `shm` does not work here. The other fabrics may be missing, because a
/// cluster on one host does not need them.
pub(super) fn run(output: Output) -> Result<Verdict, Failure> {
    let findings = machine::findings();
    let fabrics = fabrics(&findings);
    let usable = fabrics["shm"].available;
    output.conclude(&Diagnosis { findings, fabrics }, Verdict::of(usable))
}

fn fabrics(findings: &[Finding]) -> BTreeMap<&'static str, FabricState> {
    let takes = |path: &str, (available, why): (bool, String)| FabricState {
        available,
        path: available.then(|| path.to_owned()),
        why,
    };
    let sim = takes("one thread, no input or output", (true, "needs nothing".to_owned()));
    let path = "libfabric, by endpoints of a provider; TCP at the address of each process";
    let ofi = takes(path, machine::ofi_would_take());
    let path = "libibverbs, by the queue pairs of an RDMA device; TCP at the address of each process";
    let verbs = takes(path, machine::verbs_would_take());
    // Each process uses port 4791 at its own address, which is not known here. The test therefore binds any port.
    let roce = match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(_) => (true, "a UDP socket was made here".to_owned()),
        Err(error) => (false, format!("no UDP socket can be made: {error}")),
    };
    let roce = takes("UDP sockets, port 4791 at the address of each process", roce);
    let sockets = machine::runtime_directory();
    let path = format!("stores into sealed memfd mappings; sockets in {}", sockets.display());
    let shm = takes(&path, shm(findings));
    BTreeMap::from([("sim", sim), ("shm", shm), ("roce", roce), ("verbs", verbs), ("ofi", ofi)])
}

/// Returns whether shared memory works here, and why.
fn shm(findings: &[Finding]) -> (bool, String) {
    let missing: Vec<_> = findings.iter().filter(|finding| finding.state == State::Missing).collect();
    if missing.is_empty() {
        return (true, "a process was started on it here".to_owned());
    }
    let why: Vec<_> = missing.iter().map(|finding| format!("{}: {}", finding.what, finding.detail)).collect();
    (false, why.join("; "))
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
