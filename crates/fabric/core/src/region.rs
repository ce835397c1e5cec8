//! Regions, access and queue-pair parameters.

use crate::{ProcessId, Purpose};

/// What a peer may do with a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// READ only.
    Read,
    /// READ and WRITE.
    Write,
    /// READ, WRITE and atomics.
    Atomic,
}

/// A region to register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionSpec {
    /// What it is for. (owner, writer, purpose) is unique.
    pub purpose: Purpose,
    /// The one peer it is for (rule 6), and the only one that may ever write it; the owner itself for memory that nobody
    /// else writes, such as staging. Further peers may be granted [`Access::Read`] where the fabric has
    /// [`many_readers`](crate::Capabilities::many_readers).
    pub writer: ProcessId,
    /// Size in bytes: a multiple of 64, not 0.
    pub bytes: u64,
}

/// A peer's region, as this process may use it. Valid until the peer revokes it or goes away; what is posted with it after
/// that fails, and lands nowhere. Means nothing to another process, nor to this one's next life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteRegion {
    /// The owner.
    pub peer: ProcessId,
    /// The fabric's own name for it (an rkey, a slot in a table).
    pub key: u64,
    /// Its size, bytes.
    pub bytes: u64,
}

/// A place in a peer's region. The length is that of the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteSpan {
    /// The region.
    pub region: RemoteRegion,
    /// Offset in bytes, a multiple of 8.
    pub offset: u64,
}

/// Reliable or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpKind {
    /// Reliable connection: delivered once, in order, or the queue pair breaks.
    Reliable,
    /// Unreliable connection: SEND and WRITE only; what is lost is lost silently.
    Unreliable,
}

/// Parameters of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QpConfig {
    /// Reliable or not.
    pub kind: QpKind,
    /// Work requests that may be outstanding, signalled or not.
    pub send_depth: u32,
    /// Receives that may be posted.
    pub recv_depth: u32,
    /// WRITEs that adjoin may become one where the fabric [merges them](crate::Capabilities::merges_writes). Its bytes may land
    /// in any order (rule 2), so this is for owners whose WRITEs each validate themselves.
    pub merges: bool,
}

impl QpConfig {
    /// A reliable queue pair.
    #[must_use]
    pub const fn reliable(send_depth: u32, recv_depth: u32) -> Self {
        QpConfig { kind: QpKind::Reliable, send_depth, recv_depth, merges: false }
    }

    /// The same, whose WRITEs that adjoin may become one.
    #[must_use]
    pub const fn merging(self) -> Self {
        QpConfig { merges: true, ..self }
    }
}

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpState {
    /// The other end is not there yet.
    Connecting,
    /// Work may be posted.
    Ready,
    /// Broken; posts are refused, what was outstanding is flushed.
    Error,
}
