//! Several fabrics in one process, and real processes.

mod support;
mod verbs;
