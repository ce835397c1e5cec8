//! Nodes and gateways that are killed when a test drops them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stentor_kv::demo::{Nodes, Shape};
use stentor_testutil::TempDir;

use crate::hosts::{HOSTS, Hosts};

pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_stentor-kv"))
}

/// The process of a gateway.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) port: u16,
}

impl Gateway {
    /// Starts a gateway, and waits until it is ready.
    pub(crate) fn start(arguments: &[&str], port: u16) -> Gateway {
        let listen = format!("127.0.0.1:{port}");
        let mut child = Command::new(program())
            .args(["gateway", "--listen", &listen])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program is built");
        let mut line = String::new();
        let output = child.stdout.take().expect("the output is piped");
        BufReader::new(output).read_line(&mut line).expect("the gateway prints a line when it is ready");
        let port = line.trim().strip_prefix("ready at port ").and_then(|port| port.parse().ok());
        Gateway { child, port: port.unwrap_or_else(|| panic!("the gateway printed: {line}")) }
    }
}

impl Gateway {
    /// Returns the processor time of the gateway, in ticks of 10 ms.
    pub(crate) fn processor_ticks(&self) -> u64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("the server's process runs");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
        fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The kill has no effect if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster with one gateway.
pub(crate) struct Store {
    pub(crate) gateway: Gateway,
    pub(crate) nodes: Nodes,
    pub(crate) directory: TempDir,
}

impl Store {
    pub(crate) fn start(fabric: &str, groups: u16) -> Store {
        let directory = TempDir::new();
        let shape = Shape { fabric: fabric.to_owned(), groups, replicas: 3 };
        let nodes = Nodes::start(&program(), &directory, &shape).expect("nodes start");
        let gateway = Store::gateway(&directory, 0);
        Store { gateway, nodes, directory }
    }

    /// Starts a store with its nodes on separate hosts. The gateway runs on none of them.
    pub(crate) fn start_on(hosts: &Hosts, groups: u16) -> Store {
        let directory = TempDir::new();
        let shape = Shape { fabric: "roce".to_owned(), groups, replicas: HOSTS };
        let configuration = hosts.configuration(&shape);
        let program = hosts.program(&program(), &directory);
        let nodes = Nodes::start_configured(&program, &directory, &shape, &configuration).expect("nodes start");
        let gateway = Store::gateway(&directory, 0);
        Store { gateway, nodes, directory }
    }

    fn gateway(directory: &Path, port: u16) -> Gateway {
        let path = |name: &str| directory.join(name).to_str().expect("a plain path").to_owned();
        let (config, sockets) = (path("cluster.toml"), path("sockets"));
        Gateway::start(&["--config", &config, "--directory", &sockets], port)
    }

    /// Kills the gateway, and starts another one at the same port.
    pub(crate) fn restart_gateway(&mut self) {
        let port = self.gateway.port;
        let _ = self.gateway.child.kill();
        let _ = self.gateway.child.wait();
        self.gateway = Store::gateway(&self.directory, port);
    }
}
