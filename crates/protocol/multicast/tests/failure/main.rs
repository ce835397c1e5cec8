//! The real state machines of all members under random crashes, lost memory, rival candidates, broken connections and
//! dead clients. When the faults are over, each run continues until everything is delivered.
//!
//! Every step passes through the real codecs. The seed determines a run. `STENTOR_WALK_STEPS` sets the number of steps
//! of each cluster in `walk`.
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
