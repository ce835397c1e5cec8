//! `stentor config init`: writes a commented configuration to begin with.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde::Serialize;
use stentor::ClusterConfig;
use stentor::config::{Limits, Problem, Template};
use stentor_support::args::DemoFabric;
use stentor_support::live::{RunDirectory, write_key};
use stentor_support::streams::{Existing, PLAIN, write_whole};
use stentor_support::{Failure, Human, Output, Style, Verdict};

use crate::args::ConfigInit;

#[derive(Serialize)]
struct Written {
    path: PathBuf,
    cluster: String,
    groups: usize,
    replicas: usize,
    /// The file with the key of a cluster between hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<PathBuf>,
    /// `true` if the key existed before and was not changed.
    #[serde(skip)]
    old_key: bool,
}

impl Human for Written {
    fn human(&self, _: Style) -> String {
        let path = self.path.display();
        let key = self.key.as_ref().map_or(String::new(), |key| match self.old_key {
            true => format!("{}: existed, and is kept as the cluster's key\n", key.display()),
            false => format!("{}: a new key; every host of the cluster needs this file\n", key.display()),
        });
        format!("{path}: {} groups of {}\n{key}next: stentor config check {path}\n", self.groups, self.replicas)
    }
}

pub(super) fn run(args: &ConfigInit, output: Output) -> Result<Verdict, Failure> {
    args.ofi.refuse_unless(args.fabric == DemoFabric::Ofi, "stentor config init")?;
    let template = Template {
        cluster: args.cluster.clone(),
        groups: args.groups,
        replicas: args.replicas,
        limits: Limits::default(),
        ground: args.fabric.ground(1, &args.ofi, || Ok(device_address()))?,
    };
    // Refuse invalid arguments before the file is written.
    let refuse =
        |problem: &Problem| Failure::usage(problem, "the arguments of `stentor config init`", problem.remedy());
    template.check_counts().map_err(|problem| refuse(&problem))?;
    let text = template.render();
    ClusterConfig::parse(&args.output, &text).map_err(|error| refuse(&error.problem))?;
    if !args.force && args.output.symlink_metadata().is_ok() {
        return Err(unwritten(&args.output, &ErrorKind::AlreadyExists.into()));
    }
    // The key is written first. A configuration without its key would have to be removed before the next attempt.
    let key = (args.fabric != DemoFabric::Shm).then(|| args.output.with_file_name(RunDirectory::KEY));
    let old_key = key.as_deref().map_or(Ok(false), make_key)?;
    write_example(&args.output, &text, args.force)?;
    let Template { cluster, groups, replicas, .. } = template;
    output.conclude(&Written { path: args.output.clone(), cluster, groups, replicas, key, old_key }, Verdict::Good)
}

/// Creates a key that only this user may read. An existing key is kept, because other hosts may have it. Returns
/// whether a key existed.
fn make_key(path: &Path) -> Result<bool, Failure> {
    match write_key(path) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(true),
        Err(error) => Err(Failure::cannot_write(path, &error)),
    }
}

/// Returns the address of this host's RDMA device, or a placeholder on a host without one.
fn device_address() -> IpAddr {
    stentor_support::rdma_address().unwrap_or(Ipv4Addr::new(192, 0, 2, 1).into())
}

/// Writes a configuration to begin with. Overwrites an existing file only if `force` is set.
pub(in crate::commands) fn write_example(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let existing = if force { Existing::Goes } else { Existing::Stays };
    write_whole(path, text.as_bytes(), existing, PLAIN).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::cannot_create("file", path, error);
    match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure { remedy: "name another file with -o, or overwrite it with --force".to_owned(), ..failure }
        }
        _ => failure,
    }
}
