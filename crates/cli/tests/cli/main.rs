//! The real binary, as a user runs it.

mod check;
mod config;
mod doctor;
mod documents;
mod sim;
mod support;
mod usage;
