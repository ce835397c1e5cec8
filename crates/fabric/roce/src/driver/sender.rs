//! The sender of packets, and its handling of packets that the kernel refuses.
//!
//! - **No room** (the socket's buffer, or a queue after it, is full): the packets stay with the caller, which retries.
//!   If there has been no room for [`PATIENCE`], the first packets are dropped, as on any network. A blocked path
//!   therefore does not block other paths for ever.
//! - **A run is refused**: its packets are immediately sent again, one by one. If that succeeds, the cause of the
//!   refusal was the run, and no runs are sent to that destination for [`AGAIN`].
//! - **A packet is refused**: it is lost.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use stentor_wire::Envelope;

use super::runs::{Batch, Runs};
use super::sys::{self, BATCH, Name, Outgoing};

/// Maximum time without room before packets are dropped.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time after which runs are tried again after a refusal.
const AGAIN: Duration = Duration::from_secs(10);
/// Maximum number of notes that wait to be read.
const MOST_NOTES: usize = 64;

/// The function that sends: the system call, or its replacement in tests.
type Call = fn(&OwnedFd, &[Name], &[Outgoing<'_>], &[usize]) -> io::Result<usize>;

/// Counters of the sender, in packets unless another unit is stated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sent {
    pub(super) lost: u64,
    pub(super) in_runs: u64,
    /// Number of refused runs.
    pub(super) refused_runs: u64,
    /// Number of periods in which there was no room.
    pub(super) full: u64,
}

/// The sender of one source port.
#[derive(Debug)]
pub(super) struct Sender {
    single: OwnedFd,
    /// The socket for runs, and the peers that accept them.
    runs: Option<(OwnedFd, Runs)>,
    names: Vec<Name>,
    call: Call,
    /// Time since which there has been no room.
    full_since: Option<Instant>,
    patience: Duration,
    sent: Sent,
    notes: VecDeque<String>,
    /// Destinations and kinds of notes that were already reported. Each is reported only once.
    said: HashSet<(IpAddr, bool)>,
}

impl Sender {
    pub(super) fn new(single: OwnedFd) -> Sender {
        Sender {
            single,
            runs: None,
            names: Vec::with_capacity(BATCH),
            call: sys::send,
            full_since: None,
            patience: PATIENCE,
            sent: Sent::default(),
            notes: VecDeque::new(),
            said: HashSet::new(),
        }
    }

    /// Enables runs, which are sent by a separate socket.
    pub(super) fn cut_by(&mut self, cutting: OwnedFd) {
        self.runs = Some((cutting, Runs::new(AGAIN)));
    }

    pub(super) fn cuts(&self) -> bool {
        self.runs.is_some()
    }

    pub(super) fn run_to(&mut self, peer: IpAddr, takes: bool) {
        if let Some((_, runs)) = &mut self.runs {
            runs.to(peer, takes);
        }
    }

    pub(super) fn sent(&self) -> Sent {
        self.sent
    }

    pub(super) fn is_full(&self) -> bool {
        self.full_since.is_some()
    }

    pub(super) fn next_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    /// Sends packets. The flag marks a packet that must not join a run. Returns the number of packets at the front of
    /// the sequence that were accepted or lost. There is no room for the remaining packets now.
    pub(super) fn send<'a>(&mut self, mut packets: impl Iterator<Item = (&'a Envelope, &'a [u8], bool)>) -> usize {
        let mut names = std::mem::take(&mut self.names);
        let mut done = 0;
        loop {
            let mut batch = Batch::new();
            names.clear();
            while !batch.is_full()
                && let Some(packet) = packets.next()
            {
                batch.add(packet, &mut names, self.runs.as_mut().map(|(_, runs)| runs));
            }
            let taken = self.send_batch(&batch, &names);
            done += taken;
            if taken < BATCH {
                self.names = names;
                return done;
            }
        }
    }

    fn send_batch(&mut self, batch: &Batch<'_>, names: &[Name]) -> usize {
        let (mut at, mut runs) = (0, batch.runs());
        while let [first, ..] = *runs {
            let (names, packets) = (&names[at..], &batch.packets()[at..]);
            let socket = match &self.runs {
                Some((cutting, _)) if batch.has_runs() => cutting,
                _ => &self.single,
            };
            match (self.call)(socket, names, packets, runs) {
                Ok(sent) => {
                    self.full_since = None;
                    let (sent, rest) = runs.split_at(sent.max(1));
                    self.sent.in_runs += sent.iter().filter(|count| **count > 1).sum::<usize>() as u64;
                    at += sent.iter().sum::<usize>();
                    runs = rest;
                    continue;
                }
                Err(error) if is_for_now(&error) => {
                    if self.waits() {
                        break;
                    }
                    self.lose(&names[0], first, &error);
                }
                Err(error) if first > 1 => {
                    let taken = self.one_by_one(&names[..first], &packets[..first], &error);
                    if taken < first {
                        return at + taken;
                    }
                }
                Err(error) => self.lose(&names[0], 1, &error),
            }
            at += first;
            runs = &runs[1..];
        }
        at
    }

    /// Sends the packets of a refused run one by one. Returns the number of packets that were accepted or lost.
    fn one_by_one(&mut self, names: &[Name], packets: &[Outgoing<'_>], refusal: &io::Error) -> usize {
        let mut singles = [Outgoing::NOTHING; BATCH];
        // Use the ICRCs that the packets had before they were joined to a run.
        singles.iter_mut().zip(packets).for_each(|(single, packet)| single.bytes = packet.bytes);
        let (singles, ones) = (&singles[..packets.len()], [1; BATCH]);
        let mut at = 0;
        while at < singles.len() {
            match (self.call)(&self.single, &names[at..], &singles[at..], &ones[at..singles.len()]) {
                Ok(sent) => {
                    if at == 0 {
                        self.refused(&names[0], packets, refusal);
                    }
                    at += sent.max(1);
                }
                Err(error) if is_for_now(&error) && self.waits() => break,
                Err(error) => {
                    self.lose(&names[at], 1, &error);
                    at += 1;
                }
            }
        }
        at
    }

    /// Handles a refused run whose packets the kernel accepts one by one.
    fn refused(&mut self, name: &Name, packets: &[Outgoing<'_>], why: &io::Error) {
        self.sent.refused_runs += 1;
        let (Some((_, runs)), Some((place, _))) = (&mut self.runs, name.address()) else { return };
        runs.refuse(place);
        let (count, bytes) = (packets.len(), packets[0].bytes.len());
        self.say((place, true), || {
            format!(
                "the kernel refused a run of {count} packets of {bytes} bytes to {place} ({why}); packets are sent one by \
                 one, and runs are tried again every {} s",
                AGAIN.as_secs()
            )
        });
    }

    fn lose(&mut self, name: &Name, packets: usize, why: &io::Error) {
        self.sent.lost += packets as u64;
        self.full_since = None;
        let Some((place, _)) = name.address() else { return };
        self.say((place, false), || {
            format!("the kernel refused a packet to {place} ({why}): refused packets are lost")
        });
    }

    /// Adds a note, unless one of this destination and kind was added before or too many notes wait to be read.
    fn say(&mut self, about: (IpAddr, bool), words: impl FnOnce() -> String) {
        if self.notes.len() < MOST_NOTES && self.said.insert(about) {
            self.notes.push_back(words());
        }
    }

    /// Returns whether packets for which there is no room are kept. They are dropped [`PATIENCE`] after the first
    /// failure.
    fn waits(&mut self) -> bool {
        let now = Instant::now();
        if self.full_since.is_none() {
            self.sent.full += 1;
        }
        now.duration_since(*self.full_since.get_or_insert(now)) < self.patience
    }
}

/// Returns whether an error is temporary, so that the packet is not its cause.
pub(super) fn is_for_now(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
        || matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::Ipv4Addr;

    use super::*;

    /// The state of a fake kernel with scripted results.
    #[derive(Default)]
    struct Kernel {
        /// Errors of the next calls; `None` for success.
        errors: VecDeque<Option<i32>>,
        /// The error for every run.
        runs: Option<i32>,
        /// The accepted packets, each as its first byte, the last byte of its destination, its last four bytes, and
        /// whether it was in a run.
        taken: Vec<(u8, u8, [u8; 4], bool)>,
    }

    thread_local! {
        static KERNEL: RefCell<Kernel> = RefCell::default();
    }

    /// Acts like `sendmmsg`: accepts runs up to the first one that is refused.
    fn fake(_: &OwnedFd, names: &[Name], packets: &[Outgoing<'_>], runs: &[usize]) -> io::Result<usize> {
        KERNEL.with_borrow_mut(|kernel| {
            if let Some(Some(error)) = kernel.errors.pop_front() {
                return Err(io::Error::from_raw_os_error(error));
            }
            let mut at = 0;
            for (count, run) in runs.iter().enumerate() {
                if let (Some(error), true) = (kernel.runs, *run > 1) {
                    return if count == 0 { Err(io::Error::from_raw_os_error(error)) } else { Ok(count) };
                }
                for (packet, name) in packets[at..at + run].iter().zip(&names[at..]) {
                    let Some((IpAddr::V4(place), 4791)) = name.address() else { panic!("{name:?}") };
                    let end = packet.icrc.unwrap_or(*packet.bytes.last_chunk().unwrap());
                    kernel.taken.push((packet.bytes[0], place.octets()[3], end, *run > 1));
                }
                at += run;
            }
            Ok(runs.len())
        })
    }

    fn sender() -> Sender {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut sender = Sender { call: fake, ..Sender::new(file()) };
        sender.cut_by(file());
        (2..4).for_each(|last| sender.run_to(to(last).ip.destination(), true));
        sender
    }

    fn to(last: u8) -> Envelope {
        Envelope::plain(Ipv4Addr::new(10, 9, 0, 1).into(), 0xc001, Ipv4Addr::new(10, 9, 0, last).into()).unwrap()
    }

    /// Returns packets with these first bytes, to these destinations, with valid ICRCs.
    fn packets(which: &[(u8, u8)]) -> Vec<(Envelope, Vec<u8>)> {
        let make = |(first, last): &(u8, u8)| {
            let (envelope, mut bytes) = (to(*last), vec![*first; 64]);
            envelope.seal(&mut bytes);
            (envelope, bytes)
        };
        which.iter().map(make).collect()
    }

    /// Sends packets. Returns the number of packets that were accepted or lost.
    fn send(sender: &mut Sender, packets: &[(Envelope, Vec<u8>)]) -> usize {
        sender.send(packets.iter().map(|(envelope, bytes)| (envelope, &bytes[..], false)))
    }

    fn with(change: impl FnOnce(&mut Kernel)) {
        KERNEL.with_borrow_mut(change);
    }

    fn take() -> Vec<(u8, u8, [u8; 4], bool)> {
        KERNEL.with_borrow_mut(|kernel| std::mem::take(&mut kernel.taken))
    }

    /// Checks that every packet was accepted once and in order. Returns which of them were in runs.
    fn came(packets: &[(Envelope, Vec<u8>)]) -> Vec<bool> {
        let taken = take();
        let seen: Vec<_> = taken.iter().map(|(first, last, ..)| (*first, *last)).collect();
        let sent = packets.iter().map(|(envelope, bytes)| match envelope.ip.destination() {
            IpAddr::V4(place) => (bytes[0], place.octets()[3]),
            IpAddr::V6(_) => unreachable!(),
        });
        assert_eq!(seen, sent.collect::<Vec<_>>());
        for ((_, bytes), (.., end, in_run)) in packets.iter().zip(&taken) {
            assert!(*in_run || bytes.ends_with(end), "a single packet has its own ICRC");
        }
        taken.iter().map(|(.., in_run)| *in_run).collect()
    }

    #[test]
    fn a_refused_run_is_sent_one_by_one_and_other_destinations_keep_runs() {
        let mut sender = sender();
        if let Some((_, runs)) = &mut sender.runs {
            *runs = Runs::new(Duration::from_secs(3600));
            (2..4).for_each(|last| runs.to(to(last).ip.destination(), true));
        }
        let mixed = packets(&[(1, 2), (2, 2), (3, 2), (4, 3), (5, 2), (6, 2)]);
        with(|kernel| kernel.runs = Some(libc::EINVAL));
        assert_eq!(send(&mut sender, &mixed), 6, "nothing is lost");
        assert_eq!(came(&mixed), [false; 6]);
        // Two runs of one batch were refused; the other destination still accepts runs.
        assert_eq!(sender.sent(), Sent { refused_runs: 2, ..Sent::default() });
        with(|kernel| kernel.runs = None);
        let mixed = packets(&[(1, 2), (2, 2), (3, 3), (4, 3)]);
        assert_eq!(send(&mut sender, &mixed), 4);
        assert_eq!(came(&mixed), [false, false, true, true]);
        let note = sender.next_note().unwrap();
        assert!(note.contains("10.9.0.2") && note.contains("one by one"), "{note}");
        assert_eq!(sender.next_note(), None, "reported once");
        // A reconnect does not end the pause early.
        sender.run_to(to(2).ip.destination(), true);
        assert_eq!(send(&mut sender, &mixed[..2]), 2);
        assert_eq!(came(&mixed[..2]), [false, false]);
    }

    #[test]
    fn runs_are_tried_again_later() {
        let mut sender = sender();
        if let Some((_, runs)) = &mut sender.runs {
            *runs = Runs::new(Duration::ZERO);
            runs.to(to(2).ip.destination(), true);
        }
        let two = packets(&[(1, 2), (2, 2)]);
        with(|kernel| kernel.runs = Some(libc::EMSGSIZE));
        send(&mut sender, &two);
        assert_eq!(came(&two), [false, false]);
        with(|kernel| kernel.runs = None);
        send(&mut sender, &two);
        assert_eq!(came(&two), [true, true]);
    }

    /// When the queue is full, no part of a run is lost, and the order does not change.
    #[test]
    fn packets_without_room_are_kept_and_sent_first() {
        let all = packets(&[(1, 2), (2, 2), (3, 2), (4, 3), (5, 2), (6, 4)]);
        for error in [libc::EAGAIN, libc::ENOBUFS] {
            for refuses_runs in [false, true] {
                for full_at in 0..5 {
                    let mut sender = sender();
                    with(|kernel| {
                        kernel.errors = (0..full_at).map(|_| None).chain([Some(error); 3]).collect();
                        kernel.runs = refuses_runs.then_some(libc::EINVAL);
                    });
                    let mut done = 0;
                    for _ in 0..20 {
                        done += send(&mut sender, &all[done..]);
                    }
                    assert_eq!(done, all.len());
                    came(&all);
                    assert_eq!(sender.sent().lost, 0);
                    with(|kernel| *kernel = Kernel::default());
                }
            }
        }
    }

    #[test]
    fn a_queue_that_stays_full_drops_the_first_packets_and_reports_it() {
        let mut sender = Sender { patience: Duration::ZERO, ..sender() };
        with(|kernel| kernel.errors = [Some(libc::ENOBUFS)].into());
        let some = packets(&[(1, 2), (2, 2), (3, 3)]);
        assert_eq!(send(&mut sender, &some), 3);
        assert_eq!(came(&some[2..]), [false]);
        assert_eq!(sender.sent(), Sent { lost: 2, full: 1, ..Sent::default() });
        assert!(sender.next_note().unwrap().contains("10.9.0.2"));
        assert!(!sender.is_full());
    }

    #[test]
    fn an_unreachable_packet_is_lost_alone_and_runs_continue() {
        let mut sender = sender();
        let some = packets(&[(1, 2), (2, 2), (3, 3)]);
        let unreachable = Some(libc::ENETUNREACH);
        with(|kernel| kernel.errors = [unreachable; 3].into());
        assert_eq!(send(&mut sender, &some), 3);
        assert_eq!(came(&some[2..]), [false]);
        assert_eq!(sender.sent(), Sent { lost: 2, ..Sent::default() });
        send(&mut sender, &some);
        assert_eq!(came(&some), [true, true, false]);
    }
}
