//! The directory of a run, with the configuration, the histories and the output of all processes.

use std::ops::Deref;

use stentor::ClusterConfig;
use stentor::config::{Ground, Limits, Template};
use stentor_support::Failure;
use stentor_support::args::LoopbackFabric;
use stentor_support::live::{Captures, RunDirectory};

use crate::args::BenchFailover;
use crate::datagrams::network;

/// Name of the cluster.
const CLUSTER: &str = "failover";
/// Number of client ids. An id may stay unusable for a while after its client died during a write.
const CLIENTS: u16 = 8;
const LIMITS: Limits =
    Limits { message_bytes: 4096, window: 256, clients: CLIENTS, ring_kib: 64, body_ring_kib: 256, ..Limits::DEFAULT };

/// The directory, and the captures and faults of the network.
pub(super) struct Scene {
    directory: RunDirectory,
    pub(super) captures: Captures,
}

/// Returns the text of the configuration file.
fn text(args: &BenchFailover) -> String {
    let on_roce = |network| Ground::Roce { network, key: format!("file:{}", RunDirectory::KEY) };
    let ground = network(args.fabric).map_or(Ground::Shm, on_roce);
    let (groups, replicas) = (usize::from(args.groups), usize::from(args.replicas));
    let limits = if args.full { Limits::default() } else { LIMITS };
    let text = Template { cluster: CLUSTER.to_owned(), groups, replicas, limits, ground }.render();
    let Some(max) = args.timeout_ms else { return text };
    let min = max / 2;
    text.replacen("[election]\n", &format!("[election]\ntimeout_min_ms = {min}\ntimeout_max_ms = {max}\n"), 1)
}

impl Scene {
    pub(super) fn set(args: &BenchFailover, captures: Captures) -> Result<Self, Failure> {
        let scene = Scene { directory: RunDirectory::new("failover", args.keep.as_deref())?, captures };
        scene.write_config(&text(args))?;
        if args.fabric == LoopbackFabric::Roce {
            scene.write_key()?;
        }
        Ok(scene)
    }

    pub(super) fn cluster(&self) -> Result<ClusterConfig, Failure> {
        Ok(ClusterConfig::load(&self.config())?)
    }
}

impl Deref for Scene {
    type Target = RunDirectory;

    fn deref(&self) -> &RunDirectory {
        &self.directory
    }
}
