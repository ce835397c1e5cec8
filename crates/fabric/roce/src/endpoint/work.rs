//! What is posted.

use stentor_fabric::{Operation, Source, Span};

/// Where the data of a SEND or WRITE comes from. A region is read when a packet is made, and again when it is sent again.
pub type Data<'a> = Source<'a>;

/// A place in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Remote {
    /// Virtual address.
    pub va: u64,
    /// Key.
    pub rkey: u32,
}

/// An operation of the endpoint.
pub type Request<'a> = Operation<Data<'a>, Span, Remote>;

/// A work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub request: Request<'a>,
    /// Whether success is reported.
    pub signalled: bool,
    /// Whether the peer's completion is a solicited event (SE).
    pub solicited: bool,
}

impl<'a> Work<'a> {
    /// A signalled request.
    #[must_use]
    pub fn signalled(id: u64, request: Request<'a>) -> Work<'a> {
        Work { id, request, signalled: true, solicited: false }
    }
}
