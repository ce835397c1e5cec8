//! System calls for which there is no safe crate: sending and receiving batches of datagrams, and some socket options.
//! All `unsafe` code of the driver is in this module.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{null_mut, read_unaligned};

use libc::{c_int, c_uint, c_void};
use stentor_fabric::memory::LINE;
use stentor_wire::ICRC_BYTES;

/// Number of datagrams in one system call.
pub(crate) const BATCH: usize = 32;
/// Room for a datagram, in bytes: the longest IPv4 header, a UDP header, and the longest transport part.
pub(crate) const ROOM: usize = stentor_wire::MAX_TRANSPORT_BYTES + 60 + 8;
/// Room for a run that arrives as one datagram, in bytes: the longest payload of UDP, in whole pages.
const RUN_ROOM: usize = 64 << 10;
/// Room for the requested control messages, in bytes: type of service, packet length of a run, overflow counter.
const CONTROL: usize = 96;
/// Constant from `asm-generic/socket.h` that `libc` does not define.
pub(crate) const SO_RXQ_OVFL: c_int = 40;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a non-blocking socket.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the arguments are plain numbers, and the returned descriptor has no other owner.
    unsafe {
        let fd = check(libc::socket(family, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Sets an integer option.
pub(crate) fn set(fd: &OwnedFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let at = (&raw const value).cast::<c_void>();
    // SAFETY: `at` points to a c_int, whose size is passed.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, size_of::<c_int>() as u32) }).map(|_| ())
}

/// Attaches a filter to a raw IPv4 socket. The filter passes only UDP datagrams to `port`.
pub(crate) fn only_port(fd: &OwnedFd, port: u16) -> io::Result<()> {
    let code = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // After an IP header of 20 bytes, the half word at offset 22 is the destination port.
    let mut program =
        [code(0x28, 0, 0, 22), code(0x15, 0, 1, port.into()), code(0x06, 0, 0, 0xffff), code(0x06, 0, 0, 0)];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let at = (&raw const filter).cast::<c_void>();
    let bytes = size_of::<libc::sock_fprog>() as u32;
    // SAFETY: `filter` and its program live until the call returns; the kernel copies both.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, bytes) }).map(|_| ())
}

/// A socket address in the kernel's format.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    storage: libc::sockaddr_storage,
    bytes: u32,
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.address())
    }
}

impl Name {
    pub(crate) fn new(address: IpAddr, port: u16) -> Name {
        // SAFETY: all zeros is a valid `sockaddr_storage`.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        let place = &raw mut storage;
        let bytes = match address {
            IpAddr::V4(ip) => {
                let name = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: port.to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: a `sockaddr_storage` is large and aligned enough for every address.
                unsafe { place.cast::<libc::sockaddr_in>().write(name) };
                size_of::<libc::sockaddr_in>()
            }
            IpAddr::V6(ip) => {
                let name = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: port.to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    sin6_scope_id: 0,
                };
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(name) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Name { storage, bytes: bytes as u32 }
    }

    /// Returns address and port, or `None` for another family.
    pub(crate) fn address(&self) -> Option<(IpAddr, u16)> {
        let place = &raw const self.storage;
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family determines the type of the address, and the storage is large and aligned enough.
                let name = unsafe { place.cast::<libc::sockaddr_in>().read() };
                Some((Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)).into(), u16::from_be(name.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let name = unsafe { place.cast::<libc::sockaddr_in6>().read() };
                Some((Ipv6Addr::from(name.sin6_addr.s6_addr).into(), u16::from_be(name.sin6_port)))
            }
            _ => None,
        }
    }
}

/// Binds a socket to an address.
pub(crate) fn bind(fd: &OwnedFd, address: IpAddr, port: u16) -> io::Result<()> {
    let name = Name::new(address, port);
    let at = (&raw const name.storage).cast::<libc::sockaddr>();
    // SAFETY: `at` points to an address of the given length.
    check(unsafe { libc::bind(fd.as_raw_fd(), at, name.bytes) }).map(|_| ())
}

/// A control message with a 16-bit number, in the kernel's format.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Segment {
    header: libc::cmsghdr,
    bytes: u16,
}

impl Segment {
    fn new(bytes: u16) -> Segment {
        // SAFETY: all zeros is a valid `cmsghdr`.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        (header.cmsg_level, header.cmsg_type) = (libc::SOL_UDP, libc::UDP_SEGMENT);
        header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<u16>()) as _;
        Segment { header, bytes }
    }
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    /// Bytes that precede `bytes`.
    pub(crate) head: &'a [u8],
    pub(crate) bytes: &'a [u8],
    /// Replacement of the last four bytes of `bytes`.
    pub(crate) icrc: Option<[u8; ICRC_BYTES]>,
}

impl Outgoing<'_> {
    /// An empty packet.
    pub(crate) const NOTHING: Outgoing<'static> = Outgoing { head: &[], bytes: &[], icrc: None };
}

/// Maximum number of parts of a packet.
const PARTS: usize = 3;

/// Sends up to [`BATCH`] packets in runs. `runs` has the number of packets of each run. The packets of a run are
/// consecutive and have the same length and destination. Returns the number of runs that the kernel accepted.
pub(crate) fn send(fd: &OwnedFd, names: &[Name], packets: &[Outgoing<'_>], runs: &[usize]) -> io::Result<usize> {
    assert!(packets.len() <= BATCH && names.len() == packets.len());
    assert!(runs.iter().sum::<usize>() == packets.len() && !runs.contains(&0));
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; PARTS * BATCH];
    let mut controls = [const { MaybeUninit::<Segment>::uninit() }; BATCH];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    // Elements are written only through this pointer, because borrowing the array again would invalidate the pointers
    // in the headers.
    let place = vectors.as_mut_ptr().cast::<libc::iovec>();
    // The kernel only reads the bytes behind these pointers.
    let vector = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr() as *mut c_void, iov_len: bytes.len() };
    let (mut packet, mut used) = (0, 0);
    for ((run, header), control) in runs.iter().zip(&mut headers).zip(&mut controls) {
        // SAFETY: all zeros is a valid `msghdr`.
        let mut msg_hdr: libc::msghdr = unsafe { zeroed() };
        let name = &names[packet];
        (msg_hdr.msg_name, msg_hdr.msg_namelen) = ((&raw const name.storage) as *mut c_void, name.bytes);
        if *run > 1 {
            let control = control.write(Segment::new(packets[packet].bytes.len() as u16));
            (msg_hdr.msg_control, msg_hdr.msg_controllen) = ((&raw mut *control).cast(), size_of::<Segment>() as _);
        }
        let first = used;
        for Outgoing { head, bytes, icrc } in &packets[packet..packet + run] {
            let body = bytes.len().saturating_sub(icrc.map_or(0, |icrc| icrc.len()));
            let head = (!head.is_empty()).then(|| vector(head));
            let body = (body > 0 || head.is_none()).then(|| vector(&bytes[..body]));
            for part in [head, body, icrc.as_ref().map(|icrc| vector(icrc))].into_iter().flatten() {
                assert!(used < PARTS * BATCH);
                // SAFETY: the index is inside the array, which is not accessed otherwise before the call.
                unsafe { place.add(used).write(part) };
                used += 1;
            }
        }
        // SAFETY: `first` is at most the length of the array.
        msg_hdr.msg_iov = unsafe { place.add(first) };
        msg_hdr.msg_iovlen = (used - first) as _;
        header.write(libc::mmsghdr { msg_hdr, msg_len: 0 });
        packet += run;
    }
    let at = headers.as_mut_ptr().cast::<libc::mmsghdr>();
    // SAFETY: a header is written for each run. The headers point to vectors and control messages in this frame,
    // written for each packet and each run of several packets, and to names and bytes that the caller's borrow keeps
    // alive until the call returns.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), at, runs.len() as c_uint, libc::MSG_DONTWAIT as _) };
    check(sent).map(|sent| sent as usize)
}

/// Length and properties of a received datagram.
#[derive(Clone, Copy, Debug)]
struct Taken {
    bytes: usize,
    tos: u8,
    /// Length of the packets, if the datagram is a run.
    segment: Option<usize>,
}

/// The contents of a datagram's control messages.
#[derive(Clone, Copy, Debug, Default)]
struct ControlMessages {
    tos: u8,
    segment: Option<usize>,
    /// Number of datagrams that the socket has dropped for lack of buffer space so far, modulo 2^32.
    overflowed: Option<u32>,
}

/// Buffers for a batch of received datagrams.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Memory of the buffers. Each buffer begins at a cache line, because copies to it are then faster, also in the
    /// kernel.
    buffer: Vec<u8>,
    /// Index in `buffer` at which the first buffer begins.
    first: usize,
    /// Length of one buffer with its margin, in bytes: a multiple of a cache line.
    room: usize,
    /// Number of bytes before each datagram that the kernel does not write: a multiple of a cache line.
    margin: usize,
    names: Vec<Name>,
    control: Vec<[u64; CONTROL / 8]>,
    taken: Vec<Taken>,
    /// Index of the first datagram that was not processed.
    next: usize,
    /// Last value of the socket's overflow counter, and the total number of overflows.
    overflow: (u32, u64),
}

impl Inbox {
    /// Creates buffers for single packets, or for runs if `runs` is set.
    pub(crate) fn new(runs: bool) -> Inbox {
        Inbox::of(if runs { RUN_ROOM } else { ROOM.next_multiple_of(LINE) }, 0)
    }

    /// Creates buffers for single packets, with a margin of one cache line before each.
    pub(crate) fn with_margin() -> Inbox {
        Inbox::of(ROOM.next_multiple_of(LINE) + LINE, LINE)
    }

    fn of(room: usize, margin: usize) -> Inbox {
        let buffer = vec![0; BATCH * room + LINE];
        Inbox {
            first: buffer.as_ptr().addr().wrapping_neg() % LINE,
            buffer,
            room,
            margin,
            names: vec![Name::new(Ipv4Addr::UNSPECIFIED.into(), 0); BATCH],
            control: vec![[0; CONTROL / 8]; BATCH],
            taken: Vec::with_capacity(BATCH),
            next: 0,
            overflow: (0, 0),
        }
    }

    /// Returns the number of datagrams that the socket dropped for lack of buffer space and has reported so far.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflow.1
    }

    /// Returns whether datagrams of the last batch are left to process.
    pub(crate) fn holds_more(&self) -> bool {
        self.next < self.taken.len()
    }

    /// Returns the index of the next datagram to process.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let next = Some(self.next).filter(|next| *next < self.taken.len());
        self.next += usize::from(next.is_some());
        next
    }

    /// Receives up to [`BATCH`] datagrams. Returns their number, which is 0 if none is waiting or the call was
    /// interrupted.
    pub(crate) fn fill(&mut self, fd: &OwnedFd) -> io::Result<usize> {
        self.taken.clear();
        self.next = 0;
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        // Each element is borrowed only once: borrowing all of them again would invalidate the pointers in the headers.
        let rooms = self.buffer[self.first..].chunks_exact_mut(self.room);
        let places = rooms.zip(&mut self.names).zip(&mut self.control);
        for (((room, name), control), (vector, header)) in places.zip(vectors.iter_mut().zip(&mut headers)) {
            let room = &mut room[self.margin..];
            let iov_len = room.len();
            let vector = vector.write(libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len });
            // SAFETY: all zeros is a valid `msghdr`.
            let mut msg_hdr: libc::msghdr = unsafe { zeroed() };
            let name = &raw mut name.storage;
            (msg_hdr.msg_name, msg_hdr.msg_namelen) = (name.cast(), size_of::<libc::sockaddr_storage>() as _);
            (msg_hdr.msg_iov, msg_hdr.msg_iovlen) = (vector, 1);
            (msg_hdr.msg_control, msg_hdr.msg_controllen) = (control.as_mut_ptr().cast(), CONTROL as _);
            header.write(libc::mmsghdr { msg_hdr, msg_len: 0 });
        }
        let first = headers.as_mut_ptr().cast::<libc::mmsghdr>();
        // SAFETY: all `BATCH` headers are written. They point to vectors in this frame and to buffers, names and
        // control buffers of `self`, which are not accessed otherwise during the call.
        let got =
            unsafe { libc::recvmmsg(fd.as_raw_fd(), first, BATCH as c_uint, libc::MSG_DONTWAIT as _, null_mut()) };
        let got = match check(got) {
            Ok(got) => got as usize,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        for header in &headers[..got] {
            // SAFETY: all headers were written above, and the kernel filled in the first `got`.
            let header = unsafe { header.assume_init_ref() };
            let ControlMessages { tos, segment, overflowed } = told(&header.msg_hdr);
            self.taken.push(Taken { bytes: header.msg_len as usize, tos, segment });
            if let Some(now) = overflowed {
                let (before, all) = self.overflow;
                self.overflow = (now, all + u64::from(now.wrapping_sub(before)));
            }
        }
        Ok(got)
    }

    /// Returns the sender, the packets and the type of service of datagram `n` of the last batch.
    pub(crate) fn datagram(&self, n: usize) -> (Option<(IpAddr, u16)>, impl Iterator<Item = &[u8]>, u8) {
        let Taken { bytes, tos, segment } = self.taken[n];
        let bytes = &self.buffer[self.first + n * self.room + self.margin..][..bytes.min(self.room - self.margin)];
        // An empty datagram yields one empty packet, so that it is counted.
        let packets = bytes.chunks(segment.unwrap_or(bytes.len()).max(1)).chain(bytes.is_empty().then_some(bytes));
        (self.names[n].address(), packets, tos)
    }
}

/// A received datagram in an [`Inbox`] with a margin.
pub(crate) struct Margined<'a> {
    /// The last bytes of the margin, followed by the datagram.
    pub(crate) bytes: &'a mut [u8],
    pub(crate) from: Option<(IpAddr, u16)>,
    pub(crate) tos: u8,
}

impl Inbox {
    /// Returns datagram `n` of the last batch for writing, preceded by `before` bytes of its margin.
    pub(crate) fn behind(&mut self, n: usize, before: usize) -> Margined<'_> {
        let Taken { bytes, tos, .. } = self.taken[n];
        let (from, range) = (self.names[n].address(), self.place(n, bytes, before));
        Margined { bytes: &mut self.buffer[range], from, tos }
    }

    /// Returns datagram `n` of the last batch for reading, preceded by `before` bytes of its margin.
    pub(crate) fn packet(&self, n: usize, before: usize) -> &[u8] {
        &self.buffer[self.place(n, self.taken[n].bytes, before)]
    }

    fn place(&self, n: usize, bytes: usize, before: usize) -> std::ops::Range<usize> {
        let begin = self.first + n * self.room + self.margin;
        begin - before.min(self.margin)..begin + bytes.min(self.room - self.margin)
    }
}

/// Parses the control messages: the type of service or traffic class (0 if missing), the length of the packets that the
/// kernel joined, and the overflow counter.
fn told(header: &libc::msghdr) -> ControlMessages {
    let mut told = ControlMessages::default();
    // SAFETY: the kernel wrote well-formed control messages into the buffer of `header` and set their length, and the
    // macros stay inside. The data of these kinds has one or four bytes.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) => told.tos = *data,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => told.tos = read_unaligned(data.cast::<c_int>()) as u8,
                (libc::SOL_SOCKET, SO_RXQ_OVFL) => told.overflowed = Some(read_unaligned(data.cast::<u32>())),
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    told.segment =
                        usize::try_from(read_unaligned(data.cast::<c_int>())).ok().filter(|bytes| *bytes > 0);
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    told
}
