//! `stentor config init`: a commented configuration to begin with.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use serde::Serialize;
use stentor::ClusterConfig;
use stentor::config::{Ground, Limits, Problem, Template};

use crate::args::{ConfigInit, DemoFabric};
use crate::failure::{Failure, Verdict};
use crate::output::{Human, Output};
use crate::style::Style;

/// Where a cluster between hosts has its key.
const KEY: &str = "file:cluster.key";

#[derive(Serialize)]
struct Written {
    path: PathBuf,
    cluster: String,
    groups: usize,
    replicas: usize,
}

impl Human for Written {
    fn human(&self, _: Style) -> String {
        let path = self.path.display();
        format!("{path}: {} groups of {}\nnext: stentor config check {path}\n", self.groups, self.replicas)
    }
}

pub(super) fn run(args: &ConfigInit, output: Output) -> Result<Verdict, Failure> {
    if args.fabric != DemoFabric::Ofi {
        args.ofi.refuse("stentor config init")?;
    }
    let template = Template {
        cluster: args.cluster.clone(),
        groups: args.groups,
        replicas: args.replicas,
        limits: Limits::default(),
        ground: match args.fabric {
            DemoFabric::Shm => Ground::Shm,
            DemoFabric::Roce => Ground::Roce { network: 1, key: KEY.to_owned() },
            DemoFabric::Ofi => Ground::Ofi {
                network: 1,
                key: KEY.to_owned(),
                provider: args.ofi.provider.clone(),
                as_efa: args.ofi.as_efa,
            },
            DemoFabric::Verbs => Ground::Verbs { address: device_address(), key: KEY.to_owned() },
        },
    };
    // What the file would be refused for is refused before it is written.
    let refuse =
        |problem: &Problem| Failure::usage(problem, "the arguments of `stentor config init`", problem.remedy());
    template.check_counts().map_err(|problem| refuse(&problem))?;
    let text = template.render();
    ClusterConfig::parse(&args.output, &text).map_err(|error| refuse(&error.problem))?;
    write(args, &text)?;
    let Template { cluster, groups, replicas, .. } = template;
    output.report(&Written { path: args.output.clone(), cluster, groups, replicas })?;
    Ok(Verdict::Good)
}

/// That of this host's RDMA device; on a host without one something to be replaced.
fn device_address() -> IpAddr {
    crate::machine::rdma_address().unwrap_or(Ipv4Addr::new(192, 0, 2, 1).into())
}

fn write(args: &ConfigInit, text: &str) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    if !args.force {
        options.create_new(true);
    }
    let mut file = options.open(&args.output).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(
            "the file exists already; it was not changed",
            args.output.display(),
            "name another file with -o, or overwrite it with --force",
        ),
        _ => Failure::cannot_write(&args.output, &error),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| Failure::cannot_write(&args.output, &error))
}
