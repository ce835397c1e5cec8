//! The conformance suite: the same tests run against every fabric.
