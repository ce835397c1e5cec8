//! Tests of the decision about histories of calls.

mod by_hand;
mod oracle;
mod random;
mod service;
mod simulated;
mod simulator;
mod speed;
