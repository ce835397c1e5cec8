//! The protocol as scripts: one member, with one test per input and its consequences. State and effects are both
//! asserted; an input that is refused leaves the state unchanged.
#![forbid(unsafe_code)]

mod ack;
mod counts;
mod founding;
mod lives;
mod message;
mod no_op;
mod probe;
mod process;
mod reset;
mod settling;
mod sharing;
mod starvation;
mod state;
mod stream;
mod succession;
mod time;
mod time_entries;
mod timestamp;
mod version_entries;
mod window;
mod words;
