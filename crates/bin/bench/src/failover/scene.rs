//! Where it happens: a directory with the configuration, and the histories and words of all processes.

use std::fs;
use std::path::{Path, PathBuf};

use stentor::ClusterConfig;
use stentor::config::{Ground, Limits, Template};
use stentor_support::args::LoopbackFabric;
use stentor_support::live::{Captures, write_key};
use stentor_support::{Failure, Janitor, unique};

use crate::args::BenchFailover;
use crate::datagrams::network;

/// Its name.
const CLUSTER: &str = "failover";
/// Paths of sockets are at most 107 bytes long; this is what the names in them leave to the directory.
const LONGEST_SOCKETS: usize = 60;
/// Places for clients: one that died while it wrote may leave a place that cannot be taken for a while.
const CLIENTS: u16 = 8;
const LIMITS: Limits = Limits { message_bytes: 4096, window: 256, clients: CLIENTS, ring_kib: 64, body_ring_kib: 256 };

/// The directory; removed at the end, even if this process is killed, unless it is to be kept.
pub(super) struct Scene {
    path: PathBuf,
    captures: Captures,
    keep: bool,
    janitor: Option<Janitor>,
}

/// The key's file, in the directory.
const KEY: &str = "cluster.key";

/// The cluster's file.
fn text(args: &BenchFailover) -> String {
    let on_roce = |network| Ground::Roce { network, key: format!("file:{KEY}") };
    let ground = network(args.fabric).map_or(Ground::Shm, on_roce);
    let (groups, replicas) = (usize::from(args.groups), usize::from(args.replicas));
    let limits = if args.full { Limits::default() } else { LIMITS };
    let text = Template { cluster: CLUSTER.to_owned(), groups, replicas, limits, ground }.render();
    let (min, max) = (args.timeout_ms / 2, args.timeout_ms);
    text.replacen("[election]\n", &format!("[election]\ntimeout_min_ms = {min}\ntimeout_max_ms = {max}\n"), 1)
}

impl Scene {
    pub(super) fn set(args: &BenchFailover, captures: Captures) -> Result<Self, Failure> {
        let scene = match &args.keep {
            Some(path) => Scene { path: named(path)?, captures, keep: true, janitor: None },
            None => {
                let mut scene = Scene { path: unique::directory("failover")?, captures, keep: false, janitor: None };
                scene.janitor = Some(Janitor::start(&scene.path)?);
                scene
            }
        };
        let config = scene.config();
        fs::write(&config, text(args)).map_err(|error| Failure::cannot_write(&config, &error))?;
        if args.fabric == LoopbackFabric::Roce {
            let key = scene.path.join(KEY);
            write_key(&key).map_err(|error| Failure::cannot_write(&key, &error))?;
        }
        Ok(scene)
    }

    /// What becomes of packets.
    pub(super) fn captures(&self) -> &Captures {
        &self.captures
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn config(&self) -> PathBuf {
        self.path.join("cluster.toml")
    }

    pub(super) fn cluster(&self) -> Result<ClusterConfig, Failure> {
        Ok(ClusterConfig::load(&self.config())?)
    }

    /// Directory of the control sockets; the fabric makes and removes it.
    pub(super) fn sockets(&self) -> PathBuf {
        let inside = self.path.join("sockets");
        if inside.as_os_str().len() <= LONGEST_SOCKETS {
            return inside;
        }
        Path::new("/tmp").join(format!("{}-sockets", unique::name("failover")))
    }

    /// Of a process in one of its lives.
    pub(super) fn history(&self, name: &str, life: u32) -> PathBuf {
        history(&self.path, name, life)
    }

    /// Of everybody.
    pub(super) fn histories(&self) -> Result<Vec<PathBuf>, Failure> {
        let unreadable = |error| Failure::run(error, self.path.display(), "let nobody else change that directory");
        let entries = fs::read_dir(&self.path).map_err(unreadable)?;
        let mut paths =
            entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(unreadable)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        Ok(paths)
    }

    /// From here on the directory stays.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }

    /// Where it is, if it stays.
    pub(super) fn kept(&self) -> Option<PathBuf> {
        self.keep.then(|| self.path.clone())
    }
}

/// The history of a process in one of its lives.
pub(super) fn history(directory: &Path, name: &str, life: u32) -> PathBuf {
    directory.join(format!("{name}.{life}.jsonl"))
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed is left to the system's own cleaning.
            let _ = fs::remove_dir_all(&self.path);
        }
        if let Some(janitor) = self.janitor.take() {
            janitor.dismiss();
        }
    }
}

fn named(path: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(path).map_err(|error| Failure::cannot_write(path, &error))?;
    let mut entries = fs::read_dir(path).map_err(|error| Failure::cannot_write(path, &error))?;
    if entries.next().is_some() {
        let remedy = "name a directory that is empty or does not exist";
        return Err(Failure::usage("the directory is not empty; nothing was changed", path.display(), remedy));
    }
    fs::canonicalize(path).map_err(|error| Failure::cannot_write(path, &error))
}
