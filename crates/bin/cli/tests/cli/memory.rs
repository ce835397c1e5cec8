//! Tests of the memory of a process: what it uses, what its configuration plans, and what happens if the plan does not
//! fit.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Ran, Scratch, ran, run, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(60);
/// Upper bound of a node's memory that is not planned. A debug build has 17 to 19 MiB of such memory.
const BESIDE: u64 = 40 << 20;

/// A node that is the only member of its group.
struct Alone {
    scratch: Scratch,
    config: PathBuf,
    node: Child,
}

fn config(scratch: &Scratch, limits: &str) -> PathBuf {
    let text = format!(
        "cluster = \"alone\"\nfabric = \"shm\"\n[limits]\n{limits}\n[[group]]\nid = \"g1\"\n\
         process = [ {{ id = \"g1.1\", address = \"127.0.0.1:7101\" }} ]\n"
    );
    scratch.file("cluster.toml", &text)
}

/// Returns the number of bytes that `config check` reports for each member.
fn planned(config: &Path) -> u64 {
    let document = run(["config", "check", config.to_str().unwrap(), "--json"]).document("config-check");
    document["memory"]["processes"][0]["bytes"].as_u64().expect("the process has a size in bytes")
}

impl Alone {
    fn start(limits: &str) -> Self {
        let scratch = Scratch::new();
        let config = config(&scratch, limits);
        let err = File::create(scratch.path("err")).unwrap();
        let mut node = stentor();
        node.args(["node", "--id", "g1.1", "--config"]).arg(&config).arg("--directory").arg(scratch.path("s"));
        let node = node.stdout(Stdio::null()).stderr(err).spawn().expect("the command starts");
        let alone = Alone { scratch, config, node };
        let begin = Instant::now();
        while !alone.printed().contains("ready") {
            assert!(begin.elapsed() < PATIENCE, "{}", alone.printed());
            std::thread::sleep(Duration::from_millis(20));
        }
        alone
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.scratch.path("err")).unwrap()
    }

    /// Returns the number of resident bytes of the node.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.node.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of its own");
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Sends `lines` short messages.
    fn cast(&self, lines: usize) {
        let input = self.scratch.file("lines", &"x\n".repeat(lines));
        let mut cast = stentor();
        cast.args(["cast", "--to", "g1", "--timeout", "60", "--config"]).arg(&self.config);
        cast.arg("--directory").arg(self.scratch.path("s")).stdin(File::open(input).unwrap());
        let sent = ran(&cast.output().unwrap());
        assert_eq!(sent.code, 0, "{}", sent.stderr);
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

const LARGE_WINDOW: &str = "clients = 1\nwindow = 65536\nmessage_bytes = 128\nbody_ring_kib = 16";

/// The window's slots are nearly all the memory of this node. After a window of messages they are resident, as planned.
#[test]
fn used_window_occupies_the_planned_memory() {
    let alone = Alone::start(LARGE_WINDOW);
    let (planned, before) = (planned(&alone.config), alone.resident());
    alone.cast(66_000);
    let grown = alone.resident() - before;
    let [grown_mib, planned_mib] = [grown, planned].map(|bytes| bytes >> 20);
    assert!(grown <= planned + (2 << 20), "{grown_mib} MiB more are resident, {planned_mib} MiB are planned");
    assert!(
        grown >= planned / 3,
        "{grown_mib} MiB more are resident, {planned_mib} MiB are planned: the plan is too large"
    );
}

/// A client id costs almost nothing while no client uses it, however large its window is.
#[test]
fn windows_of_absent_clients_are_not_touched() {
    let limits = LARGE_WINDOW.replace("clients = 1", "clients = 32");
    let alone = Alone::start(&limits);
    let (planned, resident) = (planned(&alone.config), alone.resident());
    assert!(planned > 500 << 20, "32 windows of 65536 places are planned: {planned} bytes");
    assert!(resident < BESIDE, "{} MiB are resident", resident >> 20);
    let plan = format!("{:.0} MiB as `config check` prints it", planned as f64 / f64::from(1 << 20));
    let said = alone.printed();
    assert!(
        said.contains("memory, fixed from here on: ") && (said.contains(&plan) || said.contains("GiB as")),
        "{said}"
    );
}

/// The largest limits that the configuration accepts. A member needs 2.1 TiB with them, more than the tests' machines
/// have.
const LARGEST: &str =
    "clients = 1024\nwindow = 65536\nmessage_bytes = 16777216\nbody_ring_kib = 1048576\nring_kib = 65536";

#[test]
fn limits_that_exhaust_the_machine_are_reported_and_refused() {
    let scratch = Scratch::new();
    let config = config(&scratch, LARGEST);
    let document = run(["config", "check", config.to_str().unwrap(), "--json"]).document("config-check");
    let (here, notes) = (&document["memory"]["here"], document["notes"].to_string());
    assert_eq!(here["fits"], false, "{here}");
    for part in ["no member of a group of 1 can start here: its limits need 2.1 TiB", " and ", "lower `clients`"] {
        assert!(notes.contains(part), "`{part}` is not in {notes}");
    }
    let text = run(["config", "check", config.to_str().unwrap()]);
    assert_eq!(text.code, 0, "another machine may have enough: {}", text.stderr);
    let mut node = stentor();
    node.args(["node", "--id", "g1.1", "--config"]).arg(&config).arg("--directory").arg(scratch.path("s"));
    let refused: Ran = ran(&node.output().unwrap());
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    for part in ["its limits need 2.1 TiB of memory, and ", "cluster.toml", "lower `clients`"] {
        assert!(refused.stderr.contains(part), "`{part}` is not in: {}", refused.stderr);
    }
    assert!(!scratch.path("s").exists(), "it was refused before it created anything");
}

/// `config check` warns about a cluster whose members fit one by one but not all on one host.
#[test]
fn cluster_that_does_not_fit_on_one_host_is_reported() {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("a line of its own");
    let available = line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap();
    // The rings and their copies dominate: a client costs each of 64 members a 40th of the available memory.
    let members: Vec<_> =
        (1..=64).map(|n| format!("{{ id = \"m{n}\", address = \"127.0.0.1:{}\" }}", 7000 + n)).collect();
    let text = format!(
        "cluster = \"many\"\nfabric = \"shm\"\n[limits]\nclients = 1\nbody_ring_kib = {}\n[[group]]\nid = \"g\"\n\
         process = [ {} ]\n",
        (available / 80).clamp(16, 1_048_576),
        members.join(",\n")
    );
    let scratch = Scratch::new();
    let file = scratch.file("cluster.toml", &text);
    let document = run(["config", "check", file.to_str().unwrap(), "--json"]).document("config-check");
    let notes = document["notes"].to_string();
    assert_eq!(document["memory"]["here"]["fits"], true, "{document:#}");
    assert!(notes.contains("all processes are on one host, and not all of them fit into this one"), "{notes}");
}
