//! Work requests.

use crate::{Opcode, RegionId, RemoteSpan};

/// A place in a local region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The region.
    pub region: RegionId,
    /// Offset in bytes, a multiple of 8.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// Where the data of a work request comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source<'a> {
    /// Copied while posting; free for reuse at once. At most [`Capabilities::inline_bytes`](crate::Capabilities).
    Inline(&'a [u8]),
    /// Read by the NIC at some time before the completion. The span must not change until this request, or a later
    /// one on the same queue pair, has completed.
    Region(Span),
}

impl Source<'_> {
    /// Length in bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Source::Inline(data) => data.len() as u64,
            Source::Region(span) => u64::from(span.bytes),
        }
    }
}

/// What to do. Spans of WRITE, READ and atomics are multiples of 8 bytes at multiples of 8: remote memory is only ever
/// looked at as 8-byte words (rule 4). SENDs have any length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb<'a> {
    /// RDMA WRITE.
    Write {
        /// The data.
        source: Source<'a>,
        /// Where it goes.
        target: RemoteSpan,
    },
    /// RDMA WRITE_WITH_IMM: a WRITE that also consumes one posted receive of the peer.
    WriteImm {
        /// The data.
        source: Source<'a>,
        /// Where it goes.
        target: RemoteSpan,
        /// Handed to the peer in the completion of its receive.
        imm: u32,
    },
    /// RDMA READ.
    Read {
        /// Where the data goes; not to be looked at before the completion.
        local: Span,
        /// Where it comes from.
        remote: RemoteSpan,
    },
    /// SEND into a receive that the peer posted.
    Send {
        /// The data.
        source: Source<'a>,
        /// An immediate to go with it.
        imm: Option<u32>,
    },
    /// 8-byte compare-and-swap; the old value goes to `local` (8 bytes).
    CompareSwap {
        /// Where the old value goes.
        local: Span,
        /// The word.
        remote: RemoteSpan,
        /// Swap if the word equals this.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// 8-byte fetch-and-add; the old value goes to `local` (8 bytes).
    FetchAdd {
        /// Where the old value goes.
        local: Span,
        /// The word.
        remote: RemoteSpan,
        /// Added, wrapping.
        add: u64,
    },
    /// Tagged send (libfabric's model), on fabrics that have it.
    TaggedSend {
        /// The data.
        source: Source<'a>,
        /// The tag.
        tag: u64,
    },
}

impl Verb<'_> {
    /// What its completion says.
    #[inline]
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        match self {
            Verb::Write { .. } | Verb::WriteImm { .. } => Opcode::Write,
            Verb::Read { .. } => Opcode::Read,
            Verb::Send { .. } => Opcode::Send,
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => Opcode::Atomic,
            Verb::TaggedSend { .. } => Opcode::TaggedSend,
        }
    }
}

/// One entry for a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkRequest<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub verb: Verb<'a>,
    /// Whether a successful completion is reported. An unsuccessful one always is. A request that is not signalled
    /// keeps its place in the send queue until a later one on the same queue pair completes.
    pub signalled: bool,
}
