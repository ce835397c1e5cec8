//! What carries packets, and the ends of connections on it.

use std::net::IpAddr;

use stentor_bootstrap::{End, Ends, Pair, nonce};
use stentor_fabric::{QpId, Status};
use stentor_wire::{Psn, RnrTimer};

use super::RoceConfig;
use crate::driver::Pump;
use crate::endpoint::{Endpoint, Path, Sending, State};

/// Code of the transport timeout: 134 ms.
const TIMEOUT: u8 = 15;
/// READs and atomics at the same time.
const RD_ATOMIC: u8 = 16;
/// "Receiver not ready" in a row before giving up.
const RNR_RETRIES: u8 = 6;
/// Looks at the socket that are spared after a sleep: what a loop that sleeps again makes in the meantime. A loop that
/// stays awake looks as before after these, which cost less than one look.
const SPARED: u32 = 8;
/// The same without end.
const FOR_EVER: u8 = 7;

/// The endpoint and its sockets.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) config: RoceConfig,
    pub(super) endpoint: Endpoint,
    pub(super) pump: Pump,
    /// Whether something landed since [`arm`](stentor_fabric::Fabric::arm), and since
    /// [`listen`](stentor_fabric::Fabric::listen) last looked.
    pub(super) rung: bool,
    pub(super) heard: bool,
    /// A system call failed: said by the next [`wait`](stentor_fabric::Fabric::wait).
    pub(super) failure: Option<String>,
    /// The number of looks at the socket that are still spared: the kernel has just said what it has.
    pub(super) spared: u32,
    /// Whether the kernel said that there are packets.
    pub(super) waits: bool,
}

/// What an end says of itself that this fabric can reach.
fn pair(end: &End) -> Result<&Pair, String> {
    match end {
        End::QueuePair(pair) => Ok(pair),
        End::Opaque(_) => Err("it is none of RoCEv2".to_owned()),
    }
}

impl Net {
    /// This process has slept; the kernel says whether packets wait.
    pub(super) fn wake(&mut self, waits: bool) {
        // Packets that a bad network holds come by the passing of time. The kernel does not know of them.
        self.spared = if self.pump.injects() { 0 } else { SPARED };
        self.waits = waits;
    }

    /// Takes in what came, unless it is known that nothing did.
    fn take_in(&mut self) {
        let waits = std::mem::take(&mut self.waits);
        if self.spared > 0 {
            self.spared -= 1;
            if !waits {
                return;
            }
        }
        if let Err(error) = self.pump.receive(&mut self.endpoint) {
            self.failure.get_or_insert(error.to_string());
        }
    }

    fn begin_to_send(&mut self, qp: QpId, (ours, theirs): (&End, &End), rnr_retries: u8) -> Result<(), String> {
        let (ours, theirs) = (pair(ours)?, pair(theirs)?);
        let sending = Sending {
            timeout: TIMEOUT,
            rnr_retries,
            max_rd_atomic: RD_ATOMIC.min(theirs.reads),
            window: self.config.window,
            ..Sending::new(Psn::new(ours.psn))
        };
        self.endpoint.ready_to_send(qp, sending).map_err(|error| error.to_string())
    }
}

impl Ends for Net {
    fn begin(&mut self, qp: QpId) -> Result<End, String> {
        if self.endpoint.state(qp) == Some(State::Error) {
            self.endpoint.reset(qp).map_err(|error| error.to_string())?;
            while !self.endpoint.renumber(qp, fresh_number()) {}
        }
        self.endpoint.init(qp).map_err(|error| error.to_string())?;
        Ok(End::QueuePair(Pair {
            number: self.endpoint.number(qp).unwrap_or_default(),
            psn: fresh_number(),
            mtu: self.config.mtu,
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
        self.begin_to_send(qp, (ours, theirs), RNR_RETRIES)
    }

    fn ready_at_switch(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String> {
        self.begin_to_send(qp, (ours, theirs), FOR_EVER)
    }

    /// Takes in what came, lets time pass, sends what is due: what a NIC does by itself.
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
        }
    }

    fn next_broken(&mut self) -> Option<QpId> {
        while let Some(qp) = self.endpoint.next_broken() {
            if self.endpoint.state(qp) == Some(State::Error) {
                return Some(qp);
            }
        }
        None
    }
}

pub(super) fn fresh_number() -> u32 {
    // 0 and 1 are the management queue pairs, 0xffffff is multicast.
    u32::from_be_bytes(nonce()) % 0xff_fff0 + 2
}
