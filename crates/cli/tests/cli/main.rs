//! The real binary, as a user runs it.

mod bench;
mod broken;
mod captures;
mod channel;
mod chaos;
mod check;
mod cluster;
mod config;
mod demo;
mod doctor;
mod documents;
mod limits;
mod memory;
mod namespaces;
mod neb;
mod neb_history;
mod neb_remove;
mod ofi;
mod pingpong;
mod places;
mod rings;
mod roce;
mod sim;
mod streams;
mod support;
mod usage;
