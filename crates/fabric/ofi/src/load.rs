//! libfabric, found at run time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;
use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};
use stentor_fabric_net::library::loaded_file;

use crate::sys::{self, Symbols};

/// What it is called in every distribution.
const NAME: &str = "libfabric.so.1";

/// A version of libfabric or of its interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second.
    pub minor: u16,
}

impl Version {
    /// The oldest library that can be used: Debian 12 has 1.17, Ubuntu 22.04 has 1.11 and is too old.
    pub const OLDEST: Version = Version { major: 1, minor: 14 };
    /// The newest interface that is asked for. Who asks for less than 1.18 gets no RDMA from newer EFA.
    pub const NEWEST: Version = Version { major: 1, minor: 18 };

    fn from_raw(raw: u32) -> Version {
        Version { major: (raw >> 16) as u16, minor: raw as u16 }
    }

    pub(crate) fn raw(self) -> u32 {
        sys::version(self.major, self.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why there is no libfabric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library is not there, or something that it needs.
    #[error("{name} cannot be loaded ({why}): install libfabric (Debian: libfabric1), or use another fabric")]
    Absent {
        /// What was looked for.
        name: String,
        /// What the loader says.
        why: String,
    },
    /// It lacks a function that every libfabric has.
    #[error("{name} is not a libfabric that can be used ({why}): install libfabric {} or newer", Version::OLDEST)]
    Incompatible {
        /// What was loaded.
        name: String,
        /// The function.
        why: String,
    },
    /// It is older than what can be used.
    #[error("{name} is of libfabric {found}: {needed} or newer is needed; install a newer one, or use another fabric")]
    TooOld {
        /// What was loaded.
        name: String,
        /// Its version.
        found: Version,
        /// The oldest that can be used.
        needed: Version,
    },
}

/// libfabric with all its functions that are called by name.
#[derive(Debug)]
pub struct Libfabric {
    pub(crate) symbols: Symbols,
    path: Option<PathBuf>,
    version: Version,
}

impl Libfabric {
    /// The library, loaded and resolved when this is first called. It stays loaded: its providers do not support being
    /// unloaded.
    ///
    /// # Errors
    /// See [`LoadError`]; the same each time.
    pub fn load() -> Result<&'static Libfabric, LoadError> {
        static LOADED: OnceLock<Result<Libfabric, LoadError>> = OnceLock::new();
        LOADED.get_or_init(|| Libfabric::open(NAME)).as_ref().map_err(Clone::clone)
    }

    fn open(name: &str) -> Result<Libfabric, LoadError> {
        let signals = Signals::now();
        // SAFETY: what runs on loading is libfabric's own initialisation, which asks for nothing but to be loaded; whoever may
        // put another library of this name on the loader's path can make this process do anything anyway.
        let library = unsafe { UnixLibrary::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        signals.restore();
        let library = library.map_err(|error| LoadError::Absent { name: name.to_owned(), why: error.to_string() })?;
        // SAFETY: functions of these names have the types of the headers, as the library's name promises (soname 1), and
        // `Symbols` keeps the library. Newer versions of the symbols take structures that have grown at their ends; all such
        // structures are made by the library itself (`fi_dupinfo`).
        let symbols = unsafe { Symbols::from_library(Library::from(library)) };
        let symbols =
            symbols.map_err(|error| LoadError::Incompatible { name: name.to_owned(), why: error.to_string() })?;
        // SAFETY: it takes nothing.
        let version = Version::from_raw(unsafe { symbols.fi_version() });
        usable(name, version)?;
        Ok(Libfabric { symbols, path: loaded_file(name), version })
    }

    /// The file that was loaded; none if /proc does not tell.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The library's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The interface that is asked for: the newest that both sides know.
    #[must_use]
    pub fn interface(&self) -> Version {
        interface(self.version)
    }
}

/// What this process does on the signals that libraries for reporting a crash take for themselves: Debian's libfabric brings
/// `libpsm2` and `libinfinipath`, which on loading set handlers that write a file to the working directory and end the
/// process with code 1, in place of the program's own and of a core dump.
struct Signals([(i32, libc::sigaction); 8]);

impl Signals {
    fn now() -> Signals {
        use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGSEGV, SIGTERM, SIGTRAP};
        Signals([SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGSEGV, SIGTERM, SIGTRAP].map(|signal| {
            // SAFETY: zeros are a `sigaction`: the default, with nothing masked.
            let mut action = unsafe { std::mem::zeroed() };
            // SAFETY: nothing is set; there is a place for what is told.
            unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
            (signal, action)
        }))
    }

    fn restore(&self) {
        for (signal, action) in &self.0 {
            // SAFETY: what was in force a moment ago, and is as good now.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}

/// The newest interface that a library of that version and this program know.
fn interface(library: Version) -> Version {
    library.min(Version::NEWEST)
}

fn usable(name: &str, found: Version) -> Result<(), LoadError> {
    let needed = Version::OLDEST;
    if found < needed { Err(LoadError::TooOld { name: name.to_owned(), found, needed }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_library_that_is_absent_is_one_clear_line() {
        let error = Libfabric::open("libfabric-of-nowhere.so.1").unwrap_err();
        assert!(matches!(error, LoadError::Absent { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("libfabric-of-nowhere.so.1") && text.contains("install libfabric"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn a_library_without_providers_is_told_apart() {
        let error = Libfabric::open("libc.so.6").unwrap_err();
        assert!(matches!(&error, LoadError::Incompatible { why, .. } if why.contains("fi_")), "{error}");
    }

    #[test]
    fn a_library_that_is_too_old_is_refused_with_both_versions() {
        let version = |major, minor| Version { major, minor };
        for good in [version(1, 14), version(1, 17), version(2, 5)] {
            assert_eq!(usable("x", good), Ok(()));
        }
        let text = usable("libfabric.so.1", version(1, 11)).unwrap_err().to_string();
        assert!(text.contains("libfabric 1.11: 1.14 or newer"), "{text}");
    }

    #[test]
    fn the_newest_interface_that_both_know_is_asked_for() {
        let version = |major, minor| Version { major, minor };
        for old in [version(1, 14), version(1, 17), version(1, 18)] {
            assert_eq!(interface(old), old, "an older library knows no newer one");
        }
        for new in [version(1, 22), version(2, 5)] {
            assert_eq!(interface(new), version(1, 18), "this program knows no newer one");
        }
    }

    /// A library with the functions of libfabric that tells this version, as the compiler of this program makes it.
    fn library_that_says(folder: &Path, version: Version) -> PathBuf {
        let function = |name: &str, result: u32| {
            format!("#[unsafe(no_mangle)] pub extern \"C\" fn {name}() -> u32 {{ {result} }}\n")
        };
        let others = ["fi_strerror", "fi_getinfo", "fi_freeinfo", "fi_dupinfo", "fi_fabric"];
        let others: String = others.iter().map(|name| function(name, 0)).collect();
        let (source, library) = (folder.join("fabric.rs"), folder.join("libfabric-made.so.1"));
        fs::write(&source, others + &function("fi_version", version.raw())).unwrap();
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut compile = std::process::Command::new(compiler);
        compile.args(["--edition", "2024", "--crate-type", "cdylib", "-o"]).arg(&library).arg(&source);
        assert!(compile.status().unwrap().success(), "{compile:?}");
        library
    }

    #[test]
    fn an_old_library_is_refused_when_it_is_loaded_and_a_young_one_is_not() {
        let folder = std::env::temp_dir().join(format!("stentor-libfabric-{}", std::process::id()));
        for (version, is_good) in [((1, 13), false), ((1, 14), true), ((2, 1), true)] {
            let version = Version { major: version.0, minor: version.1 };
            let folder = folder.join(version.to_string());
            fs::create_dir_all(&folder).unwrap();
            let library = library_that_says(&folder, version);
            let name = library.to_str().unwrap();
            match Libfabric::open(name) {
                Ok(library) => {
                    assert!(is_good, "{version}");
                    assert_eq!((library.version(), library.interface()), (version, version.min(Version::NEWEST)));
                }
                Err(error) => {
                    let needed = Version::OLDEST;
                    assert_eq!(error, LoadError::TooOld { name: name.to_owned(), found: version, needed });
                    assert!(!is_good, "{error}");
                }
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn versions_are_compared_by_number_and_packed_as_the_headers_do() {
        assert!(Version { major: 1, minor: 9 } < Version { major: 1, minor: 18 });
        assert!(Version { major: 2, minor: 0 } > Version::NEWEST);
        assert_eq!(Version { major: 1, minor: 18 }.raw(), 0x1_0012);
        assert_eq!(Version::from_raw(0x1_0012), Version::NEWEST);
    }
}
