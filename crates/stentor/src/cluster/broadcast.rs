//! The broadcast of a configuration in code.

use std::collections::BTreeMap;
use std::time::Duration;

use stentor_neb::FaultModel;
use toml::Value;

/// The broadcast of a cluster that is made in code, like the section `[neb]` of a file. Pass it to
/// [`ClusterBuilder::broadcast`](super::ClusterBuilder::broadcast), which checks it when the cluster is built.
#[derive(Clone, Debug)]
#[must_use = "a broadcast is configured by `ClusterBuilder::broadcast`"]
pub struct BroadcastConfig {
    /// The fault model and the number of faults in mode `quorum`. `None` in mode `all`.
    quorum: Option<(FaultModel, u32)>,
    group: Option<String>,
    window: Option<u32>,
    payload_bytes: Option<u32>,
    fast_path: Option<bool>,
    patience: Option<Duration>,
    keys: BTreeMap<String, [u8; 32]>,
}

impl BroadcastConfig {
    fn new(quorum: Option<(FaultModel, u32)>) -> Self {
        BroadcastConfig {
            quorum,
            group: None,
            window: None,
            payload_bytes: None,
            fast_path: None,
            patience: None,
            keys: BTreeMap::new(),
        }
    }

    /// Returns the settings of mode `all`: every current process must confirm a message before it is delivered. A
    /// process that stops therefore stops all deliveries until an operator removes it.
    pub fn all() -> Self {
        BroadcastConfig::new(None)
    }

    /// Returns the settings of mode `quorum`: a quorum of the processes confirms a message, so the broadcast continues
    /// when up to `faults` processes fail as the model permits. `LyingHosts` needs 3 · `faults` + 1 processes, and
    /// `LyingSender` 2 · `faults` + 2.
    pub fn quorum(model: FaultModel, faults: u32) -> Self {
        BroadcastConfig::new(Some((model, faults)))
    }

    /// Sets the group whose members broadcast. Required if the cluster has several groups.
    pub fn group(self, name: &str) -> Self {
        BroadcastConfig { group: Some(name.to_owned()), ..self }
    }

    /// Sets how many messages of one sender may be undelivered at some process, 1 to 16 384. The default is 64.
    pub fn window(self, messages: u32) -> Self {
        BroadcastConfig { window: Some(messages), ..self }
    }

    /// Sets the length of the longest message in bytes, up to 1 MiB. The default is 1024.
    pub fn payload_bytes(self, most: u32) -> Self {
        BroadcastConfig { payload_bytes: Some(most), ..self }
    }

    /// Sets whether a process delivers a message without a read, once it has seen all other processes repeat the same
    /// message. It does by default. Mode `all` has no such path.
    pub fn fast_path(self, is_on: bool) -> Self {
        BroadcastConfig { fast_path: Some(is_on), ..self }
    }

    /// Sets for how long a sender in mode `quorum` waits for a process that is a window behind, before it continues
    /// without that process: up to 1 h. The default is 10 s. Fractions of a millisecond are dropped.
    pub fn patience(self, patience: Duration) -> Self {
        BroadcastConfig { patience: Some(patience), ..self }
    }

    /// Sets the Ed25519 public key of each process of the group, by name. Messages are then signed, and each process
    /// needs its [secret key](crate::BroadcastBuilder::secret). Of two keys of one name, the later one counts.
    pub fn keys<N: Into<String>>(mut self, keys: impl IntoIterator<Item = (N, [u8; 32])>) -> Self {
        self.keys.extend(keys.into_iter().map(|(name, key)| (name.into(), key)));
        self
    }

    /// Passes the lines of the section `[neb]` to `line`, each with the setting from which it is generated.
    pub(super) fn lines(&self, mut line: impl FnMut(&str, String)) {
        let quoted = |text: &str| Value::from(text).to_string();
        line("`broadcast`", "[neb]".to_owned());
        if let Some(group) = &self.group {
            line("the group of `broadcast`", format!("group = {}", quoted(group)));
        }
        match self.quorum {
            None => line("`broadcast`", "mode = \"all\"".to_owned()),
            Some((model, faults)) => {
                let model = match model {
                    FaultModel::LyingHosts => "lying-hosts",
                    FaultModel::LyingSender => "lying-sender",
                };
                line("`broadcast`", "mode = \"quorum\"".to_owned());
                line("`broadcast`", format!("fault_model = \"{model}\""));
                line("the faults of `broadcast`", format!("faults = {faults}"));
            }
        }
        if let Some(window) = self.window {
            line("`broadcast`, `window`", format!("window = {window}"));
        }
        if let Some(bytes) = self.payload_bytes {
            line("`broadcast`, `payload_bytes`", format!("payload_bytes = {bytes}"));
        }
        if let Some(is_on) = self.fast_path {
            line("`broadcast`, `fast_path`", format!("fast_path = {is_on}"));
        }
        if let Some(patience) = self.patience {
            line("`broadcast`, `patience`", format!("patience_ms = {}", patience.as_millis()));
        }
        if !self.keys.is_empty() {
            let digits = |key: &[u8; 32]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let key = |(name, key): (&String, &[u8; 32])| (name.clone(), Value::from(digits(key)));
            let keys = Value::Table(self.keys.iter().map(key).collect());
            line("`broadcast`, `keys`", format!("keys = {keys}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use stentor_neb::Authority;

    use super::*;
    use crate::Cluster;
    use crate::cluster::ClusterBuilder;
    use crate::config::ClusterConfig;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn four(broadcast: BroadcastConfig) -> ClusterBuilder {
        let members = (1..).zip(NAMES).map(|(n, name)| (name, format!("127.0.0.{n}:7101")));
        Cluster::builder("c1").group("g1", members).broadcast(broadcast)
    }

    fn public(name: &str) -> [u8; 32] {
        Authority::public_of(&[name.as_bytes()[0]; 32])
    }

    #[test]
    fn broadcast_in_code_equals_that_of_a_file_with_the_same_settings() {
        let keys: Vec<String> = NAMES
            .iter()
            .map(|name| {
                let digits: String = public(name).iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{name} = \"{digits}\"")
            })
            .collect();
        let signed = format!(
            "mode = \"quorum\"\nfault_model = \"lying-hosts\"\nfaults = 1\nwindow = 8\npayload_bytes = 100\n\
             fast_path = false\npatience_ms = 250\ngroup = \"g1\"\nkeys = {{ {} }}",
            keys.join(", ")
        );
        let full = BroadcastConfig::quorum(FaultModel::LyingHosts, 1).group("g1").window(8).payload_bytes(100);
        let full = full.fast_path(false).patience(Duration::from_micros(250_999));
        let full = full.keys(NAMES.map(|name| (name, public(name))));
        let sender = "mode = \"quorum\"\nfault_model = \"lying-sender\"\nfaults = 1".to_owned();
        for (settings, section) in [
            (full, signed),
            (BroadcastConfig::quorum(FaultModel::LyingSender, 1), sender),
            (BroadcastConfig::all(), "mode = \"all\"".to_owned()),
        ] {
            let members =
                (1..).zip(NAMES).map(|(n, name)| format!("{{ id = \"{name}\", address = \"127.0.0.{n}:7101\" }}"));
            let members: Vec<String> = members.collect();
            let text = format!(
                "cluster = \"c1\"\nfabric = \"shm\"\n[neb]\n{section}\n[[group]]\nid = \"g1\"\nprocess = [ {} ]\n",
                members.join(", ")
            );
            let file = ClusterConfig::parse(Path::new("cluster.toml"), &text).expect("a valid file");
            let cluster = four(settings).build().expect("a valid cluster");
            let code = cluster.runtime().config();
            assert!(code.neb().is_some());
            assert_eq!((code.neb(), code.fingerprint()), (file.neb(), file.fingerprint()), "{section}");
        }
        assert!(
            Cluster::builder("c1").group("g1", [("a", "h:1")]).build().is_ok_and(|it| it
                .runtime()
                .config()
                .neb()
                .is_none())
        );
    }

    #[test]
    fn errors_of_a_broadcast_name_its_setting() {
        let lying = || BroadcastConfig::quorum(FaultModel::LyingHosts, 1);
        let refused = |broadcast| {
            let error = four(broadcast).build().expect_err("it is refused");
            assert!(!error.to_string().contains("line "), "{error}");
            error.location()
        };
        for (broadcast, setting) in [
            (lying().window(1 << 20), "`broadcast`, `window`"),
            (lying().payload_bytes(u32::MAX), "`broadcast`, `payload_bytes`"),
            (lying().patience(Duration::from_secs(3601)), "`broadcast`, `patience`"),
            (lying().patience(Duration::MAX), "`broadcast`, `patience`"),
            (lying().group("g2"), "the group of `broadcast`"),
            (lying().keys([("a", public("a"))]), "`broadcast`, `keys`"),
            (lying().keys([("a\n'\"", public("a"))]), "`broadcast`, `keys`"),
            (BroadcastConfig::quorum(FaultModel::LyingHosts, 2), "the faults of `broadcast`"),
        ] {
            let location = refused(broadcast);
            assert!(location.ends_with(setting), "{location}, not {setting}");
        }
        let two = four(lying()).group("g2", [("x", "127.0.0.9:7101")]);
        let error = two.build().expect_err("which group is meant?");
        assert!(error.location().ends_with("`broadcast`") && error.to_string().contains("group"), "{error}");
    }
}
