//! Shared libraries that this process has loaded.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the file from which a library was loaded, with its full version in its name, or `None` if `/proc` does not
/// list it. `name` is the requested library, such as `libibverbs.so.1`. Another version of the library is found, too.
#[must_use]
pub fn loaded_file(name: &str) -> Option<PathBuf> {
    mapped(&fs::read_to_string("/proc/self/maps").unwrap_or_default(), name)
}

/// Finds the file among the mappings of a process.
fn mapped(maps: &str, name: &str) -> Option<PathBuf> {
    let stem = format!("{}.so", name.split(".so").next()?);
    let mut files = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is_it =
        |path: &&Path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&stem));
    files.find(is_it).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_name_of_the_file() {
        let maps = "7f00-7f01 r--p 00000000 08:01 42 /usr/lib/x86_64-linux-gnu/libc.so.6\n\
                    7f02-7f03 r--p 00000000 08:01 43                         /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0\n";
        let path = mapped(maps, "libibverbs.so.1").unwrap();
        assert_eq!(path, Path::new("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0"));
        assert_eq!(mapped("7f00-7f01 r--p 00000000 08:01 42 /usr/lib/libc.so.6\n", "libibverbs.so.1"), None);
    }
}
