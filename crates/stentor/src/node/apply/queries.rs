//! Queries outside the order, in transit to the state machine.

use stentor_multicast::{ClientId, Incarnation};
use stentor_session::ReadyRead;

use super::KEPT;

/// The metadata of a query, for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct QueryHead {
    pub(super) client: ClientId,
    /// The name of the read, which the answer repeats.
    pub(super) name: u64,
    /// Order time that the group has reached before the answer. 0 if it is not known.
    pub(super) time: u64,
    /// The origin of the history that the value belongs to.
    pub(super) origin: Incarnation,
}

impl QueryHead {
    pub(in crate::node) fn of(read: &ReadyRead<'_>, origin: Incarnation) -> Self {
        QueryHead { client: read.client, name: read.name, time: read.time, origin }
    }
}

/// A list of queries, in order. It is reused, so a query usually allocates nothing once the buffers have grown.
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
            // These lengths were recorded by `push`.
            let (query, rest) = bytes.split_at(*length);
            bytes = rest;
            (*head, query)
        })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory that the queries occupy, in bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.entries[..]) + self.bytes.len()
    }

    /// Removes all queries. Up to [`KEPT`] bytes of each buffer are kept for later queries.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.entries.shrink_to(KEPT / size_of::<(QueryHead, usize)>());
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }
}
