//! What a fabric asks of its library or device while two processes go through a fixed script of the contract.
//!
//! The crates of the fabrics that stand on `net` include this. Each brings a device that notes what it is asked for
//! ([`log::say`]), and compares the whole with a file that it has committed ([`log::compare`]). Nothing in there depends on the
//! names of Rust's types, on addresses, or on how long anything takes.
#![allow(dead_code, reason = "each fabric uses some of it")]

pub(crate) mod log;
pub(crate) mod pair;
pub(crate) mod script;
mod words;
