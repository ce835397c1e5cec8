//! Compiles the Rust code of the book: every block that is marked as Rust in the pages of the root folder, of `docs/`
//! and of the examples `bank`, `kv` and `lock`.
//!
//! The build script copies the blocks into functions and `impl`s. A comment directly above a block declares the names
//! that the block uses:
//!
//! - `<!-- code: RUST -->`: the code is placed before the block, in the same function.
//! - `<!-- methods of TYPE: RUST -->`: the code is placed before an `impl TYPE`, which has the block's functions.
//!
//! A block with more than `rust` as its language, such as `rust,ignore`, is not compiled and needs a reason above:
//! `<!-- not compiled: REASON -->`. In the code of blocks `…` represents any expression. The code is not run.
#![forbid(unsafe_code)]

mod given;

#[allow(clippy::all, clippy::pedantic, unused, unreachable_code, dead_code, reason = "blocks are excerpts")]
mod blocks {
    include!(concat!(env!("OUT_DIR"), "/blocks.rs"));
}
