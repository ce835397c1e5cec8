//! Who is at the other end of a Unix socket. The only `unsafe` of the crate.
//!
//! The kernel translates the peer's process id to this process's PID namespace and says 0 where it has none there. A safe
//! wrapper whose process ids cannot be 0 takes that for an error, so this one asks itself.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Process and user id of the other end of a connected Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The process that connected or listened, 0 if it is in a PID namespace that this process cannot see.
    pub pid: i32,
    /// The effective user then.
    pub uid: u32,
}

impl Credentials {
    /// Reads them.
    ///
    /// # Errors
    /// What the system says, for a descriptor that is no Unix socket for instance.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut got = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        let (fd, to) = (socket.as_fd().as_raw_fd(), (&raw mut got).cast());
        // SAFETY: `to` points to `bytes` writable bytes that live until the call returns, and any bytes are a valid `ucred`.
        let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut bytes) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Credentials { pid: got.pid, uid: got.uid })
    }
}

/// A process in words: its pid, or why it has none here.
#[derive(Clone, Copy, Debug)]
pub struct Named(pub i32);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("a process of another PID namespace"),
            pid => write!(f, "pid {pid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn other_end_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let credentials = Credentials::of(&one).unwrap();
        assert_eq!(credentials.pid, std::process::id() as i32);
        assert_eq!(credentials.uid, rustix::process::geteuid().as_raw());
        assert!(Credentials::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn process_without_a_pid_here_is_named_by_its_namespace() {
        assert_eq!(Named(7).to_string(), "pid 7");
        assert_eq!(Named(0).to_string(), "a process of another PID namespace");
    }
}
