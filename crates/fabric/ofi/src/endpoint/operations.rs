//! Operations of endpoints: the functions that the headers' inline functions call, looked up once per endpoint.
//!
//! Every operation returns [`Errno::AGAIN`] if the provider's queue is full. The operation is then not posted. The
//! caller must read the completion queue, which drives the provider, and post again.
//!
//! `FI_MORE` is not supported. A provider may hold back operations that were posted with this flag until one is posted
//! without it. Because that later post may fail with `FI_EAGAIN`, a caller cannot promise that it will follow.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use super::{Endpoint, PeerAddress};
use crate::errno::Errno;
use crate::sys::{self, bit};

/// Memory that a provider may write while an operation is outstanding (`FI_CONTEXT`, `FI_CONTEXT2`).
#[repr(C)]
#[derive(Debug)]
pub struct Scratch([*mut c_void; 8]);

impl Default for Scratch {
    fn default() -> Self {
        Scratch([ptr::null_mut(); 8])
    }
}

/// Memory of this process that an operation uses, and the [descriptor](crate::Registration::descriptor) of its
/// registration. The descriptor is null if the provider requires no registration.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Start of the memory.
    pub start: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
    /// Descriptor of the registration.
    pub descriptor: *mut c_void,
}

/// Memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address of the peer.
    pub peer: PeerAddress,
    /// Address in the peer's memory: the [base](crate::Registration::base) of its registration plus an offset.
    pub address: u64,
    /// [Key](crate::Registration::key) of the peer's registration.
    pub key: u64,
}

/// Event at which a write completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completes {
    /// The write completes when its source may be reused. It may still be lost afterwards.
    Sent,
    /// The write completes when its data is in the peer's memory (`FI_DELIVERY_COMPLETE`).
    Delivered,
}

type Ep = *mut sys::fid_ep;
type Ptr = *mut c_void;

/// Function pointers of an endpoint's operations. The groups in `Option` are optional for providers.
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
    /// Looks up the functions of an endpoint.
    ///
    /// # Safety
    /// The endpoint must be live and enabled.
    pub(crate) unsafe fn of(ep: Ep) -> Result<Operations, Errno> {
        // SAFETY: guaranteed by the caller. Each table pointer is valid, or null if the provider does not support that
        // kind of operations.
        let (ep, message) = unsafe { (&*ep, (*ep).msg.as_ref()) };
        let message = message.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: as above.
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

/// Every operation except an injected one is posted with a context, which its completion returns.
///
/// # Safety
/// For all operations: local memory and the context's [`Scratch`] must stay valid until the completion arrives or the
/// endpoint is dropped. Meanwhile nothing else may use the scratch, and other accesses to the local memory must be
/// atomic. The source of a send or write must not change until then. The peer must have been inserted by this endpoint.
impl Endpoint {
    /// Sends a message.
    ///
    /// # Errors
    /// See the module.
    ///
    /// # Safety
    /// See the `impl` block.
    #[inline]
    pub unsafe fn send(&self, local: Local, to: PeerAddress, context: Ptr) -> Result<(), Errno> {
        let (start, bytes) = (local.start.as_ptr().cast_const().cast(), local.bytes);
        // SAFETY: guaranteed by the caller.
        Errno::posted(unsafe { (self.operations().send)(self.raw(), start, bytes, local.descriptor, to.0, context) })
    }

    /// Sends one message from two parts.
    ///
    /// # Errors
    /// See the module.
    ///
    /// # Safety
    /// See the `impl` block.
    #[inline]
    pub unsafe fn send_two(&self, parts: [Local; 2], to: PeerAddress, context: Ptr) -> Result<(), Errno> {
        let places = parts.map(|part| sys::iovec { iov_base: part.start.as_ptr().cast(), iov_len: part.bytes });
        let mut descriptors = parts.map(|part| part.descriptor);
        let count = if parts[1].bytes == 0 { 1 } else { 2 };
        // SAFETY: guaranteed by the caller; the provider copies the lists during the call.
        let returned = unsafe {
            let (places, descriptors) = (places.as_ptr(), descriptors.as_mut_ptr());
            (self.operations().send_parts)(self.raw(), places, descriptors, count, to.0, context)
        };
        Errno::posted(returned)
    }

    /// Posts a receive for a message from any peer.
    ///
    /// # Errors
    /// See the module.
    ///
    /// # Safety
    /// See the `impl` block.
    #[inline]
    pub unsafe fn receive(&self, local: Local, context: Ptr) -> Result<(), Errno> {
        let Local { start, bytes, descriptor } = local;
        // SAFETY: guaranteed by the caller.
        let returned = unsafe {
            (self.operations().receive)(self.raw(), start.as_ptr().cast(), bytes, descriptor, u64::MAX, context)
        };
        Errno::posted(returned)
    }

    /// Sends a short message (see [`Info::inject_bytes`](crate::Info::inject_bytes)), which the provider copies during
    /// the call. The operation has a completion only if it fails.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] if the provider cannot inject, and [`Errno::INVALID`] if the message is
    /// too long.
    pub fn inject(&self, data: &[u8], to: PeerAddress) -> Result<(), Errno> {
        if data.len() > self.domain().info().inject_bytes() {
            return Err(Errno::INVALID);
        }
        let inject = self.operations().inject.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the data is valid during the call and not longer than the provider copies.
        Errno::posted(unsafe { inject(self.raw(), data.as_ptr().cast(), data.len(), to.0) })
    }

    /// Sends a tagged message.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] if the provider has no tagged messages.
    ///
    /// # Safety
    /// See the `impl` block.
    #[inline]
    pub unsafe fn send_tagged(&self, local: Local, to: PeerAddress, tag: u64, context: Ptr) -> Result<(), Errno> {
        let tagged = self.operations().tagged.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let (start, bytes) = (local.start.as_ptr().cast_const().cast(), local.bytes);
        // SAFETY: guaranteed by the caller.
        Errno::posted(unsafe { (tagged.send)(self.raw(), start, bytes, local.descriptor, to.0, tag, context) })
    }

    /// Posts a receive for a message whose tag equals `tag` in all bits that are clear in `ignore`.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] if the provider has no tagged messages.
    ///
    /// # Safety
    /// See the `impl` block.
    #[inline]
    pub unsafe fn receive_tagged(&self, local: Local, tag: u64, ignore: u64, context: Ptr) -> Result<(), Errno> {
        let tagged = self.operations().tagged.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let Local { start, bytes, descriptor } = local;
        // SAFETY: guaranteed by the caller.
        let returned = unsafe {
            (tagged.receive)(self.raw(), start.as_ptr().cast(), bytes, descriptor, u64::MAX, tag, ignore, context)
        };
        Errno::posted(returned)
    }

    /// Sends a short tagged message, which the provider copies during the call. The operation has a completion only if
    /// it fails.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] if the provider cannot inject, and [`Errno::INVALID`] if the message is
    /// too long.
    pub fn inject_tagged(&self, data: &[u8], to: PeerAddress, tag: u64) -> Result<(), Errno> {
        if data.len() > self.domain().info().inject_bytes() {
            return Err(Errno::INVALID);
        }
        let inject = self.operations().tagged.and_then(|tagged| tagged.inject).ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the data is valid during the call and not longer than the provider copies.
        Errno::posted(unsafe { inject(self.raw(), data.as_ptr().cast(), data.len(), to.0, tag) })
    }

    /// Reads from a peer's memory.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] if the provider has no RMA.
    ///
    /// # Safety
    /// See the `impl` block.
    #[inline]
    pub unsafe fn read(&self, local: Local, from: Remote, context: Ptr) -> Result<(), Errno> {
        let rma = self.operations().rma.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let (start, bytes) = (local.start.as_ptr().cast(), local.bytes);
        // SAFETY: guaranteed by the caller.
        let returned = unsafe {
            (rma.read)(self.raw(), start, bytes, local.descriptor, from.peer.0, from.address, from.key, context)
        };
        Errno::posted(returned)
    }

    /// Writes to a peer's memory. With an immediate, the write also produces a completion in the peer's completion
    /// queue.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] if the provider has no RMA.
    ///
    /// # Safety
    /// See the `impl` block.
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
        // SAFETY: guaranteed by the caller; the provider copies the lists during the call.
        Errno::posted(unsafe { (rma.write)(self.raw(), &raw const message, bit::COMPLETION | delivered | data) })
    }

    /// Adds the 8-byte `operand` to a word of a peer's memory and stores the old value in `old`, which has 8 bytes.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] if the provider has no atomics.
    ///
    /// # Safety
    /// See the `impl` block.
    pub unsafe fn fetch_add(&self, old: Local, operand: Local, to: Remote, context: Ptr) -> Result<(), Errno> {
        let atomic = self.operations().atomic.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: guaranteed by the caller.
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

    /// Stores `operands[0]` in a word of a peer's memory if that word equals `operands[1]`. The old value is stored in
    /// `old`. All operands have 8 bytes.
    ///
    /// # Errors
    /// See the module; [`Errno::NOT_SUPPORTED`] if the provider has no atomics.
    ///
    /// # Safety
    /// See the `impl` block.
    pub unsafe fn compare_swap(&self, old: Local, operands: [Local; 2], to: Remote, context: Ptr) -> Result<(), Errno> {
        let atomic = self.operations().atomic.as_ref().ok_or(Errno::NOT_SUPPORTED)?;
        let [new, expected] = operands;
        // SAFETY: guaranteed by the caller.
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
