//! Helpers that the tests share: captures, and random packets of every kind.
#![allow(dead_code)]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use stentor_testutil::SplitMix64;
use stentor_wire::{
    Aeth, AtomicEth, Bth, Deth, Envelope, Headers, IpRepr, Ipv4Repr, Ipv6Repr, Message, Psn, Repr, Response, Reth,
    Syndrome,
};

/// Returns the RoCEv2 packets of an Ethernet capture in pcap format (microseconds, little endian). Each begins with its
/// IP header.
pub(crate) fn packets_of(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1], "{}: not a little-endian pcap file", file.display());
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(word(20), 1, "{}: not Ethernet", file.display());
    let (mut packets, mut at) = (Vec::new(), 24);
    while at < bytes.len() {
        let (captured, original) = (word(at + 8), word(at + 12));
        assert_eq!(captured, original, "{}: cut short", file.display());
        let frame = &bytes[at + 16..at + 16 + captured];
        let is_roce = frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == 4791_u16.to_be_bytes();
        if is_roce {
            packets.push(frame[14..].to_vec());
        }
        at += 16 + captured;
    }
    packets
}

/// Returns the committed captures, and those of the folder `shared/golden` beside the repository, if it exists.
pub(crate) fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = |folder: &Path| {
        let files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|e| e == "pcap")).collect();
        files.sort();
        files
    };
    let mut files = list(&root.join("tests/golden"));
    assert_eq!(files.len(), 10, "crates/fabric/wire/tests/golden is not complete: restore it with git");
    files.extend(list(&root.join("../../../../shared/golden")));
    files
}

/// Draws random packets.
pub(crate) struct Random(pub(crate) SplitMix64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0.word()
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.index(limit)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn reth(&mut self) -> Reth {
        Reth { va: self.next(), rkey: self.next() as u32, bytes: self.next() as u32 }
    }

    fn aeth(&mut self) -> Aeth {
        Aeth { syndrome: Syndrome::from_byte(self.next() as u8), msn: self.next() as u32 & 0xff_ffff }
    }

    fn message(&mut self) -> Message {
        match self.below(12) {
            0 => Message::SendFirst,
            1 => Message::SendMiddle,
            2 => Message::SendLast,
            3 => Message::SendLastImm(self.next() as u32),
            4 => Message::SendOnly,
            5 => Message::SendOnlyImm(self.next() as u32),
            6 => Message::WriteFirst(self.reth()),
            7 => Message::WriteMiddle,
            8 => Message::WriteLast,
            9 => Message::WriteLastImm(self.next() as u32),
            10 => Message::WriteOnly(self.reth()),
            _ => Message::WriteOnlyImm(self.reth(), self.next() as u32),
        }
    }

    fn response(&mut self) -> Response {
        match self.below(6) {
            0 => Response::ReadFirst(self.aeth()),
            1 => Response::ReadMiddle,
            2 => Response::ReadLast(self.aeth()),
            3 => Response::ReadOnly(self.aeth()),
            4 => Response::Acknowledge(self.aeth()),
            _ => Response::Atomic(self.aeth(), self.next()),
        }
    }

    pub(crate) fn headers(&mut self) -> Headers {
        let (a, b, c) = (self.next(), self.next(), self.next());
        let atomic = |compare| AtomicEth { va: a, rkey: b as u32, swap_add: c, compare };
        match self.below(10) {
            0 => Headers::Rc(self.message()),
            1 => Headers::Uc(self.message()),
            2 => Headers::SendLastInvalidate(a as u32),
            3 => Headers::SendOnlyInvalidate(a as u32),
            4 => Headers::ReadRequest(self.reth()),
            5 => Headers::CompareSwap(atomic(self.next())),
            6 => Headers::FetchAdd(atomic(0)),
            7 => Headers::Response(self.response()),
            8 => {
                let deth = Deth { qkey: a as u32, source_qp: b as u32 & 0xff_ffff };
                Headers::Datagram(deth, self.flag().then_some(c as u32))
            }
            _ => Headers::Cnp,
        }
    }

    pub(crate) fn repr(&mut self) -> Repr {
        let headers = self.headers();
        let payload_bytes = if headers.opcode().shape().payload { self.below(4097) } else { 0 };
        let bth = Bth {
            solicited: self.flag(),
            migreq: self.flag(),
            pkey: self.next() as u16,
            fecn: self.flag(),
            becn: self.flag(),
            dest_qp: self.next() as u32 & 0xff_ffff,
            ack_req: self.flag(),
            psn: Psn::new(self.next() as u32),
        };
        Repr { bth, headers, payload_bytes }
    }

    pub(crate) fn envelope(&mut self) -> Envelope {
        let (a, b, c) = (self.next(), self.next(), self.next());
        let wide = |a: u64, b: u64| Ipv6Addr::from(u128::from(a) << 64 | u128::from(b));
        let ip = if self.flag() {
            IpRepr::V4(Ipv4Repr {
                tos: c as u8,
                id: (c >> 8) as u16,
                dont_fragment: self.flag(),
                ttl: (c >> 24) as u8,
                source: Ipv4Addr::from(a as u32),
                destination: Ipv4Addr::from(b as u32),
            })
        } else {
            IpRepr::V6(Ipv6Repr {
                traffic_class: c as u8,
                flow_label: (c >> 8) as u32 & 0xf_ffff,
                hop_limit: (c >> 32) as u8,
                source: wide(a, b),
                destination: wide(b, c),
            })
        };
        Envelope { ip, source_port: self.next() as u16, udp_checksum: self.next() as u16 }
    }

    /// Draws a whole packet with its ICRC.
    pub(crate) fn packet(&mut self, envelope: &Envelope) -> (Repr, Vec<u8>) {
        let repr = self.repr();
        let mut bytes = vec![0; repr.packet_bytes()];
        for byte in repr.emit(&mut bytes).unwrap() {
            *byte = self.next() as u8;
        }
        envelope.seal(&mut bytes);
        (repr, bytes)
    }
}

/// Draws a packet with its IP and UDP headers.
pub(crate) fn with_headers(random: &mut Random) -> (Envelope, Repr, Vec<u8>) {
    let envelope = random.envelope();
    let (repr, transport) = random.packet(&envelope);
    let mut bytes = vec![0; envelope.header_bytes()];
    envelope.emit(&mut bytes, transport.len()).unwrap();
    bytes.extend_from_slice(&transport);
    (envelope, repr, bytes)
}
