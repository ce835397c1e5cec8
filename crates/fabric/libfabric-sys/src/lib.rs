//! Bindings to libfabric, generated from the headers of libfabric.
//!
//! [`Symbols`] holds pointers to the library's functions. Its constructor looks them up in a loaded library. `cargo
//! xtask bindings` generates the bindings. Assertions check the layouts of all structures at compile time, but only
//! on x86-64: some sizes differ on other architectures.

#[rustfmt::skip]
mod bindings;

pub use bindings::*;

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Symbols")
    }
}
