//! Captures of commands that start several processes: a file for each process, as each host would have its own.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::args::{Network, Networks, SeededNetworks};

/// What the processes of one command are told of their network.
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
    /// Takes what was asked for, with the seed of bad networks.
    pub fn new(networks: &Networks, seed: u64) -> Self {
        Captures { all: Network { pcap: networks.pcap.clone(), bad: networks.bad, seed } }
    }

    /// What was asked for, of all of them.
    pub fn asked(&self) -> &Network {
        &self.all
    }

    /// What a process is told when it is started for the `life`th time.
    pub fn of(&self, process: &str, life: u32) -> Network {
        let pcap = self.all.pcap.as_deref().map(|file| file_of(file, process, life));
        Network { pcap, ..self.all.clone() }
    }

    /// The same as arguments of `stentor node`.
    pub fn arguments(&self, process: &str, life: u32) -> Vec<String> {
        let Network { pcap, bad, seed } = self.of(process, life);
        let chances = bad.named().into_iter();
        let mut told: Vec<_> = chances.flat_map(|(name, _, chance)| [name.to_owned(), chance.to_string()]).collect();
        told.extend(["--delay".to_owned(), bad.delay.to_string(), "--seed".to_owned(), seed.to_string()]);
        // A path that is no text was given as an argument, and cannot be one of these.
        told.extend(pcap.into_iter().map(|file| format!("--pcap={}", file.display())));
        told
    }

    /// Refuses what cannot be captured, before anything is started: a file that exists, a place where none can be made.
    /// Each of the processes is started so often at least.
    pub fn check(&self, processes: impl IntoIterator<Item = String>, lives: u32) -> Result<(), Failure> {
        let Some(file) = &self.all.pcap else { return Ok(()) };
        let refuse = |what: &str, remedy: &str| Err(Failure::usage(what, file.display(), remedy));
        if file.file_name().is_none() || file.to_str().is_none() {
            return refuse("a capture needs a file's name, of valid UTF-8", "name a file, like `run.pcap`");
        }
        if fs::metadata(file).is_ok_and(|there| there.file_type().is_fifo() || there.file_type().is_char_device()) {
            let remedy = "name a file; `stentor node` and `cast`, one process each, write to a pipe";
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

/// `run.pcap` is `run-g1.1.pcap` in a process's first life and `run-g1.1.2.pcap` in its second.
fn file_of(file: &Path, process: &str, life: u32) -> PathBuf {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let life = if life > 1 { format!(".{life}") } else { String::new() };
    let name = format!("{}-{process}{life}", part(file.file_stem()));
    match file.extension() {
        Some(_) => file.with_file_name(format!("{name}.{}", part(file.extension()))),
        None => file.with_file_name(name),
    }
}

/// A client tries places until one is free, and begins its capture in each: what it made itself it makes anew.
pub fn begin_anew<T, E>(pcap: Option<&Path>, made: &Cell<bool>, start: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    if let Some(file) = pcap.filter(|file| made.get() && fs::metadata(file).is_ok_and(|there| there.is_file())) {
        // What cannot be removed is refused in a moment, with the reason.
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
    fn only_a_capture_of_ones_own_is_begun_anew() {
        let file = std::env::temp_dir().join(format!("stentor-anew-{}", std::process::id()));
        fs::write(&file, "somebody else's").unwrap();
        let made = Cell::new(false);
        let make = || File::create_new(&file);
        assert!(begin_anew(Some(&file), &made, make).is_err(), "it was there before");
        assert_eq!(fs::read(&file).unwrap(), b"somebody else's");
        fs::remove_file(&file).unwrap();
        assert!(begin_anew(Some(&file), &made, make).is_ok());
        assert!(begin_anew(Some(&file), &made, make).is_ok(), "it was made here");
        fs::remove_file(&file).unwrap();
    }
}
