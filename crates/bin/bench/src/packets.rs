//! Records between the processes of a bound over plain UDP sockets: what a stream of messages costs on a network without a
//! protocol.
//!
//! Records for a process stand one behind the other, in cells of a line as in a fabric's ring, and go in packets as long as the
//! fabric's, by the system calls that the fabric makes, in runs that the kernel takes as one. Each record has a checksum and each
//! packet a CRC, at both ends. How many packets a process has taken stands in shared memory, so that nothing has to be
//! acknowledged; who sends keeps no more on their way than the smallest receive buffers hold. Nothing is sent again: what tells
//! of a later message tells of those before it, and what is lost at the end is told anew.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use stentor_fabric::memory::{LINE, Ordering, WORD, Word};
use stentor_fabric::{Backoff, Idle, WaitMode};
use xxhash_rust::xxh3::xxh3_64;

use super::datagrams::{AROUND, MTU, OUTSTANDING, Sockets};
use super::lane::Lane;
use super::shared_area::SharedArea;

/// Bytes behind the records of a packet, in which the fabric's driver corrects the ICRC of what goes in a run.
const TAIL: usize = 4;
/// Bytes before the records of a packet: as many as RoCEv2's headers of a WRITE. The last four are a CRC over the records.
const HEADER: usize = AROUND - TAIL;
const CRC: std::ops::Range<usize> = HEADER - 4..HEADER;
/// Bytes of a record before its payload: checksum, what it tells, length.
const RECORD: usize = 3 * WORD;
/// The place of a packet's first record, if none begins in it.
const NONE: u16 = u16::MAX;
/// Who hears nothing for so long tells everything anew.
const SILENCE: Duration = Duration::from_millis(2);
/// The longest payload of a record, bytes: more than any bench sends.
const LONGEST: u64 = 16 << 20;
/// Bits of a message's number in a record's word; above them are step and client.
const NUMBER_BITS: u32 = 40;

/// What goes to another process.
#[derive(Debug, Default)]
struct Outgoing {
    /// The packet that is being filled; empty: none.
    packet: Vec<u8>,
    /// Packets that are made and wait for room.
    made: VecDeque<Vec<u8>>,
    /// Packets that are made in all, and those that may have gone.
    number: u64,
    sent: u64,
}

/// What comes from another process.
#[derive(Debug, Default)]
struct Incoming {
    /// The beginning of a record of which the end has not come.
    rest: Vec<u8>,
    /// Packets: how many came, and which one comes next.
    taken: u64,
    next: u64,
}

/// The receiving end of a process.
struct Inbox<'a> {
    area: &'a SharedArea,
    me: usize,
    base: u64,
    from: Vec<Incoming>,
    /// Steps and clients together.
    places: usize,
    /// By writer, step and client: the newest message.
    newest: Vec<u64>,
}

/// One process's end.
pub(super) struct Packets<'a> {
    sockets: &'a mut Sockets,
    inbox: Inbox<'a>,
    clients: usize,
    to: Vec<Outgoing>,
    /// By reader, step and client: the newest message that was told.
    told: Vec<u64>,
    record: Vec<u8>,
    /// The record's word, and its payload's length, as it was sealed last. Several readers get it sealed once.
    sealed: (u64, usize),
    /// Packets that go now; the system may take only the first ones.
    going: VecDeque<(usize, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    backoff: Backoff,
    heard: Instant,
}

/// The word in which a reader says how many packets of a writer it has taken.
fn count(area: &SharedArea, processes: usize, writer: usize, reader: usize) -> &Word {
    &area.line(writer * processes + reader)[0]
}

/// Lines of the shared area that so many processes take.
pub(super) fn lines(processes: usize) -> usize {
    processes * processes
}

impl<'a> Packets<'a> {
    /// The end of process `me` with so many steps and clients, in the phase with this base.
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

    /// Puts a record behind the others for `reader`.
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

    /// Hands over what there is room for.
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

    /// Tells the newest of everything anew.
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
    /// Ends the packet that is being filled.
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
    /// Takes a packet, and the records that end in it.
    fn take(&mut self, packet: &[u8]) {
        let Some(packet) =
            packet.len().checked_sub(TAIL).map(|end| &packet[..end]).filter(|packet| packet.len() > HEADER)
        else {
            return;
        };
        let number = u64::from_le_bytes(packet[..8].try_into().expect("8 bytes"));
        let [writer, first] = [8, 10].map(|at| u16::from_le_bytes(packet[at..at + 2].try_into().expect("2 bytes")));
        let writer = usize::from(writer);
        // Of another phase, or a stranger's.
        let known = number >> 32 == self.base >> 32 && writer < self.from.len();
        if !known || packet[CRC] != crc32fast::hash(&packet[HEADER..]).to_le_bytes() {
            return;
        }
        let number = number - self.base;
        let processes = self.from.len();
        let mut bytes = &packet[HEADER..];
        let mut rest = std::mem::take(&mut self.from[writer].rest);
        if self.from[writer].next != number {
            // What began in a packet that was lost has no end.
            rest.clear();
            bytes = bytes.get(usize::from(first)..).unwrap_or(&[]);
        }
        if !rest.is_empty() {
            // The record that goes on here is whole, or all of this packet belongs to it.
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

    /// Reads whole records. Returns how many bytes they take.
    fn read(&mut self, writer: usize, bytes: &[u8]) -> usize {
        let mut read = 0;
        while let Some(all) = length(&bytes[read..]).filter(|all| bytes.len() - read >= *all) {
            let record = &bytes[read..read + all];
            let payload = word(record, 2).min(LONGEST) as usize;
            if xxh3_64(&record[WORD..RECORD + payload]) == word(record, 0) {
                let (told, places) = (word(record, 1), self.places);
                let own = &mut self.newest[writer * places..(writer + 1) * places];
                // A stranger may tell of anything.
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

/// Returns the length of a record, in whole lines, if enough of it is there to tell. A line has its header. No record is longer than
/// [`LONGEST`], whatever it says.
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

    /// Two processes' ends in one thread.
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
            assert!(since.elapsed() < Duration::from_secs(10), "it did not come");
            end.look().unwrap();
            other.flush();
        }
    }

    #[test]
    fn records_of_any_length_come_whole_and_more_than_the_buffers_hold() {
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
    fn what_is_lost_is_told_anew_and_damage_is_not_taken() {
        with_two(251, |one, other| {
            one.put(1, 0, 0, 5, 9000).unwrap();
            one.to[1].make();
            // The second of its packets is lost, and another is damaged.
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
