//! Captures of the switch: Wireshark's verdict on each packet, and the correctness of its ICRC.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use stentor_wire::IpPacket;

/// Opcodes that a capture must contain: SEND with an immediate and WRITE with and without one, each of one and of
/// several packets, and acknowledgements.
const OPCODES: [u8; 11] = [0x00, 0x01, 0x03, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x11];

/// Wireshark's verdict on a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dissected {
    /// Wireshark's complaints. Without a complaint, this is only a separator.
    pub(crate) complaints: String,
    pub(crate) opcode: u8,
}

/// Dissects a capture with `tshark`.
pub(crate) fn dissected(file: &Path) -> Vec<Dissected> {
    let mut command = Command::new("tshark");
    // `tshark` guesses the protocol of a payload. Only the transport matters here, so these protocols are disabled.
    for guess in ["rpcordma", "iser", "nvme-rdma", "smcr", "eoib", "sdp", "mellanox_eoib"] {
        command.args(["--disable-protocol", guess]);
    }
    // Check IPv4's header checksum, too.
    command.args(["-o", "ip.check_checksum:TRUE", "-r"]).arg(file).args(["-T", "fields", "-E", "separator=|"]);
    for field in ["_ws.malformed", "_ws.expert", "infiniband.bth.opcode"] {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark is not installed: apt-get install tshark");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (complaints, opcode) = line.rsplit_once('|').unwrap();
        Dissected { complaints: complaints.to_owned(), opcode: opcode.parse().unwrap_or(u8::MAX) }
    };
    text.lines().map(line).collect()
}

/// Returns the packets of a capture, each of which begins with its IP header.
fn packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let (mut rest, mut packets) = (&bytes[24..], Vec::new());
    while let Some((head, behind)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        packets.push(behind[..length].to_vec());
        rest = &behind[length..];
    }
    packets
}

/// Asserts that Wireshark complains about no packet, that every opcode occurs, and that every ICRC is right.
pub(crate) fn all_are_sound(file: &Path, dissected: &[Dissected]) {
    let bad = dissected.iter().position(|packet| packet.complaints != "|");
    assert_eq!(bad.map(|at| &dissected[at]), None, "Wireshark complains of packet {bad:?}");
    let opcodes: BTreeSet<u8> = dissected.iter().map(|packet| packet.opcode).collect();
    assert!(OPCODES.iter().all(|opcode| opcodes.contains(opcode)), "{opcodes:?}");
    let packets = packets(file);
    assert_eq!(packets.len(), dissected.len());
    let intact = |bytes: &Vec<u8>| IpPacket::new_checked(bytes).is_ok_and(|packet| packet.is_intact());
    assert_eq!(packets.iter().position(|bytes| !intact(bytes)), None, "an ICRC is wrong");
}
