//! Part of Stentor.
