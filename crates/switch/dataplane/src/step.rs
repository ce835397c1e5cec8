//! One pass through the pipeline: parse, match on the destination address, register stages, deparse.

use core::net::Ipv4Addr;
use std::sync::Arc;

use stentor_wire::{IpPacket, IpRepr, Opcode, Psn, RnrTimer, Service, Syndrome};

use crate::control::Control;
use crate::counters::{Cause, Counters};
use crate::emission::{self, Answer, Emission, Shifts, Source};
use crate::mutant::Mutant;
use crate::parsed::Parsed;
use crate::registers::{Arrays, MOST, State};

/// The way in which the acknowledgements of the members are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Aggregation {
    /// Keeps the acknowledgement of each member, and the minimum counts. Never stalls.
    #[default]
    ExactMin,
    /// Keeps a bitmap of the members that have acknowledged in this round. When it is full, the minimum of the round
    /// counts and the next round begins. Stalls even without loss; it exists for comparison.
    RoundBitmap,
}

/// Parameters that do not change while the switch runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Address of the VRQPs: packets to it are replicated.
    pub forward: Ipv4Addr,
    /// Address of the VSQPs: packets to it are answers of receivers.
    pub backward: Ipv4Addr,
    /// The way in which acknowledgements are combined.
    pub aggregation: Aggregation,
    /// RNR timer for a sender that has to wait for the set.
    pub busy: RnrTimer,
    /// Minimum time between two congestion notifications to a holder, in nanoseconds. The switch measures it in whole
    /// units of 65.536 µs, rounded down. With 0 units it sends at most one notification in each unit.
    pub notice_interval_ns: u64,
    /// UDP source ports of packets from the forward address and from the backward address, for switches on sockets: a
    /// socket has only one port. With `None` a packet keeps the source port of the packet that it derives from.
    pub source_ports: Option<[u16; 2]>,
    /// `true` if the ICRC of data is checked, too. A pipeline cannot do that, because it does not see the payload.
    /// Without the check, the switch may mistake a packet with damaged headers for another packet. The receivers then
    /// drop its copies.
    pub check_data: bool,
    /// A mutant, for tests.
    pub mutant: Mutant,
}

impl Config {
    /// Returns a configuration with these addresses, exact aggregation, an RNR timer of 640 µs, an interval of 50 µs
    /// between congestion notifications, and no check of data.
    #[must_use]
    pub const fn new(forward: Ipv4Addr, backward: Ipv4Addr) -> Config {
        Config {
            forward,
            backward,
            aggregation: Aggregation::ExactMin,
            busy: RnrTimer::from_code(12),
            notice_interval_ns: 50_000,
            source_ports: None,
            check_data: false,
            mutant: Mutant::None,
        }
    }

    /// Returns the source port of an answer to a packet that was sent from `port`.
    #[inline]
    pub(crate) fn answering_port(&self, port: u16) -> u16 {
        self.source_ports.map_or(port, |[forward, _]| forward)
    }

    /// Returns the source address and port of copies.
    #[inline]
    pub(crate) fn copying_source(&self) -> Source {
        Source { address: self.backward, port: self.source_ports.map(|[_, backward]| backward) }
    }
}

/// Converts a time to the form of registers: units of 65.536 µs, 32 bits. It wraps after 78 hours. A holder that was
/// silent for that long may seem to have renewed its lease just now, which delays another rank by one lease.
#[inline]
pub(crate) const fn ticks(now_ns: u64) -> u32 {
    (now_ns >> 16) as u32
}

/// The state that a pass hands to the next one: a header in front of the packet in the mirror loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bridge {
    /// Epoch of the session at the first pass.
    pub epoch: u32,
    /// Index of the next member.
    pub slot: u8,
    /// The purpose of the next pass.
    pub job: Job,
}

impl Bridge {
    /// Size of the header, in bits. The longest job is a LINK that takes over the set.
    pub const BITS: u32 = 32 + 5 + 3 + (3 + 32 + 24 + 5 + 24 + 24 + 1 + 1);
}

/// The purpose of a packet in the loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Job {
    /// Make the next copy.
    Copy {
        /// `true` if an earlier member lacks a packet.
        gap: bool,
    },
    /// Send the holder a NAK for a missing packet.
    Complain,
    /// Execute a LINK, or a query of the holder, for the next member.
    Link(Admission),
    /// Store the done PSN of the rank that loses the set, then execute the control packet.
    Retire(Admission),
    /// Execute a release, or a query while no rank holds the set.
    Release,
    /// Poison the set and send the sender a NAK.
    Poison(Admission),
    /// Poison the set because a member's queue pair broke, and send the holder a NAK.
    Break,
}

/// The state with which a control packet was admitted. If the second pass does not find the same state, the sender has
/// to wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Admission {
    /// State of the set.
    pub state: State,
    /// Time at which the holder's lease was last renewed; compared only for a take-over.
    pub heard: u32,
    /// Holder of the set.
    pub holder: u8,
    /// Done PSN of that holder.
    pub last: Psn,
    /// Number of messages up to that PSN.
    pub last_msn: u32,
    /// `true` if the set is taken over from another rank, whose lease has expired.
    pub takes_over: bool,
    /// `true` if the members keep their addresses and keys.
    pub keeps: bool,
}

/// A packet that arrived at the switch, or that returned from the mirror loop.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The packet, which begins with its IP header.
    pub bytes: &'a [u8],
    /// The header from the mirror loop, if the packet returned from there.
    pub bridge: Option<Bridge>,
    /// Time in nanoseconds since an arbitrary origin.
    pub now_ns: u64,
}

/// Result of a pass.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Departure {
    /// A packet to send.
    pub emission: Option<Emission>,
    /// The header with which the packet enters the loop again.
    pub mirror: Option<Bridge>,
    /// The outcome, for the counters.
    pub cause: Cause,
}

impl Departure {
    #[inline]
    pub(crate) const fn nothing(cause: Cause) -> Departure {
        Departure { emission: None, mirror: None, cause }
    }

    #[inline]
    pub(crate) const fn sent(cause: Cause, emission: Emission) -> Departure {
        Departure { emission: Some(emission), mirror: None, cause }
    }

    #[inline]
    pub(crate) const fn looped(cause: Cause, bridge: Bridge) -> Departure {
        Departure { emission: None, mirror: Some(bridge), cause }
    }
}

/// The switch: its registers and its configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    /// Parameters that do not change.
    pub config: Config,
    pub(crate) arrays: Arrays,
    pub(crate) shifts: Arc<Shifts>,
    counters: Counters,
}

impl Switch {
    /// Creates a switch with room for `sets` sets, all silent.
    #[must_use]
    pub fn new(config: Config, sets: usize) -> Switch {
        let arrays = Arrays::new(sets.min(1 << 16));
        Switch { config, arrays, shifts: Arc::new(Shifts::new()), counters: Counters::default() }
    }

    /// Returns the registers, read-only.
    #[must_use]
    pub fn arrays(&self) -> &Arrays {
        &self.arrays
    }

    /// Returns the registers, so that sets can be created.
    pub(crate) fn arrays_mut(&mut self) -> &mut Arrays {
        &mut self.arrays
    }

    /// Returns the counts of passes by cause.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Resets the counts.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// Runs one pass of a packet. No content of a packet makes it panic.
    #[inline]
    pub fn step(&mut self, arrival: &Arrival<'_>) -> Departure {
        let departure = self.pass(arrival);
        self.counters.count(departure.cause);
        departure
    }

    fn pass(&mut self, arrival: &Arrival<'_>) -> Departure {
        let config = &self.config;
        let Ok(packet) = IpPacket::new_checked(arrival.bytes) else { return self.unreadable(arrival.bytes) };
        // Reads the fields in place; copies in the envelope would cost another store and load.
        let words = arrival.bytes.as_chunks::<4>().0;
        let ([_, _, [ttl, ..], source, destination, [p0, p1, ..], ..], IpRepr::V4(_)) = (words, &packet.envelope.ip)
        else {
            return Departure::nothing(Cause::Plain);
        };
        let destination = Ipv4Addr::from_bits(u32::from_be_bytes(*destination));
        let backward = destination == config.backward;
        if !backward && destination != config.forward {
            return Departure::nothing(Cause::Plain);
        }
        if *ttl < 2 {
            return Departure::nothing(Cause::Expired);
        }
        let inner = packet.packet;
        let (opcode, qpn) = (inner.opcode(), inner.dest_qp());
        let parsed = Parsed {
            words,
            source: u32::from_be_bytes(*source),
            port: u16::from_be_bytes([*p0, *p1]),
            packet: inner,
            opcode,
            gid: (qpn >> 8) as u16,
            rank: qpn as u8,
            psn: inner.psn(),
            now: ticks(arrival.now_ns),
        };
        if usize::from(parsed.rank) >= MOST {
            return Departure::nothing(Cause::WrongSource);
        }
        let is_data = !backward && matches!(opcode.to_byte(), 0x00..=0x0b);
        let is_control = is_data && opcode == Opcode::RcWriteOnly && Control::is_one(inner.reth());
        // The switch checks the packets on which it acts itself. They are short, so a pipeline can check them. Packets
        // from the loop were checked on arrival.
        let checked = arrival.bridge.is_none() && (is_control || !is_data || config.check_data);
        if checked && !packet.is_intact() {
            return Departure::nothing(Cause::Damaged);
        }
        if backward {
            return match (opcode, arrival.bridge.map(|bridge| bridge.job)) {
                (Opcode::RcAcknowledge, None) => self.feedback(&parsed),
                (Opcode::RcAcknowledge, Some(Job::Break)) => self.broken(&parsed, arrival.bridge),
                (Opcode::Cnp, None) => self.notice(&parsed),
                _ => Departure::nothing(Cause::WrongOpcode),
            };
        }
        match arrival.bridge {
            None if is_control => self.control(&parsed),
            None if is_data => self.data(&parsed),
            None if opcode.service() == Service::Rc && !opcode.is_response() => self.invalid(&parsed),
            Some(bridge) if is_control => self.carry_out(&parsed, &bridge),
            Some(bridge) if is_data => self.replicate(&parsed, &bridge),
            _ => Departure::nothing(Cause::WrongOpcode),
        }
    }

    /// Makes an answer to a sending queue pair.
    pub(crate) fn answer(&self, to: (u32, u16, u32), psn: Psn, syndrome: Syndrome, msn: u32) -> Emission {
        let (ip, port, qpn) = to;
        let from = self.config.forward;
        let port = self.config.answering_port(port);
        emission::answer(&Answer { from, to: Ipv4Addr::from_bits(ip), port, qpn, psn, syndrome, msn })
    }

    /// Handles a packet that is not RoCEv2. An IPv4 packet to another address is forwarded as usual. So is any packet
    /// of at least 40 bytes that is not IPv4, because it may be IPv6.
    #[cold]
    fn unreadable(&self, bytes: &[u8]) -> Departure {
        let to = bytes.get(16..20).map(|to| Ipv4Addr::new(to[0], to[1], to[2], to[3]));
        let ours = [self.config.forward, self.config.backward];
        let is_v4 = bytes.first().is_some_and(|first| first >> 4 == 4);
        let is_other = is_v4 && to.is_some_and(|to| !ours.contains(&to)) || !is_v4 && bytes.len() >= 40;
        Departure::nothing(if is_other { Cause::Plain } else { Cause::Malformed })
    }
}
