//! Names that no other process has, in whichever PID namespace it runs.
//!
//! A pid is no such name: containers that share a directory number their processes alike.

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
        // The library's own random keys, where the kernel has none to give.
        _ => RandomState::new().hash_one(std::process::id()),
    }
});

/// Returns a number of this process's own, drawn at random when it is first asked for.
pub fn number() -> u64 {
    *NUMBER
}

/// Returns `stentor-WHAT-` and 16 hexadecimal digits that are this process's own.
pub fn name(what: &str) -> String {
    format!("stentor-{what}-{:016x}", number())
}

/// Makes a directory of [this name](name) among the temporary files, which only this user may enter.
pub fn directory(what: &str) -> Result<PathBuf, Failure> {
    let path = std::env::temp_dir().join(name(what));
    DirBuilder::new().mode(0o700).create(&path).map_err(|error| Failure::cannot_write(&path, &error))?;
    Ok(path)
}
