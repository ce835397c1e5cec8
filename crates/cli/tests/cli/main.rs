//! The real binary, as a user runs it.

mod bench;
mod captures;
mod channel;
mod chaos;
mod check;
mod cluster;
mod config;
mod demo;
mod doctor;
mod documents;
mod neb;
mod neb_history;
mod neb_remove;
mod ofi;
mod pingpong;
mod rings;
mod roce;
mod sim;
mod support;
mod usage;
