//! The kernel's side, through `tests/peer/shim.c`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::net::Ipv6Addr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Outcome, Side};

/// `struct told` of the shim.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Told {
    va: u64,
    number: u32,
    psn: u32,
    rkey: u32,
    gid: [u8; 16],
}

type Wrong = *const c_char;

type Open = unsafe extern "C" fn(*const c_char, u64, *mut *mut c_void, *mut Told) -> Wrong;
type Connect = unsafe extern "C" fn(*mut c_void, *const Told) -> Wrong;
type Memory = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Write = unsafe extern "C" fn(*mut c_void, u64, u64, u32, c_int) -> Wrong;
type Poll = unsafe extern "C" fn(*mut c_void, *mut u64) -> Wrong;

/// The functions of the shim, which documents them.
struct Shim {
    open: Open,
    connect: Connect,
    memory: Memory,
    write: Write,
    poll: Poll,
}

fn outcome(wrong: Wrong) -> Outcome<()> {
    if wrong.is_null() {
        return Ok(());
    }
    // SAFETY: a result that is not NULL points to a constant text.
    Err(unsafe { CStr::from_ptr(wrong) }.to_string_lossy().into_owned().into())
}

impl Shim {
    fn load(file: &str) -> Outcome<Shim> {
        let name = CString::new(file)?;
        // SAFETY: `name` is NUL-terminated; the library's constructors are those of libibverbs.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(format!("cannot load {file}").into());
        }
        let find = |name: &CStr| {
            // SAFETY: `library` is loaded and stays loaded; `name` is NUL-terminated.
            let at = unsafe { libc::dlsym(library, name.as_ptr()) };
            if at.is_null() { Err(format!("{file} has no {name:?}")) } else { Ok(at) }
        };
        // SAFETY: the shim declares its functions with these types.
        unsafe {
            Ok(Shim {
                open: transmute::<*mut c_void, Open>(find(c"side_open")?),
                connect: transmute::<*mut c_void, Connect>(find(c"side_connect")?),
                memory: transmute::<*mut c_void, Memory>(find(c"side_memory")?),
                write: transmute::<*mut c_void, Write>(find(c"side_write")?),
                poll: transmute::<*mut c_void, Poll>(find(c"side_poll")?),
            })
        }
    }
}

pub(crate) struct Kernel {
    shim: Shim,
    /// The shim's state of this side, which is never freed.
    side: *mut c_void,
    told: Told,
    bytes: u64,
}

impl Kernel {
    pub(crate) fn open(file: &str, device: &str, bytes: u64) -> Outcome<Kernel> {
        let (shim, device) = (Shim::load(file)?, CString::new(device)?);
        let (mut side, mut told) = (null_mut(), Told::default());
        // SAFETY: both output locations live until the call returns.
        outcome(unsafe { (shim.open)(device.as_ptr(), bytes, &raw mut side, &raw mut told) })?;
        Ok(Kernel { shim, side, told, bytes })
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < self.bytes);
        // SAFETY: the memory has `bytes` bytes, begins at a page and is never freed; this program accesses it only as
        // atomics.
        unsafe { AtomicU64::from_ptr((self.shim.memory)(self.side).cast::<u64>().add(at as usize / 8)) }
    }
}

impl Side for Kernel {
    fn here(&self) -> String {
        let Told { va, number, psn, rkey, gid } = self.told;
        format!("{va} {number} {psn} {rkey} {}", Ipv6Addr::from(gid))
    }

    fn connect(&mut self, there: &str) -> Outcome<()> {
        let [va, number, psn, rkey, gid] = there.split(' ').collect::<Vec<_>>()[..] else { return Err(there.into()) };
        let (va, number, psn, rkey) = (va.parse()?, number.parse()?, psn.parse()?, rkey.parse()?);
        let there = Told { va, number, psn, rkey, gid: gid.parse::<Ipv6Addr>()?.octets() };
        // SAFETY: the side is open.
        outcome(unsafe { (self.shim.connect)(self.side, &raw const there) })
    }

    fn write(&mut self, from: u64, to: u64, bytes: u32, signalled: bool) -> Outcome<()> {
        // SAFETY: the side is open; its device, not this call, checks the offsets.
        outcome(unsafe { (self.shim.write)(self.side, from, to, bytes, signalled.into()) })
    }

    fn poll(&mut self) -> Outcome<u64> {
        let mut done = 0;
        // SAFETY: the side is open.
        outcome(unsafe { (self.shim.poll)(self.side, &raw mut done) })?;
        Ok(done)
    }

    /// Sleeps, because the kernel receives packets by itself.
    fn rest(&mut self) -> Outcome<()> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn store(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }
}
