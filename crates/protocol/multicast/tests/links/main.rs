//! The links of members and clients: they break and are re-established, with the same process at the other end or
//! another one.
//!
//! No record written on an earlier connection, or by an earlier process, may count on a later one. Members that restart
//! have no memory, and ask their group to admit them. The modules also test what depends on links: changes of the
//! leader, transfers of state, reads, replies and time entries.
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
