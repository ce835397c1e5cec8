//! The links of members and clients: they break and come back, with the same process at the other end or another one.
//!
//! Nothing that was written on an earlier connection, or by an earlier process, may count on a later one. Members whose
//! memory is gone are let in here without one, to see what their links do; what their replicas do is no matter of these
//! tests.
#![forbid(unsafe_code)]

mod absent;
mod anew;
mod aside;
mod bed;
mod clients;
mod clocks;
mod envelopes;
mod failover;
mod fences;
mod heartbeats;
mod letters;
mod members;
mod queries;
mod reads;
mod replies;
mod room;
mod sets;
mod settling;
mod sharing;
mod stopped;
mod superseded;
mod time_entries;
mod transfer;
