//! Posting of work requests. Calls the provider's functions directly, as the headers' inline functions do.

use std::ptr;

use stentor_fabric::{Operation, QpKind};

use super::QueuePair;
use crate::domain::Region;
use crate::{Errno, sys};

pub(super) type PostSend =
    unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32;
pub(super) type PostRecv =
    unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32;

/// A range of local memory.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    /// Region of the memory. If it is deregistered before the operation has completed, the operation fails.
    pub region: &'a Region,
    /// Offset in the region, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// A location in a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// Address in the peer's address space.
    pub address: u64,
    /// Key of the peer's region.
    pub key: u32,
}

/// Data of a send or write.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Data that is copied when the request is posted.
    Inline(&'a [u8]),
    /// Data in a region, which the device reads later.
    Region(Local<'a>),
}

/// An operation of a queue pair.
pub type Work<'a> = Operation<Data<'a>, Local<'a>, Remote>;

/// Reason why a request was not posted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The provider refused the request.
    #[error("queue pair {qp_number} refused the request: {errno}; {}", remedy(*errno))]
    Refused {
        /// Number of the queue pair.
        qp_number: u32,
        /// The provider's error.
        errno: Errno,
    },
    /// The inline data is longer than the device granted when the queue pair was created.
    #[error("{bytes} bytes of inline data exceed the granted {granted} bytes: post them from a region")]
    InlineTooLong {
        /// Requested length, in bytes.
        bytes: usize,
        /// Granted length, in bytes.
        granted: u32,
    },
    /// The range is outside the region, or does not have 8 bytes for an atomic.
    #[error("{bytes} bytes at offset {offset} do not fit: the region has {region} bytes, and atomics need 8 bytes")]
    OutOfBounds {
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        bytes: u32,
        /// Length of the region, in bytes.
        region: u64,
    },
    /// The request is a READ or an atomic, which requires a reliable connection.
    #[error("an unreliable connection supports neither READs nor atomics: use a reliable one")]
    Unreliable,
}

fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::NO_MEMORY => "the queue is full: poll completions",
        // For some providers, the kernel accepts requests only from a process with the credentials that it had when it
        // opened the device.
        Errno::ACCESS | Errno::NOT_PERMITTED => {
            "a process must use the device with the user and the capabilities with which it opened the device: drop privileges \
             before the process starts"
        }
        errno if errno.is_gone() => "the device was removed: load its driver again, and restart this process",
        _ => "bring the queue pair to RTS first (to INIT for receives)",
    }
}

/// Local side of a request.
enum Half {
    Inline(*const u8, usize),
    Sge(sys::ibv_sge),
}

impl Half {
    fn of(data: Data<'_>) -> Result<Half, WorkError> {
        match data {
            Data::Inline(bytes) => Ok(Half::Inline(bytes.as_ptr(), bytes.len())),
            Data::Region(local) => sge(local).map(Half::Sge),
        }
    }
}

fn sge(local: Local<'_>) -> Result<sys::ibv_sge, WorkError> {
    let Local { region, offset, bytes } = local;
    if !region.contains(offset, bytes) {
        return Err(WorkError::OutOfBounds { offset, bytes, region: region.bytes() });
    }
    Ok(sys::ibv_sge { addr: region.address() + offset, length: bytes, lkey: region.local_key() })
}

fn word(local: Local<'_>) -> Result<sys::ibv_sge, WorkError> {
    if local.bytes != 8 {
        return Err(WorkError::OutOfBounds { offset: local.offset, bytes: local.bytes, region: local.region.bytes() });
    }
    sge(local)
}

fn rdma(remote: Remote) -> sys::ibv_send_wr__bindgen_ty_2 {
    sys::ibv_send_wr__bindgen_ty_2 {
        rdma: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: remote.address, rkey: remote.key },
    }
}

fn atomic(remote: Remote, compare_add: u64, swap: u64) -> sys::ibv_send_wr__bindgen_ty_2 {
    let Remote { address: remote_addr, key: rkey } = remote;
    sys::ibv_send_wr__bindgen_ty_2 {
        atomic: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey },
    }
}

/// Encodes a request, and returns its local side separately.
fn encode(work: &Work<'_>) -> Result<(sys::ibv_send_wr, Half), WorkError> {
    let mut wr = sys::ibv_send_wr::default();
    let half = match *work {
        Work::Write { data, remote, imm } => {
            wr.opcode = imm.map_or(sys::IBV_WR_RDMA_WRITE, |_| sys::IBV_WR_RDMA_WRITE_WITH_IMM);
            wr.__bindgen_anon_1.imm_data = imm.unwrap_or(0).to_be();
            wr.wr = rdma(remote);
            Half::of(data)?
        }
        Work::Send { data, imm } => {
            wr.opcode = imm.map_or(sys::IBV_WR_SEND, |_| sys::IBV_WR_SEND_WITH_IMM);
            wr.__bindgen_anon_1.imm_data = imm.unwrap_or(0).to_be();
            Half::of(data)?
        }
        Work::Read { local, remote } => {
            wr.opcode = sys::IBV_WR_RDMA_READ;
            wr.wr = rdma(remote);
            Half::Sge(sge(local)?)
        }
        Work::CompareSwap { local, remote, expected, new } => {
            wr.opcode = sys::IBV_WR_ATOMIC_CMP_AND_SWP;
            wr.wr = atomic(remote, expected, new);
            Half::Sge(word(local)?)
        }
        Work::FetchAdd { local, remote, add } => {
            wr.opcode = sys::IBV_WR_ATOMIC_FETCH_AND_ADD;
            wr.wr = atomic(remote, add, 0);
            Half::Sge(word(local)?)
        }
    };
    Ok((wr, half))
}

impl QueuePair {
    /// Posts an operation, which the device starts at once.
    ///
    /// # Errors
    /// See [`WorkError`]. In case of an error, no request was posted.
    pub fn post(&self, id: u64, work: &Work<'_>, signalled: bool) -> Result<(), WorkError> {
        let reads = matches!(work, Work::Read { .. } | Work::CompareSwap { .. } | Work::FetchAdd { .. });
        if reads && self.kind == QpKind::Unreliable {
            return Err(WorkError::Unreliable);
        }
        let (mut wr, half) = encode(work)?;
        wr.wr_id = id;
        wr.send_flags = if signalled { sys::IBV_SEND_SIGNALED } else { 0 };
        let mut sge = match half {
            Half::Sge(sge) => sge,
            Half::Inline(_, bytes) if bytes > self.inline_bytes as usize => {
                return Err(WorkError::InlineTooLong { bytes, granted: self.inline_bytes });
            }
            Half::Inline(at, bytes) => {
                wr.send_flags |= sys::IBV_SEND_INLINE;
                sys::ibv_sge { addr: at.expose_provenance() as u64, length: bytes as u32, lkey: 0 }
            }
        };
        wr.sg_list = &raw mut sge;
        wr.num_sge = i32::from(sge.length > 0);
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live, and the request and its list are valid until the call returns. The provider
        // copies both, and also inline data, which `work` borrows. Other memory is accessed by key: the device refuses
        // memory that is not registered, and `Region` keeps its memory allocated while it is registered.
        let returned = unsafe { (self.post_send)(self.raw.raw(), &raw mut wr, &raw mut bad) };
        self.posted(returned)
    }

    /// Posts a receive. `local` may be `None` for a WRITE_WITH_IMM or an empty message.
    ///
    /// # Errors
    /// See [`WorkError`]. In case of an error, no request was posted.
    pub fn post_recv(&self, id: u64, local: Option<Local<'_>>) -> Result<(), WorkError> {
        let mut sge = local.map(sge).transpose()?;
        let mut wr = sys::ibv_recv_wr { wr_id: id, ..Default::default() };
        if let Some(sge) = &mut sge {
            (wr.sg_list, wr.num_sge) = (&raw mut *sge, 1);
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the argument in `post` holds here too.
        let returned = unsafe { (self.post_recv)(self.raw.raw(), &raw mut wr, &raw mut bad) };
        self.posted(returned)
    }

    fn posted(&self, returned: i32) -> Result<(), WorkError> {
        Errno::check(returned).map_err(|errno| WorkError::Refused { qp_number: self.number(), errno })
    }
}
