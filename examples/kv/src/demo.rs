//! The node processes of a whole store on this host.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The composition of a demonstration's cluster.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Name of the fabric: `shm` or `roce`.
    pub fabric: String,
    /// Number of partitions.
    pub groups: u16,
    /// Number of members of each partition's group.
    pub replicas: u16,
}

/// Limits that permit values of 64 KiB and the answers to batches of queries. A small window suffices, because the
/// gateway sends requests in batches.
const LIMITS: &str = "[limits]\nmessage_bytes = 1179648\nwindow = 64\nclients = 8\nbody_ring_kib = 2304\nreply_bytes = 131072\n\
                      reply_ring_kib = 1024\nsessions = 64\n";

/// Returns the configuration of a cluster of this shape. Each process has its own loopback address.
///
/// # Errors
/// Returns an error if the number of groups or replicas is out of range.
pub fn configuration(shape: &Shape) -> Result<String> {
    ensure!((1..=200).contains(&shape.groups), "the number of groups must be 1 to 200, not {}", shape.groups);
    ensure!((1..=9).contains(&shape.replicas), "the number of replicas must be 1 to 9, not {}", shape.replicas);
    let mut text = format!("cluster = \"kv\"\nfabric = \"{}\"\n", shape.fabric);
    if shape.fabric == "roce" {
        text += "key = \"file:key\"\n";
    }
    write!(text, "\n{LIMITS}\n")?;
    for group in 1..=shape.groups {
        let members = (1..=shape.replicas)
            .map(|member| format!("  {{ id = \"g{group}.{member}\", address = \"127.77.{group}.{member}:7101\" }},\n"));
        let members: String = members.collect();
        writeln!(text, "[[group]]\nid = \"g{group}\"\nprocess = [\n{members}]\n")?;
    }
    Ok(text)
}

/// Writes a file with 32 random bytes that only this user can read.
fn write_key(path: &Path) -> io::Result<()> {
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&key)
}

/// The running node processes. Dropping this value kills them.
#[derive(Debug)]
pub struct Nodes {
    /// The processes, with the names of their nodes.
    pub children: Vec<(String, Child)>,
    program: PathBuf,
    directory: PathBuf,
}

impl Nodes {
    /// Writes the configuration into a directory, and starts all nodes there.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be written, or a process cannot be started.
    pub fn start(program: &Path, directory: &Path, shape: &Shape) -> Result<Nodes> {
        Nodes::start_configured(program, directory, shape, &configuration(shape)?)
    }

    /// Writes the given configuration for a cluster of this shape into a directory, and starts all nodes there.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`start`](Nodes::start).
    pub fn start_configured(program: &Path, directory: &Path, shape: &Shape, configuration: &str) -> Result<Nodes> {
        std::fs::write(directory.join("cluster.toml"), configuration)
            .with_context(|| format!("cannot write {}", directory.display()))?;
        write_key(&directory.join("key")).with_context(|| format!("cannot write {}", directory.display()))?;
        let mut nodes = Nodes { children: Vec::new(), program: program.into(), directory: directory.into() };
        for group in 1..=shape.groups {
            for member in 1..=shape.replicas {
                let name = format!("g{group}.{member}");
                let child = nodes.spawn(&name)?;
                nodes.children.push((name, child));
            }
        }
        Ok(nodes)
    }

    fn spawn(&self, name: &str) -> Result<Child> {
        let log = File::options().append(true).create(true).open(self.directory.join(format!("{name}.log")))?;
        let mut node = Command::new(&self.program);
        node.args(["node", name, "--config"]).arg(self.directory.join("cluster.toml"));
        // Each demonstration has its own directory for sockets, so that two demonstrations do not collide.
        node.arg("--directory").arg(self.directory.join("sockets"));
        node.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        node.spawn().with_context(|| format!("cannot start {}", self.program.display()))
    }

    /// Kills a node with SIGKILL.
    ///
    /// # Errors
    /// Returns an error if no node of this name was started.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let (_, child) =
            self.children.iter_mut().find(|(known, _)| known == name).context("no node of this name was started")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Restarts a node that was killed.
    ///
    /// # Errors
    /// Returns an error if no node of this name was started, or the process cannot be started.
    pub fn restart(&mut self, name: &str) -> Result<()> {
        let child = self.spawn(name)?;
        let (_, known) =
            self.children.iter_mut().find(|(known, _)| known == name).context("no node of this name was started")?;
        *known = child;
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // The kill has no effect on a process that has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
