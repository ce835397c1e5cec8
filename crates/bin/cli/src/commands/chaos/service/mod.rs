//! `stentor chaos --service`: the load is a replicated service, used as programs use it, and its properties are judged.
//!
//! - Members are processes that run [a state machine](machine) in a [node].
//! - Clients are [processes](client) with one session each and several threads that call at the same time. A client
//!   that is killed is restarted, resumes its session, and resolves its open calls that have a ticket.
//! - The conductor starts the clients and follows their [records], see [`callers`].
//! - At the end, [the judge](mod@judge) reads the commands that members applied and the calls of the clients.

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

/// The specification of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProcessSpec {
    /// Pid of the process that started this one. This process is killed when that one ends.
    parent: i32,
    config: PathBuf,
    sockets: PathBuf,
    role: Role,
}

/// The role of a process.
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

/// Runs a process of the service until it is asked to stop.
pub(super) fn process(spec: &str) -> Result<Verdict, Failure> {
    let spec: ProcessSpec = serde_json::from_str(spec)
        .map_err(|error| Failure::usage(error, PLACE, "start `stentor chaos --service`, which starts its processes"))?;
    follow(spec.parent)?;
    match &spec.role {
        Role::Node(node) => node::run(&spec, node),
        Role::Client(client) => client::run(&spec, client),
    }
}
