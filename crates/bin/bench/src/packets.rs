//! Records between the processes of a bound over plain UDP sockets: the cost of a stream of messages on a network
//! without a protocol.
//!
//! Records for a process follow one another, in cells of a cache line as in a fabric's ring. They are sent in packets
//! as long as the fabric's, by the same system calls, in runs that the kernel accepts as one. Each record has a
//! checksum and each packet a CRC, computed at both ends. Each process publishes in shared memory how many packets it
//! has received, so that packets need no acknowledgement. A sender keeps no more packets in flight than the smallest
//! receive buffers hold. Lost packets are not retransmitted, because a record about a later message implies the earlier
//! ones. Only if nothing arrives for some time are the newest records sent again.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use stentor_fabric::memory::{LINE, Ordering, WORD, Word};
use stentor_fabric::{Backoff, Idle, WaitMode};
use xxhash_rust::xxh3::xxh3_64;

use super::datagrams::{AROUND, MTU, OUTSTANDING, Sockets};
use super::lane::Lane;
use super::shared_area::SharedArea;

/// Length of the trailer of a packet, in bytes. The trailer takes the place of the ICRC, which the fabric's driver
/// corrects in the packets of a run.
const TAIL: usize = 4;
/// Length of the header of a packet, in bytes. It equals the length of RoCEv2's headers of a WRITE. The last four bytes
/// of the header are a CRC over the records.
const HEADER: usize = AROUND - TAIL;
const CRC: std::ops::Range<usize> = HEADER - 4..HEADER;
/// Length of the header of a record, in bytes: checksum, contents, length of the payload.
const RECORD: usize = 3 * WORD;
/// Offset of a packet's first record if no record begins in the packet.
const NONE: u16 = u16::MAX;
/// Time without any received packet after which a process sends its newest records again.
const SILENCE: Duration = Duration::from_millis(2);
/// Upper bound of the payload of a record, in bytes. No bench sends as much.
const LONGEST: u64 = 16 << 20;
/// Number of bits of a message's number in a record's word. The bits above them contain the step and the client.
const NUMBER_BITS: u32 = 40;

/// The packets to another process.
#[derive(Debug, Default)]
struct Outgoing {
    /// The packet that is being filled, or empty.
    packet: Vec<u8>,
    /// Complete packets that wait for room.
    made: VecDeque<Vec<u8>>,
    /// Number of complete packets.
    number: u64,
    /// Number of packets that were removed from `made` to be sent.
    sent: u64,
}

/// The packets from another process.
#[derive(Debug, Default)]
struct Incoming {
    /// The beginning of a record whose end has not arrived.
    rest: Vec<u8>,
    /// Number of packets that arrived.
    taken: u64,
    /// Number of the next packet.
    next: u64,
}

/// The receiving end of a process.
struct Inbox<'a> {
    area: &'a SharedArea,
    me: usize,
    base: u64,
    from: Vec<Incoming>,
    /// Number of combinations of a step and a client.
    places: usize,
    /// Newest message, by writer, step and client.
    newest: Vec<u64>,
}

/// The sockets of one process, with its outgoing and incoming packets.
pub(super) struct Packets<'a> {
    sockets: &'a mut Sockets,
    inbox: Inbox<'a>,
    clients: usize,
    to: Vec<Outgoing>,
    /// Newest message that was sent, by reader, step and client.
    told: Vec<u64>,
    record: Vec<u8>,
    /// Word and payload length of the record that was sealed last. A record for several readers is sealed once.
    sealed: (u64, usize),
    /// Packets that are being sent. The kernel may accept only the first ones.
    going: VecDeque<(usize, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    backoff: Backoff,
    heard: Instant,
}

/// Returns the word in which a reader publishes how many packets of a writer it has received.
fn count(area: &SharedArea, processes: usize, writer: usize, reader: usize) -> &Word {
    &area.line(writer * processes + reader)[0]
}

/// Returns the number of lines of the shared area that the processes need.
pub(super) fn lines(processes: usize) -> usize {
    processes * processes
}

impl<'a> Packets<'a> {
    /// Creates the end of process `me` for a phase, with these numbers of steps and clients. `base` is the base of the
    /// phase.
    pub(super) fn new(
        area: &'a SharedArea,
        sockets: &'a mut Sockets,
        (me, base): (usize, u64),
        (steps, clients): (usize, usize),
        mode: WaitMode,
    ) -> Self {
        let (processes, places) = (sockets.processes(), steps * clients);
        let from = (0..processes).map(|_| Incoming::default()).collect();
        let inbox = Inbox { area, me, base, from, places, newest: vec![0; processes * places] };
        Packets {
            sockets,
            inbox,
            clients,
            to: (0..processes).map(|_| Outgoing::default()).collect(),
            told: vec![0; processes * places],
            record: vec![0; LINE],
            sealed: (0, 0),
            going: VecDeque::new(),
            spare: Vec::new(),
            backoff: Backoff::new(mode),
            heard: Instant::now(),
        }
    }

    /// Appends a record to those for `reader`.
    fn append(&mut self, reader: usize, place: usize, n: u64, bytes: usize) {
        let bytes = bytes.max(WORD);
        let all = (RECORD + bytes).next_multiple_of(LINE);
        if self.record.len() < all {
            self.record.resize(all, 0);
        }
        let record = &mut self.record[..all];
        let sealed = ((place as u64) << NUMBER_BITS | n, bytes);
        if std::mem::replace(&mut self.sealed, sealed) != sealed {
            record[WORD..2 * WORD].copy_from_slice(&sealed.0.to_le_bytes());
            record[2 * WORD..RECORD].copy_from_slice(&(bytes as u64).to_le_bytes());
            let sum = xxh3_64(&record[WORD..RECORD + bytes]);
            record[..WORD].copy_from_slice(&sum.to_le_bytes());
        }
        let (mut left, mtu) = (&record[..], self.sockets.mtu());
        let out = &mut self.to[reader];
        while !left.is_empty() {
            if out.packet.is_empty() {
                out.packet = self.spare.pop().unwrap_or_default();
                out.packet.clear();
                out.packet.extend((self.inbox.base | out.number).to_le_bytes());
                out.packet.extend((self.inbox.me as u16).to_le_bytes());
                out.packet.extend(NONE.to_le_bytes());
                out.packet.resize(HEADER, 0);
            }
            if left.len() == all && out.packet[10..12] == NONE.to_le_bytes() {
                let first = (out.packet.len() - HEADER) as u16;
                out.packet[10..12].copy_from_slice(&first.to_le_bytes());
            }
            let (now, later) = left.split_at(left.len().min(HEADER + mtu - out.packet.len()));
            out.packet.extend(now);
            left = later;
            if out.packet.len() == HEADER + mtu {
                out.make();
            }
        }
    }

    /// Sends the packets that there is room for.
    fn send(&mut self) {
        let Packets { sockets, inbox: Inbox { area, me, base, .. }, to, going, spare, .. } = self;
        let processes = to.len();
        let outstanding = OUTSTANDING * (MTU / sockets.mtu()) as u64;
        for (reader, out) in to.iter_mut().enumerate().filter(|(_, out)| out.waits()) {
            let freed = count(area, processes, *me, reader).load(Ordering::Acquire).saturating_sub(*base);
            if out.sent < freed + outstanding {
                out.make();
            }
            while out.sent < freed + outstanding
                && let Some(packet) = out.made.pop_front()
            {
                out.sent += 1;
                going.push_back((reader, packet));
            }
        }
        if !going.is_empty() {
            let done = sockets.send_packets(going.iter().map(|(reader, packet)| (*reader, &packet[..])));
            spare.extend(going.drain(..done).map(|(_, packet)| packet));
        }
    }

    /// Sends the newest record of each reader, step and client again.
    fn tell_again(&mut self) {
        let places = self.inbox.places;
        for at in 0..self.told.len() {
            if self.told[at] > 0 {
                self.append(at / places, at % places, self.told[at], LINE - RECORD);
            }
        }
        self.send();
    }
}

impl Outgoing {
    /// Completes the packet that is being filled.
    fn make(&mut self) {
        if !self.packet.is_empty() {
            let crc = crc32fast::hash(&self.packet[HEADER..]);
            self.packet[CRC].copy_from_slice(&crc.to_le_bytes());
            self.packet.extend([0; TAIL]);
            self.number += 1;
            self.made.push_back(std::mem::take(&mut self.packet));
        }
    }

    fn waits(&self) -> bool {
        !self.packet.is_empty() || !self.made.is_empty()
    }
}

impl Inbox<'_> {
    /// Receives a packet and reads the records that end in it.
    fn take(&mut self, packet: &[u8]) {
        let Some(packet) =
            packet.len().checked_sub(TAIL).map(|end| &packet[..end]).filter(|packet| packet.len() > HEADER)
        else {
            return;
        };
        let number = u64::from_le_bytes(packet[..8].try_into().expect("8 bytes"));
        let [writer, first] = [8, 10].map(|at| u16::from_le_bytes(packet[at..at + 2].try_into().expect("2 bytes")));
        let writer = usize::from(writer);
        // The packet belongs to another phase or comes from a stranger.
        let known = number >> 32 == self.base >> 32 && writer < self.from.len();
        if !known || packet[CRC] != crc32fast::hash(&packet[HEADER..]).to_le_bytes() {
            return;
        }
        let number = number - self.base;
        let processes = self.from.len();
        let mut bytes = &packet[HEADER..];
        let mut rest = std::mem::take(&mut self.from[writer].rest);
        if self.from[writer].next != number {
            // A packet is missing. The record that was being received cannot be completed, and the end of a record that
            // began in the missing packet is skipped.
            rest.clear();
            bytes = bytes.get(usize::from(first)..).unwrap_or(&[]);
        }
        if !rest.is_empty() {
            // Either the continued record ends in this packet, or the whole packet belongs to it.
            let whole = length(&rest).map_or(bytes.len(), |length| length - rest.len());
            let (end, behind) = bytes.split_at(whole.min(bytes.len()));
            rest.extend(end);
            bytes = behind;
            if self.read(writer, &rest) > 0 {
                rest.clear();
            }
        }
        let read = self.read(writer, bytes);
        rest.extend(&bytes[read..]);
        let from = &mut self.from[writer];
        (from.rest, from.next, from.taken) = (rest, number + 1, from.taken + 1);
        count(self.area, processes, writer, self.me).store(self.base + from.taken, Ordering::Release);
    }

    /// Reads complete records. Returns their length in bytes.
    fn read(&mut self, writer: usize, bytes: &[u8]) -> usize {
        let mut read = 0;
        while let Some(all) = length(&bytes[read..]).filter(|all| bytes.len() - read >= *all) {
            let record = &bytes[read..read + all];
            let payload = word(record, 2).min(LONGEST) as usize;
            if xxh3_64(&record[WORD..RECORD + payload]) == word(record, 0) {
                let (told, places) = (word(record, 1), self.places);
                let own = &mut self.newest[writer * places..(writer + 1) * places];
                // A stranger may send any step and client.
                if let Some(newest) = own.get_mut((told >> NUMBER_BITS) as usize) {
                    *newest = (*newest).max(told & ((1 << NUMBER_BITS) - 1));
                }
            }
            read += all;
        }
        read
    }
}

fn word(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(record[at * WORD..(at + 1) * WORD].try_into().expect("a word"))
}

/// Returns the length of a record in whole lines, or `None` if its header is not complete. A header fits into a line.
/// A header that claims a payload longer than [`LONGEST`] counts as one that claims [`LONGEST`].
fn length(bytes: &[u8]) -> Option<usize> {
    (bytes.len() >= RECORD).then(|| (RECORD + word(bytes, 2).min(LONGEST) as usize).next_multiple_of(LINE))
}

impl Lane for Packets<'_> {
    fn look(&mut self) -> io::Result<bool> {
        let Packets { sockets, inbox, .. } = self;
        let mut worked = false;
        while sockets.receive_packets(|packet| inbox.take(packet))? > 0 {
            worked = true;
        }
        if worked {
            self.heard = Instant::now();
        }
        Ok(worked)
    }

    fn put(&mut self, reader: usize, step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()> {
        let (places, place) = (self.inbox.places, step * self.clients + client);
        if reader == self.inbox.me {
            self.inbox.newest[reader * places + place] = n;
        } else {
            self.told[reader * places + place] = n;
            self.append(reader, place, n, bytes);
        }
        Ok(())
    }

    fn put_for(&mut self, readers: &[usize], step: usize, client: usize, n: u64, bytes: usize) -> io::Result<()> {
        readers.iter().try_for_each(|reader| self.put(*reader, step, client, n, bytes))
    }

    fn newest(&self, writer: usize, step: usize, client: usize) -> u64 {
        self.inbox.newest[writer * self.inbox.places + step * self.clients + client]
    }

    fn flush(&mut self) {
        self.send();
    }

    fn pause(&mut self, worked: bool) -> io::Result<()> {
        if !worked && self.heard.elapsed() > SILENCE {
            self.heard = Instant::now();
            self.tell_again();
        }
        match self.backoff.after(worked) {
            Idle::Poll | Idle::Arm => Ok(()),
            Idle::Sleep => self.sockets.sleep(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::datagrams::Ring;
    use super::super::shared_area::Shape;
    use super::*;

    /// Runs a test with the ends of two processes in one thread.
    fn with_two(network: u8, run: impl FnOnce(&mut Packets<'_>, &mut Packets<'_>)) {
        let area = SharedArea::create(Shape { processes: 2, lines: lines(2), samples: 0 }).unwrap();
        let mode = WaitMode::YIELD;
        let ring = Ring::loopback(network, 2, 2, mode);
        let [mut one, mut other] = [0, 1].map(|me| Sockets::open(ring.clone(), me).unwrap());
        let mut one = Packets::new(&area, &mut one, (0, 1 << 32), (2, 2), mode);
        let mut other = Packets::new(&area, &mut other, (1, 1 << 32), (2, 2), mode);
        run(&mut one, &mut other);
    }

    fn until(end: &mut Packets<'_>, other: &mut Packets<'_>, done: impl Fn(&Packets<'_>) -> bool) {
        let since = Instant::now();
        while !done(end) {
            assert!(since.elapsed() < Duration::from_secs(10), "the record did not arrive");
            end.look().unwrap();
            other.flush();
        }
    }

    #[test]
    fn records_of_any_length_and_number_arrive_whole() {
        with_two(250, |one, other| {
            for n in 1..=2000 {
                one.put(1, (n % 2) as usize, 1, n, (n as usize * 37) % 5000).unwrap();
            }
            one.flush();
            assert!(one.to[1].sent <= OUTSTANDING && one.to[1].made.len() > 1000);
            until(other, one, |other| other.newest(0, 0, 1) == 2000 && other.newest(0, 1, 1) == 1999);
            assert_eq!((other.newest(0, 0, 0), other.inbox.from[0].rest.len()), (0, 0));
            assert_eq!(other.inbox.from[0].taken, one.to[1].number, "nothing was lost");
        });
    }

    #[test]
    fn lost_records_are_sent_again_and_damaged_packets_are_dropped() {
        with_two(251, |one, other| {
            one.put(1, 0, 0, 5, 9000).unwrap();
            one.to[1].make();
            // Loses the second packet, and damages another one.
            one.to[1].made.remove(1);
            one.put(1, 1, 0, 6, 8).unwrap();
            one.to[1].make();
            one.to[1].made.back_mut().unwrap()[HEADER + 3] ^= 1;
            one.put(1, 1, 1, 7, 8).unwrap();
            one.flush();
            until(other, one, |other| other.newest(0, 1, 1) == 7);
            assert_eq!((other.newest(0, 0, 0), other.newest(0, 1, 0)), (0, 0));
            std::thread::sleep(SILENCE * 2);
            one.pause(false).unwrap();
            until(other, one, |other| other.newest(0, 0, 0) == 5 && other.newest(0, 1, 0) == 6);
        });
    }
}
