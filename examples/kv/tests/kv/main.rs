//! Tests of the store through real nodes, real gateways and TCP.
#![forbid(unsafe_code)]

mod chaos;
mod connection;
mod hosts;
mod protocol;
mod server;
