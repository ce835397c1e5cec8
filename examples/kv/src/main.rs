//! `stentor-kv`: the store's nodes and gateways.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use stentor::{Cluster, WaitMode};
use stentor_kv::demo::{Nodes, Shape};
use stentor_kv::gateway::{Gateway, Serves};
use stentor_kv::machine::Machine;
use stentor_kv::partition::Partition;

/// A partitioned, replicated key-value store that speaks the Redis protocol
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Start nodes and a gateway on this host; Ctrl-C ends them
    Demo {
        /// Address at which the gateway listens
        #[arg(long, default_value = "127.0.0.1:6380")]
        listen: String,
        /// The fabric between the nodes
        #[arg(long, value_enum, default_value_t = Fabric::Shm)]
        fabric: Fabric,
        /// Number of partitions of the keys; each is a group
        #[arg(long, default_value_t = 2)]
        groups: u16,
        /// Number of nodes of each group
        #[arg(long, default_value_t = 3)]
        replicas: u16,
        /// Directory for the configuration and the nodes' logs [default: a new temporary directory]
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Run one node
    Node {
        /// The node's name in the configuration
        name: String,
        /// The configuration
        #[arg(long, default_value = "cluster.toml")]
        config: PathBuf,
        /// Directory for the control sockets, the same for all processes [default: below XDG_RUNTIME_DIR, or in /tmp]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// How the node waits for work
        #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
        wait: Wait,
    },
    /// Run a gateway
    Gateway {
        /// Address at which the gateway listens
        #[arg(long, default_value = "127.0.0.1:6380")]
        listen: String,
        /// The configuration
        #[arg(long, default_value = "cluster.toml")]
        config: PathBuf,
        /// Directory for the control sockets, the same for all processes [default: below XDG_RUNTIME_DIR, or in /tmp]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Address of this host that the gateway uses on the fabric (roce)
        #[arg(long)]
        bind: Option<IpAddr>,
        /// How the gateway waits for the cluster
        #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
        wait: Wait,
        /// Serve a store in this process instead of a cluster, with this number of partitions and without replication,
        /// to measure the gateway alone
        #[arg(long, value_name = "GROUPS")]
        alone: Option<u16>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fabric {
    Shm,
    Roce,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wait {
    /// Poll for a while, then sleep
    Adaptive,
    /// Sleep when there is nothing to do
    Block,
    /// Poll all the time, which occupies one processor for each process
    Poll,
}

impl Wait {
    fn mode(self) -> WaitMode {
        match self {
            Wait::Adaptive => WaitMode::ADAPTIVE,
            Wait::Block => WaitMode::BLOCK,
            Wait::Poll => WaitMode::POLL,
        }
    }
}

fn main() -> Result<()> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    match Arguments::parse().command {
        Kind::Demo { listen, fabric, groups, replicas, directory } => {
            let fabric = match fabric {
                Fabric::Shm => "shm",
                Fabric::Roce => "roce",
            };
            demo(&listen, &Shape { fabric: fabric.to_owned(), groups, replicas }, directory)
        }
        Kind::Node { name, config, directory, wait } => node(&name, &load(&config, directory.as_deref())?, wait),
        Kind::Gateway { listen, alone: Some(groups), .. } => {
            if groups == 0 {
                bail!("the number of partitions after --alone must be at least 1");
            }
            serve(&listen, Serves::Own(groups))
        }
        Kind::Gateway { listen, config, directory, bind, wait, alone: None } => {
            let cluster = load(&config, directory.as_deref())?;
            serve(&listen, Serves::Cluster { cluster, bind, wait: Some(wait.mode()) })
        }
    }
}

fn load(config: &Path, directory: Option<&Path>) -> Result<Cluster> {
    let cluster = Cluster::load(config)?;
    Ok(match directory {
        Some(directory) => cluster.in_directory(directory),
        None => cluster,
    })
}

/// Returns the partition of a node: the index of its group, and the number of groups.
fn partition(cluster: &Cluster, name: &str) -> Result<Partition> {
    let of = cluster.groups().count() as u16;
    Ok(Partition { index: cluster.group_of(name)?.index() as u16, of })
}

fn node(name: &str, cluster: &Cluster, wait: Wait) -> Result<()> {
    let machine = Machine::new(partition(cluster, name)?);
    let stop = stop_flag()?;
    Ok(cluster.node(name, machine).wait(wait.mode()).start()?.run_until(&stop)?)
}

/// Returns a flag that SIGTERM and SIGINT set.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn serve(listen: &str, serves: Serves) -> Result<()> {
    let gateway = Gateway::new(listen, serves, stop_flag()?)?;
    println!("ready at port {}", gateway.port());
    gateway.run()
}

fn demo(listen: &str, shape: &Shape, directory: Option<PathBuf>) -> Result<()> {
    let own = std::env::current_exe().context("cannot find the path of this program, which starts the nodes")?;
    let is_given = directory.is_some();
    let directory =
        directory.unwrap_or_else(|| std::env::temp_dir().join(format!("stentor-kv-{}", std::process::id())));
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let nodes = Nodes::start(&own, &directory, shape)?;
    let cluster = load(&directory.join("cluster.toml"), Some(&directory.join("sockets")))?;
    let gateway = Gateway::new(listen, Serves::Cluster { cluster, bind: None, wait: None }, stop_flag()?)?;
    let Shape { fabric, groups, replicas } = shape;
    println!("{groups} groups of {replicas} nodes on {fabric}, logs in {}", directory.display());
    println!("ready: redis-cli -p {}", gateway.port());
    let ended = gateway.run();
    drop(nodes);
    if !is_given {
        let _ = std::fs::remove_dir_all(&directory);
    }
    ended
}
