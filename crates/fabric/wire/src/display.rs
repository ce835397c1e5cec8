//! One line of text per packet, in the style of tcpdump.

use core::fmt;

use crate::{Aeth, Envelope, Headers, IpPacket, IpRepr, Message, Packet, Repr, Response, Reth, UDP_PORT};

impl fmt::Display for Reth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va {:#x} rkey {:#010x} dma {}", self.va, self.rkey, self.bytes)
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} msn {}", self.syndrome, self.msn)
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.opcode().name())?;
        match self {
            Headers::Rc(message) | Headers::Uc(message) => match message {
                Message::WriteFirst(reth) | Message::WriteOnly(reth) => write!(f, ", {reth}"),
                Message::WriteOnlyImm(reth, imm) => write!(f, ", {reth}, imm {imm:#010x}"),
                Message::SendLastImm(imm) | Message::SendOnlyImm(imm) | Message::WriteLastImm(imm) => {
                    write!(f, ", imm {imm:#010x}")
                }
                _ => Ok(()),
            },
            Headers::SendLastInvalidate(key) | Headers::SendOnlyInvalidate(key) => {
                write!(f, ", invalidate {key:#010x}")
            }
            Headers::ReadRequest(reth) => write!(f, ", {reth}"),
            Headers::CompareSwap(at) => {
                write!(f, ", va {:#x} rkey {:#010x} compare {:#x} swap {:#x}", at.va, at.rkey, at.compare, at.swap_add)
            }
            Headers::FetchAdd(at) => write!(f, ", va {:#x} rkey {:#010x} add {:#x}", at.va, at.rkey, at.swap_add),
            Headers::Response(response) => match response {
                Response::ReadFirst(aeth)
                | Response::ReadLast(aeth)
                | Response::ReadOnly(aeth)
                | Response::Acknowledge(aeth) => write!(f, ", {aeth}"),
                Response::Atomic(aeth, value) => write!(f, ", {aeth}, was {value:#x}"),
                Response::ReadMiddle => Ok(()),
            },
            Headers::Datagram(deth, imm) => {
                write!(f, ", qkey {:#010x} from qp {:#08x}", deth.qkey, deth.source_qp)?;
                imm.map_or(Ok(()), |imm| write!(f, ", imm {imm:#010x}"))
            }
            Headers::Cnp => Ok(()),
        }
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.bth;
        write!(f, "{}, qp {:#08x} psn {}", self.headers, bth.dest_qp, bth.psn)?;
        let flags = [
            (bth.solicited, "solicited"),
            (bth.ack_req, "ackreq"),
            (bth.migreq, "migrated"),
            (bth.fecn, "fecn"),
            (bth.becn, "becn"),
        ];
        for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        if bth.pkey != crate::DEFAULT_PKEY {
            write!(f, " pkey {:#06x}", bth.pkey)?;
        }
        write!(f, ", length {}", self.payload_bytes)
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Repr::parse(self) {
            Ok(repr) => repr.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for IpPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Envelope { ip, source_port, .. } = &self.envelope;
        let (family, from, to) = match ip {
            IpRepr::V4(_) => ("IP", ip.source(), ip.destination()),
            IpRepr::V6(_) => ("IP6", ip.source(), ip.destination()),
        };
        let verdict = if self.is_intact() { "icrc ok" } else { "bad icrc" };
        write!(f, "{family} {from}.{source_port} > {to}.{UDP_PORT}: RoCEv2 {}, {verdict}", self.packet)
    }
}
