//! libibverbs, loaded at run time.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use stentor_fabric_net::library::loaded_file;

use crate::sys::{self, Symbols};

/// File name of the library in every distribution.
const NAME: &str = "libibverbs.so.1";

/// Reason why libibverbs is not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The library, or one of its dependencies, is missing.
    #[error(
        "{name} cannot be loaded ({why}): install rdma-core (Debian: libibverbs1 ibverbs-providers), or use another fabric"
    )]
    Absent {
        /// File name of the library.
        name: String,
        /// Error of the dynamic loader.
        why: String,
    },
    /// The library lacks a function that every libibverbs since rdma-core 15 has.
    #[error("{name} is not a usable libibverbs ({why}): install rdma-core 15 or newer")]
    Incompatible {
        /// Library that was loaded.
        name: String,
        /// Error that names the missing function.
        why: String,
    },
}

/// Type of `ibv_query_qp_data_in_order`, which exists since libibverbs 1.14.
pub(crate) type DataInOrder = unsafe extern "C" fn(*mut sys::ibv_qp, sys::ibv_wr_opcode, u32) -> c_int;

/// libibverbs with all functions that this crate calls.
#[derive(Debug)]
pub struct Verbs {
    pub(crate) symbols: Symbols,
    /// The function `ibv_query_qp_data_in_order`; `None` if the library is older than 1.14.
    pub(crate) data_in_order: Option<DataInOrder>,
    path: Option<PathBuf>,
}

impl Verbs {
    /// Returns the library. The first call loads it. It is never unloaded, because its providers do not support
    /// unloading.
    ///
    /// # Errors
    /// See [`LoadError`]. Every call returns the same error.
    pub fn load() -> Result<&'static Verbs, LoadError> {
        static LOADED: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
        LOADED.get_or_init(|| Verbs::open(NAME)).as_ref().map_err(Clone::clone)
    }

    fn open(name: &str) -> Result<Verbs, LoadError> {
        // SAFETY: loading runs libibverbs' initialisers, which have no preconditions. A user who can place another
        // library of this name on the loader's path can control this process anyway.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| LoadError::Absent { name: name.to_owned(), why: error.to_string() })?;
        // SAFETY: all headers that declare a function of this name give it this type. The function is called only while
        // `Symbols`, which is created below, keeps the library loaded.
        let data_in_order =
            unsafe { library.get::<DataInOrder>(b"ibv_query_qp_data_in_order\0") }.ok().map(|symbol| *symbol);
        // SAFETY: the soname (version 1) guarantees that functions of these names have the types of the headers, and
        // `Symbols` keeps the library loaded.
        let symbols = unsafe { Symbols::from_library(library) };
        let symbols =
            symbols.map_err(|error| LoadError::Incompatible { name: name.to_owned(), why: error.to_string() })?;
        Ok(Verbs { symbols, data_in_order, path: loaded_file(name) })
    }

    /// Returns the path of the loaded file, or `None` if `/proc` does not show it. The file name contains the full
    /// version.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the version of libibverbs, which contains the version of its interface and rdma-core's release
    /// (`1.14.44.0` belongs to rdma-core 44).
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.path.as_deref()?.file_name()?.to_str()?.strip_prefix("libibverbs.so.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_is_reported_in_one_line() {
        let error = Verbs::open("libibverbs-of-nowhere.so.1").unwrap_err();
        assert!(matches!(error, LoadError::Absent { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("libibverbs-of-nowhere.so.1") && text.contains("install rdma-core"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn library_that_is_not_libibverbs_is_incompatible() {
        let error = Verbs::open("libc.so.6").unwrap_err();
        assert!(matches!(&error, LoadError::Incompatible { why, .. } if why.contains("ibv_")), "{error}");
    }

    /// Every call returns the same result, whether or not libibverbs is installed.
    #[test]
    fn loading_twice_returns_the_same_result() {
        match (Verbs::load(), Verbs::load()) {
            (Ok(a), Ok(b)) => assert!(std::ptr::eq(a, b) && a.version().is_some_and(|v| v.starts_with("1."))),
            (a, b) => assert_eq!(a.err(), b.err()),
        }
    }
}
