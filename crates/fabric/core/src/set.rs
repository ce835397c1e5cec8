//! Sets: one write, and a copy of it for each of several peers, made by the network.

use crate::{ProcessId, RemoteSpan};

/// Processes that may get copies of each other's writes ([`Fabric::join_set`](crate::Fabric::join_set)). All of them
/// describe it alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetSpec<'a> {
    /// Its number, the same at all of its processes and at no other set of the cluster.
    pub number: u16,
    /// Its processes, each once, in the same order everywhere: at most [`SetSpec::MOST`].
    pub members: &'a [ProcessId],
}

impl SetSpec<'_> {
    /// Processes of a set, at most: what one level of the switch serves.
    pub const MOST: usize = 32;
}

/// One copy of a set's write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetTarget {
    /// Whose copy it is; in the set, and not this process.
    pub peer: ProcessId,
    /// Where it goes: in a region of this peer that [`Fabric::resolve`](crate::Fabric::resolve) gave.
    pub to: RemoteSpan,
}

/// A WRITE to several peers of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetWrite<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// The data: copied while posting, a multiple of 8 bytes, at most
    /// [`Capabilities::inline_bytes`](crate::Capabilities::inline_bytes).
    pub data: &'a [u8],
    /// The copies, one to [`SetSpec::MOST`], each for another peer.
    pub targets: &'a [SetTarget],
    /// Whether a successful completion is reported, as of any work request.
    pub signalled: bool,
}
