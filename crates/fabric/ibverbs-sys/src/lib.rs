//! Bindings to libibverbs, generated from the headers of rdma-core.
//!
//! [`Symbols`] has the library's functions, which it finds when it is made from a loaded library. `cargo xtask bindings` writes
//! the bindings; the layouts of all structures are asserted when they are compiled.

#[rustfmt::skip]
mod bindings;

pub use bindings::*;

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Symbols")
    }
}
