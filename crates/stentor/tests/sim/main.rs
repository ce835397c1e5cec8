//! State machines under simulation: right ones pass, planted faults of theirs are found, and a seed repeats its run.

mod arguments;
mod notifications;
mod planted;
#[cfg(feature = "plants")]
mod plants;
mod reads;
mod repeats;
mod right;
mod scripts;
mod shop;
mod timers;
