//! Unix sockets of packets. Nothing here blocks.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

use crate::credentials::Credentials;

/// The flags of every socket.
pub const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// Connections that may wait to be accepted. More are refused by the system, and their peers try again.
pub const BACKLOG: i32 = 128;
/// Listens at a new path.
///
/// # Errors
/// What the system says.
pub fn serve(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to a listener.
///
/// # Errors
/// What the system says.
pub fn dial(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Takes a connection, if one waits.
///
/// # Errors
/// What the system says.
pub fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, FLAGS) {
        Ok(socket) => Ok(Some(socket)),
        // Nobody waits, or whoever did is gone.
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Process and user id of the other end; pid 0 if it is in a PID namespace that this process cannot see.
///
/// # Errors
/// What the system says.
pub fn peer(socket: &OwnedFd) -> std::io::Result<(i32, u32)> {
    Credentials::of(socket).map(|Credentials { pid, uid }| (pid, uid))
}
