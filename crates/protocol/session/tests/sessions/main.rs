//! Sessions and callers together, on a total order that loses, repeats and delays messages.
#![forbid(unsafe_code)]

mod audit;
mod ends;
mod model;
mod notifications;
mod random;
mod script;
mod snapshot;
mod widenings;
mod world;
