//! Three nodes for a measurement, in their own processes.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use stentor::{Cluster, Context, Reply, StateMachine, Stateless, WaitMode};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// Key of clusters on a network.
pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdef";

/// A machine that replies with the number of commands.
#[derive(Default)]
struct Counter(u64);

impl StateMachine for Counter {
    type Frozen = Stateless;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], reply: &mut Reply) {
        self.0 += 1;
        reply.extend(&self.0.to_le_bytes());
    }

    fn freeze(&self) -> Stateless {
        Stateless
    }

    fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn wait_mode(name: &str) -> Result<WaitMode> {
    match name {
        "poll" => Ok(WaitMode::POLL),
        "adaptive" => Ok(WaitMode::ADAPTIVE),
        "block" => Ok(WaitMode::BLOCK),
        _ => Err(format!("`{name}` is not `poll`, `adaptive` or `block`").into()),
    }
}

pub(crate) fn configuration(fabric: &str, directory: &Path) -> Result<PathBuf> {
    std::fs::write(directory.join("key"), KEY)?;
    let path = directory.join("cluster.toml");
    let process = |n: u8| format!("{{ id = \"n{n}\", address = \"127.77.0.{n}:7001\" }}");
    let processes = [1, 2, 3].map(process).join(", ");
    let text = format!(
        "cluster = \"latency\"\nfabric = \"{fabric}\"\nkey = \"file:key\"\n[election]\nkind = \"heartbeat\"\n[[group]]\n\
         id = \"g1\"\nprocess = [ {processes} ]\n"
    );
    std::fs::write(&path, text)?;
    Ok(path)
}

/// The processes of the nodes, which end when this is dropped.
pub(crate) struct Nodes(Vec<Child>);

impl Nodes {
    /// Starts this program once for each node, as `PROGRAM node CONFIGURATION NAME WAIT`, which must call
    /// [`run`](Nodes::run).
    pub(crate) fn start(configuration: &Path, wait: &str) -> Result<Nodes> {
        let program = std::env::current_exe()?;
        let mut nodes = Nodes(Vec::new());
        for name in NAMES {
            let words = [OsStr::new("node"), configuration.as_os_str(), OsStr::new(name), OsStr::new(wait)];
            nodes.0.push(Command::new(&program).args(words).spawn()?);
        }
        Ok(nodes)
    }

    /// Runs a node until it is killed.
    pub(crate) fn run(configuration: &str, name: &str, wait: &str) -> Result<()> {
        let cluster = Cluster::load(configuration)?;
        let cluster = cluster.in_directory(Path::new(configuration).parent().unwrap_or(Path::new("")));
        Ok(cluster.node(name, Counter::default()).wait(wait_mode(wait)?).start()?.run()?)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            // The process may have ended already.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}
