//! Fan-out sets: the network copies one WRITE to each of several peers.

use crate::{ProcessId, RemoteSpan};

/// A fan-out set: processes that can get copies of each other's writes ([`Fabric::join_set`](crate::Fabric::join_set)).
/// All of them must pass the same specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetSpec<'a> {
    /// Number of the set, equal at all of its processes and unique in the cluster.
    pub number: u16,
    /// Processes of the set, each once and in the same order at every process; at most [`SetSpec::MOST`].
    pub members: &'a [ProcessId],
}

impl SetSpec<'_> {
    /// Maximum number of processes of a set: the capacity of one level of the switch.
    pub const MOST: usize = 32;
}

/// One copy of a set's WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetTarget {
    /// The process that gets this copy. It belongs to the set and is not this process.
    pub peer: ProcessId,
    /// The destination, in a region of this peer that [`Fabric::resolve`](crate::Fabric::resolve) returned.
    pub to: RemoteSpan,
}

/// A WRITE to several peers of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetWrite<'a> {
    /// Id that the completion reports.
    pub id: u64,
    /// The data: copied while posting, a multiple of 8 bytes, at most
    /// [`Capabilities::inline_bytes`](crate::Capabilities::inline_bytes).
    pub data: &'a [u8],
    /// The copies, 1 to [`SetSpec::MOST`], each for a different peer.
    pub targets: &'a [SetTarget],
    /// `true` if a successful completion is reported, as for any work request.
    pub signalled: bool,
}
