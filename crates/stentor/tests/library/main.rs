//! Tests of the public interface, of processes of users, and of the loops below them.
//!
//! They form one program, because each test program is compiled with every fabric. Tests that count allocations,
//! capture the log or measure processor time are programs of their own.

mod apply;
mod broadcast;
mod channel;
mod client;
mod client_calls;
mod client_errors;
mod counter;
mod direct_reads;
mod election_driver;
mod embedded;
mod embedded_ends;
mod examples;
mod missed_ballot;
mod node;
mod notifications;
mod observers;
mod observers_apart;
mod ofi;
mod operators;
mod out_of_range;
mod processes;
mod reads;
mod roce_cluster;
mod shm_cluster;
mod superseded;
mod switch;
mod timers;
mod versions;

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/log.rs"]
mod log;
#[path = "../common/nodes.rs"]
mod nodes;
#[path = "../common/until.rs"]
mod until;
