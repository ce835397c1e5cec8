//! Tests with several fabrics in one process, and with real processes.

mod bootstrap;
mod child;
mod conformance;
mod crash;
mod distrust;
mod life;
mod names;
mod relink;
mod revoke;
mod support;
mod verbs;
mod wake;
