//! A configuration in code.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;

use super::{Cluster, ConfigError};
use crate::config::{self, ClusterConfig, FabricKind, Limits};

/// What errors call a configuration that is in no file.
pub(super) const ORIGIN: &str = "the cluster in code";

/// A configuration that is being put together. [`Cluster::builder`] begins one.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct ClusterBuilder {
    name: String,
    fabric: FabricKind,
    key: Option<String>,
    silence: Option<RangeInclusive<Duration>>,
    limits: Limits,
    groups: Vec<(String, Vec<(String, String)>)>,
    directory: Option<PathBuf>,
}

impl ClusterBuilder {
    pub(super) fn new(name: &str) -> Self {
        ClusterBuilder {
            name: name.to_owned(),
            fabric: FabricKind::Shm,
            key: None,
            silence: None,
            limits: Limits::DEFAULT,
            groups: Vec::new(),
            directory: None,
        }
    }

    /// Sets the fabric. Without it processes use shared memory.
    pub fn fabric(self, fabric: FabricKind) -> Self {
        ClusterBuilder { fabric, ..self }
    }

    /// Adds a group: the name and the address of each member. An address is `host:port`; on shared memory nobody uses it.
    pub fn group<N: Into<String>, A: Into<String>>(
        mut self,
        name: &str,
        members: impl IntoIterator<Item = (N, A)>,
    ) -> Self {
        let members = members.into_iter().map(|(name, address)| (name.into(), address.into()));
        self.groups.push((name.to_owned(), members.collect()));
        self
    }

    /// Sets for how long a leader may be silent: for less than the start of the range nobody suspects it, after its end everybody does.
    /// Fractions of a millisecond are dropped.
    pub fn election(self, silence: RangeInclusive<Duration>) -> Self {
        ClusterBuilder { silence: Some(silence), ..self }
    }

    /// Sets the sizes. Memory follows from them, see [`Cluster::memory`].
    pub fn limits(self, limits: Limits) -> Self {
        ClusterBuilder { limits, ..self }
    }

    /// Says where the key of the cluster is, for fabrics between hosts: `env:NAME` or `file:PATH`.
    pub fn key(self, place: &str) -> Self {
        ClusterBuilder { key: Some(place.to_owned()), ..self }
    }

    /// Sets the directory in which the processes of this host meet; see [`Cluster::in_directory`].
    pub fn directory(self, path: impl AsRef<Path>) -> Self {
        ClusterBuilder { directory: Some(stentor_host::absolute(path.as_ref())), ..self }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// What is wrong with it, and the remedy.
    pub fn build(self) -> Result<Cluster, ConfigError> {
        // The same checks as those of a file. A position in this text would tell nobody anything.
        let config = ClusterConfig::parse(Path::new(ORIGIN), &self.text());
        let config = config.map_err(|error| ConfigError(config::ConfigError { position: None, ..error }))?;
        Cluster::in_code(config, self.directory)
    }

    fn text(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let mut out = String::new();
        let mut line = |args: std::fmt::Arguments<'_>| out.write_fmt(args).expect("a String takes everything");
        line(format_args!("cluster = {}\nfabric = \"{}\"\n", quoted(&self.name), self.fabric));
        if let Some(key) = &self.key {
            line(format_args!("key = {}\n", quoted(key)));
        }
        if let Some(silence) = &self.silence {
            let (min, max) = (silence.start().as_millis(), silence.end().as_millis());
            line(format_args!("[election]\nkind = \"heartbeat\"\ntimeout_min_ms = {min}\ntimeout_max_ms = {max}\n"));
        }
        let Limits {
            message_bytes,
            window,
            clients,
            ring_kib,
            body_ring_kib,
            reply_bytes,
            reply_ring_kib,
            sessions,
            snapshot_mib,
            backlog_mib,
            slowed_percent,
            expel_ms,
        } = self.limits;
        line(format_args!(
            "[limits]\nmessage_bytes = {message_bytes}\nwindow = {window}\nclients = {clients}\nring_kib = {ring_kib}\n\
             body_ring_kib = {body_ring_kib}\nreply_bytes = {reply_bytes}\nreply_ring_kib = {reply_ring_kib}\nsessions = {sessions}\n\
             snapshot_mib = {snapshot_mib}\nbacklog_mib = {backlog_mib}\n\
             slowed_percent = {slowed_percent}\nexpel_ms = {expel_ms}\n"
        ));
        for (name, members) in &self.groups {
            line(format_args!("[[group]]\nid = {}\nprocess = [\n", quoted(name)));
            for (name, address) in members {
                line(format_args!("{{ id = {}, address = {} }},\n", quoted(name), quoted(address)));
            }
            line(format_args!("]\n"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three(builder: ClusterBuilder) -> ClusterBuilder {
        builder.group("g1", [("a", "127.0.0.1:7101"), ("b", "127.0.0.2:7101"), ("c", "127.0.0.3:7101")])
    }

    #[test]
    fn what_is_said_in_code_is_in_the_configuration() {
        let limits = Limits { clients: 3, expel_ms: 777, ..Limits::DEFAULT };
        let silence = Duration::from_millis(300)..=Duration::from_millis(900);
        let builder = three(Cluster::builder("c\"1")).limits(limits).election(silence);
        let error = builder.clone().build().expect_err("that is no name");
        assert!(error.location() == ORIGIN && error.to_string().starts_with(ORIGIN), "{error}");
        let cluster = ClusterBuilder { name: "c1".to_owned(), ..builder }.build().expect("a sound cluster");
        let group = cluster.group("g1").expect("it was added");
        assert_eq!(cluster.members(group).collect::<Vec<_>>(), ["a", "b", "c"]);
        let config = cluster.runtime().config();
        assert_eq!(*config.limits(), limits);
        assert_eq!(config.election_times().min, Duration::from_millis(300));
        let remedy = cluster.group("g2").expect_err("it was not added").remedy();
        assert_eq!(remedy, "name a group of this configuration");
    }

    #[test]
    fn a_fabric_between_hosts_needs_a_key() {
        let builder = three(Cluster::builder("c1")).fabric(FabricKind::Roce);
        let cluster = builder.key("env:STENTOR_TEST_KEY").build().expect("a sound cluster");
        assert_eq!(cluster.runtime().config().fabric(), FabricKind::Roce);
    }
}
