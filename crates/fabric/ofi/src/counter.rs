//! Counters of the writes that peers make to this process's memory.

use std::ptr;

use crate::domain::{Domain, Fid};
use crate::errno::Errno;
use crate::sys;

/// A counter of peers' writes that have landed, for providers that support `FI_RMA_EVENT`.
pub(crate) struct Counter {
    raw: Fid<sys::fid_cntr>,
    read: unsafe extern "C" fn(*mut sys::fid_cntr) -> u64,
}

impl Counter {
    /// Creates a counter in `domain`, which must outlive the counter.
    pub(crate) fn new(domain: &Domain) -> Result<Counter, Errno> {
        let mut attributes = sys::fi_cntr_attr {
            events: sys::FI_CNTR_EVENTS_COMP,
            wait_obj: sys::FI_WAIT_NONE,
            wait_set: ptr::null_mut(),
            flags: 0,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: a live libfabric object has a valid function table.
        let open = unsafe { (*(*domain.raw()).ops).cntr_open }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the domain is live, and the caller keeps it longer than the counter.
        let returned = unsafe { open(domain.raw(), &raw mut attributes, &raw mut raw, ptr::null_mut()) };
        // SAFETY: `fid_cntr` begins with a `fid`, and the object was just created.
        let raw: Fid<sys::fid_cntr> = unsafe { Fid::new(returned, raw) }?;
        // SAFETY: a live libfabric object has a valid function table.
        let read = unsafe { (*(*raw.raw()).ops).read }.ok_or(Errno::NOT_SUPPORTED)?;
        Ok(Counter { raw, read })
    }

    pub(crate) fn fid(&self) -> &Fid<sys::fid_cntr> {
        &self.raw
    }

    #[inline]
    pub(crate) fn value(&self) -> u64 {
        // SAFETY: the counter is live.
        unsafe { (self.read)(self.raw.raw()) }
    }
}
