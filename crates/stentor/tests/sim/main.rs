//! State machines under simulation: correct ones pass, mutants are found, and a seed reproduces its run.

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
