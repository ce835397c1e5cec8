//! What leaves, and what becomes of what the kernel does not take.
//!
//! - **No room** (the socket's buffer, or a queue behind it, is full): the packets stay with the caller, who comes again. Who
//!   finds no room for [`PATIENCE`] loses what is first, as on any network, so that one way that is stuck does not hold up
//!   the others for ever.
//! - **A run is refused**: its packets go one by one, at once. If they can, it was the run that was refused: there are none to
//!   that place for [`AGAIN`], then they are tried again.
//! - **A packet is refused**: it is lost.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use stentor_wire::Envelope;

use super::runs::{Batch, Runs};
use super::sys::{self, BATCH, Name, Outgoing};

/// How long no room is waited for.
const PATIENCE: Duration = Duration::from_millis(20);
/// After which time a refused run is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// Words that wait to be read.
const MOST_NOTES: usize = 64;

/// The system call, or what stands for it.
type Call = fn(&OwnedFd, &[Name], &[Outgoing<'_>], &[usize]) -> io::Result<usize>;

/// What became of what was sent, in packets unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sent {
    pub(super) lost: u64,
    pub(super) in_runs: u64,
    /// Runs.
    pub(super) refused_runs: u64,
    /// Times that there was no room.
    pub(super) full: u64,
}

/// One source port.
#[derive(Debug)]
pub(super) struct Sender {
    single: OwnedFd,
    /// What sends runs, and who takes them.
    runs: Option<(OwnedFd, Runs)>,
    names: Vec<Name>,
    call: Call,
    /// There has been no room since.
    full_since: Option<Instant>,
    patience: Duration,
    sent: Sent,
    notes: VecDeque<String>,
    /// Of which places it was said, so that it is said once.
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

    /// Sends runs by a socket of their own from now on.
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

    /// Sends packets; one that goes alone says so. Returns how many, from the first on, were taken or lost. There is no room
    /// for the rest now.
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

    /// The packets of a run that was refused. Returns how many there was room for.
    fn one_by_one(&mut self, names: &[Name], packets: &[Outgoing<'_>], refusal: &io::Error) -> usize {
        let mut singles = [Outgoing::NOTHING; BATCH];
        // Sealed as they were before they became a run.
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

    /// The kernel takes packets one by one that it does not take as a run.
    fn refused(&mut self, name: &Name, packets: &[Outgoing<'_>], why: &io::Error) {
        self.sent.refused_runs += 1;
        let (Some((_, runs)), Some((place, _))) = (&mut self.runs, name.address()) else { return };
        runs.refuse(place);
        let (count, bytes) = (packets.len(), packets[0].bytes.len());
        self.say((place, true), || {
            format!(
                "the kernel took no run of {count} packets of {bytes} bytes to {place} ({why}); they go one by one, and \
                 runs are tried again every {} s",
                AGAIN.as_secs()
            )
        });
    }

    fn lose(&mut self, name: &Name, packets: usize, why: &io::Error) {
        self.sent.lost += packets as u64;
        self.full_since = None;
        let Some((place, _)) = name.address() else { return };
        self.say((place, false), || {
            format!("the kernel took no packet to {place} ({why}): what it does not take is lost")
        });
    }

    /// Once of each place.
    fn say(&mut self, about: (IpAddr, bool), words: impl FnOnce() -> String) {
        if self.notes.len() < MOST_NOTES && self.said.insert(about) {
            self.notes.push_back(words());
        }
    }

    /// Whether what finds no room is kept. Counts from when it found none.
    fn waits(&mut self) -> bool {
        let now = Instant::now();
        if self.full_since.is_none() {
            self.sent.full += 1;
        }
        now.duration_since(*self.full_since.get_or_insert(now)) < self.patience
    }
}

/// Whether it is the moment that the kernel does not like, not the packet.
pub(super) fn is_for_now(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
        || matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::Ipv4Addr;

    use super::*;

    /// What a kernel that was told how to behave saw.
    #[derive(Default)]
    struct Kernel {
        /// The error for the next calls, and for how many.
        errors: VecDeque<Option<i32>>,
        /// What it says to every run.
        runs: Option<i32>,
        /// First byte, place and end of each packet that it took, and whether it came in a run.
        taken: Vec<(u8, u8, [u8; 4], bool)>,
    }

    thread_local! {
        static KERNEL: RefCell<Kernel> = RefCell::default();
    }

    /// Takes runs up to the first that it refuses, as sendmmsg does.
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

    /// Packets of these first bytes and to these places, sealed.
    fn packets(which: &[(u8, u8)]) -> Vec<(Envelope, Vec<u8>)> {
        let make = |(first, last): &(u8, u8)| {
            let (envelope, mut bytes) = (to(*last), vec![*first; 64]);
            envelope.seal(&mut bytes);
            (envelope, bytes)
        };
        which.iter().map(make).collect()
    }

    /// Sends from a place on; returns how many are done.
    fn send(sender: &mut Sender, packets: &[(Envelope, Vec<u8>)]) -> usize {
        sender.send(packets.iter().map(|(envelope, bytes)| (envelope, &bytes[..], false)))
    }

    fn with(change: impl FnOnce(&mut Kernel)) {
        KERNEL.with_borrow_mut(change);
    }

    fn take() -> Vec<(u8, u8, [u8; 4], bool)> {
        KERNEL.with_borrow_mut(|kernel| std::mem::take(&mut kernel.taken))
    }

    /// Everything came once, in order; and which went in runs.
    fn came(packets: &[(Envelope, Vec<u8>)]) -> Vec<bool> {
        let taken = take();
        let seen: Vec<_> = taken.iter().map(|(first, last, ..)| (*first, *last)).collect();
        let sent = packets.iter().map(|(envelope, bytes)| match envelope.ip.destination() {
            IpAddr::V4(place) => (bytes[0], place.octets()[3]),
            IpAddr::V6(_) => unreachable!(),
        });
        assert_eq!(seen, sent.collect::<Vec<_>>());
        for ((_, bytes), (.., end, in_run)) in packets.iter().zip(&taken) {
            assert!(*in_run || bytes.ends_with(end), "what goes by itself is sealed for that");
        }
        taken.iter().map(|(.., in_run)| *in_run).collect()
    }

    #[test]
    fn a_refused_run_goes_packet_by_packet_and_runs_elsewhere_go_on() {
        let mut sender = sender();
        if let Some((_, runs)) = &mut sender.runs {
            *runs = Runs::new(Duration::from_secs(3600));
            (2..4).for_each(|last| runs.to(to(last).ip.destination(), true));
        }
        let mixed = packets(&[(1, 2), (2, 2), (3, 2), (4, 3), (5, 2), (6, 2)]);
        with(|kernel| kernel.runs = Some(libc::EINVAL));
        assert_eq!(send(&mut sender, &mixed), 6, "nothing is lost");
        assert_eq!(came(&mixed), [false; 6]);
        // Two runs of one batch were refused; the place that was not asked takes runs still.
        assert_eq!(sender.sent(), Sent { refused_runs: 2, ..Sent::default() });
        with(|kernel| kernel.runs = None);
        let mixed = packets(&[(1, 2), (2, 2), (3, 3), (4, 3)]);
        assert_eq!(send(&mut sender, &mixed), 4);
        assert_eq!(came(&mixed), [false, false, true, true]);
        let note = sender.next_note().unwrap();
        assert!(note.contains("10.9.0.2") && note.contains("one by one"), "{note}");
        assert_eq!(sender.next_note(), None, "said once");
        // Whoever connects again does not bring runs back before their time.
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

    /// Not even half of a run is lost when the queue is full, and nothing changes its order.
    #[test]
    fn what_finds_no_room_is_kept_and_goes_first() {
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
    fn a_queue_that_stays_full_loses_what_is_first_and_says_so() {
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
    fn a_packet_that_cannot_go_is_lost_alone_and_runs_are_not_to_blame() {
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
