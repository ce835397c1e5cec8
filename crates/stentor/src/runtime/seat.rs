//! What a process on a network is told besides its configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Where a process is, on fabrics that need no more than that: `verbs` and `ofi`.
#[derive(Clone, Debug, Default)]
pub struct Seat {
    /// Directory of the configuration: a key's file may be relative to it.
    pub directory: PathBuf,
    /// This process's address; `None`: a member's is in the configuration, a client's is the one that this host reaches the
    /// first member from.
    pub bind: Option<IpAddr>,
}

impl Seat {
    /// A process whose configuration is in this file.
    #[must_use]
    pub fn beside(config: &Path, bind: Option<IpAddr>) -> Self {
        Seat { directory: config.parent().unwrap_or(Path::new("")).to_owned(), bind }
    }
}
