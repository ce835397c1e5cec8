//! The file as it is written: each value with its position in the text.

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) cluster: Spanned<String>,
    pub(super) fabric: Spanned<String>,
    pub(super) key: Option<Spanned<String>>,
    pub(super) client_timeout_ms: Option<Spanned<i64>>,
    pub(super) total_loss: Option<Spanned<String>>,
    pub(super) election: Option<Election>,
    #[serde(default)]
    pub(super) limits: FileLimits,
    #[serde(default)]
    pub(super) group: Vec<Group>,
    pub(super) neb: Option<Spanned<super::neb::FileNeb>>,
    pub(super) verbs: Option<super::verbs::FileVerbs>,
    pub(super) ofi: Option<super::ofi::FileOfi>,
    pub(super) switch: Option<super::switch::FileSwitch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Election {
    pub(super) kind: Spanned<String>,
    pub(super) timeout_min_ms: Option<Spanned<i64>>,
    pub(super) timeout_max_ms: Option<Spanned<i64>>,
    /// A key of the election `zookeeper`. It is accepted here, so that the file is refused because of that election,
    /// and not because of an unknown key.
    #[serde(rename = "servers")]
    pub(super) _servers: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct FileLimits {
    pub(super) message_bytes: Option<Spanned<i64>>,
    pub(super) window: Option<Spanned<i64>>,
    pub(super) clients: Option<Spanned<i64>>,
    pub(super) ring_kib: Option<Spanned<i64>>,
    pub(super) body_ring_kib: Option<Spanned<i64>>,
    pub(super) reply_bytes: Option<Spanned<i64>>,
    pub(super) reply_ring_kib: Option<Spanned<i64>>,
    pub(super) sessions: Option<Spanned<i64>>,
    pub(super) snapshot_mib: Option<Spanned<i64>>,
    pub(super) backlog_mib: Option<Spanned<i64>>,
    pub(super) slowed_percent: Option<Spanned<i64>>,
    pub(super) expel_ms: Option<Spanned<i64>>,
    pub(super) observed_mib: Option<Spanned<i64>>,
    pub(super) clock_bound_ms: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) id: Spanned<String>,
    pub(super) process: Spanned<Vec<Process>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Process {
    pub(super) id: Spanned<String>,
    pub(super) address: Spanned<String>,
}
