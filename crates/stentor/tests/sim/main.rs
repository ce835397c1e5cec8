//! State machines under simulation: right ones pass, planted faults of theirs are found, and a seed repeats its run.

mod arguments;
mod planted;
mod repeats;
mod right;
mod scripts;
mod shop;
mod timers;
