//! The work requests of an endpoint.

use stentor_fabric::{Operation, Source, Span};

/// The source of the data of a SEND or WRITE. A region is read when a packet is made, and again for a retransmission.
pub type Data<'a> = Source<'a>;

/// A location in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Remote {
    /// Virtual address.
    pub va: u64,
    /// Key of the peer's region.
    pub rkey: u32,
}

/// An operation of the fabric contract, with the endpoint's types for data and locations.
pub type Request<'a> = Operation<Data<'a>, Span, Remote>;

/// A work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work<'a> {
    /// Id that the completion reports.
    pub id: u64,
    /// The operation.
    pub request: Request<'a>,
    /// `true` if the request has a completion even if it succeeds.
    pub signalled: bool,
    /// `true` if the completion of the peer's receive is a solicited event (SE).
    pub solicited: bool,
}

impl<'a> Work<'a> {
    /// Creates a signalled request.
    #[must_use]
    pub fn signalled(id: u64, request: Request<'a>) -> Work<'a> {
        Work { id, request, signalled: true, solicited: false }
    }
}
