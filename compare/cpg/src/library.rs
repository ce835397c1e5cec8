//! `libcpg.so.4`, loaded at run time, so that this program also builds on machines without corosync.
//!
//! The signatures are those of corosync 3.1's `corosync/cpg.h`.

use std::ffi::{c_char, c_int, c_void};

use anyhow::{Context as _, Result};
use libloading::{Library, Symbol};

/// A connection to the daemon.
pub type Handle = u64;

/// `CS_OK`.
pub const OK: c_int = 1;
/// `CS_ERR_TRY_AGAIN`.
pub const TRY_AGAIN: c_int = 6;
/// `CPG_TYPE_AGREED`: every member delivers all messages in one order.
pub const AGREED: c_int = 2;
/// `CS_DISPATCH_ALL`: calls back for all available events, and does not wait.
pub const DISPATCH_ALL: c_int = 2;

/// `struct cpg_name`.
#[repr(C)]
pub struct Name {
    length: u32,
    value: [c_char; 128],
}

impl Name {
    /// Returns a name of at most 128 bytes.
    pub fn new(text: &str) -> Self {
        let mut value = [0; 128];
        for (to, from) in value.iter_mut().zip(text.bytes()) {
            *to = from as c_char;
        }
        Name { length: text.len().min(128) as u32, value }
    }
}

/// `struct iovec`.
#[repr(C)]
pub struct Part {
    /// The first byte.
    pub base: *const c_void,
    /// The number of bytes.
    pub length: usize,
}

type Deliver = extern "C" fn(Handle, *const Name, u32, u32, *const c_void, usize);
type Changed = extern "C" fn(Handle, *const Name, *const c_void, usize, *const c_void, usize, *const c_void, usize);

/// `cpg_callbacks_t`.
#[repr(C)]
pub struct Callbacks {
    /// Callback for a message. Its arguments are the connection, the group, the sender's node and process, the message,
    /// and the message's length.
    pub deliver: Deliver,
    /// Callback for a change of the membership. Its arguments are the connection, the group, and three lists, each
    /// followed by its length: the members, the processes that left, and the processes that joined.
    pub changed: Changed,
}

/// The library.
pub struct Cpg(Library);

/// Wrappers of the library's functions.
impl Cpg {
    /// Loads the library.
    ///
    /// # Errors
    /// Returns an error if the library is not installed.
    pub fn open() -> Result<Self> {
        // SAFETY: loading libcpg runs the constructors of libcpg and libqb, which do nothing that depends on this
        // program.
        let library = unsafe { Library::new("libcpg.so.4") };
        Ok(Cpg(library.context("libcpg.so.4 is not installed: apt-get install corosync libcpg4")?))
    }

    fn symbol<T>(&self, name: &str) -> Result<Symbol<'_, T>> {
        // SAFETY: each caller names a function of `cpg.h`, and `T` is the type with which `cpg.h` declares it.
        unsafe { self.0.get(name.as_bytes()) }.with_context(|| format!("libcpg has no {name}"))
    }

    /// Calls `cpg_initialize`.
    ///
    /// # Errors
    /// Returns an error if the library has no such function.
    pub fn initialize(&self, handle: &mut Handle, callbacks: &'static Callbacks) -> Result<c_int> {
        let call = self.symbol::<unsafe extern "C" fn(*mut Handle, *const Callbacks) -> c_int>("cpg_initialize")?;
        // SAFETY: both pointers are valid during the call. The callbacks are static.
        Ok(unsafe { call(handle, callbacks) })
    }

    /// Calls `cpg_join`.
    ///
    /// # Errors
    /// Returns an error if the library has no such function.
    pub fn join(&self, handle: Handle, name: &Name) -> Result<c_int> {
        let call = self.symbol::<unsafe extern "C" fn(Handle, *const Name) -> c_int>("cpg_join")?;
        // SAFETY: the name is valid during the call.
        Ok(unsafe { call(handle, name) })
    }

    /// Calls `cpg_fd_get`.
    ///
    /// # Errors
    /// Returns an error if the library has no such function.
    pub fn descriptor(&self, handle: Handle, fd: &mut c_int) -> Result<c_int> {
        let call = self.symbol::<unsafe extern "C" fn(Handle, *mut c_int) -> c_int>("cpg_fd_get")?;
        // SAFETY: the pointer to the descriptor is valid during the call.
        Ok(unsafe { call(handle, fd) })
    }

    /// Returns a function that multicasts a message by `cpg_mcast_joined`.
    ///
    /// # Errors
    /// Returns an error if the library has no such function.
    pub fn multicast(&self) -> Result<impl Fn(Handle, &[u8]) -> c_int + '_> {
        type Multicast = unsafe extern "C" fn(Handle, c_int, *const Part, u32) -> c_int;
        let call = self.symbol::<Multicast>("cpg_mcast_joined")?;
        Ok(move |handle, bytes: &[u8]| {
            let part = Part { base: bytes.as_ptr().cast(), length: bytes.len() };
            // SAFETY: the part and the bytes are valid during the call, which copies them.
            unsafe { call(handle, AGREED, &part, 1) }
        })
    }

    /// Returns a function that calls back for all available events, by `cpg_dispatch`.
    ///
    /// # Errors
    /// Returns an error if the library has no such function.
    pub fn dispatch(&self) -> Result<impl Fn(Handle) -> c_int + '_> {
        let call = self.symbol::<unsafe extern "C" fn(Handle, c_int) -> c_int>("cpg_dispatch")?;
        // SAFETY: the connection is open. The callbacks access only statics.
        Ok(move |handle| unsafe { call(handle, DISPATCH_ALL) })
    }
}
