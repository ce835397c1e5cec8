//! The election by heartbeats: scripts, properties under random faults, detection times, and mutants.

mod graphs;
mod input;
mod planted;
mod properties;
mod scenarios;
mod script;
mod timing;
mod world;
