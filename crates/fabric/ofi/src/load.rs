//! libfabric, loaded at run time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;
use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};
use stentor_fabric_net::library::loaded_file;

use crate::sys::{self, Symbols};

/// File name of the library in every distribution.
const NAME: &str = "libfabric.so.1";

/// A version of libfabric or of its interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
}

impl Version {
    /// Oldest usable version of the library. Debian 12 has 1.17; Ubuntu 22.04 has 1.11, which is too old.
    pub const OLDEST: Version = Version { major: 1, minor: 14 };
    /// Newest interface version that is requested. If a version below 1.18 is requested, newer EFA providers offer no
    /// RDMA.
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

/// Reason why libfabric is not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library, or one of its dependencies, is missing.
    #[error("{name} cannot be loaded ({why}): install libfabric (Debian: libfabric1), or use another fabric")]
    Absent {
        /// File name of the library.
        name: String,
        /// Error of the dynamic loader.
        why: String,
    },
    /// The library lacks a function that every libfabric has.
    #[error("{name} is not a usable libfabric ({why}): install libfabric {} or newer", Version::OLDEST)]
    Incompatible {
        /// Library that was loaded.
        name: String,
        /// Error that names the missing function.
        why: String,
    },
    /// The library is older than the oldest usable version.
    #[error("{name} is of libfabric {found}: {needed} or newer is needed; install a newer one, or use another fabric")]
    TooOld {
        /// Library that was loaded.
        name: String,
        /// Version of the library.
        found: Version,
        /// Oldest usable version.
        needed: Version,
    },
}

/// libfabric with all functions that are called by name.
#[derive(Debug)]
pub struct Libfabric {
    pub(crate) symbols: Symbols,
    path: Option<PathBuf>,
    version: Version,
}

impl Libfabric {
    /// Returns the library. The first call loads it. It is never unloaded, because its providers do not support
    /// unloading.
    ///
    /// # Errors
    /// See [`LoadError`]. Every call returns the same error.
    pub fn load() -> Result<&'static Libfabric, LoadError> {
        static LOADED: OnceLock<Result<Libfabric, LoadError>> = OnceLock::new();
        LOADED.get_or_init(|| Libfabric::open(NAME)).as_ref().map_err(Clone::clone)
    }

    fn open(name: &str) -> Result<Libfabric, LoadError> {
        let signals = Signals::now();
        // SAFETY: loading runs libfabric's initialisers, which have no preconditions. A user who can place another
        // library of this name on the loader's path can control this process anyway.
        let library = unsafe { UnixLibrary::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        signals.restore();
        let library = library.map_err(|error| LoadError::Absent { name: name.to_owned(), why: error.to_string() })?;
        // SAFETY: the soname (version 1) guarantees that functions of these names have the types of the headers, and
        // `Symbols` keeps the library loaded. Newer symbol versions take structures that have grown at the end; the
        // library itself allocates all such structures (`fi_dupinfo`).
        let symbols = unsafe { Symbols::from_library(Library::from(library)) };
        let symbols =
            symbols.map_err(|error| LoadError::Incompatible { name: name.to_owned(), why: error.to_string() })?;
        // SAFETY: `fi_version` has no arguments.
        let version = Version::from_raw(unsafe { symbols.fi_version() });
        usable(name, version)?;
        Ok(Libfabric { symbols, path: loaded_file(name), version })
    }

    /// Returns the path of the loaded file, or `None` if `/proc` does not show it.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the library's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the interface version that is requested: the newest one that both sides support.
    #[must_use]
    pub fn interface(&self) -> Version {
        interface(self.version)
    }
}

/// This process's actions for the signals that crash reporters replace. Debian's libfabric loads `libpsm2` and
/// `libinfinipath`, which install handlers when they are loaded. These handlers write a file to the working directory
/// and exit with code 1, instead of running the program's handlers or dumping core.
struct Signals([(i32, libc::sigaction); 8]);

impl Signals {
    fn now() -> Signals {
        use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGSEGV, SIGTERM, SIGTRAP};
        Signals([SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGSEGV, SIGTERM, SIGTRAP].map(|signal| {
            // SAFETY: all zeros are a valid `sigaction`: the default action, with no signal masked.
            let mut action = unsafe { std::mem::zeroed() };
            // SAFETY: the call sets no action, and `action` has room for the current one.
            unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
            (signal, action)
        }))
    }

    fn restore(&self) {
        for (signal, action) in &self.0 {
            // SAFETY: the action was in force before the library was loaded, and it is still valid.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}

/// Returns the newest interface version that both a library of version `library` and this program support.
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
    fn missing_library_is_reported_in_one_line() {
        let error = Libfabric::open("libfabric-of-nowhere.so.1").unwrap_err();
        assert!(matches!(error, LoadError::Absent { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("libfabric-of-nowhere.so.1") && text.contains("install libfabric"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn library_that_is_not_libfabric_is_incompatible() {
        let error = Libfabric::open("libc.so.6").unwrap_err();
        assert!(matches!(&error, LoadError::Incompatible { why, .. } if why.contains("fi_")), "{error}");
    }

    #[test]
    fn too_old_library_is_refused_with_both_versions() {
        let version = |major, minor| Version { major, minor };
        for good in [version(1, 14), version(1, 17), version(2, 5)] {
            assert_eq!(usable("x", good), Ok(()));
        }
        let text = usable("libfabric.so.1", version(1, 11)).unwrap_err().to_string();
        assert!(text.contains("libfabric 1.11: 1.14 or newer"), "{text}");
    }

    #[test]
    fn newest_common_interface_is_requested() {
        let version = |major, minor| Version { major, minor };
        for old in [version(1, 14), version(1, 17), version(1, 18)] {
            assert_eq!(interface(old), old, "an older library does not support a newer interface");
        }
        for new in [version(1, 22), version(2, 5)] {
            assert_eq!(interface(new), version(1, 18), "this program does not support a newer interface");
        }
    }

    /// Compiles a library with libfabric's functions whose `fi_version` returns this version.
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
    fn loading_refuses_an_old_library_and_accepts_a_new_one() {
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
