//! Queries on their way to the machine, outside the order.

use stentor_multicast::{ClientId, Incarnation};
use stentor_session::ReadyRead;

use super::KEPT;

/// What a query's answer says beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct QueryHead {
    pub(super) client: ClientId,
    /// What the answer names.
    pub(super) name: u64,
    /// The answer says that it is as late as this at least.
    pub(super) time: u64,
    /// Where the history began that the value is part of.
    pub(super) origin: Incarnation,
}

impl QueryHead {
    pub(in crate::node) fn of(read: &ReadyRead<'_>, origin: Incarnation) -> Self {
        QueryHead { client: read.client, name: read.name, time: read.time, origin }
    }
}

/// Queries in their order. It is used again, so no query allocates once it has grown.
#[derive(Debug, Default)]
pub(super) struct Queries {
    entries: Vec<(QueryHead, usize)>,
    bytes: Vec<u8>,
}

impl Queries {
    pub(super) fn push(&mut self, head: QueryHead, query: &[u8]) {
        self.entries.push((head, query.len()));
        self.bytes.extend_from_slice(query);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (QueryHead, &[u8])> {
        let mut bytes = &self.bytes[..];
        self.entries.iter().map(move |(head, length)| {
            // The lengths are those of `push`.
            let (query, rest) = bytes.split_at(*length);
            bytes = rest;
            (*head, query)
        })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of memory that the queries take.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.entries[..]) + self.bytes.len()
    }

    /// Makes it empty. Some memory stays for later queries.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.entries.shrink_to(KEPT / size_of::<(QueryHead, usize)>());
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }
}
