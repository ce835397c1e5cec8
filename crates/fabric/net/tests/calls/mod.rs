//! The calls of a fabric to its library or device while two processes execute a fixed script of the contract.
//!
//! The crates of the fabrics on top of `net` include this module. Each supplies a device that records its calls
//! ([`log::say`]), and compares all of them with a committed file ([`log::compare`]). The lines do not depend on the
//! names of Rust types, on addresses, or on timing.
#![allow(dead_code, reason = "each fabric uses some of it")]

pub(crate) mod log;
pub(crate) mod pair;
pub(crate) mod script;
mod words;
