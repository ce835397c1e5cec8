//! `switch.toml`.

mod error;
mod example;
mod file;
mod validate;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor_fabric_net::config_file;
use stentor_fabric_roce::driver::Mode;
use stentor_switch::{Aggregation, Host};

pub use error::{ConfigError, Problem};
pub use example::example;

use crate::faults::Faults;

/// Sets that a switch has room for at most.
pub const MOST_SETS: usize = 4096;
/// No configuration is longer, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where a key is; never the key itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyPlace {
    /// In an environment variable.
    Env(String),
    /// In a file; a relative path is relative to the configuration.
    File(PathBuf),
}

/// A set that is there from the start, with queue pairs that somebody else has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticSet {
    /// Its number.
    pub gid: u16,
    /// How long its holder may be silent before another rank may take it.
    pub lease: Duration,
    /// By rank.
    pub hosts: Vec<Option<Host>>,
}

/// What a switch is started with.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The cluster that it is for: its processes may ask for sets.
    pub cluster: String,
    /// Address of VRQPs.
    pub forward: Ipv4Addr,
    /// Address of VSQPs.
    pub backward: Ipv4Addr,
    /// Plain sockets or raw ones.
    pub mode: Mode,
    /// Where hosts ask for sets, and the key that they must have.
    pub control: Option<(SocketAddr, KeyPlace)>,
    /// Sets that there is room for.
    pub sets: usize,
    /// How acknowledgements become one.
    pub aggregation: Aggregation,
    /// Whether the ICRC of data is checked, too.
    pub check_data: bool,
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// Sets that are there from the start.
    pub static_sets: Vec<StaticSet>,
}

impl Settings {
    /// A switch at two addresses without sets: on plain sockets, with room for 256.
    #[must_use]
    pub fn new(cluster: &str, forward: Ipv4Addr, backward: Ipv4Addr) -> Settings {
        Settings {
            cluster: cluster.to_owned(),
            forward,
            backward,
            mode: Mode::Plain,
            control: None,
            sets: 256,
            aggregation: Aggregation::ExactMin,
            check_data: false,
            faults: Faults::default(),
            static_sets: Vec::new(),
        }
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// See [`Problem`]; the error names the file, the line and the remedy.
    pub fn load(path: &Path) -> Result<Settings, ConfigError> {
        let text = config_file::read(path, MAX_FILE_BYTES).map_err(|error| {
            let problem = Problem::Unreadable { reason: error.to_string() };
            ConfigError { file: path.to_owned(), position: None, problem }
        })?;
        Settings::parse(path, &text)
    }

    /// Checks a text; `path` is what errors call it.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn parse(path: &Path, text: &str) -> Result<Settings, ConfigError> {
        let file = config_file::parse(text).map_err(|(span, flaw)| (span, flaw.into()));
        file.and_then(validate::validate).map_err(|(span, problem)| ConfigError::at(path, text, &span, problem))
    }
}
