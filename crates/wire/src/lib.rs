//! RoCEv2 packets: views, parsers and the invariant CRC.
//!
//! Nothing lives here yet. The crate holds its place on the map (`ARCHITECTURE.md`): it will know nobody,
//! do no I/O and contain no `unsafe`.
#![no_std]
#![forbid(unsafe_code)]
