//! The client that may be killed. It joins, multicasts until its standard input ends, and waits for its outstanding
//! messages. After its first multicast it reports that it has joined.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stentor::runtime::{ClusterFabric, ClusterRuntime, Stop};
use stentor::with_fabric;
use stentor_support::live::{self, Captures, Joining, start_client, stop_at_end_of_input};
use stentor_support::streams::complain;
use stentor_support::{Failure, Verdict};

use super::load::{Load, Pace};
use crate::args::Waiting;
use crate::pause::mode;
use crate::worker_spec::{broken, follow};

/// Longest time that a client may take to join.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Prefix of the line that reports that the client has joined. The name of its client id follows.
pub(super) const READY: &str = "ready ";

/// The specification of the client, which its command line carries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WorkerSpec {
    pub(super) config: PathBuf,
    pub(super) sockets: PathBuf,
    pub(super) histories: PathBuf,
    pub(super) life: u32,
    pub(super) captures: Captures,
    pub(super) seed: u64,
    pub(super) rate: Option<u32>,
    pub(super) wait: Waiting,
    /// Pid of the bench. This process is killed when the bench ends.
    pub(super) parent: i32,
}

pub(in super::super) fn run(spec: &str) -> Result<Verdict, Failure> {
    let spec: WorkerSpec = serde_json::from_str(spec)
        .map_err(|error| Failure::usage(error, "bench load", "use `stentor bench failover`"))?;
    follow(spec.parent, "bench load")?;
    let plan = live::plan(&spec.config)?;
    with_fabric!(plan.config().fabric(), F => load::<F>(&spec, &plan))
}

/// Runs the load on any fabric.
fn load<F: ClusterFabric>(spec: &WorkerSpec, plan: &ClusterRuntime) -> Result<Verdict, Failure> {
    let told = |name: &str| spec.captures.of(name, spec.life);
    let start = |client| start_client::<F>(plan, client, (&spec.config, &spec.sockets), told);
    let (wait, timeout) = (mode(spec.wait), TIMEOUT);
    let joining = Joining { wait, timeout, ..Joining::to_all(plan, &spec.config, &spec.sockets, &start) };
    let joined = joining.join(None, |text| complain(format!("{text}\n")))?;
    let name = plan.name(plan.topology().client_process(joined.id)).to_owned();
    let pace = Pace { seed: spec.seed, rate: spec.rate, wait: mode(spec.wait), ahead: true, life: spec.life };
    let mut load = Load::new(plan, joined, &spec.histories.join(format!("{name}.{}.jsonl", spec.life)), &pace)?;
    let stop = Arc::new(Stop::default());
    stop_at_end_of_input(Arc::clone(&stop))?;
    let mut said = false;
    while !stop.is_stopped() || load.client().outstanding() > 0 || load.owes() {
        load.round(!stop.is_stopped())?;
        if !said && load.client().submitted() > 0 {
            said = true;
            let mut output = std::io::stdout().lock();
            let written = writeln!(output, "{READY}{name}").and_then(|()| output.flush());
            written.map_err(broken("write"))?;
        }
    }
    load.close()?;
    Ok(Verdict::Good)
}
