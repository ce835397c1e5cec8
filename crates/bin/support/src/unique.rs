//! Names that are unique among processes, in whichever PID namespace each of them runs.
//!
//! A pid is not unique: containers that share a directory may have processes with equal pids.

use std::collections::hash_map::RandomState;
use std::fs::DirBuilder;
use std::hash::BuildHasher;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::Failure;

static NUMBER: LazyLock<u64> = LazyLock::new(|| {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // The kernel has no random bytes to return, so the library's own random keys are used.
        _ => RandomState::new().hash_one(std::process::id()),
    }
});

/// Returns the unique number of this process, drawn at random on first use.
pub fn number() -> u64 {
    *NUMBER
}

/// Returns `stentor-WHAT-` followed by the 16 hexadecimal digits of the unique number.
pub fn name(what: &str) -> String {
    format!("stentor-{what}-{:016x}", number())
}

/// Creates a temporary directory with [this name](name) that only this user may enter.
pub fn directory(what: &str) -> Result<PathBuf, Failure> {
    let path = std::env::temp_dir().join(name(what));
    DirBuilder::new().mode(0o700).create(&path).map_err(|error| Failure::cannot_write(&path, &error))?;
    Ok(path)
}
