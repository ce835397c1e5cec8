//! The election against a real ZooKeeper, which the tests start and end themselves: Debian package `zookeeper`.
//!
//! `cargo xtask test --only zookeeper`, or `cargo test -p stentor-election-zookeeper --features server-tests`.

mod candidate;
mod child;
mod death;
mod impostors;
mod line;
mod lost;
mod zookeeper;
