//! Operations of endpoints: what the headers' inline functions do, by functions that are looked up once.
//!
//! All return [`Errno::AGAIN`] when there is no room: nothing was done then; let the provider work by reading the completion
//! queue, and post again. `FI_MORE` is not offered: a provider may hold back what was posted with it until something is
//! posted without, and what follows may be refused with `FI_EAGAIN`; then the promise cannot be kept.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use super::{Endpoint, PeerAddress};
use crate::errno::Errno;
use crate::sys::{self, bit};

/// A place that a provider may write to while an operation is under way (`FI_CONTEXT`, `FI_CONTEXT2`).
#[repr(C)]
#[derive(Debug)]
pub struct Scratch([*mut c_void; 8]);

impl Default for Scratch {
    fn default() -> Self {
        Scratch([ptr::null_mut(); 8])
    }
}

/// Memory of this process that an operation uses, and its registration's [descriptor](crate::Registration::descriptor),
/// which is null where the provider wants none.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Where.
    pub start: NonNull<u8>,
    /// How many bytes.
    pub bytes: usize,
    /// Which registration.
    pub descriptor: *mut c_void,
}

/// Memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The peer.
    pub peer: PeerAddress,
    /// From its registration's [base](crate::Registration::base) on.
    pub address: u64,
    /// Its registration's [key](crate::Registration::key).
    pub key: u64,
}

/// When a write is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completes {
    /// When its source may be used again; it may still be lost.
    Sent,
    /// When its data is in the peer's memory (`FI_DELIVERY_COMPLETE`).
    Delivered,
}

type Ep = *mut sys::fid_ep;
type Ptr = *mut c_void;

/// The functions, of which a provider may lack those of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Operations {
    send: unsafe extern "C" fn(Ep, *const c_void, usize, Ptr, u64, Ptr) -> isize,
    send_parts: unsafe extern "C" fn(Ep, *const sys::iovec, *mut Ptr, usize, u64, Ptr) -> isize,
    receive: unsafe extern "C" fn(Ep, Ptr, usize, Ptr, u64, Ptr) -> isize,
    inject: Option<unsafe extern "C" fn(Ep, *const c_void, usize, u64) -> isize>,
    tagged: Option<Tagged>,
    rma: Option<Rma>,
    atomic: Option<Atomic>,
}

#[derive(Clone, Copy)]
struct Tagged {
    send: unsafe extern "C" fn(Ep, *const c_void, usize, Ptr, u64, u64, Ptr) -> isize,
    receive: unsafe extern "C" fn(Ep, Ptr, usize, Ptr, u64, u64, u64, Ptr) -> isize,
    inject: Option<unsafe extern "C" fn(Ep, *const c_void, usize, u64, u64) -> isize>,
}

#[derive(Clone, Copy)]
struct Rma {
    read: unsafe extern "C" fn(Ep, Ptr, usize, Ptr, u64, u64, u64, Ptr) -> isize,
    write: unsafe extern "C" fn(Ep, *const sys::fi_msg_rma, u64) -> isize,
}

type Fetch = unsafe extern "C" fn(
    Ep,
    *const c_void,
    usize,
    Ptr,
    Ptr,
    Ptr,
    u64,
    u64,
    u64,
    sys::fi_datatype,
    sys::fi_op,
    Ptr,
) -> isize;

type Compare = unsafe extern "C" fn(
    Ep,
    *const c_void,
    usize,
    Ptr,
    *const c_void,
    Ptr,
    Ptr,
    Ptr,
    u64,
    u64,
    u64,
    sys::fi_datatype,
    sys::fi_op,
    Ptr,
) -> isize;

#[derive(Clone, Copy)]
struct Atomic {
    fetch: Fetch,
    compare: Compare,
}

impl Operations {
    /// Looks them up.
    ///
    /// # Safety
    /// The endpoint lives and is enabled.
    pub(crate) unsafe fn of(ep: Ep) -> Result<Operations, Errno> {
        // SAFETY: the caller's promise: tables are there, or null where the provider has nothing of a kind.
        let (ep, message) = unsafe { (&*ep, (*ep).msg.as_ref()) };
        let message = message.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the same.
        let (tagged, rma, atomic) = unsafe { (ep.tagged.as_ref(), ep.rma.as_ref(), ep.atomic.as_ref()) };
        Ok(Operations {
            send: message.send.ok_or(Errno::NOT_SUPPORTED)?,
            send_parts: message.sendv.ok_or(Errno::NOT_SUPPORTED)?,
            receive: message.recv.ok_or(Errno::NOT_SUPPORTED)?,
            inject: message.inject,
            tagged: tagged.and_then(|of| Some(Tagged { send: of.send?, receive: of.recv?, inject: of.inject })),
            rma: rma.and_then(|of| Some(Rma { read: of.read?, write: of.writemsg? })),
            atomic: atomic.and_then(|of| Some(Atomic { fetch: of.readwrite?, compare: of.compwrite? })),
        })
    }
}

/// Each of these is posted with a context, which comes back in the completion.
///
/// # Safety
/// For all of them: local memory and the context's [`Scratch`] stay until the completion has come or the endpoint is dropped,
/// and are not used otherwise; what is sent is not changed until then. The peer is one of this endpoint's.
impl Endpoint {
    /// Sends a message.
    ///
    /// # Errors
    /// See the module.
    ///
    /// # Safety
    /// See above.
    #[inline]
    pub unsafe fn send(&self, local: Local, to: PeerAddress, context: Ptr) -> Result<(), Errno> {
        let (start, bytes) = (local.start.as_ptr().cast_const().cast(), local.bytes);
        // SAFETY: the caller's promise.
        Errno::posted(unsafe { (self.operations().send)(self.raw(), start, bytes, local.descriptor, to.0, context) })
    }

    /// Sends a message that lies in two places.
    ///
    /// # Errors
    /// See the module.
    ///
    /// # Safety
    /// See above.
    #[inline]
    pub unsafe fn send_two(&self, parts: [Local; 2], to: PeerAddress, context: Ptr) -> Result<(), Errno> {
        let places = parts.map(|part| sys::iovec { iov_base: part.start.as_ptr().cast(), iov_len: part.bytes });
        let mut descriptors = parts.map(|part| part.descriptor);
        let count = if parts[1].bytes == 0 { 1 } else { 2 };
        // SAFETY: the caller's promise; the lists are copied during the call.
        let returned = unsafe {
            let (places, descriptors) = (places.as_ptr(), descriptors.as_mut_ptr());
            (self.operations().send_parts)(self.raw(), places, descriptors, count, to.0, context)
        };
        Errno::posted(returned)
    }

    /// Posts a receive, for a message of anybody.
    ///
    /// # Errors
    /// See the module.
    ///
    /// # Safety
    /// See above.
    #[inline]
    pub unsafe fn receive(&self, local: Local, context: Ptr) -> Result<(), Errno> {
        let Local { start, bytes, descriptor } = local;
        // SAFETY: the caller's promise.
        let returned = unsafe {
            (self.operations().receive)(self.raw(), start.as_ptr().cast(), bytes, descriptor, u64::MAX, context)
        };
        Errno::posted(returned)
    }

    /// Sends a short message (see [`Info::inject_bytes`](crate::Info::inject_bytes)), which is copied at once. There is no
    /// completion of it but a failure's.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] where there is no such thing.
    pub fn inject(&self, data: &[u8], to: PeerAddress) -> Result<(), Errno> {
        if data.len() > self.domain().info().inject_bytes() {
            return Err(Errno::INVALID);
        }
        let inject = self.operations().inject.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the data is there during the call, and not longer than what is copied.
        Errno::posted(unsafe { inject(self.raw(), data.as_ptr().cast(), data.len(), to.0) })
    }

    /// Sends a tagged message.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] where there are no tags.
    ///
    /// # Safety
    /// See above.
    #[inline]
    pub unsafe fn send_tagged(&self, local: Local, to: PeerAddress, tag: u64, context: Ptr) -> Result<(), Errno> {
        let tagged = self.operations().tagged.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let (start, bytes) = (local.start.as_ptr().cast_const().cast(), local.bytes);
        // SAFETY: the caller's promise.
        Errno::posted(unsafe { (tagged.send)(self.raw(), start, bytes, local.descriptor, to.0, tag, context) })
    }

    /// Posts a receive for a message whose tag is this one in all bits but those of `ignore`.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] where there are no tags.
    ///
    /// # Safety
    /// See above.
    #[inline]
    pub unsafe fn receive_tagged(&self, local: Local, tag: u64, ignore: u64, context: Ptr) -> Result<(), Errno> {
        let tagged = self.operations().tagged.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let Local { start, bytes, descriptor } = local;
        // SAFETY: the caller's promise.
        let returned = unsafe {
            (tagged.receive)(self.raw(), start.as_ptr().cast(), bytes, descriptor, u64::MAX, tag, ignore, context)
        };
        Errno::posted(returned)
    }

    /// Sends a short tagged message, which is copied at once. There is no completion of it but a failure's.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] where there is no such thing.
    pub fn inject_tagged(&self, data: &[u8], to: PeerAddress, tag: u64) -> Result<(), Errno> {
        if data.len() > self.domain().info().inject_bytes() {
            return Err(Errno::INVALID);
        }
        let inject = self.operations().tagged.and_then(|tagged| tagged.inject).ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the data is there during the call, and not longer than what is copied.
        Errno::posted(unsafe { inject(self.raw(), data.as_ptr().cast(), data.len(), to.0, tag) })
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] where there is no such thing.
    ///
    /// # Safety
    /// See above.
    #[inline]
    pub unsafe fn read(&self, local: Local, from: Remote, context: Ptr) -> Result<(), Errno> {
        let rma = self.operations().rma.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let (start, bytes) = (local.start.as_ptr().cast(), local.bytes);
        // SAFETY: the caller's promise.
        let returned = unsafe {
            (rma.read)(self.raw(), start, bytes, local.descriptor, from.peer.0, from.address, from.key, context)
        };
        Errno::posted(returned)
    }

    /// Writes to a peer's memory; with an immediate, the peer's completion queue has an entry of it.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] where there is no such thing.
    ///
    /// # Safety
    /// See above.
    #[inline]
    pub unsafe fn write(
        &self,
        local: Local,
        to: Remote,
        immediate: Option<u64>,
        completes: Completes,
        context: Ptr,
    ) -> Result<(), Errno> {
        let rma = self.operations().rma.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let own = sys::iovec { iov_base: local.start.as_ptr().cast(), iov_len: local.bytes };
        let theirs = sys::fi_rma_iov { addr: to.address, len: local.bytes, key: to.key };
        let mut descriptor = local.descriptor;
        let message = sys::fi_msg_rma {
            msg_iov: &raw const own,
            desc: &raw mut descriptor,
            iov_count: 1,
            addr: to.peer.0,
            rma_iov: &raw const theirs,
            rma_iov_count: 1,
            context,
            data: immediate.unwrap_or(0),
        };
        let delivered = if completes == Completes::Delivered { bit::DELIVERY_COMPLETE } else { 0 };
        let data = if immediate.is_some() { bit::REMOTE_CQ_DATA } else { 0 };
        // SAFETY: the caller's promise; the lists are copied during the call.
        Errno::posted(unsafe { (rma.write)(self.raw(), &raw const message, bit::COMPLETION | delivered | data) })
    }

    /// Adds to a word of a peer's memory; the old value goes to `old`, 8 bytes, and the operand is in `operand`, 8 bytes.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] where there is no such thing.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn fetch_add(&self, old: Local, operand: Local, to: Remote, context: Ptr) -> Result<(), Errno> {
        let atomic = self.operations().atomic.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the caller's promise.
        let returned = unsafe {
            (atomic.fetch)(
                self.raw(),
                operand.start.as_ptr().cast_const().cast(),
                1,
                operand.descriptor,
                old.start.as_ptr().cast(),
                old.descriptor,
                to.peer.0,
                to.address,
                to.key,
                sys::FI_UINT64,
                sys::FI_SUM,
                context,
            )
        };
        Errno::posted(returned)
    }

    /// Puts `operands[0]` into a word of a peer's memory if it equals `operands[1]`; the old value goes to `old`. All are of 8
    /// bytes.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] where there is no such thing.
    ///
    /// # Safety
    /// See above.
    pub unsafe fn compare_swap(&self, old: Local, operands: [Local; 2], to: Remote, context: Ptr) -> Result<(), Errno> {
        let atomic = self.operations().atomic.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let [new, expected] = operands;
        // SAFETY: the caller's promise.
        let returned = unsafe {
            (atomic.compare)(
                self.raw(),
                new.start.as_ptr().cast_const().cast(),
                1,
                new.descriptor,
                expected.start.as_ptr().cast_const().cast(),
                expected.descriptor,
                old.start.as_ptr().cast(),
                old.descriptor,
                to.peer.0,
                to.address,
                to.key,
                sys::FI_UINT64,
                sys::FI_CSWAP,
                context,
            )
        };
        Errno::posted(returned)
    }
}
