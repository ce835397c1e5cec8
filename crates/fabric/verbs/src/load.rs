//! libibverbs, found at run time.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use stentor_fabric_net::library::loaded_file;

use crate::sys::{self, Symbols};

/// What it is called in every distribution.
const NAME: &str = "libibverbs.so.1";

/// Why there are no verbs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The library is not there, or something that it needs.
    #[error(
        "{name} cannot be loaded ({why}): install rdma-core (Debian: libibverbs1 ibverbs-providers), or use another fabric"
    )]
    Absent {
        /// What was looked for.
        name: String,
        /// What the loader says.
        why: String,
    },
    /// It lacks a function that every libibverbs since rdma-core 15 has.
    #[error("{name} is not a libibverbs that can be used ({why}): install rdma-core 15 or newer")]
    Incompatible {
        /// What was loaded.
        name: String,
        /// The function.
        why: String,
    },
}

/// `ibv_query_qp_data_in_order`, since libibverbs 1.14.
pub(crate) type DataInOrder = unsafe extern "C" fn(*mut sys::ibv_qp, sys::ibv_wr_opcode, u32) -> c_int;

/// libibverbs with all its functions that are called here.
#[derive(Debug)]
pub struct Verbs {
    pub(crate) symbols: Symbols,
    /// Only newer libraries have it.
    pub(crate) data_in_order: Option<DataInOrder>,
    path: Option<PathBuf>,
}

impl Verbs {
    /// The library, loaded and resolved when this is first called. It stays loaded: its providers do not support being
    /// unloaded.
    ///
    /// # Errors
    /// See [`LoadError`]; the same each time.
    pub fn load() -> Result<&'static Verbs, LoadError> {
        static LOADED: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
        LOADED.get_or_init(|| Verbs::open(NAME)).as_ref().map_err(Clone::clone)
    }

    fn open(name: &str) -> Result<Verbs, LoadError> {
        // SAFETY: what runs on loading is libibverbs' own initialisation, which asks for nothing but to be loaded; whoever may
        // put another library of this name on the loader's path can make this process do anything anyway.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| LoadError::Absent { name: name.to_owned(), why: error.to_string() })?;
        // SAFETY: a function of this name has this type in the headers that have it; it is called only while `Symbols`, made
        // below, keeps the library.
        let data_in_order =
            unsafe { library.get::<DataInOrder>(b"ibv_query_qp_data_in_order\0") }.ok().map(|symbol| *symbol);
        // SAFETY: functions of these names have the types of the headers, as the library's name promises (soname 1), and
        // `Symbols` keeps the library.
        let symbols = unsafe { Symbols::from_library(library) };
        let symbols =
            symbols.map_err(|error| LoadError::Incompatible { name: name.to_owned(), why: error.to_string() })?;
        Ok(Verbs { symbols, data_in_order, path: loaded_file(name) })
    }

    /// The file that was loaded, with its full version in its name; none if /proc does not tell.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The version of libibverbs: interface and rdma-core's release (`1.14.44.0` is of rdma-core 44).
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.path.as_deref()?.file_name()?.to_str()?.strip_prefix("libibverbs.so.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_absent_is_one_clear_line() {
        let error = Verbs::open("libibverbs-of-nowhere.so.1").unwrap_err();
        assert!(matches!(error, LoadError::Absent { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("libibverbs-of-nowhere.so.1") && text.contains("install rdma-core"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn a_library_without_verbs_is_told_apart() {
        let error = Verbs::open("libc.so.6").unwrap_err();
        assert!(matches!(&error, LoadError::Incompatible { why, .. } if why.contains("ibv_")), "{error}");
    }

    /// Whichever way it goes here, it goes the same way each time.
    #[test]
    fn loading_twice_gives_the_same() {
        match (Verbs::load(), Verbs::load()) {
            (Ok(a), Ok(b)) => assert!(std::ptr::eq(a, b) && a.version().is_some_and(|v| v.starts_with("1."))),
            (a, b) => assert_eq!(a.err(), b.err()),
        }
    }
}
