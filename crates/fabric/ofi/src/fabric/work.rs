//! Requests of the send queue in the form of provider operations, and the test whether two writes can be merged.
//!
//! If the owner of a queue pair allows merging, consecutive writes in its send queue that adjoin both locally and at
//! the peer are posted as one operation. For this purpose, inline data is copied to contiguous memory.

use stentor_fabric::RegionId;

use crate::endpoint::Local;

/// A location in a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct There {
    pub(super) key: u64,
    pub(super) address: u64,
}

/// An operation to post.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Write {
        local: Local,
        /// Region of the source; `None` for inline data and for a write with an immediate.
        region: Option<RegionId>,
        to: There,
        imm: Option<u32>,
    },
    Read {
        local: Local,
        from: There,
    },
    Send {
        local: Local,
        imm: Option<u32>,
        sent: u32,
    },
    Tagged {
        local: Local,
        tag: u64,
    },
    FetchAdd {
        old: Local,
        operand: Local,
        to: There,
    },
    CompareSwap {
        old: Local,
        /// Memory that holds the new value, followed by the expected value.
        operands: Local,
        to: There,
    },
    /// No operation of the provider: the peer has not granted access, or the request is already complete.
    Refused,
}

// SAFETY: the pointers are only passed to the provider when the operation is posted. The safety comments there state
// why the memory is valid.
unsafe impl Send for Work {}

impl Work {
    pub(super) fn key(&self) -> Option<u64> {
        match self {
            Work::Write { to, .. } | Work::FetchAdd { to, .. } | Work::CompareSwap { to, .. } => Some(to.key),
            Work::Read { from, .. } => Some(from.key),
            Work::Send { .. } | Work::Tagged { .. } | Work::Refused => None,
        }
    }

    /// Returns the length of a write that may be merged, or `None` for any other work.
    #[inline]
    pub(super) fn plain_write(&self) -> Option<usize> {
        match self {
            Work::Write { local, imm: None, .. } if local.bytes > 0 => Some(local.bytes),
            _ => None,
        }
    }

    /// Returns the length of `next` if it is a plain write that adjoins this write. `bytes` is the length of this write
    /// together with the writes that are already merged into it.
    #[inline]
    pub(super) fn adjoining(&self, bytes: usize, next: &Work) -> Option<usize> {
        let (Work::Write { local, region, to, .. }, Work::Write { local: source, region: from, to: place, .. }) =
            (self, next)
        else {
            return None;
        };
        let behind = There { key: to.key, address: to.address.wrapping_add(bytes as u64) };
        let adjoins = behind == *place
            && region == from
            && local.start.addr().get() + bytes == source.start.addr().get()
            && local.descriptor == source.descriptor;
        next.plain_write().filter(|_| adjoins)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    fn local(start: usize, bytes: usize) -> Local {
        let start = NonNull::without_provenance(start.try_into().unwrap());
        Local { start, bytes, descriptor: std::ptr::null_mut() }
    }

    fn write(start: usize, bytes: usize, address: u64) -> Work {
        Work::Write { local: local(start, bytes), region: None, to: There { key: 1, address }, imm: None }
    }

    #[test]
    fn write_merges_only_if_it_adjoins_at_both_ends() {
        let first = write(4096, 64, 128);
        assert_eq!(first.adjoining(64, &write(4160, 40, 192)), Some(40));
        assert_eq!(first.adjoining(104, &write(4200, 8, 232)), Some(8), "behind two");
        for (start, address) in [(4168, 192), (4152, 192), (4160, 200), (4160, 184)] {
            assert_eq!(first.adjoining(64, &write(start, 8, address)), None, "from {start} to {address}");
        }
    }

    #[test]
    fn only_plain_writes_within_the_same_memory_are_merged() {
        let first = write(4096, 64, 128);
        let to = There { key: 1, address: 192 };
        let next = local(4160, 8);
        let others = [
            Work::Write { local: next, region: Some(RegionId(0)), to, imm: None },
            Work::Write { local: next, region: None, to: There { key: 2, ..to }, imm: None },
            Work::Write { local: next, region: None, to, imm: Some(1) },
            Work::Write { local: local(4160, 0), region: None, to, imm: None },
            Work::Write {
                local: Local { descriptor: NonNull::dangling().as_ptr(), ..next },
                region: None,
                to,
                imm: None,
            },
            Work::Read { local: next, from: to },
            Work::Refused,
        ];
        for other in &others {
            assert_eq!(first.adjoining(64, other), None, "{other:?}");
        }
    }
}
