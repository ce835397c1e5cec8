//! Unix sockets of packets, with file descriptors and credentials. Nothing here blocks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with,
};

use crate::credentials::Credentials;
use crate::message::{MAX_MESSAGE, WAKE};

pub(crate) const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// Connections that may wait to be accepted. More are refused by the system, and their peers try again.
pub(crate) const BACKLOG: i32 = 128;
/// No message has more file descriptors.
pub(crate) const MAX_FDS: usize = 2;

/// What came.
pub(crate) enum Received {
    /// A packet.
    Packet(Vec<u8>, Vec<OwnedFd>),
    /// A packet that did not arrive whole, and why.
    Torn(&'static str),
    /// Nothing now.
    Nothing,
    /// The other end is gone.
    Closed,
}

/// Listens at a new path.
pub(crate) fn serve(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to a listener.
pub(crate) fn dial(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Takes a connection, if one waits.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, FLAGS) {
        Ok(socket) => Ok(Some(socket)),
        // Nobody waits, or whoever did is gone.
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Process and user id of the other end; pid 0 if it is in a PID namespace that this process cannot see.
pub(crate) fn peer(socket: &OwnedFd) -> std::io::Result<(i32, u32)> {
    Credentials::of(socket).map(|Credentials { pid, uid }| (pid, uid))
}

/// Sends a packet; `Ok(false)` if the other end does not keep up.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR | Errno::TOOMANYREFS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the other end's sockets readable. If this fails they are already, or the other end is gone.
pub(crate) fn send_wake(socket: &OwnedFd) {
    let _ = send(socket, &WAKE, &[]);
}

/// Takes a packet.
pub(crate) fn receive(socket: &OwnedFd) -> Received {
    let mut bytes = [0; MAX_MESSAGE + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::Closed,
    };
    let mut fds = Vec::new();
    for item in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = item {
            fds.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::TRUNC) || message.bytes > MAX_MESSAGE {
        return Received::Torn("bytes that are no message: more than any has");
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        let why = "file descriptors that cannot be taken: raise the limit of open files of the process that refuses them (ulimit -n)";
        return Received::Torn(why);
    }
    // Nobody sends empty packets: this is the end.
    if message.bytes == 0 { Received::Closed } else { Received::Packet(bytes[..message.bytes].to_vec(), fds) }
}
