//! Several endpoints at one address. One endpoint receives, and hands packets over to the other endpoints.
//!
//! The endpoint with the receiving sockets is the *main* one. Each further endpoint has an annex: a socket to send
//! from, and no socket to receive. The main endpoint's port hands over the packets for the annex's queue pairs, which
//! it recognizes by their numbers. Numbers of [`FIRST`] and above belong to annexes, in blocks of [`BLOCK`]. Smaller
//! numbers belong to the main endpoint. No endpoint therefore processes a packet of another one.
//!
//! Up to 8 MiB of packets for an annex wait in memory. Packets that do not fit are lost, as on any network. The
//! descriptor of the annex is readable while packets wait. Packets for annexes arrive only while the main endpoint is
//! driven.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{EventfdFlags, eventfd};
use stentor_wire::Packet;

use super::inject::Parcel;
use super::settings::{Budget, Mode, PortError};
use crate::endpoint::Arrival;

/// First queue pair number of annexes.
pub(super) const FIRST: u32 = 0xf0_0000;
/// Number of queue pair numbers of one annex.
const BLOCK: u32 = 1 << 16;
/// Maximum number of annexes at one address. The last block is not used, because it contains the queue pair number that
/// is reserved for multicast.
const MOST: usize = 15;
/// Maximum number of bytes that wait for an annex.
const MOST_WAITING: usize = 8 << 20;
/// Offset of the high byte of the queue pair number in a packet.
const NUMBER_AT: usize = 5;
/// Maximum number of buffers that are kept for reuse.
const MOST_SPARE: usize = 512;

/// The registry through which the endpoints of one address find each other. Clones refer to the same registry.
#[derive(Clone, Debug, Default)]
pub struct Junction(Arc<Mutex<Shared>>);

/// The way in which an endpoint shares the port of its address with other endpoints.
#[derive(Clone, Debug, Default)]
pub enum Sharing {
    /// No other endpoint uses the address.
    #[default]
    Alone,
    /// The endpoint also receives for other endpoints of this process.
    Main(Junction),
    /// Another endpoint of this process receives for this one. This endpoint sends from the address of that endpoint,
    /// and its own configured address is ignored.
    Beside(Junction),
}

#[derive(Debug, Default)]
struct Shared {
    /// Properties of the main endpoint's port; `None` before it is open.
    main: Option<Main>,
    annexes: [Weak<Inlet>; MOST],
}

/// The properties that annexes inherit from the port that receives for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Main {
    pub(super) address: IpAddr,
    pub(super) mode: Mode,
    pub(super) takes_runs: bool,
    /// See [`Port::room`](super::Port::room).
    pub(super) room: u32,
}

impl Junction {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A poisoned lock is usable, because every change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the properties of the main endpoint's port.
    pub(super) fn open(&self, main: Main) {
        self.lock().main = Some(main);
    }

    /// Creates an annex.
    pub(super) fn annex(&self) -> Result<(Annex, Main), PortError> {
        let mut shared = self.lock();
        let (Some(main), Some(block)) =
            (shared.main, shared.annexes.iter().position(|known| known.strong_count() == 0))
        else {
            return Err(PortError::Alone);
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| PortError::System {
            what: "create an eventfd",
            address: main.address,
            source: error.into(),
        })?;
        let inlet = Arc::new(Inlet { waiting: Mutex::default(), bell });
        shared.annexes[block] = Arc::downgrade(&inlet);
        let annex = Annex {
            inlet,
            first: FIRST + block as u32 * BLOCK,
            room: main.room,
            came: VecDeque::new(),
            spare: Vec::new(),
            lost: 0,
        };
        Ok((annex, main))
    }

    /// Hands a packet over if it is for the queue pair of an annex. Returns whether it was for one.
    #[inline]
    pub(super) fn takes(&self, arrival: &Arrival<'_>) -> bool {
        // The high byte of the number excludes packets of the main endpoint, which therefore need no lock.
        arrival.transport.get(NUMBER_AT).is_some_and(|first| *first >= (FIRST >> 16) as u8) && self.hand_over(arrival)
    }

    fn hand_over(&self, arrival: &Arrival<'_>) -> bool {
        let Ok(packet) = Packet::new_checked(arrival.transport) else { return false };
        let Some(block) = packet.dest_qp().checked_sub(FIRST).map(|above| (above / BLOCK) as usize) else {
            return false;
        };
        let annex = self.lock().annexes.get(block).and_then(Weak::upgrade);
        annex.is_some_and(|inlet| {
            inlet.put(arrival);
            true
        })
    }
}

/// The queue of packets for an annex.
#[derive(Debug)]
struct Inlet {
    waiting: Mutex<Waiting>,
    /// An eventfd that is readable while packets wait in the queue.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct Waiting {
    packets: VecDeque<Parcel>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
    lost: u64,
}

impl Inlet {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, arrival: &Arrival<'_>) {
        let mut waiting = self.lock();
        if waiting.bytes + arrival.transport.len() > MOST_WAITING {
            waiting.lost += 1;
            return;
        }
        let is_first = waiting.packets.is_empty();
        let mut transport = waiting.spare.pop().unwrap_or_default();
        transport.clear();
        transport.extend_from_slice(arrival.transport);
        waiting.bytes += transport.len();
        waiting.packets.push_back(Parcel { envelope: arrival.envelope, transport, check: arrival.check });
        if is_first {
            // Write under the lock, so that the bell never rings for packets that were already removed. A full counter
            // is readable, too.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// The receiving side of an endpoint beside the main one.
#[derive(Debug)]
pub(super) struct Annex {
    inlet: Arc<Inlet>,
    first: u32,
    room: u32,
    /// Packets that were removed from the queue but not processed yet.
    came: VecDeque<Parcel>,
    /// Buffers of processed packets, to be returned to the queue for reuse.
    spare: Vec<Vec<u8>>,
    lost: u64,
}

impl Annex {
    /// Returns the numbers of this annex's queue pairs.
    pub(super) fn numbers(&self) -> Range<u32> {
        self.first..self.first + BLOCK
    }

    /// Returns whether some packets that were removed from the queue are not processed yet.
    pub(super) fn holds_more(&self) -> bool {
        !self.came.is_empty()
    }

    /// Removes all waiting packets from the queue. All packets that were removed before must have been processed.
    fn fill(&mut self) {
        let mut waiting = self.inlet.lock();
        self.lost = waiting.lost;
        let room = MOST_SPARE.saturating_sub(waiting.spare.len());
        waiting.spare.extend(self.spare.drain(..).take(room));
        if waiting.packets.is_empty() {
            return;
        }
        std::mem::swap(&mut waiting.packets, &mut self.came);
        waiting.bytes = 0;
        // Reset the bell before releasing the lock: the next packet rings it again.
        let _ = rustix::io::read(&self.inlet.bell, &mut [0; 8]);
    }

    /// Processes packets until the budget is spent. Returns their number.
    pub(super) fn receive_within(&mut self, budget: &mut Budget, mut take: impl FnMut(&Arrival<'_>)) -> usize {
        if self.came.is_empty() {
            self.fill();
        }
        let mut count = 0;
        while !budget.is_spent()
            && let Some(Parcel { envelope, transport, check }) = self.came.pop_front()
        {
            count += 1;
            budget.spend(transport.len());
            take(&Arrival { envelope, transport: &transport, check });
            self.spare.push(transport);
        }
        count
    }

    /// See [`Port::room`](super::Port::room).
    pub(super) fn room(&self) -> u32 {
        self.room
    }

    /// Returns the number of packets for which the queue had no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.inlet.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use stentor_wire::Envelope;

    use super::*;
    use crate::endpoint::Check;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn junction() -> Junction {
        let junction = Junction::default();
        junction.open(Main { address: HERE, mode: Mode::Plain, takes_runs: false, room: 1 });
        junction
    }

    /// Returns a SEND of `payload` bytes to a queue pair.
    fn packet(number: u32, payload: usize) -> Vec<u8> {
        let [_, number @ ..] = number.to_be_bytes();
        let mut packet = vec![4, 0, 0xff, 0xff, 0];
        packet.extend(number);
        packet.resize(16 + payload, 0);
        packet
    }

    /// Returns whether the junction hands the packet over.
    fn goes(junction: &Junction, transport: &[u8]) -> bool {
        let envelope = Envelope::plain(HERE, 1, HERE).expect("both addresses are of one family");
        junction.takes(&Arrival { envelope, transport, check: Check::Whole })
    }

    fn taken(annex: &mut Annex) -> Vec<Vec<u8>> {
        let (mut budget, mut all) = (Budget { packets: usize::MAX, bytes: usize::MAX }, Vec::new());
        while annex.receive_within(&mut budget, |arrival| all.push(arrival.transport.to_vec())) > 0 {}
        all
    }

    fn is_readable(annex: &Annex) -> bool {
        let descriptor = annex.descriptor();
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
            .expect("the descriptor can be polled")
            > 0
    }

    #[test]
    fn a_packet_is_handed_to_the_annex_that_has_its_number() {
        let junction = junction();
        let (mut first, mut second) = (junction.annex().unwrap().0, junction.annex().unwrap().0);
        let of_second = [second.numbers().start, second.numbers().end - 1].map(|number| packet(number, 8));
        assert!(of_second.iter().all(|packet| goes(&junction, packet)));
        assert!(!is_readable(&first) && is_readable(&second));
        assert_eq!((taken(&mut first), taken(&mut second)), (Vec::new(), of_second.to_vec()));
        assert!(!is_readable(&second), "the annex has removed all packets");
        assert!(goes(&junction, &of_second[0]) && is_readable(&second));
    }

    #[test]
    fn other_packets_are_left_to_the_main_endpoint() {
        let junction = junction();
        let annex = junction.annex().unwrap().0;
        for number in [1, 2, FIRST - 1, annex.numbers().end, 0xff_ffff] {
            assert!(!goes(&junction, &packet(number, 8)), "{number:#x}");
        }
        let whole = packet(annex.numbers().start, 0);
        assert!((0..whole.len()).all(|bytes| !goes(&junction, &whole[..bytes])), "truncated");
        drop(annex);
        assert!(!goes(&junction, &whole), "the annex was dropped");
    }

    #[test]
    fn the_queue_of_an_annex_is_bounded() {
        let junction = junction();
        let mut annex = junction.annex().unwrap().0;
        let large = packet(annex.numbers().start, 4096);
        let fit = MOST_WAITING / large.len();
        assert!((0..fit + 3).all(|_| goes(&junction, &large)));
        assert_eq!(taken(&mut annex).len(), fit);
        assert_eq!(annex.lost(), 3);
        assert!(goes(&junction, &large));
        assert_eq!(taken(&mut annex).len(), 1, "there is room again");
    }

    #[test]
    fn a_new_annex_reuses_the_numbers_of_a_dropped_one() {
        assert!(matches!(Junction::default().annex(), Err(PortError::Alone)), "nobody receives");
        let junction = junction();
        let mut annexes: Vec<_> = (0..MOST).map(|_| junction.annex().expect("a block is free").0).collect();
        assert!(annexes.is_sorted_by(|a, b| a.numbers().end <= b.numbers().start));
        assert!(matches!(junction.annex(), Err(PortError::Alone)), "all blocks are taken");
        let gone = annexes.remove(7).numbers();
        assert_eq!(junction.annex().expect("one annex is free").0.numbers(), gone);
    }
}
