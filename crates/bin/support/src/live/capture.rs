//! Captures of packets for commands that start several processes: one file per process, as if each ran on its own host.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::args::{Network, Networks, SeededNetworks};

/// Network arguments of one command. The network arguments of each of its processes are derived from them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Captures {
    all: Network,
}

impl From<&SeededNetworks> for Captures {
    fn from(args: &SeededNetworks) -> Self {
        Captures::new(&args.networks, args.seed)
    }
}

impl From<Network> for Captures {
    fn from(all: Network) -> Self {
        Captures { all }
    }
}

impl Captures {
    /// Combines the arguments of a command with the seed of the faulty network.
    pub fn new(networks: &Networks, seed: u64) -> Self {
        Captures { all: Network { pcap: networks.pcap.clone(), bad: networks.bad, seed } }
    }

    /// Returns the arguments as the user gave them to the command.
    pub fn asked(&self) -> &Network {
        &self.all
    }

    /// Returns the network arguments of a process in its `life`th life.
    pub fn of(&self, process: &str, life: u32) -> Network {
        let pcap = self.all.pcap.as_deref().map(|file| file_of(file, process, life));
        Network { pcap, ..self.all.clone() }
    }

    /// Returns the arguments of [`of`](Self::of) as a command line for `stentor node`.
    pub fn arguments(&self, process: &str, life: u32) -> Vec<String> {
        let Network { pcap, bad, seed } = self.of(process, life);
        let chances = bad.named().into_iter();
        let mut told: Vec<_> = chances.flat_map(|(name, _, chance)| [name.to_owned(), chance.to_string()]).collect();
        told.extend(["--delay".to_owned(), bad.delay.to_string(), "--seed".to_owned(), seed.to_string()]);
        // The path is valid UTF-8, because it was an argument of the command.
        told.extend(pcap.into_iter().map(|file| format!("--pcap={}", file.display())));
        told
    }

    /// Refuses captures that cannot be written, before any process is started: files that exist already, and
    /// directories in which no file can be created. Checks the first `lives` lives of each process.
    pub fn check(&self, processes: impl IntoIterator<Item = String>, lives: u32) -> Result<(), Failure> {
        let Some(file) = &self.all.pcap else { return Ok(()) };
        let refuse = |what: &str, remedy: &str| Err(Failure::usage(what, file.display(), remedy));
        if file.file_name().is_none() || file.to_str().is_none() {
            return refuse("a capture needs a file name in valid UTF-8", "name a file, like `run.pcap`");
        }
        if fs::metadata(file).is_ok_and(|there| there.file_type().is_fifo() || there.file_type().is_char_device()) {
            let remedy = "name a file; only commands of one process, as `stentor node` and `cast`, write to a pipe";
            return refuse("several processes cannot write to one pipe or device", remedy);
        }
        let processes = processes.into_iter();
        for path in processes.flat_map(|process| (1..=lives).map(move |life| file_of(file, &process, life))) {
            match File::create_new(&path) {
                Ok(_) => fs::remove_file(&path).map_err(|error| Failure::cannot_write(&path, &error))?,
                Err(error) => return Err(Failure::cannot_create("capture", &path, &error)),
            }
        }
        Ok(())
    }
}

/// Returns `run-g1.1.pcap` for `run.pcap` in the first life of a process, and `run-g1.1.2.pcap` in its second.
fn file_of(file: &Path, process: &str, life: u32) -> PathBuf {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let life = if life > 1 { format!(".{life}") } else { String::new() };
    let name = format!("{}-{process}{life}", part(file.file_stem()));
    match file.extension() {
        Some(_) => file.with_file_name(format!("{name}.{}", part(file.extension()))),
        None => file.with_file_name(name),
    }
}

/// Calls `start` to start a process. Before that, removes the capture if an earlier call made it.
///
/// A client tries client ids until one is free, and each attempt creates the capture again.
pub fn begin_anew<T, E>(pcap: Option<&Path>, made: &Cell<bool>, start: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    if let Some(file) = pcap.filter(|file| made.get() && fs::metadata(file).is_ok_and(|there| there.is_file())) {
        // If the file cannot be removed, `start` fails and reports the reason.
        let _ = fs::remove_file(file);
    }
    start().inspect(|_| made.set(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_and_life_has_a_file_of_its_own() {
        let name = |file: &str, life| file_of(Path::new(file), "g1.1", life).display().to_string();
        assert_eq!(name("/tmp/run.pcap", 1), "/tmp/run-g1.1.pcap");
        assert_eq!(name("run.pcap", 2), "run-g1.1.2.pcap");
        assert_eq!(name("a.b/run", 1), "a.b/run-g1.1");
        assert_eq!(name("run.v2.pcapng", 3), "run.v2-g1.1.3.pcapng");
    }

    #[test]
    fn only_own_captures_are_replaced() {
        let file = std::env::temp_dir().join(format!("stentor-anew-{}", std::process::id()));
        fs::write(&file, "somebody else's").unwrap();
        let made = Cell::new(false);
        let make = || File::create_new(&file);
        assert!(begin_anew(Some(&file), &made, make).is_err(), "the file of another process must stay");
        assert_eq!(fs::read(&file).unwrap(), b"somebody else's");
        fs::remove_file(&file).unwrap();
        assert!(begin_anew(Some(&file), &made, make).is_ok());
        assert!(begin_anew(Some(&file), &made, make).is_ok(), "the file that this process made is replaced");
        fs::remove_file(&file).unwrap();
    }
}
