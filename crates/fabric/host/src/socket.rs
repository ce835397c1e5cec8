//! Unix sockets of type SEQPACKET. No function here blocks.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

use crate::credentials::Credentials;

/// Flags of every Unix socket of this crate.
pub const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// Maximum number of connections that wait to be accepted. The kernel refuses further ones, and the dialling processes
/// retry.
pub const BACKLOG: i32 = 128;
/// Listens at a new path.
///
/// # Errors
/// Returns the error of the operating system.
pub fn serve(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to a listener.
///
/// # Errors
/// Returns the error of the operating system.
pub fn dial(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Accepts a connection. Returns `None` if none is waiting.
///
/// # Errors
/// Returns the error of the operating system.
pub fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, FLAGS) {
        Ok(socket) => Ok(Some(socket)),
        // No connection is waiting, or its peer has closed it.
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns process and user id of the other end; pid 0 if it is in a PID namespace that this process cannot see.
///
/// # Errors
/// Returns the error of the operating system.
pub fn peer(socket: &OwnedFd) -> std::io::Result<(i32, u32)> {
    Credentials::of(socket).map(|Credentials { pid, uid }| (pid, uid))
}
