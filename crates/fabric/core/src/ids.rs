//! Ids of processes, regions and queue pairs.

use std::fmt;

/// A process of the cluster: a member of a group or a client. The number is the index in the cluster's process table,
/// and is equal at every process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub u16);

/// A local region, as returned by [`Fabric::register`](crate::Fabric::register).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u32);

/// A local queue pair, as returned by [`Fabric::connect`](crate::Fabric::connect) or
/// [`Fabric::join_set`](crate::Fabric::join_set).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QpId(pub u32);

/// The purpose of a region. Owner, writer and purpose together identify a region in the cluster. The protocol assigns
/// the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Purpose(pub u16);

/// A number that distinguishes queue pairs between the same two processes. Both ends use the same number to connect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Service(pub u16);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl ProcessId {
    /// Returns the id as an index into tables that have one entry per process.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl RegionId {
    /// Returns the id as an index into tables that have one entry per region.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl QpId {
    /// Returns the id as an index into tables that have one entry per queue pair.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
