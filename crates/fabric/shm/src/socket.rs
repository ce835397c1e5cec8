//! Unix packet sockets with file descriptors and credentials. Nothing here blocks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
pub(crate) use stentor_host::socket::{accept, dial, peer};

use crate::message::MAX_MESSAGE;

/// Maximum number of file descriptors of a message.
pub(crate) const MAX_FDS: usize = 3;

/// Buffer for a packet, one byte longer than any valid packet.
pub(crate) type Room = [u8; MAX_MESSAGE + 1];
/// An empty buffer.
pub(crate) const ROOM: Room = [0; MAX_MESSAGE + 1];

/// Result of receiving.
pub(crate) enum Received<'a> {
    /// A packet and its file descriptors.
    Packet(&'a [u8], Vec<OwnedFd>),
    /// A packet that did not arrive completely, and the reason.
    Torn(&'static str),
    /// No packet is available.
    Nothing,
    /// The other end has closed the connection.
    Closed,
}

/// Sends a packet. Returns `Ok(false)` if it cannot be sent now, usually because the other end does not keep up.
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

/// Receives a packet into `room`.
pub(crate) fn receive<'a>(socket: &OwnedFd, room: &'a mut Room) -> Received<'a> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match recvmsg(socket.as_fd(), &mut [IoSliceMut::new(room)], &mut ancillary, flags) {
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
        return Received::Torn("bytes that are no message: more than the maximum");
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        let why = "file descriptors that cannot be taken: raise the limit of open files of the process that refuses them (ulimit -n)";
        return Received::Torn(why);
    }
    // No peer sends empty packets, so an empty one is the end of the connection.
    if message.bytes == 0 { Received::Closed } else { Received::Packet(&room[..message.bytes], fds) }
}
