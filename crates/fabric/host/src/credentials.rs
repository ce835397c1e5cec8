//! Credentials of the other end of a Unix socket. This module and `interface` have the only `unsafe` code of the crate.
//!
//! The kernel translates the peer's pid to this process's PID namespace, and returns 0 if the peer has no pid there. A
//! safe wrapper whose pids cannot be 0 reports that as an error, so this module calls `getsockopt` itself.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Process and user id of the other end of a connected Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Pid of the process that connected or listened; 0 if it is in a PID namespace that this process cannot see.
    pub pid: i32,
    /// Effective user id of that process at that time.
    pub uid: u32,
}

impl Credentials {
    /// Reads the credentials of the other end.
    ///
    /// # Errors
    /// Returns the error of the operating system, for instance if the descriptor is no Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut got = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        let (fd, to) = (socket.as_fd().as_raw_fd(), (&raw mut got).cast());
        // SAFETY: `to` points to `bytes` writable bytes that live until the call returns, and any bytes are a valid
        // `ucred`.
        let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut bytes) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Credentials { pid: got.pid, uid: got.uid })
    }
}

/// A pid that is displayed as `pid N`, or, if it is 0, as a process of another PID namespace.
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
