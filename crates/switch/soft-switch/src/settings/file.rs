//! The configuration file as it is written, with the place of each value.

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) cluster: Spanned<String>,
    pub(super) forward: Spanned<String>,
    pub(super) backward: Spanned<String>,
    pub(super) mode: Option<Spanned<String>>,
    pub(super) control: Option<Spanned<String>>,
    pub(super) key: Option<Spanned<String>>,
    pub(super) sets: Option<Spanned<i64>>,
    pub(super) aggregation: Option<Spanned<String>>,
    pub(super) check_data: Option<bool>,
    pub(super) faults: Option<FileFaults>,
    #[serde(default)]
    pub(super) set: Vec<FileSet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileFaults {
    pub(super) drop_chance: Option<Spanned<f64>>,
    pub(super) duplicate_chance: Option<Spanned<f64>>,
    pub(super) reorder_chance: Option<Spanned<f64>>,
    pub(super) corrupt_chance: Option<Spanned<f64>>,
    pub(super) loop_drop_chance: Option<Spanned<f64>>,
    pub(super) delay_us: Option<Spanned<i64>>,
    pub(super) seed: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSet {
    pub(super) gid: Spanned<i64>,
    pub(super) lease_ms: Option<Spanned<i64>>,
    pub(super) host: Spanned<Vec<FileHost>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileHost {
    pub(super) rank: Spanned<i64>,
    pub(super) address: Spanned<String>,
    pub(super) sends_qpn: Spanned<i64>,
    pub(super) sends_psn: Spanned<i64>,
    pub(super) receives_qpn: Spanned<i64>,
    pub(super) receives_psn: Spanned<i64>,
}
