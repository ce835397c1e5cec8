//! The loop between sockets and endpoint: it receives, advances timers, and sends.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use stentor_wire::{Envelope, IpRepr, icrc};

use super::inject::{Chances, Faults, Injector, Parcel};
use super::pcap::Pcap;
use super::port::Port;
use super::settings::Budget;
use crate::endpoint::{Arrival, Check, Endpoint, Outbox};

/// Budget of packets that are received before timers advance and packets are sent. It ensures that a flood blocks
/// neither timers nor sending. The datagram that exceeds the budget is still received completely.
const INTAKE: Budget = Budget { packets: 256, bytes: 1 << 20 };
/// Pause before the pump retries to send packets for which the kernel had no room. The pump must poll, because no
/// descriptor reports room on every path.
const FULL_PAUSE: Duration = Duration::from_micros(200);
/// Maximum number of packets in one outgoing batch.
const OUTBOX: usize = 32;
/// Maximum number of batches sent before packets are received again.
const BURSTS: usize = 8;

/// Drives an endpoint over sockets.
#[derive(Debug)]
pub struct Pump {
    port: Port,
    out: Outbox,
    /// Number of packets of `out` that were sent. The kernel had no room for the rest.
    gone: usize,
    begin: Instant,
    pcap: Option<Pcap>,
    /// Fault injectors for sent and received packets.
    injectors: Option<Box<[Injector<Parcel>; 2]>>,
    /// Faults of the network.
    faults: Faults,
    /// Packets that left an injector but for which the kernel had no room.
    due: VecDeque<Parcel>,
}

impl Pump {
    /// Creates a pump for these sockets.
    #[must_use]
    pub fn new(port: Port) -> Pump {
        let (out, due) = (Outbox::new(OUTBOX), VecDeque::new());
        Pump { port, out, gone: 0, begin: Instant::now(), pcap: None, injectors: None, faults: Faults::default(), due }
    }

    /// Writes all sent and received packets to a capture.
    pub fn capture(&mut self, pcap: Pcap) {
        self.pcap = Some(pcap);
    }

    /// Returns the capture, for example to finish it.
    pub fn pcap_mut(&mut self) -> Option<&mut Pcap> {
        self.pcap.as_mut()
    }

    /// Injects faults in both directions.
    pub fn inject(&mut self, chances: Chances, seed: u64) {
        let other = seed ^ 0x5eed_5eed;
        self.injectors =
            chances.is_any().then(|| Box::new([Injector::new(chances, seed), Injector::new(chances, other)]));
    }

    /// Returns whether injectors may hold packets back.
    #[must_use]
    pub fn injects(&self) -> bool {
        self.injectors.is_some()
    }

    /// Replaces the network's faults. Must not be called if runs are enabled.
    pub fn set_faults(&mut self, faults: Faults, seed: u64) {
        let both = self.injectors.get_or_insert_with(|| {
            let injector = |seed| Injector::new(Chances::default(), seed);
            Box::new([injector(seed), injector(seed ^ 0x5eed_5eed)])
        });
        both.iter_mut().for_each(|injector| injector.set_drop(faults.drop));
        self.faults = faults;
    }

    /// Returns the numbers of packets lost, duplicated, reordered and corrupted so far.
    #[must_use]
    pub fn injected(&self) -> [u64; 4] {
        self.injectors.as_ref().map_or([0; 4], |both| {
            let [out, incoming] = &**both;
            std::array::from_fn(|n| out.counts[n] + incoming.counts[n])
        })
    }

    /// Returns the sockets.
    #[must_use]
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Returns the sockets, for example to change how they send or to read notes.
    pub fn port_mut(&mut self) -> &mut Port {
        &mut self.port
    }

    /// Returns the time since the pump was created, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Receives waiting packets, at most some hundreds. Returns whether there were any.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn receive(&mut self, endpoint: &mut Endpoint) -> io::Result<bool> {
        let (mut any, mut budget) = (false, INTAKE);
        while !budget.is_spent() {
            let now = self.now();
            let Pump { port, pcap, injectors, faults, .. } = self;
            let count = port.receive_within(&mut budget, |arrival| {
                if let Some(pcap) = pcap {
                    pcap.write(&seen(arrival), arrival.transport);
                }
                match injectors {
                    None => endpoint.receive(now, arrival),
                    Some(both) if faults.from.contains(&arrival.envelope.ip.source()) => both[1].counts[0] += 1,
                    Some(both) => both[1].push(now, parcel(arrival)),
                }
            })?;
            if let Some(both) = injectors {
                while let Some(parcel) = both[1].pop(now) {
                    let Parcel { envelope, transport, check } = parcel;
                    endpoint.receive(now, &Arrival { envelope, transport: &transport, check });
                }
            }
            any |= count > 0;
            if count < super::sys::BATCH {
                break;
            }
        }
        Ok(any)
    }

    /// Advances the timers and sends the packets that are due.
    pub fn send(&mut self, endpoint: &mut Endpoint) {
        let now = self.now();
        if endpoint.next_deadline().is_some_and(|deadline| deadline <= now) {
            endpoint.tick(now);
        }
        if !self.hand_over() {
            return;
        }
        for _ in 0..BURSTS {
            let more = endpoint.transmit(now, &mut self.out);
            if self.out.is_empty() {
                break;
            }
            if let Some(pcap) = &mut self.pcap {
                self.out.packets().for_each(|(envelope, bytes)| pcap.write(envelope, bytes));
            }
            match &mut self.injectors {
                None => {}
                Some(both) => {
                    for (envelope, bytes) in self.out.packets() {
                        if self.faults.to.contains(&envelope.ip.destination()) {
                            both[0].counts[0] += 1;
                            continue;
                        }
                        let (envelope, transport) = (*envelope, bytes.to_vec());
                        both[0].push(now, Parcel { envelope, transport, check: Check::Whole });
                    }
                    self.out.clear();
                }
            }
            if !self.hand_over() || !more {
                break;
            }
        }
        if let Some(both) = &mut self.injectors {
            self.due.extend(std::iter::from_fn(|| both[0].pop(now)));
            let done = self.port.send_all(&self.due.iter().map(|parcel| (&parcel.envelope, &parcel.transport[..])));
            self.due.drain(..done);
        }
    }

    /// Passes pending packets to the kernel. Returns `false` if the kernel has no room for all of them.
    fn hand_over(&mut self) -> bool {
        if self.out.is_empty() {
            return true;
        }
        self.gone += self.port.send(&self.out, self.gone);
        if self.gone < self.out.packets().len() {
            return false;
        }
        self.out.clear();
        self.gone = 0;
        true
    }

    /// Returns the time for which the caller may sleep: until the next timer expires, but at most `longest`. The time
    /// is 0 if packets wait to be processed or can be sent now. It is at most 200 µs while the kernel has no room for
    /// packets.
    #[must_use]
    pub fn idle(&self, endpoint: &Endpoint, longest: Duration) -> Duration {
        let longest = match &self.port {
            port if port.holds_more() => Duration::ZERO,
            port if port.is_full() => longest.min(FULL_PAUSE),
            // The number of batches per round is limited, so more packets may be ready to send although nothing
            // arrives.
            _ if endpoint.has_more() => Duration::ZERO,
            _ => longest,
        };
        let held = self.injectors.iter().flat_map(|both| both.iter()).filter_map(Injector::next);
        let next = endpoint.next_deadline().into_iter().chain(held).min();
        next.map_or(longest, |next| Duration::from_nanos(next.saturating_sub(self.now())).min(longest))
    }
}

/// Returns the headers around a packet, with the identification that it must have had in a run.
fn seen(arrival: &Arrival<'_>) -> Envelope {
    let mut envelope = arrival.envelope;
    if let (Check::RunId, IpRepr::V4(ip)) = (arrival.check, &mut envelope.ip)
        && let Some(icrc) = arrival.transport.last_chunk()
    {
        let ids = icrc::RunIds::new(arrival.transport.len());
        let first = ids.change(arrival.envelope.icrc(arrival.transport), ip.id.into());
        ip.id = ids.find(first, u32::from_le_bytes(*icrc)).unwrap_or(ip.id);
    }
    envelope
}

fn parcel(arrival: &Arrival<'_>) -> Parcel {
    Parcel { envelope: arrival.envelope, transport: arrival.transport.to_vec(), check: arrival.check }
}
