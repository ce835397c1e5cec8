//! The builder of a configuration in code.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;

use super::{BroadcastConfig, Cluster, ConfigError};
use crate::config::{self, ClusterConfig, FabricKind, First, Limits, Problem};

/// Name of a configuration without a file, in error messages.
pub(super) const ORIGIN: &str = "the cluster in code";

/// A builder for a configuration. [`Cluster::builder`] creates it.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct ClusterBuilder {
    name: String,
    fabric: FabricKind,
    key: Option<String>,
    silence: Option<RangeInclusive<Duration>>,
    limits: Limits,
    clock_bound: Option<Duration>,
    client_timeout: Option<Duration>,
    broadcast: Option<BroadcastConfig>,
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
            clock_bound: None,
            client_timeout: None,
            broadcast: None,
            groups: Vec::new(),
            directory: None,
        }
    }

    /// Sets the fabric. The default is shared memory.
    pub fn fabric(self, fabric: FabricKind) -> Self {
        ClusterBuilder { fabric, ..self }
    }

    /// Adds a group: the name and the address of each member. An address is `host:port`; the shared-memory fabric
    /// ignores it.
    pub fn group<N: Into<String>, A: Into<String>>(
        mut self,
        name: &str,
        members: impl IntoIterator<Item = (N, A)>,
    ) -> Self {
        let members = members.into_iter().map(|(name, address)| (name.into(), address.into()));
        self.groups.push((name.to_owned(), members.collect()));
        self
    }

    /// Sets how long a leader may be silent. No member suspects a leader that is silent for less than the start of the
    /// range; every member suspects it after the end. Fractions of a millisecond are dropped.
    pub fn election(self, silence: RangeInclusive<Duration>) -> Self {
        ClusterBuilder { silence: Some(silence), ..self }
    }

    /// Sets the sizes. They determine the memory, see [`Cluster::memory`].
    pub fn limits(self, limits: Limits) -> Self {
        ClusterBuilder { limits, ..self }
    }

    /// Sets the largest difference between two clocks of members that both count as right, 200 ms to 1 h. The default
    /// is 1 s. Fractions of a millisecond are dropped.
    pub fn clock_bound(self, bound: Duration) -> Self {
        ClusterBuilder { clock_bound: Some(bound), ..self }
    }

    /// Sets the time after which an absent client expires, if others wait for its unfinished messages: 100 ms to 10
    /// min. Fractions of a millisecond are dropped.
    pub fn client_timeout(self, timeout: Duration) -> Self {
        ClusterBuilder { client_timeout: Some(timeout), ..self }
    }

    /// Sets the broadcast of the members of a group, which [`Cluster::broadcast`] starts. By default there is none.
    pub fn broadcast(self, settings: BroadcastConfig) -> Self {
        ClusterBuilder { broadcast: Some(settings), ..self }
    }

    /// Sets the location of the cluster key, for fabrics between hosts: `env:NAME` or `file:PATH`.
    pub fn key(self, place: &str) -> Self {
        ClusterBuilder { key: Some(place.to_owned()), ..self }
    }

    /// Sets the directory in which the processes of this host find each other; see [`Cluster::in_directory`].
    pub fn directory(self, path: impl AsRef<Path>) -> Self {
        ClusterBuilder { directory: Some(stentor_host::absolute(path.as_ref())), ..self }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns the problem and its remedy if the configuration is invalid.
    pub fn build(self) -> Result<Cluster, ConfigError> {
        // The checks are those of a file. The generated text has no lines that the user knows, so errors name settings
        // instead.
        let text = Text::of(&self);
        let config = ClusterConfig::parse(Path::new(ORIGIN), &text.text);
        let config = config.map_err(|error| ConfigError(text.by_setting(error)))?;
        Cluster::in_code(config, self.directory)
    }
}

/// A configuration in the form of a file, with the setting from which each line was generated.
#[derive(Default)]
struct Text {
    text: String,
    /// Setting of each line.
    settings: Vec<String>,
}

impl Text {
    fn of(builder: &ClusterBuilder) -> Text {
        let quoted = |text: &str| Value::from(text).to_string();
        let mut out = Text::default();
        out.line("the name", format_args!("cluster = {}", quoted(&builder.name)));
        out.line("the fabric", format_args!("fabric = \"{}\"", builder.fabric));
        if let Some(key) = &builder.key {
            out.line("the key", format_args!("key = {}", quoted(key)));
        }
        if let Some(timeout) = builder.client_timeout {
            out.line("`client_timeout`", format_args!("client_timeout_ms = {}", timeout.as_millis()));
        }
        if let Some(silence) = &builder.silence {
            out.line("`election`", format_args!("[election]"));
            out.line("`election`", format_args!("kind = \"heartbeat\""));
            out.line("the start of `election`", format_args!("timeout_min_ms = {}", silence.start().as_millis()));
            out.line("the end of `election`", format_args!("timeout_max_ms = {}", silence.end().as_millis()));
        }
        out.limits(&builder.limits);
        if let Some(bound) = builder.clock_bound {
            out.line("`clock_bound`", format_args!("clock_bound_ms = {}", bound.as_millis()));
        }
        if let Some(broadcast) = &builder.broadcast {
            broadcast.lines(|setting, line| out.line(setting, format_args!("{line}")));
        }
        for (group, members) in &builder.groups {
            let place = format!("group `{}`", group.escape_debug());
            out.line(&place, format_args!("[[group]]"));
            out.line(&place, format_args!("id = {}", quoted(group)));
            out.line(&place, format_args!("process = ["));
            for (name, address) in members {
                let member = format!("member `{}` of {place}", name.escape_debug());
                out.line(&member, format_args!("{{ id = {}, address = {} }},", quoted(name), quoted(address)));
            }
            out.line(&place, format_args!("]"));
        }
        out
    }

    fn limits(&mut self, limits: &Limits) {
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
            observed_mib,
        } = *limits;
        self.line("`limits`", format_args!("[limits]"));
        let all: [(&str, u64); 13] = [
            ("message_bytes", message_bytes.into()),
            ("window", window.into()),
            ("clients", clients.into()),
            ("ring_kib", ring_kib.into()),
            ("body_ring_kib", body_ring_kib.into()),
            ("reply_bytes", reply_bytes.into()),
            ("reply_ring_kib", reply_ring_kib.into()),
            ("sessions", sessions.into()),
            ("snapshot_mib", snapshot_mib.into()),
            ("backlog_mib", backlog_mib.into()),
            ("slowed_percent", slowed_percent.into()),
            ("expel_ms", expel_ms.into()),
            ("observed_mib", observed_mib.into()),
        ];
        for (name, value) in all {
            self.line(&format!("`limits`, `{name}`"), format_args!("{name} = {value}"));
        }
    }

    fn line(&mut self, setting: &str, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a String takes everything");
        self.settings.push(setting.to_owned());
    }

    fn setting(&self, line: usize) -> &str {
        self.settings.get(line.wrapping_sub(1)).map_or(ORIGIN, String::as_str)
    }

    /// Replaces the line in an error by the setting from which the line was generated.
    fn by_setting(&self, mut error: config::ConfigError) -> config::ConfigError {
        if let Some(position) = error.position.take().filter(|_| names_a_setting(&error.problem)) {
            error.file = PathBuf::from(format!("{ORIGIN}, {}", self.setting(position.line)));
        }
        if let Problem::Duplicate { first, .. } | Problem::Families { first, .. } = &mut error.problem
            && let First::Line(line) = *first
        {
            *first = First::Setting(self.setting(line).to_owned());
        }
        error
    }
}

/// Returns whether the problem belongs to one setting. A wrong number of groups belongs to none.
fn names_a_setting(problem: &Problem) -> bool {
    !matches!(problem, Problem::NoGroups | Problem::TooManyGroups { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three(builder: ClusterBuilder) -> ClusterBuilder {
        builder.group("g1", [("a", "127.0.0.1:7101"), ("b", "127.0.0.2:7101"), ("c", "127.0.0.3:7101")])
    }

    #[test]
    fn builder_settings_reach_the_configuration() {
        let limits = Limits { clients: 3, expel_ms: 777, ..Limits::DEFAULT };
        let silence = Duration::from_millis(300)..=Duration::from_millis(900);
        let (bound, timeout) = (Duration::from_millis(250), Duration::from_secs(9));
        let builder = three(Cluster::builder("c\"1")).limits(limits).election(silence);
        let builder = builder.clock_bound(bound).client_timeout(timeout);
        let error = builder.clone().build().expect_err("the name is invalid");
        assert_eq!(error.location(), format!("{ORIGIN}, the name"));
        let cluster = ClusterBuilder { name: "c1".to_owned(), ..builder }.build().expect("a valid cluster");
        let group = cluster.group("g1").expect("the group was added");
        assert_eq!(cluster.members(group).collect::<Vec<_>>(), ["a", "b", "c"]);
        let config = cluster.runtime().config();
        assert_eq!(*config.limits(), limits);
        assert_eq!(config.election_times().min, Duration::from_millis(300));
        assert_eq!((cluster.clock_bound(), config.client_timeout()), (bound, timeout));
        assert_eq!((cluster.group_of("b").expect("a member"), group.index()), (group, 0));
        assert_eq!(group.to_string(), "group 0");
        let unknown = cluster.group_of("x").expect_err("the group has no such member");
        assert_eq!(unknown.to_string(), format!("{ORIGIN}: no group has a member `x`; {}", unknown.remedy()));
        assert_eq!(unknown.remedy(), "name a member of this configuration");
        let remedy = cluster.group("g2").expect_err("the group was not added").remedy();
        assert_eq!(remedy, "name a group of this configuration");
    }

    #[test]
    fn a_fabric_between_hosts_needs_a_key() {
        let builder = three(Cluster::builder("c1")).fabric(FabricKind::Roce);
        let cluster = builder.key("env:STENTOR_TEST_KEY").build().expect("a valid cluster");
        assert_eq!(cluster.runtime().config().fabric(), FabricKind::Roce);
    }

    fn refused(builder: ClusterBuilder) -> String {
        let text = builder.build().expect_err("the configuration is refused").to_string();
        assert!(!text.contains("line "), "{text}");
        text
    }

    #[test]
    fn errors_name_the_setting_and_no_line() {
        let twice = refused(three(Cluster::builder("c1")).group("g2", [("x", "127.0.0.1:7101")]));
        let place = format!("{ORIGIN}, member `x` of group `g2`: duplicate address `127.0.0.1:7101`");
        assert!(twice.starts_with(&format!("{place}: the first is of member `a` of group `g1`")), "{twice}");
        let families = three(Cluster::builder("c1")).fabric(FabricKind::Roce).key("env:K");
        let families = refused(families.group("g2", [("x", "[::1]:7101")]));
        assert!(families.contains("the address of member `a` of group `g1`"), "{families}");
        let address = refused(Cluster::builder("c1").group("g1", [("a", "nowhere")]));
        assert!(address.starts_with(&format!("{ORIGIN}, member `a` of group `g1`: bad address")), "{address}");
        let limits = Limits { window: 0, ..Limits::DEFAULT };
        let window = refused(three(Cluster::builder("c1")).limits(limits));
        assert!(window.starts_with(&format!("{ORIGIN}, `limits`, `window`: limits.window = 0")), "{window}");
        let builder = three(Cluster::builder("c1")).clock_bound(Duration::from_millis(199));
        let bound = refused(builder);
        assert!(bound.starts_with(&format!("{ORIGIN}, `clock_bound`: limits.clock_bound_ms = 199")), "{bound}");
        let builder = three(Cluster::builder("c1")).client_timeout(Duration::MAX);
        let timeout = refused(builder);
        assert!(timeout.starts_with(&format!("{ORIGIN}, `client_timeout`: ")), "{timeout}");
        let silence = Duration::from_millis(900)..=Duration::from_millis(300);
        let silence = refused(three(Cluster::builder("c1")).election(silence));
        assert!(silence.contains("of `election`: "), "{silence}");
        let none = refused(Cluster::builder("c1"));
        assert!(none.starts_with(&format!("{ORIGIN}: the cluster has no group")), "{none}");
        let key = refused(three(Cluster::builder("c1")).key("secret"));
        assert!(key.starts_with(&format!("{ORIGIN}, the key: ")), "{key}");
    }
}
