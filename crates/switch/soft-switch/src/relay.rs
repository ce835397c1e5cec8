//! The relay: from socket to pipeline to socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use stentor_fabric_net::control_session::SessionError;
use stentor_fabric_roce::driver::{Inlet, Leaving, Mode, Outlet, Pcap, PortError, gate};
use stentor_switch::registers::MOST;
use stentor_switch::{Arrival, Config, CreateError, Emission, Switch};
use stentor_wire::ICRC_BYTES;
use thiserror::Error;

use crate::enrolment::{Admitted, Enrolment};
use crate::faults::{Faults, Held, Network};
use crate::settings::Settings;

/// Maximum number of passes of one packet, one more than any packet needs. A control packet that takes a set over needs
/// one pass that reads, one that stores the done PSN of the former holder, and one for each member. A data packet needs
/// one for each copy, and one for a NAK after the last copy.
pub const MOST_PASSES: usize = MOST + 3;
/// Maximum number of packets that a round receives at each of the two addresses.
const ROUND: usize = 8 * Outlet::BATCH;
/// Number of packets that can wait to be sent in one batch.
const QUEUE: usize = Outlet::BATCH + MOST_PASSES;
/// Minimum interval between two rounds of the control plane, in nanoseconds.
const LOOK: u64 = 500_000;
/// Indices of the two addresses.
const FORWARD: usize = 0;
const BACKWARD: usize = 1;

/// Reason why the switch could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The sockets cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The listener of the control plane cannot be opened.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A configured set cannot be created.
    #[error("set {gid}: {source}")]
    Set {
        /// Number of the set.
        gid: u16,
        /// The reason.
        source: CreateError,
    },
}

/// Counts of packets in and out. [`Switch::counters`] counts their passes by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Packets received.
    pub received: u64,
    /// Packets passed to the kernel, also those that it did not send ([`SoftSwitch::kernel_lost`]).
    pub sent: u64,
    /// Packets dropped because they would have exceeded [`MOST_PASSES`].
    pub overlong: u64,
}

/// A packet to send: the index of its input in the batch, and its new headers and ICRC.
type Waiting = (usize, Emission);

/// The switch on its sockets.
#[derive(Debug)]
pub struct SoftSwitch {
    switch: Switch,
    inlets: [Inlet; 2],
    outlets: [Outlet; 2],
    waiting: [Vec<Waiting>; 2],
    network: Option<Box<Network>>,
    pcap: Option<Pcap>,
    enrolment: Option<Enrolment>,
    /// Time of the last round of the control plane.
    looked: u64,
    begin: Instant,
    tally: Tally,
}

impl SoftSwitch {
    /// Opens the sockets and creates the configured sets.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(settings: &Settings) -> Result<SoftSwitch, StartError> {
        let entropy = std::process::id() as u16;
        let (forward_in, forward_out) = gate(settings.forward, settings.mode, entropy)?;
        let (backward_in, backward_out) = gate(settings.backward, settings.mode, entropy)?;
        let config = Config {
            aggregation: settings.aggregation,
            check_data: settings.check_data,
            source_ports: forward_out.port().zip(backward_out.port()).map(<[u16; 2]>::from),
            ..Config::new(settings.forward, settings.backward)
        };
        let mut switch = Switch::new(config, settings.sets);
        for set in &settings.static_sets {
            let failed = |source| StartError::Set { gid: set.gid, source };
            switch.create_some(set.gid, set.lease, &set.hosts).map_err(failed)?;
        }
        Ok(SoftSwitch {
            switch,
            inlets: [forward_in, backward_in],
            outlets: [forward_out, backward_out],
            waiting: [Vec::with_capacity(QUEUE), Vec::with_capacity(QUEUE)],
            network: settings.faults.is_any().then(|| Box::new(Network::new(settings.faults))),
            pcap: None,
            enrolment: None,
            looked: 0,
            begin: Instant::now(),
            tally: Tally::default(),
        })
    }

    /// Listens on a TCP address for hosts that have the cluster's key and join sets.
    ///
    /// # Errors
    /// Returns [`StartError::Session`] if the listener cannot be opened.
    pub fn listen(&mut self, settings: &Settings, at: SocketAddr, key: &[u8]) -> Result<(), StartError> {
        self.enrolment = Some(Enrolment::listen(&settings.cluster, key, at, settings.mode == Mode::Raw)?);
        Ok(())
    }

    /// Returns the address where hosts join sets, if there is one.
    #[must_use]
    pub fn listens_at(&self) -> Option<SocketAddr> {
        self.enrolment.as_ref().and_then(Enrolment::address)
    }

    /// Returns the counts of connections.
    #[must_use]
    pub fn admitted(&self) -> Admitted {
        self.enrolment.as_ref().map_or_else(Admitted::default, Enrolment::admitted)
    }

    /// Writes every incoming and outgoing packet to a capture.
    pub fn capture(&mut self, pcap: Pcap) {
        self.pcap = Some(pcap);
    }

    /// Returns the capture, so that it can be finished.
    pub fn pcap_mut(&mut self) -> Option<&mut Pcap> {
        self.pcap.as_mut()
    }

    /// Returns the data plane.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Returns the data plane, so that sets can be created and removed.
    pub fn switch_mut(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// Replaces the fault injection. Default faults turn it off.
    pub fn inject(&mut self, faults: Faults) {
        self.network = faults.is_any().then(|| Box::new(Network::new(faults)));
    }

    /// Returns the counts of injected faults: lost, repeated, reordered, damaged, lost in the loop.
    #[must_use]
    pub fn injected(&self) -> [u64; 5] {
        self.network.as_ref().map_or([0; 5], |network| network.counts())
    }

    /// Returns the counts of packets in and out.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns the number of packets that the kernel did not send, and of packets that its receive buffers dropped.
    #[must_use]
    pub fn kernel_lost(&self) -> [u64; 2] {
        let [a, b] = &self.outlets;
        let [c, d] = &self.inlets;
        [a.unsent() + b.unsent(), c.overflowed() + d.overflowed()]
    }

    /// Returns the sockets, so that a benchmark can measure them without the pipeline.
    pub fn sockets_mut(&mut self) -> (&mut [Inlet; 2], &mut [Outlet; 2]) {
        (&mut self.inlets, &mut self.outlets)
    }

    /// Returns the time since the switch was opened.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Receives at most a few hundred waiting packets, and sends the resulting ones. Runs the control plane if that is
    /// due. Returns whether it did any work.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn round(&mut self) -> io::Result<bool> {
        let mut any = false;
        for gate in [FORWARD, BACKWARD] {
            let mut taken = 0;
            while taken < ROUND {
                let count = self.inlets[gate].fill()?;
                if count == 0 {
                    break;
                }
                taken += count;
                self.tally.received += count as u64;
                let now_ns = self.now();
                self.batch(gate, count, now_ns);
                if count < Outlet::BATCH {
                    break;
                }
            }
            any |= taken > 0;
        }
        if self.network.is_some() {
            any |= self.release();
        }
        let now = self.now();
        if let Some(enrolment) = self.enrolment.as_mut().filter(|_| now >= self.looked + LOOK) {
            self.looked = now;
            any |= enrolment.round(now, &mut self.switch);
        }
        Ok(any)
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Processes the packets of one batch.
    fn batch(&mut self, gate: usize, count: usize, now_ns: u64) {
        let SoftSwitch { switch, inlets, outlets, waiting, network, pcap, tally, .. } = self;
        let inlet = &inlets[gate];
        let backward = switch.config.backward;
        if let Some(pcap) = pcap {
            (0..count).for_each(|n| pcap.write_packet(inlet.packet(n)));
        }
        if let Some(network) = network {
            for n in 0..count {
                network.incoming.push(now_ns, Held { gate, bytes: inlet.packet(n).to_vec() });
            }
            return;
        }
        for n in 0..count {
            let whole = passes(
                switch,
                inlet.packet(n),
                now_ns,
                || false,
                |emission| {
                    waiting[leaves_from(&emission, backward)].push((n, emission));
                },
            );
            tally.overlong += u64::from(!whole);
            for (outlet, waiting) in outlets.iter_mut().zip(waiting.iter_mut()) {
                if waiting.len() >= Outlet::BATCH {
                    tally.sent += flush(outlet, waiting, inlet, pcap);
                }
            }
        }
        for (outlet, waiting) in outlets.iter_mut().zip(waiting) {
            if !waiting.is_empty() {
                tally.sent += flush(outlet, waiting, inlet, pcap);
            }
        }
    }

    /// Processes the packets that the fault injection releases now. Returns whether there were any.
    fn release(&mut self) -> bool {
        let now_ns = self.now();
        let SoftSwitch { switch, outlets, network, pcap, tally, .. } = self;
        let Some(network) = network else { return false };
        let (mut any, backward) = (false, switch.config.backward);
        while let Some(held) = network.incoming.pop(now_ns) {
            any = true;
            let mut left = Vec::new();
            let whole = passes(switch, &held.bytes, now_ns, || network.loses_copy(), |emission| left.push(emission));
            tally.overlong += u64::from(!whole);
            for emission in left {
                let (gate, bytes) = (leaves_from(&emission, backward), emission.to_vec(&held.bytes));
                network.outgoing.push(now_ns, Held { gate, bytes });
            }
        }
        while let Some(Held { gate, bytes }) = network.outgoing.pop(now_ns) {
            any = true;
            if let Some(pcap) = pcap {
                pcap.write_packet(&bytes);
            }
            let Some((head, body)) = bytes.split_at_checked(crate::faults::OUTER) else { continue };
            let Some(icrc) = body.last_chunk::<ICRC_BYTES>() else { continue };
            outlets[gate].send(std::iter::once(Leaving { to: destination(head), head, body, icrc: *icrc }));
            tally.sent += 1;
        }
        any
    }

    /// Sleeps until a packet or message arrives at the switch, a packet that the fault injection holds is due, one of
    /// `others` is readable, a signal arrives, or `longest` has elapsed.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn wait(&self, longest: Duration, others: &[BorrowedFd<'_>]) -> io::Result<()> {
        let next = self.network.as_ref().and_then(|network| network.next());
        let longest = next.map_or(longest, |next| Duration::from_nanos(next.saturating_sub(self.now())).min(longest));
        let own = self.inlets.iter().map(Inlet::descriptor);
        let control = self.enrolment.iter().flat_map(Enrolment::sockets);
        let mut all: Vec<_> = own
            .chain(control)
            .chain(others.iter().copied())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        match poll(&mut all, Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs all passes of a packet. Returns `false` if there were too many.
#[inline]
fn passes(
    switch: &mut Switch,
    bytes: &[u8],
    now_ns: u64,
    mut loses: impl FnMut() -> bool,
    mut leave: impl FnMut(Emission),
) -> bool {
    let mut bridge = None;
    for _ in 0..MOST_PASSES {
        let departure = switch.step(&Arrival { bytes, bridge, now_ns });
        if let Some(emission) = departure.emission {
            leave(emission);
        }
        bridge = departure.mirror;
        if bridge.is_none() || loses() {
            return true;
        }
    }
    false
}

/// Returns the index of the address that a packet leaves from.
#[inline]
fn leaves_from(emission: &Emission, backward: Ipv4Addr) -> usize {
    if emission.head().get(12..16) == Some(&backward.octets()[..]) { BACKWARD } else { FORWARD }
}

fn destination(head: &[u8]) -> Ipv4Addr {
    match head.get(16..20) {
        Some([a, b, c, d]) => Ipv4Addr::new(*a, *b, *c, *d),
        _ => Ipv4Addr::UNSPECIFIED,
    }
}

/// Sends the packets that wait at an address. Returns their number.
fn flush(outlet: &mut Outlet, waiting: &mut Vec<Waiting>, inlet: &Inlet, pcap: &mut Option<Pcap>) -> u64 {
    if let Some(pcap) = pcap {
        waiting.iter().for_each(|(n, emission)| pcap.write_packet(&emission.to_vec(inlet.packet(*n))));
    }
    outlet.send(waiting.iter().map(|(n, emission)| {
        // The four bytes of the input after the body are passed with it. The new ICRC replaces them.
        let body = emission.body();
        let body = inlet.packet(*n).get(body.start..body.end + ICRC_BYTES).unwrap_or(&[]);
        Leaving { to: emission.to(), head: emission.head(), body, icrc: emission.icrc() }
    }));
    let count = waiting.len() as u64;
    waiting.clear();
    count
}

/// Returns the name of a mode.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    if mode == Mode::Raw { "raw" } else { "plain" }
}
