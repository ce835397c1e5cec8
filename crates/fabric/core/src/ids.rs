//! Names of processes, regions and queue pairs.

use std::fmt;

/// A process of the cluster: a member of a group or a client. The index in the cluster's process table, the same
/// number at every process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub u16);

/// A local region, as [`Fabric::register`](crate::Fabric::register) named it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u32);

/// A local queue pair, as [`Fabric::connect`](crate::Fabric::connect) named it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QpId(pub u32);

/// What a region is for. Together with its owner and its one writer this names it across the cluster; the numbers
/// belong to the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Purpose(pub u16);

/// Which of several queue pairs between the same two processes. Both ends name the same service to meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Service(pub u16);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl ProcessId {
    /// The index into tables by process.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl RegionId {
    /// The index into tables by region.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl QpId {
    /// The index into tables by queue pair.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
