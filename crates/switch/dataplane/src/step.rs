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

/// How acknowledgements of the members become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Aggregation {
    /// What each member acknowledged is kept; the least counts. Never stalls.
    #[default]
    ExactMin,
    /// A bitmap of who acknowledged in this round; when it is full the least of the round counts, and the next round begins.
    /// Stalls without any loss: kept to be compared with.
    RoundBitmap,
}

/// What does not change while the switch runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// The address of VRQPs: packets to it are replicated.
    pub forward: Ipv4Addr,
    /// The address of VSQPs: packets to it are answers of receivers.
    pub backward: Ipv4Addr,
    /// How acknowledgements become one.
    pub aggregation: Aggregation,
    /// What a sender is told to wait that must wait for the set.
    pub busy: RnrTimer,
    /// Least time between two congestion notifications to a holder, nanoseconds.
    pub notice_interval_ns: u64,
    /// The UDP ports that packets leave from at the forward address and at the backward one, where they cannot keep those of
    /// the packets that they are of: a socket has one. `None`: they keep them.
    pub source_ports: Option<[u16; 2]>,
    /// Whether the ICRC of data is checked, too. A pipeline cannot: it does not see the payload. Then a packet that was
    /// damaged in its headers may count as another one, until its receivers drop it.
    pub check_data: bool,
    /// A bug on purpose.
    pub mutant: Mutant,
}

impl Config {
    /// With these two addresses; exact aggregation, waits of 640 µs, a notification in 50 µs, data not checked.
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

    /// What an answer to a sender leaves from, if that sent from `port`.
    #[inline]
    pub(crate) fn answering_port(&self, port: u16) -> u16 {
        self.source_ports.map_or(port, |[forward, _]| forward)
    }

    /// What copies leave from.
    #[inline]
    pub(crate) fn copying_source(&self) -> Source {
        Source { address: self.backward, port: self.source_ports.map(|[_, backward]| backward) }
    }
}

/// Time as registers hold it: units of 65.536 µs, 32 bits. Wraps after 78 hours; whoever was silent for that long may count as
/// heard of just now, which delays another rank by one lease.
#[inline]
pub(crate) const fn ticks(now_ns: u64) -> u32 {
    (now_ns >> 16) as u32
}

/// What a pass gives the next one, beside the packet itself: the header of a packet in the mirror loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bridge {
    /// Epoch at entry.
    pub epoch: u32,
    /// Which member is next.
    pub slot: u8,
    /// What the packet is in the loop for.
    pub job: Job,
}

impl Bridge {
    /// Bits of the header: the longest job is to link with a set that is taken over.
    pub const BITS: u32 = 32 + 5 + 3 + (3 + 32 + 24 + 5 + 24 + 24 + 1 + 1);
}

/// What a packet is in the loop for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Job {
    /// The next copy; whether a member before lacks something.
    Copy {
        /// Whether one does.
        gap: bool,
    },
    /// The holder is to be told that something is missing.
    Complain,
    /// A control packet that was found in order.
    Link(Admission),
    /// What was done of the rank that loses the set is put down, then the control packet is carried out.
    Retire(Admission),
    /// A release, or a query that changes nothing.
    Release,
    /// The set is poisoned, and the sender told.
    Poison(Admission),
    /// A member's queue pair broke: the set is poisoned, and the holder told.
    Break,
}

/// What a control packet was admitted with. Its second pass finds the same, or it waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Admission {
    /// What the set was doing.
    pub state: State,
    /// When its holder was last heard of; compared only where the set is taken over.
    pub heard: u32,
    /// Its holder then.
    pub holder: u8,
    /// What was done of that holder.
    pub last: Psn,
    /// Messages up to there.
    pub last_msn: u32,
    /// The set is taken from another rank whose lease is over.
    pub takes_over: bool,
    /// The members stay who they are, with their addresses and keys.
    pub keeps: bool,
}

/// A packet at the switch.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// From its IP header on.
    pub bytes: &'a [u8],
    /// If it comes out of the mirror loop.
    pub bridge: Option<Bridge>,
    /// Nanoseconds since whenever.
    pub now_ns: u64,
}

/// What a pass ends with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Departure {
    /// A packet that leaves.
    pub emission: Option<Emission>,
    /// The packet goes through the loop once more, with this.
    pub mirror: Option<Bridge>,
    /// Why.
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

/// The switch: registers and what does not change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    /// What does not change.
    pub config: Config,
    pub(crate) arrays: Arrays,
    pub(crate) shifts: Arc<Shifts>,
    counters: Counters,
}

impl Switch {
    /// Just started, with room for so many sets: all silent.
    #[must_use]
    pub fn new(config: Config, sets: usize) -> Switch {
        let arrays = Arrays::new(sets.min(1 << 16));
        Switch { config, arrays, shifts: Arc::new(Shifts::new()), counters: Counters::default() }
    }

    /// The registers, to look at.
    #[must_use]
    pub fn arrays(&self) -> &Arrays {
        &self.arrays
    }

    /// The registers, to create sets in.
    pub(crate) fn arrays_mut(&mut self) -> &mut Arrays {
        &mut self.arrays
    }

    /// What became of packets.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Forgets what was counted.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// One pass. Nothing that a packet can say panics.
    #[inline]
    pub fn step(&mut self, arrival: &Arrival<'_>) -> Departure {
        let departure = self.pass(arrival);
        self.counters.count(departure.cause);
        departure
    }

    fn pass(&mut self, arrival: &Arrival<'_>) -> Departure {
        let config = &self.config;
        let Ok(packet) = IpPacket::new_checked(arrival.bytes) else { return self.unreadable(arrival.bytes) };
        // Read where they are: taken out of the envelope they would be stored and loaded once more.
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
        // What the switch itself acts on is short; a pipeline can check that much. In the loop it was checked before.
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

    /// An answer to a sending queue pair.
    pub(crate) fn answer(&self, to: (u32, u16, u32), psn: Psn, syndrome: Syndrome, msn: u32) -> Emission {
        let (ip, port, qpn) = to;
        let from = self.config.forward;
        let port = self.config.answering_port(port);
        emission::answer(&Answer { from, to: Ipv4Addr::from_bits(ip), port, qpn, psn, syndrome, msn })
    }

    /// Not RoCEv2: an IPv4 packet for somebody else is none of this switch's business.
    #[cold]
    fn unreadable(&self, bytes: &[u8]) -> Departure {
        let to = bytes.get(16..20).map(|to| Ipv4Addr::new(to[0], to[1], to[2], to[3]));
        let ours = [self.config.forward, self.config.backward];
        let is_v4 = bytes.first().is_some_and(|first| first >> 4 == 4);
        let is_other = is_v4 && to.is_some_and(|to| !ours.contains(&to)) || !is_v4 && bytes.len() >= 40;
        Departure::nothing(if is_other { Cause::Plain } else { Cause::Malformed })
    }
}
