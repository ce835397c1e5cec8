//! Processing of received packets.

use stentor_wire::{Envelope, Headers, IpRepr, Opcode, Packet, Repr, Service, icrc};

use super::Endpoint;
use super::attributes::State;
use super::outbox::Outbox;
use super::places::Places;
use super::qp::CNP_PAUSE;
use super::responder::{Broken, Request, Serving};
use super::retransmission::Hearing;

/// The way in which the ICRC of a packet can be checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Check {
    /// All header fields that the ICRC covers are known.
    Whole,
    /// All header fields except the IPv4 identification are known. The envelope has the identification that follows
    /// from the packet's position in its datagram. If that one is correct, the check is as strong as with
    /// [`Check::Whole`]. If a device on the path splits and joins runs, the packet may instead have the identification
    /// 0, or the one after that of the previous packet. 1 of 2^31 randomly damaged packets then passes.
    RunId,
    /// All header fields except the IPv4 identification are known, because a plain UDP socket does not report it. The
    /// packet passes if any identification makes the ICRC correct. 1 of 65 536 damaged packets passes.
    UnknownId,
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The headers around the packet, as far as they are known. Time to live and checksums are ignored.
    pub envelope: Envelope,
    /// The packet from the base transport header to the ICRC.
    pub transport: &'a [u8],
    /// The way to check the ICRC.
    pub check: Check,
}

const CONGESTION_EXPERIENCED: u8 = 3;
/// Bits of a partition key that are compared. The membership bit is ignored.
const PKEY_MASK: u16 = 0x7fff;

impl Endpoint {
    /// Processes a received packet. No packet can make this function panic, or access memory outside the grants to the
    /// peer and the memory of posted work.
    pub fn receive(&mut self, now: u64, arrival: &Arrival<'_>) {
        self.counters.received += 1;
        let Ok(packet) = Packet::new_checked(arrival.transport) else {
            self.counters.malformed += 1;
            return;
        };
        let number = packet.dest_qp();
        let Ok(place) = self.numbers.binary_search_by_key(&number, |(number, _)| *number) else {
            self.counters.unknown_qp += 1;
            return;
        };
        let index = self.numbers[place].1 as usize;
        if !self.is_expected(index, arrival, &packet) {
            return;
        }
        // The packet is parsed only after the cheap checks, so that a stranger's packet costs little.
        let Ok(repr) = Repr::parse(&packet) else { return };
        if arrival.envelope.ip.ecn() == CONGESTION_EXPERIENCED {
            self.counters.congested += 1;
            self.owe_notice(now, index);
        }
        self.hand_over(now, index, &repr, &packet);
        if !self.qps[index].responder.answers.is_empty() || self.qps[index].state == State::ReadyToSend {
            self.list(index);
        }
    }

    /// Returns whether a packet is for this queue pair, from its peer, and undamaged. If it is not, counts the cause.
    fn is_expected(&mut self, index: usize, arrival: &Arrival<'_>, packet: &Packet<&[u8]>) -> bool {
        let (qp, counters, places) = (&self.qps[index], &mut self.counters, &mut self.places);
        let service = if qp.is_reliable() { Service::Rc } else { Service::Uc };
        let opcode = packet.opcode();
        if opcode.service() != service && opcode != Opcode::Cnp {
            counters.wrong_service += 1;
            return false;
        }
        let Some(path) = qp.path.as_ref().filter(|_| !matches!(qp.state, State::Reset | State::Init)) else {
            counters.not_ready += 1;
            return false;
        };
        if arrival.envelope.ip.source() != path.peer() {
            counters.wrong_source += 1;
            return false;
        }
        if packet.bth().pkey & PKEY_MASK != stentor_wire::DEFAULT_PKEY & PKEY_MASK {
            counters.wrong_pkey += 1;
            return false;
        }
        if !is_intact(arrival, packet.icrc(), places) {
            counters.bad_icrc += 1;
            return false;
        }
        true
    }

    fn hand_over(&mut self, now: u64, index: usize, repr: &Repr, packet: &Packet<&[u8]>) {
        let Endpoint { qps, memory, completions, counters, .. } = self;
        let qp = &mut qps[index];
        let Some(path) = qp.path else { return };
        match repr.headers {
            Headers::Cnp => {
                counters.cnp_received += 1;
                qp.requester.window.notified();
            }
            // Responses are processed only in this state, because in all other states no request waits for one.
            Headers::Response(response) if qp.state == State::ReadyToSend => {
                let mut hearing = Hearing { now, mtu: path.mtu, memory, counters, completions };
                let verdict = qp.requester.hear(repr.bth.psn, response, packet, &mut hearing);
                self.landed |= !self.completions.is_empty();
                if let Err(status) = verdict {
                    self.fail(index, status);
                }
            }
            Headers::Response(_) => counters.not_ready += 1,
            _ if qp.state == State::Error => counters.not_ready += 1,
            headers => {
                let request = Request {
                    psn: repr.bth.psn,
                    headers,
                    payload: packet.payload(),
                    ack_req: repr.bth.ack_req,
                    solicited: repr.bth.solicited,
                };
                let mut serving = Serving { domain: qp.domain, path: &path, memory, counters, completions };
                let served = if qp.is_reliable() {
                    qp.responder.serve(&request, &mut serving)
                } else {
                    qp.responder.serve_unreliable(&request, &mut serving)
                };
                self.landed = true;
                // A queue pair that is its own peer is not broken here. It breaks when it receives its own refusal,
                // which has the right status.
                let is_own_peer = path.dest_qp == qp.number && path.peer() == path.envelope.ip.source();
                if served == Err(Broken) && !is_own_peer {
                    self.fail(index, stentor_fabric::Status::Flushed);
                }
            }
        }
    }

    fn owe_notice(&mut self, now: u64, index: usize) {
        let qp = &mut self.qps[index];
        if qp.notified_at.is_none_or(|at| now.saturating_sub(at) >= CNP_PAUSE) {
            qp.notified_at = Some(now);
            self.notices.push_back(index as u32);
        }
    }

    /// Emits the congestion notifications that are due.
    pub(super) fn notify(&mut self, out: &mut Outbox) {
        while out.room() > 0
            && let Some(index) = self.notices.pop_front()
        {
            let Some(path) = self.qps[index as usize].path else { continue };
            let mut bth = stentor_wire::Bth::new(path.dest_qp, stentor_wire::Psn::new(0));
            bth.becn = true;
            self.counters.cnp_sent += 1;
            out.push(&path.envelope, &Repr { bth, headers: Headers::Cnp, payload_bytes: 0 }, |_| {});
        }
    }
}

#[inline]
fn is_intact(arrival: &Arrival<'_>, icrc: u32, places: &mut Places) -> bool {
    let computed = arrival.envelope.icrc(arrival.transport);
    let is_right = computed == icrc;
    if is_right && (arrival.check != Check::RunId || places.are_straight()) {
        return true;
    }
    is_intact_otherwise(arrival, (computed, icrc), places)
}

#[cold]
fn is_intact_otherwise(arrival: &Arrival<'_>, (computed, icrc): (u32, u32), places: &mut Places) -> bool {
    let known: &Envelope = &arrival.envelope;
    match (arrival.check, known.ip) {
        (Check::UnknownId, IpRepr::V4(_)) => icrc::solve_ip_id(known, arrival.transport, icrc).is_some(),
        (Check::RunId, IpRepr::V4(ip)) => {
            places.fits(known.ip.source(), arrival.transport.len(), ip.id, (computed, icrc))
        }
        _ => computed == icrc,
    }
}
