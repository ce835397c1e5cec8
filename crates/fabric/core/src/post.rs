//! Work requests, and the checks and translations that fabrics share.

use crate::memory::WORD;
use crate::{Capabilities, Opcode, PostError, RegionId, RemoteSpan};

/// A range of a local region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The region.
    pub region: RegionId,
    /// Offset in bytes, a multiple of 8.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

impl Span {
    /// Checks that a span is no longer than `max_message_bytes` and lies inside its region. `is_inside` returns whether
    /// a non-empty span whose offset is a multiple of 8 lies inside its region. An empty span is always valid.
    ///
    /// # Errors
    /// [`PostError::TooLong`], [`PostError::Misaligned`], [`PostError::OutOfLocalRegion`].
    #[inline]
    pub fn check(self, max_message_bytes: u64, is_inside: impl Fn(Span) -> bool) -> Result<(), PostError> {
        let Span { region, offset, bytes } = self;
        let (bytes, limit) = (u64::from(bytes), max_message_bytes);
        if bytes > limit {
            return Err(PostError::TooLong { bytes, limit });
        }
        if bytes > 0 {
            aligned(offset, 0)?;
            if !is_inside(self) {
                return Err(PostError::OutOfLocalRegion { region, offset, bytes });
            }
        }
        Ok(())
    }
}

#[inline]
fn aligned(offset: u64, bytes: u64) -> Result<(), PostError> {
    if (offset | bytes).is_multiple_of(WORD as u64) { Ok(()) } else { Err(PostError::Misaligned { offset, bytes }) }
}

/// The source of a work request's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source<'a> {
    /// Data that is copied while posting; the buffer is free for reuse at once. At most
    /// [`Capabilities::inline_bytes`](crate::Capabilities) bytes.
    Inline(&'a [u8]),
    /// Data that the NIC reads at some time before the completion. The span must not change until this request has
    /// completed. If the request is unsignalled, the span must not change until the next signalled request on the same
    /// queue pair has completed.
    Region(Span),
}

impl Source<'_> {
    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Source::Inline(data) => data.len() as u64,
            Source::Region(span) => u64::from(span.bytes),
        }
    }
}

/// The operation of a work request. The spans of WRITE, READ and atomics have lengths and offsets that are multiples of
/// 8 bytes, because remote memory is only ever read as 8-byte words (rule 4). A SEND may have any length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb<'a> {
    /// RDMA WRITE.
    Write {
        /// The data.
        source: Source<'a>,
        /// The destination.
        target: RemoteSpan,
    },
    /// RDMA WRITE_WITH_IMM: a WRITE that also consumes one posted receive of the peer.
    WriteImm {
        /// The data.
        source: Source<'a>,
        /// The destination.
        target: RemoteSpan,
        /// Immediate data, which the completion of the peer's receive reports.
        imm: u32,
    },
    /// RDMA READ.
    Read {
        /// The destination; undefined before the completion.
        local: Span,
        /// The source.
        remote: RemoteSpan,
    },
    /// SEND into a receive that the peer posted.
    Send {
        /// The data.
        source: Source<'a>,
        /// Immediate data to send along.
        imm: Option<u32>,
    },
    /// 8-byte compare-and-swap. The old value is written to `local` (8 bytes).
    CompareSwap {
        /// The destination of the old value.
        local: Span,
        /// The word in the peer's memory.
        remote: RemoteSpan,
        /// The expected value. The swap happens if the word equals this value.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// 8-byte fetch-and-add. The old value is written to `local` (8 bytes).
    FetchAdd {
        /// The destination of the old value.
        local: Span,
        /// The word in the peer's memory.
        remote: RemoteSpan,
        /// The addend; the sum wraps around.
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
    /// Returns the opcode of the completion.
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
    /// Checks that the fabric and the kind of connection have the operation, and checks lengths, alignment and local
    /// spans. The owner of the remote memory checks the bounds of remote spans.
    ///
    /// # Errors
    /// Returns a [`PostError`].
    #[inline]
    pub fn check(
        &self,
        has: &Capabilities,
        is_unreliable: impl Fn() -> bool,
        is_inside: impl Fn(Span) -> bool,
    ) -> Result<(), PostError> {
        let check_span = |span: &Span| span.check(has.max_message_bytes, &is_inside);
        let check_source = |source: &Source<'_>| match source {
            Source::Inline(data) if data.len() as u64 > has.inline_bytes.into() => {
                Err(PostError::InlineTooLong { bytes: data.len() as u64, limit: has.inline_bytes })
            }
            Source::Inline(_) => Ok(()),
            Source::Region(span) => check_span(span),
        };
        match self {
            Verb::Write { source, target } | Verb::WriteImm { source, target, .. } => {
                check_source(source)?;
                aligned(target.offset, source.bytes())
            }
            Verb::TaggedSend { .. } if !has.tagged => Err(PostError::Unsupported("tagged send")),
            Verb::Send { source, .. } | Verb::TaggedSend { source, .. } => check_source(source),
            Verb::Read { .. } if is_unreliable() => Err(PostError::Unsupported("READ on an unreliable connection")),
            Verb::Read { local, remote } => {
                check_span(local)?;
                aligned(remote.offset, local.bytes.into())
            }
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } if !has.atomics => {
                Err(PostError::Unsupported("atomic operation"))
            }
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } if is_unreliable() => {
                Err(PostError::Unsupported("atomic operation on an unreliable connection"))
            }
            Verb::CompareSwap { local, remote, .. } | Verb::FetchAdd { local, remote, .. } => {
                if local.bytes as usize != WORD {
                    return Err(PostError::Misaligned { offset: local.offset, bytes: local.bytes.into() });
                }
                check_span(local)?;
                aligned(remote.offset, WORD as u64)
            }
        }
    }
}

impl<'a> Verb<'a> {
    /// Translates the verb for a device, which names memory in its own terms. RDMA devices have no tagged send.
    ///
    /// # Errors
    /// [`PostError::Unsupported`] for a tagged send.
    #[inline]
    pub fn operation<D, L, R>(
        &self,
        data: impl Fn(&Source<'a>) -> D,
        local: impl Fn(Span) -> L,
        remote: impl Fn(&RemoteSpan) -> R,
    ) -> Result<Operation<D, L, R>, PostError> {
        Ok(match self {
            Verb::Write { source, target } => {
                Operation::Write { data: data(source), remote: remote(target), imm: None }
            }
            Verb::WriteImm { source, target, imm } => {
                Operation::Write { data: data(source), remote: remote(target), imm: Some(*imm) }
            }
            Verb::Send { source, imm } => Operation::Send { data: data(source), imm: *imm },
            Verb::Read { local: to, remote: from } => Operation::Read { local: local(*to), remote: remote(from) },
            Verb::CompareSwap { local: to, remote: at, expected, new } => {
                Operation::CompareSwap { local: local(*to), remote: remote(at), expected: *expected, new: *new }
            }
            Verb::FetchAdd { local: to, remote: at, add } => {
                Operation::FetchAdd { local: local(*to), remote: remote(at), add: *add }
            }
            Verb::TaggedSend { .. } => return Err(PostError::Unsupported("tagged send")),
        })
    }

    /// Returns the verb with its inline data replaced by `data`. A verb without inline data is returned unchanged.
    #[must_use]
    pub fn with_inline<'b>(self, data: &'b [u8]) -> Verb<'b> {
        let with = |source: Source<'a>| match source {
            Source::Inline(_) => Source::Inline(data),
            Source::Region(span) => Source::Region(span),
        };
        match self {
            Verb::Write { source, target } => Verb::Write { source: with(source), target },
            Verb::WriteImm { source, target, imm } => Verb::WriteImm { source: with(source), target, imm },
            Verb::Send { source, imm } => Verb::Send { source: with(source), imm },
            Verb::TaggedSend { source, tag } => Verb::TaggedSend { source: with(source), tag },
            Verb::Read { local, remote } => Verb::Read { local, remote },
            Verb::CompareSwap { local, remote, expected, new } => Verb::CompareSwap { local, remote, expected, new },
            Verb::FetchAdd { local, remote, add } => Verb::FetchAdd { local, remote, add },
        }
    }

    /// Returns the inline data; empty if there is none.
    #[must_use]
    pub fn inline(&self) -> &'a [u8] {
        match self {
            Verb::Write { source: Source::Inline(data), .. }
            | Verb::WriteImm { source: Source::Inline(data), .. }
            | Verb::Send { source: Source::Inline(data), .. }
            | Verb::TaggedSend { source: Source::Inline(data), .. } => data,
            _ => &[],
        }
    }
}

/// A verb in a device's terms: data is a `D`, local memory an `L`, and the peer's memory an `R`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<D, L, R> {
    /// SEND, optionally with an immediate.
    Send {
        /// The data.
        data: D,
        /// The immediate.
        imm: Option<u32>,
    },
    /// WRITE. With an immediate it consumes a receive of the peer.
    Write {
        /// The data.
        data: D,
        /// The destination.
        remote: R,
        /// The immediate.
        imm: Option<u32>,
    },
    /// READ.
    Read {
        /// The destination.
        local: L,
        /// The source.
        remote: R,
    },
    /// Compare-and-swap. The old value is written to `local` (8 bytes).
    CompareSwap {
        /// The destination of the old value.
        local: L,
        /// The word in the peer's memory.
        remote: R,
        /// The expected value. The swap happens if the word equals this value.
        expected: u64,
        /// The new value.
        new: u64,
    },
    /// Fetch-and-add. The old value is written to `local` (8 bytes).
    FetchAdd {
        /// The destination of the old value.
        local: L,
        /// The word in the peer's memory.
        remote: R,
        /// The addend.
        add: u64,
    },
}

/// One entry for a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkRequest<'a> {
    /// Id that the completion reports.
    pub id: u64,
    /// The operation.
    pub verb: Verb<'a>,
    /// `true` if a successful completion is reported. An unsuccessful one always is. An unsignalled request keeps its
    /// slot in the send queue until a later one on the same queue pair completes.
    pub signalled: bool,
}
