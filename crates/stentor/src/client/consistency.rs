//! Guarantees of reads.

/// A guarantee of a [read](super::Client::read): how much of the order its answer contains.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Consistency {
    /// The query has a place in the global order, as a command has, and each group answers there. So the answer misses nothing that any
    /// client was answered by these groups before the query was sent. The answers of several groups show one cut through the order. An
    /// ordered read costs what a command costs.
    #[default]
    Ordered,
}
