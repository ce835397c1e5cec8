//! Bindings to libfabric, generated from the headers of libfabric.
//!
//! [`Symbols`] holds the library's functions, which it looks up when it is created from a loaded library. `cargo xtask
//! bindings` writes the bindings. Assertions check the layouts of all structures at compile time.

#[rustfmt::skip]
mod bindings;

pub use bindings::*;

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Symbols")
    }
}
