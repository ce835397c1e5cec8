//! Tests against a real ZooKeeper server, which the tests start and stop themselves. They need the Debian package
//! `zookeeper`.
//!
//! Run `cargo xtask test --only zookeeper`, which installs the package.

mod candidate;
mod child;
mod death;
mod impostors;
mod line;
mod lost;
mod zookeeper;
