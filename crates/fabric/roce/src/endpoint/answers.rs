//! Construction of a responder's packets.
//!
//! Invariant: each repeated response to a READ or atomic is marked as sent before (`Outbox::again`), so it leaves
//! outside of runs. Otherwise repeated responses of equal length would form a run again, and a path that drops packets
//! of runs would drop them again.

use stentor_wire::{Aeth, Bth, Headers, NakCode, Position, Psn, Repr, Response, Syndrome};

use super::memory::{ProtectionDomain, Right};
use super::responder::{AtomicResult, Broken, Reading, Reply, Responder};
use super::transmit::Making;

impl Responder {
    /// Emits the next response packet, if one is due. Returns whether it emitted one. `making.out` must have room. An
    /// error breaks the queue pair.
    pub(crate) fn answer(&mut self, domain: ProtectionDomain, making: &mut Making<'_>) -> Result<bool, Broken> {
        let Some(front) = self.answers.front_mut() else { return Ok(false) };
        match front {
            Reply::Acknowledge { psn, syndrome, msn } => {
                let aeth = Aeth { syndrome: *syndrome, msn: *msn };
                make(making, *psn, Response::Acknowledge(aeth));
                self.answers.pop_front();
            }
            Reply::Atomic(AtomicResult { psn, value, msn, again }) => {
                make(making, *psn, Response::Atomic(Aeth { syndrome: Syndrome::ACK, msn: *msn }, *value));
                if *again {
                    making.out.again();
                }
                self.answers.pop_front();
            }
            Reply::Read(reading) => {
                if make_read(making, domain, reading).is_err() {
                    // The access was revoked after the READ was accepted.
                    let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
                    let psn = reading.first.plus(reading.packet);
                    make(making, psn, Response::Acknowledge(Aeth { syndrome, msn: reading.msn }));
                    making.counters.access_errors += 1;
                    self.answers.clear();
                    return Err(Broken);
                }
                if reading.again {
                    making.out.again();
                }
                reading.packet += 1;
                if reading.packet == reading.packets {
                    self.answers.pop_front();
                }
            }
        }
        Ok(true)
    }
}

fn repr(making: &Making<'_>, psn: Psn, response: Response, payload_bytes: usize) -> Repr {
    Repr { bth: Bth::new(making.path.dest_qp, psn), headers: Headers::Response(response), payload_bytes }
}

fn make(making: &mut Making<'_>, psn: Psn, response: Response) {
    let repr = repr(making, psn, response, 0);
    making.counters.sent += 1;
    making.out.push(&making.path.envelope, &repr, |_| {});
}

fn make_read(making: &mut Making<'_>, domain: ProtectionDomain, reading: &Reading) -> Result<(), Broken> {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: reading.msn };
    let response = match Position::of(reading.packet, reading.packets) {
        Position::First => Response::ReadFirst(aeth),
        Position::Middle => Response::ReadMiddle,
        Position::Last => Response::ReadLast(aeth),
        Position::Only => Response::ReadOnly(aeth),
    };
    let mtu = u32::from(making.path.mtu);
    let offset = reading.packet * mtu;
    let bytes = (reading.bytes - offset).min(mtu);
    let psn = reading.first.plus(reading.packet);
    if bytes == 0 {
        make(making, psn, response);
        return Ok(());
    }
    let source = (reading.va.wrapping_add(offset.into()), reading.rkey);
    let span = making.memory.resolve(domain, source, bytes, Right::Read).ok_or(Broken)?;
    let repr = repr(making, psn, response, bytes as usize);
    making.counters.sent += 1;
    let memory = making.memory;
    making.out.push(&making.path.envelope, &repr, |to| memory.load(span.region, span.offset, to));
    Ok(())
}

#[cfg(test)]
mod tests {
    use stentor_fabric::{Access, QpConfig, QpKind};
    use stentor_wire::{AtomicEth, Envelope, Reth, RnrTimer};

    use super::super::{Arrival, Check, Endpoint, Outbox, Path};
    use super::*;

    /// Like a repeated request, a repeated response to a READ or atomic must be sent outside of runs. The first
    /// response may have been lost because a device on the path drops packets of runs.
    #[test]
    fn a_repeated_response_leaves_outside_of_runs() {
        let (here, there) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut endpoint = Endpoint::new();
        let region = endpoint.memory_mut().register(128, 0);
        let rkey = endpoint.memory_mut().grant(region, ProtectionDomain(1), Access::Atomic, 1).unwrap();
        let config = QpConfig { kind: QpKind::Reliable, send_depth: 4, recv_depth: 4, merges: false };
        let qp = endpoint.create(5, ProtectionDomain(1), config).unwrap();
        endpoint.init(qp).unwrap();
        let path = Path {
            envelope: Envelope::plain(here, 0xc000, there).unwrap(),
            dest_qp: 6,
            expected_psn: Psn::new(1),
            mtu: 256,
            max_dest_rd_atomic: 4,
            min_rnr_timer: RnrTimer::from_code(1),
        };
        endpoint.ready_to_receive(qp, path).unwrap();
        let envelope = Envelope::plain(there, 0xc000, here).unwrap();
        let atomic = AtomicEth { va: 0, rkey, swap_add: 1, compare: 0 };
        // A READ with three response packets (PSNs 1 to 3), and two atomics.
        let requests = [
            (1, Headers::ReadRequest(Reth { va: 0, rkey, bytes: 768 })),
            (4, Headers::FetchAdd(atomic)),
            (5, Headers::CompareSwap(atomic)),
        ];
        let mut out = Outbox::new(8);
        for again in [false, true] {
            for (psn, headers) in requests {
                let repr = Repr { bth: Bth::new(5, Psn::new(psn)), headers, payload_bytes: 0 };
                let mut transport = vec![0; repr.packet_bytes()];
                repr.emit(&mut transport).unwrap();
                envelope.seal(&mut transport);
                endpoint.receive(0, &Arrival { envelope, transport: &transport, check: Check::Whole });
            }
            endpoint.transmit(0, &mut out);
            assert_eq!(out.told().map(|(_, _, again)| again).collect::<Vec<_>>(), [again; 5]);
            out.clear();
        }
    }
}
