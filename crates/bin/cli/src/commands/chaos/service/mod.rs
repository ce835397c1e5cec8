//! `stentor chaos --service`: the load is a replicated service, as programs use it, and its promises are judged.
//!
//! - Members are processes that run [a state machine](machine) in a [node].
//! - Clients are [processes](client) with one session each and several threads that call at the same time. One that is killed is
//!   started again, takes its session up, and resolves what it had called.
//! - The conductor starts the clients and follows what they [record](records), see [`callers`].
//! - At the end [the judge](mod@judge) reads what members applied and what clients called.

mod callers;
mod client;
mod judge;
mod machine;
mod node;
mod records;

use std::io;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};
use stentor::Cluster;
use stentor_support::live::{follow, this_program};
use stentor_support::{Failure, Verdict};

use super::PLACE;
use super::scene::Scene;
pub(super) use callers::Callers;
use client::ClientSpec;
pub(super) use judge::{Judged, ServiceCounts, judge};
pub(super) use node::NodeSpec;

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProcessSpec {
    /// The process that started it: it ends with that one.
    parent: i32,
    config: PathBuf,
    sockets: PathBuf,
    role: Role,
}

/// What a process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Role {
    Node(NodeSpec),
    Client(ClientSpec),
}

impl ProcessSpec {
    pub(super) fn of(scene: &Scene, role: Role) -> Self {
        let parent = std::process::id() as i32;
        ProcessSpec { parent, config: scene.config(), sockets: scene.sockets(), role }
    }

    /// Returns the command that starts the process.
    pub(super) fn command(&self) -> io::Result<Command> {
        let mut command = this_program()?;
        command.arg("chaos-process").arg(serde_json::to_string(self)?);
        Ok(command)
    }

    fn cluster(&self) -> Result<Cluster, Failure> {
        let cluster = Cluster::load(&self.config);
        let cluster = cluster.map_err(|error| Failure::usage(error, self.config.display(), "correct the file"))?;
        Ok(cluster.in_directory(&self.sockets))
    }
}

/// Runs a process of the service until it is told to stop.
pub(super) fn process(spec: &str) -> Result<Verdict, Failure> {
    let spec: ProcessSpec = serde_json::from_str(spec)
        .map_err(|error| Failure::usage(error, PLACE, "start `stentor chaos --service`, which starts its processes"))?;
    follow(spec.parent)?;
    match &spec.role {
        Role::Node(node) => node::run(&spec, node),
        Role::Client(client) => client::run(&spec, client),
    }
}
