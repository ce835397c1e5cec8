//! The real binary, as a user runs it.

mod config;
mod doctor;
mod documents;
mod support;
mod usage;
