//! Open devices: their attributes, limits and ports, and the owner type of libibverbs objects.

use std::ffi::CStr;
use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::Errno;
use crate::device;
use crate::load::Verbs;
use crate::sys::{self, Symbols};

/// A pointer to a libibverbs object. Any thread may call verbs on the object.
#[derive(Debug)]
pub(crate) struct Handle<T>(pub(crate) NonNull<T>);

// SAFETY: libibverbs guarantees that verbs may be called from any thread. An object is not tied to the thread that
// created it.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: libibverbs also guarantees that several threads may call verbs on one object at once; providers lock.
// Destroying an object requires `&mut` (in `Drop`) or its ownership.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// Wraps the pointer that a verb returned. A null pointer means that the verb failed.
    pub(crate) fn new(raw: *mut T) -> Result<Self, Errno> {
        NonNull::new(raw).map(Handle).ok_or_else(Errno::last)
    }

    pub(crate) fn raw(&self) -> *mut T {
        self.0.as_ptr()
    }
}

/// Reason why a device could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// libibverbs cannot list the devices.
    #[error("libibverbs cannot list devices: {errno}; {}", remedy(*errno))]
    List {
        /// Error code.
        errno: Errno,
    },
    /// libibverbs does not list the device.
    #[error(
        "libibverbs does not list {name}: install the provider of this device (Debian: ibverbs-providers); in a container, \
             pass /dev/infiniband to it"
    )]
    Unknown {
        /// Name of the device.
        name: String,
    },
    /// libibverbs lists the device but cannot open it.
    #[error("{name} cannot be opened: {errno}; {}", remedy(*errno))]
    Refused {
        /// Name of the device.
        name: String,
        /// Error code.
        errno: Errno,
    },
}

fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::NOT_PERMITTED => "allow this user /dev/infiniband/uverbs*",
        Errno::NO_MEMORY => "raise the limit of locked memory (ulimit -l)",
        Errno::NO_DEVICE => "the device was removed: load its driver again",
        _ => "run `modprobe ib_uverbs`; in a container, pass /dev/infiniband to it",
    }
}

/// Reason why a query of a device failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the {what} of {device} cannot be queried: {errno}")]
pub struct QueryError {
    /// Name of the device.
    pub device: String,
    /// Attribute that was queried.
    pub what: &'static str,
    /// Error code.
    pub errno: Errno,
}

/// Number of a port of a device, starting at 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortNumber(pub u8);

/// Maximum payload of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes, the largest value that fits into Ethernet's MTU of 1500 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// All values in ascending order.
    pub const ALL: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

    /// Returns the payload in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// Returns the largest MTU of at most `bytes` bytes, or `None` if `bytes` is below 256.
    #[must_use]
    pub fn at_most(bytes: u32) -> Option<Mtu> {
        Mtu::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes)
    }

    fn from_raw(raw: sys::ibv_mtu) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|mtu| sys::ibv_mtu::from(*mtu as u8) == raw)
    }
}

/// Attributes of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortAttributes {
    /// `true` if the port can carry packets.
    pub active: bool,
    /// Active MTU; `None` if the port reports an invalid value.
    pub mtu: Option<Mtu>,
    /// Number of entries in the GID table.
    pub gids: u32,
    /// LID of the port on InfiniBand; 0 on Ethernet.
    pub lid: u16,
    /// Maximum length of a message, in bytes.
    pub message_bytes: u32,
}

/// Limits of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of queue pairs.
    pub queue_pairs: u32,
    /// Maximum number of work requests in one queue.
    pub queue_depth: u32,
    /// Maximum number of completion queues.
    pub completion_queues: u32,
    /// Maximum number of entries in one completion queue.
    pub completions: u32,
    /// Maximum number of memory regions.
    pub regions: u32,
    /// Maximum length of one memory region, in bytes.
    pub region_bytes: u64,
    /// Maximum number of protection domains.
    pub domains: u32,
    /// Maximum number of READs and atomics that one queue pair accepts from peers at a time.
    pub reads_answered: u8,
    /// Maximum number of READs and atomics that one queue pair has outstanding at a time.
    pub reads_asked: u8,
    /// `true` if the device supports atomics.
    pub atomics: bool,
}

/// An open device.
pub struct Context {
    verbs: &'static Verbs,
    raw: Handle<sys::ibv_context>,
    name: String,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Context {
    /// Opens a device by name.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(verbs: &'static Verbs, name: &str) -> Result<Arc<Context>, OpenError> {
        let symbols = &verbs.symbols;
        let mut count = 0;
        // SAFETY: the call writes the number of devices to `count`, which outlives it. The list is freed below, after the
        // device was opened. An open device stays valid when the list is freed.
        let list = Handle::new(unsafe { symbols.ibv_get_device_list(&raw mut count) });
        let list = list.map_err(|errno| OpenError::List { errno })?;
        // SAFETY: the list has `count` pointers and does not change.
        let devices = unsafe { std::slice::from_raw_parts(list.raw(), usize::try_from(count).unwrap_or(0)) };
        let is_named = |device: &&*mut sys::ibv_device| {
            // SAFETY: the device is in a list that is not freed yet.
            let its = unsafe { symbols.ibv_get_device_name(**device) };
            // SAFETY: the name is a terminated string inside the device.
            unsafe { CStr::from_ptr(its) }.to_bytes() == name.as_bytes()
        };
        // SAFETY: as above, the list is not freed yet.
        let open = |device: &*mut sys::ibv_device| Handle::new(unsafe { symbols.ibv_open_device(*device) });
        let opened = devices.iter().find(is_named).map(open);
        // SAFETY: the list is the one returned above, and it is not used again.
        unsafe { symbols.ibv_free_device_list(list.raw()) };
        match opened {
            None => Err(OpenError::Unknown { name: name.to_owned() }),
            Some(Err(errno)) => Err(OpenError::Refused { name: name.to_owned(), errno: closed(name).unwrap_or(errno) }),
            Some(Ok(raw)) => {
                let context = Context { verbs, raw, name: name.to_owned() };
                let refused = |errno| OpenError::Refused { name: name.to_owned(), errno };
                non_blocking(context.event_descriptor()).map_err(refused)?;
                Ok(Arc::new(context))
            }
        }
    }

    /// Returns the device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn symbols(&self) -> &'static Symbols {
        &self.verbs.symbols
    }

    pub(crate) fn data_in_order(&self) -> Option<crate::load::DataInOrder> {
        self.verbs.data_in_order
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_context {
        self.raw.raw()
    }

    /// Queries the current attributes of a port.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn port(&self, port: PortNumber) -> Result<PortAttributes, QueryError> {
        let mut raw = sys::ibv_port_attr::default();
        // SAFETY: the context is open while `self` is live.
        let returned = unsafe { sys::query_port(&self.verbs.symbols, self.raw.raw(), port.0, &mut raw) };
        self.answered(returned, "port")?;
        Ok(PortAttributes {
            active: raw.state == sys::IBV_PORT_ACTIVE,
            mtu: Mtu::from_raw(raw.active_mtu),
            gids: number(raw.gid_tbl_len),
            lid: raw.lid,
            message_bytes: raw.max_msg_sz,
        })
    }

    /// Queries the limits of the device.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn limits(&self) -> Result<Limits, QueryError> {
        let mut raw = sys::ibv_device_attr::default();
        // SAFETY: the context is open while `self` is live; the call writes the structure.
        let returned = unsafe { self.verbs.symbols.ibv_query_device(self.raw.raw(), &raw mut raw) };
        self.answered(returned, "limits")?;
        let depth = |most: i32| u8::try_from(number(most)).unwrap_or(u8::MAX);
        Ok(Limits {
            queue_pairs: number(raw.max_qp),
            queue_depth: number(raw.max_qp_wr),
            completion_queues: number(raw.max_cq),
            completions: number(raw.max_cqe),
            regions: number(raw.max_mr),
            region_bytes: raw.max_mr_size,
            domains: number(raw.max_pd),
            reads_answered: depth(raw.max_qp_rd_atom),
            reads_asked: depth(raw.max_qp_init_rd_atom),
            atomics: raw.atomic_cap != sys::IBV_ATOMIC_NONE,
        })
    }

    fn answered(&self, returned: i32, what: &'static str) -> Result<(), QueryError> {
        Errno::check(returned).map_err(|errno| QueryError { device: self.name.clone(), what, errno })
    }
}

/// Opens the device file and returns the error, or `None` if it can be opened or there is no such file. libibverbs does
/// not report this error: after a failure it tries other paths, and finally reports that there is no device.
fn closed(name: &str) -> Option<Errno> {
    let devices = device::devices(Path::new(device::ROOT));
    let file = devices.into_iter().find(|device| device.name == name)?.file?;
    let opened = OpenOptions::new().read(true).write(true).open(file);
    opened.err()?.raw_os_error().map(Errno)
}

/// Makes reads from a descriptor non-blocking.
pub(crate) fn non_blocking(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the descriptor is open while it is borrowed. This call only reads its flags.
    let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is still borrowed. This call changes only its flags.
    let set = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
    Errno::check(set)
}

/// Converts a count, which is an `int` in the C interface. A negative count becomes 0.
fn number(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: every object created with the context holds an `Arc` of it, so none is left, and it is closed only
        // once.
        unsafe { self.verbs.symbols.ibv_close_device(self.raw.raw()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_are_those_of_the_headers() {
        assert_eq!(Mtu::from_raw(sys::IBV_MTU_256), Some(Mtu::B256));
        assert_eq!(Mtu::from_raw(sys::IBV_MTU_4096), Some(Mtu::B4096));
        assert_eq!(Mtu::ALL.map(Mtu::bytes), [256, 512, 1024, 2048, 4096]);
        assert_eq!((Mtu::from_raw(0), Mtu::from_raw(6)), (None, None));
        assert_eq!(
            [255, 256, 1500, 9000].map(Mtu::at_most),
            [None, Some(Mtu::B256), Some(Mtu::B1024), Some(Mtu::B4096)]
        );
    }

    /// The test checks nothing on a machine without libibverbs.
    #[test]
    fn missing_device_is_an_error() {
        if let Ok(verbs) = Verbs::load() {
            let error = Context::open(verbs, "nowhere0").unwrap_err();
            assert!(matches!(error, OpenError::Unknown { .. } | OpenError::List { .. }), "{error}");
        }
    }
}
