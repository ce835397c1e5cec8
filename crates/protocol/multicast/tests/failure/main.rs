//! The real state machines of all members under crashes, lost memory, rival candidates, broken connections and dead
//! clients, at random, and then, when the faults are over, until everything is delivered.
//!
//! Every step goes through the real codecs. A run is decided by its seed. `STENTOR_WALK_STEPS` sets how many steps each
//! cluster gets.
#![forbid(unsafe_code)]

mod abandoned;
mod amnesia;
mod cluster;
mod forgetful;
mod genesis;
mod hostile;
mod judge;
mod named;
mod net;
mod outrun;
mod succession;
mod walk;
