//! The store as clients see it: real nodes, real gateways, TCP.
#![forbid(unsafe_code)]

mod chaos;
mod connection;
mod hosts;
mod protocol;
mod server;
