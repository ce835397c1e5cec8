//! The election by heartbeats: scripts, properties over random faults, the time to detect, mutants.

mod graphs;
mod input;
mod planted;
mod properties;
mod scenarios;
mod script;
mod timing;
mod world;
