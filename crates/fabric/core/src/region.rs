//! Regions, access and queue-pair parameters.

use crate::{ProcessId, Purpose};

/// A peer's rights to a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// READ only.
    Read,
    /// READ and WRITE.
    Write,
    /// READ, WRITE and atomics.
    Atomic,
}

/// The parameters of a region to register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionSpec {
    /// Purpose of the region. (owner, writer, purpose) is unique.
    pub purpose: Purpose,
    /// The one peer that the region is for (rule 6), and the only one that may ever write it. For memory that no peer
    /// writes, such as staging, `writer` is the owner itself. Further peers may be granted [`Access::Read`] where the
    /// fabric has [`many_readers`](crate::Capabilities::many_readers).
    pub writer: ProcessId,
    /// Size in bytes: a non-zero multiple of 64.
    pub bytes: u64,
}

/// A handle to a peer's region that this process may use. It is valid until the peer revokes the access or ends.
/// Requests posted with it after that fail and do not land. It is meaningless to another process and to the next life
/// of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteRegion {
    /// The owner.
    pub peer: ProcessId,
    /// The fabric's identifier for the region (an rkey, an index into a table).
    pub key: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// A location in a peer's region. The length is that of the operation's local data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteSpan {
    /// The region.
    pub region: RemoteRegion,
    /// Offset in bytes, a multiple of 8.
    pub offset: u64,
}

/// The reliability of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpKind {
    /// Reliable connection: every request is delivered once, or the queue pair breaks. Writes take effect in posting
    /// order, except on fabrics without [`ordered_writes`](crate::Capabilities::ordered_writes).
    Reliable,
    /// Unreliable connection: SEND and WRITE only, and losses are not reported.
    Unreliable,
}

/// Parameters of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QpConfig {
    /// Reliability of the connection.
    pub kind: QpKind,
    /// Maximum number of outstanding work requests, signalled or not.
    pub send_depth: u32,
    /// Maximum number of posted receives.
    pub recv_depth: u32,
    /// `true` if adjacent WRITEs may become one, where the fabric [merges them](crate::Capabilities::merges_writes).
    /// The bytes of the merged WRITE may land in any order (rule 2), so every WRITE on such a queue pair must validate
    /// itself.
    pub merges: bool,
}

impl QpConfig {
    /// Returns the parameters of a reliable queue pair.
    #[must_use]
    pub const fn reliable(send_depth: u32, recv_depth: u32) -> Self {
        QpConfig { kind: QpKind::Reliable, send_depth, recv_depth, merges: false }
    }

    /// Returns these parameters with merging of adjacent WRITEs allowed.
    #[must_use]
    pub const fn merging(self) -> Self {
        QpConfig { merges: true, ..self }
    }
}

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpState {
    /// The other end is not ready yet.
    Connecting,
    /// Work may be posted.
    Ready,
    /// The queue pair is broken: posts are refused, and outstanding requests are flushed.
    Error,
}
