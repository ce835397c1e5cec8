//! The device's ends of connections, as queue pairs of an endpoint.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Instant;

use stentor_fabric::{QpId, Status};
use stentor_fabric_net::{End, Pair, Transport, nonce};
use stentor_host::{interface_of, mtu_of};
use stentor_switch_host::{RawWrite, SetTransport};
use stentor_wire::{PATH_MTUS, Psn, RnrTimer};

use super::RoceDevice;
use crate::endpoint::{Data, Path, Remote, Request, Sending, State, Work};

/// Code of the transport timeout: 134 ms.
const TIMEOUT: u8 = 15;
/// Maximum number of outstanding READs and atomics.
const RD_ATOMIC: u8 = 16;
/// Maximum number of consecutive retries after "receiver not ready" NAKs.
const RNR_RETRIES: u8 = 6;
/// The code for an unlimited number of "receiver not ready" retries.
const FOR_EVER: u8 = 7;

/// Number of bytes around the payload of a WRITE with an immediate over IPv4: IP, UDP, and the headers and checksum of
/// RoCEv2.
const AROUND_IPV4: u32 = 20 + 8 + 12 + 16 + 4 + 4;
/// Number of bytes around such a payload over IPv6, whose header is 20 bytes longer.
const AROUND_IPV6: u32 = AROUND_IPV4 + 20;
/// Path MTU if the interface is unknown. It fits an Ethernet MTU of 1500.
const USUAL_MTU: u16 = 1024;
/// A window larger than [`LEAST_WINDOW`] fills at most one part in this number of a socket buffer. The rest of the
/// buffer is for other queue pairs, and for the kernel's overhead: the kernel counts about two bytes per byte of data.
const SHARES: u32 = 16;
/// Maximum window of a queue pair whose packets a switch copies, in packets.
const SWITCH_WINDOW: u32 = 32;
/// Minimum window in packets, unless the configured maximum is smaller.
const LEAST_WINDOW: u32 = 8;

/// Returns the largest path MTU that is at most `bytes`, or the smallest path MTU if all exceed `bytes`.
fn largest_payload(bytes: u32) -> u16 {
    let fits = PATH_MTUS.iter().copied().filter(|mtu| u32::from(*mtu) <= bytes);
    fits.max().unwrap_or(PATH_MTUS[0])
}

/// Returns the window of a queue pair in packets, at most `most`, so that several queue pairs together do not overflow
/// a socket buffer of `room` bytes. The peer's socket is assumed to be like the local one.
fn window(most: u32, room: u32, mtu: u16) -> u32 {
    let share = room / SHARES / u32::from(mtu);
    most.min(share.max(LEAST_WINDOW))
}

/// Returns the queue pair of an end, or an error if the end is not a queue pair.
fn pair(end: &End) -> Result<&Pair, String> {
    match end {
        End::QueuePair(pair) => Ok(pair),
        End::Opaque(_) => Err("the peer's end is not a queue pair".to_owned()),
    }
}

impl RoceDevice {
    /// Returns the maximum payload of a packet for a queue pair, in bytes.
    fn mtu(&self, qp: QpId) -> u16 {
        let address = self.pump.port().address();
        let measured = || {
            let mtu = mtu_of(&interface_of(address)?).ok()?;
            let around = if address.is_ipv4() { AROUND_IPV4 } else { AROUND_IPV6 };
            Some(largest_payload(mtu.saturating_sub(around)))
        };
        let own = self.config.mtu.or_else(measured).unwrap_or(USUAL_MTU);
        self.paths.limit(qp, own, Instant::now())
    }

    /// Records the unanswered request of a queue pair that has broken, if there was one.
    fn note_unanswered(&mut self, qp: QpId) {
        if let Some(unanswered) = self.endpoint.unanswered(qp) {
            self.paths.unanswered(&unanswered, Instant::now());
        }
    }

    /// Returns the attributes of a requester.
    fn sending(&self, (ours, theirs): (&End, &End)) -> Result<Sending, String> {
        let (ours, theirs) = (pair(ours)?, pair(theirs)?);
        Ok(Sending {
            timeout: TIMEOUT,
            rnr_retries: RNR_RETRIES,
            max_rd_atomic: RD_ATOMIC.min(theirs.reads),
            window: window(self.config.window, self.pump.port().room(), ours.mtu.min(theirs.mtu)),
            apart: ours.runs && theirs.runs,
            ..Sending::new(Psn::new(ours.psn))
        })
    }

    fn begin_to_send(&mut self, qp: QpId, sending: Sending) -> Result<(), String> {
        self.endpoint.ready_to_send(qp, sending).map_err(|error| error.to_string())
    }
}

impl Transport for RoceDevice {
    fn begin(&mut self, qp: QpId) -> Result<End, String> {
        if self.endpoint.state(qp) == Some(State::Error) {
            self.endpoint.reset(qp).map_err(|error| error.to_string())?;
            let numbers = self.pump.port().numbers();
            while !self.endpoint.renumber(qp, fresh_qp(&numbers)) {}
        }
        self.endpoint.init(qp).map_err(|error| error.to_string())?;
        Ok(End::QueuePair(Pair {
            number: self.endpoint.number(qp).unwrap_or_default(),
            psn: fresh_number(),
            mtu: self.mtu(qp),
            gid: match self.pump.port().address() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            },
            lid: 0,
            reads: RD_ATOMIC,
            runs: self.pump.port().takes_runs(),
            identified: false,
        }))
    }

    fn meet(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String> {
        let (ours, theirs) = (pair(ours)?, pair(theirs)?);
        let address = theirs.gid.to_ipv4_mapped().map_or(IpAddr::V6(theirs.gid), IpAddr::V4);
        let envelope = self.pump.port().envelope(address).map_err(|error| error.to_string())?;
        self.paths.meet(qp, address, Instant::now());
        self.pump.port_mut().run_to(address, theirs.runs);
        self.pump.port_mut().hear_identified(address, theirs.identified);
        let path = Path {
            envelope,
            dest_qp: theirs.number,
            expected_psn: Psn::new(theirs.psn),
            mtu: ours.mtu.min(theirs.mtu),
            max_dest_rd_atomic: RD_ATOMIC,
            min_rnr_timer: RnrTimer::at_least(self.config.rnr_timeout / u32::from(RNR_RETRIES)),
        };
        self.endpoint.ready_to_receive(qp, path).map_err(|error| error.to_string())
    }

    fn ready(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String> {
        self.begin_to_send(qp, self.sending((ours, theirs))?)
    }

    /// Receives packets, advances timers, and sends packets. A NIC would do this by itself.
    fn drive(&mut self) {
        self.take_in();
        self.pump.send(&mut self.endpoint);
        let landed = self.endpoint.take_landed();
        self.rung |= landed;
        self.heard |= landed;
    }

    fn fail(&mut self, qp: QpId, status: Status) {
        if self.endpoint.state(qp) != Some(State::Error) {
            let broken = self.endpoint.break_qp(qp, status);
            debug_assert_eq!(broken, Ok(()));
            self.note_unanswered(qp);
        }
    }

    fn next_broken(&mut self) -> Option<QpId> {
        while let Some(qp) = self.endpoint.next_broken() {
            if self.endpoint.state(qp) == Some(State::Error) {
                self.note_unanswered(qp);
                return Some(qp);
            }
        }
        None
    }
}

/// Draws a random first PSN.
fn fresh_number() -> u32 {
    u32::from_be_bytes(nonce()) % 0xff_fff0 + 2
}

/// Draws a random queue pair number from a range.
pub(super) fn fresh_qp(numbers: &Range<u32>) -> u32 {
    numbers.start + u32::from_be_bytes(nonce()) % (numbers.end - numbers.start)
}

impl SetTransport for RoceDevice {
    fn ready_at_switch(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String> {
        let sending = self.sending((ours, theirs))?;
        let window = sending.window.min(SWITCH_WINDOW);
        // WRITEs must be sent unchanged, because the switch reads the address in each of them.
        self.begin_to_send(qp, Sending { rnr_retries: FOR_EVER, window, merges: false, apart: false, ..sending })
    }

    #[inline]
    fn write(&mut self, qp: QpId, write: &RawWrite<'_>) -> Result<(), String> {
        let RawWrite { id, data, va, rkey, signalled } = *write;
        let request = Request::Write { data: Data::Inline(data), remote: Remote { va, rkey }, imm: None };
        let work = Work { id, request, signalled, solicited: false };
        self.endpoint.post_send(qp, &work).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_carries_the_largest_path_mtu_that_fits_the_link() {
        let over_ipv4 = |mtu| largest_payload(mtu - AROUND_IPV4);
        let links = [(1500, 1024), (4160, 4096), (4159, 2048), (9000, 4096), (576, 512), (575, 256), (68, 256)];
        for (mtu, payload) in links {
            assert_eq!(over_ipv4(mtu), payload, "{mtu}");
        }
        assert_eq!((largest_payload(1280 - AROUND_IPV6), largest_payload(4179 - AROUND_IPV6)), (1024, 2048));
    }

    #[test]
    fn several_windows_fit_in_a_socket_buffer() {
        assert_eq!(window(256, 16 << 20, 4096), 256);
        assert_eq!((window(256, 425_984, 4096), window(256, 425_984, 1024)), (8, 26), "without privileges");
        assert_eq!((window(4, 16 << 20, 4096), window(4, 0, 4096)), (4, 4), "no more than configured");
    }
}
