//! The decider of histories of calls.

mod by_hand;
mod oracle;
mod random;
mod service;
mod simulated;
mod simulator;
mod speed;
