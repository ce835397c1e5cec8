//! Checks that Wireshark's dissector reads a capture of every operation as intended and reports no error. Ignored by
//! default, because it needs `tshark`, which the step `roce-tshark` of `cargo xtask test` installs.

mod common;

use std::process::Command;

use common::{Setup, Side, pair};
use stentor_fabric::QpKind;
use stentor_fabric_roce::driver::Pcap;
use stentor_fabric_roce::endpoint::{Data, Request};
use stentor_wire::{Headers, IpRepr, Packet, Repr};

/// Delivers packets until neither side sends more, and captures them.
fn settle(now: u64, a: &mut Side, b: &mut Side, pcap: &mut Pcap, expected: &mut Vec<String>) {
    loop {
        let (from_a, from_b) = (a.packets(now), b.packets(now));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        for packet in from_a.iter().chain(&from_b) {
            pcap.write(&packet.0, &packet.1);
            let view = Packet::new_checked(&packet.1[..]).unwrap();
            let bth = view.bth();
            let reth = view.reth().map(|reth| (reth.va.to_string(), reth.bytes.to_string())).unwrap_or_default();
            let aeth = view.aeth().map(|aeth| aeth.syndrome.to_byte().to_string()).unwrap_or_default();
            expected.push(format!(
                "{}|{}|{}|{}|{}|{}",
                view.opcode().to_byte(),
                bth.dest_qp,
                bth.psn.get(),
                u8::from(bth.ack_req),
                reth.1,
                aeth
            ));
        }
        from_a.iter().for_each(|packet| b.take(now, packet));
        from_b.iter().for_each(|packet| a.take(now, packet));
    }
}

fn every_operation(kind: QpKind, pcap: &mut Pcap, expected: &mut Vec<String>) {
    let (mut a, mut b) = pair(&Setup { kind, ..Setup::default() });
    for n in 0..40 {
        let span = b.span(0, 1024);
        b.endpoint.post_receive(b.qp, span, n).unwrap();
    }
    let (remote, mut id) = (b.remote(0), 0);
    for bytes in [0_usize, 1, 2, 3, 4, 256, 257, 700] {
        let data = vec![0x11; bytes];
        for imm in [None, Some(7)] {
            for request in [
                Request::Send { data: Data::Inline(&data), imm },
                Request::Write { data: Data::Inline(&data), remote, imm },
            ] {
                a.post(id, request);
                settle(id, &mut a, &mut b, pcap, expected);
                id += 1;
            }
        }
        if kind == QpKind::Reliable {
            let local = a.span(0, bytes as u32);
            a.post(id, Request::Read { local, remote });
            settle(id, &mut a, &mut b, pcap, expected);
        }
        a.completions();
        b.completions();
    }
    if kind == QpKind::Reliable {
        let local = a.span(0, 8);
        a.post(1, Request::FetchAdd { local, remote, add: 1 });
        a.post(2, Request::CompareSwap { local, remote, expected: 1, new: 2 });
        settle(100, &mut a, &mut b, pcap, expected);
    }
}

/// Captures a negative acknowledgement for every reason, each on a new connection, because some of them break the
/// connection.
fn refusals(pcap: &mut Pcap, expected: &mut Vec<String>) {
    // The memory of the posted receive is deregistered: remote operational error.
    let (mut a, mut b) = pair(&Setup::default());
    let span = b.span(0, 64);
    b.endpoint.post_receive(b.qp, span, 1).unwrap();
    let region = b.local;
    b.endpoint.memory_mut().deregister(region);
    a.post(1, common::inline_send(b"x"));
    settle(0, &mut a, &mut b, pcap, expected);
    // The message is longer than the posted receive: invalid request.
    let (mut a, mut b) = pair(&Setup::default());
    let span = b.span(0, 64);
    b.endpoint.post_receive(b.qp, span, 1).unwrap();
    a.post(1, common::inline_send(&[1; 100]));
    settle(0, &mut a, &mut b, pcap, expected);
    // No receive is posted: receiver not ready.
    let (mut a, mut b) = pair(&Setup { rnr_retries: 1, ..Setup::default() });
    a.post(1, common::inline_send(b"x"));
    settle(0, &mut a, &mut b, pcap, expected);
    // The key does not exist: remote access error.
    let (mut a, mut b) = pair(&Setup::default());
    a.post(1, common::inline_write(b"x", stentor_fabric_roce::endpoint::Remote { va: 0, rkey: 1 }));
    settle(0, &mut a, &mut b, pcap, expected);
    // The first of three packets is lost: sequence error.
    let (mut a, mut b) = pair(&Setup::default());
    let remote = b.remote(0);
    a.post(1, common::inline_write(&[1; 700], remote));
    a.packets(0)[1..].iter().for_each(|packet| b.take(0, packet));
    settle(0, &mut a, &mut b, pcap, expected);
}

fn notification(pcap: &mut Pcap, expected: &mut Vec<String>) {
    let (mut a, mut b) = pair(&Setup::default());
    let remote = b.remote(0);
    a.post(0, common::inline_write(&[1; 8], remote));
    for mut packet in a.packets(0) {
        let IpRepr::V4(ip) = &mut packet.0.ip else { panic!("IPv4") };
        ip.tos = 3;
        b.take(0, &packet);
    }
    let packets = b.packets(0);
    let is_notice = |packet: &&common::Flying| {
        Repr::parse(&Packet::new_checked(&packet.1[..]).unwrap()).unwrap().headers == Headers::Cnp
    };
    let notice = packets.iter().find(is_notice).expect("a congestion notification");
    pcap.write(&notice.0, &notice.1);
    expected.push(format!("129|{}|0|0||", a.number));
}

#[test]
#[ignore = "needs tshark: run by `cargo xtask test --only roce-tshark`"]
fn dissector_reads_every_operation_as_intended() {
    let file = std::env::temp_dir().join(format!("stentor-tshark-{}.pcap", std::process::id()));
    // Remove a file that an earlier process with the same id may have left.
    let _ = std::fs::remove_file(&file);
    let mut pcap = Pcap::create(&file).unwrap();
    let mut expected = Vec::new();
    every_operation(QpKind::Reliable, &mut pcap, &mut expected);
    every_operation(QpKind::Unreliable, &mut pcap, &mut expected);
    refusals(&mut pcap, &mut expected);
    notification(&mut pcap, &mut expected);
    pcap.finish().unwrap();
    let fields = ["opcode", "destqp", "psn", "a"].map(|name| format!("infiniband.bth.{name}"));
    let fields = fields.into_iter().chain(["infiniband.reth.dmalen".into(), "infiniband.aeth.syndrome".into()]);
    let mut command = Command::new("tshark");
    // tshark guesses the protocol of a payload. Disable the guesses, because only the transport is tested here.
    for guess in ["rpcordma", "iser", "nvme-rdma", "smcr", "eoib", "sdp", "mellanox_eoib"] {
        command.args(["--disable-protocol", guess]);
    }
    command.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|", "-e", "_ws.malformed", "-e", "_ws.expert"]);
    for field in fields {
        command.args(["-e", &field]);
    }
    let output = command.output().expect("tshark is not installed: apt-get install tshark");
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut opcodes, mut syndromes) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for (n, (line, expected)) in lines.iter().zip(&expected).enumerate() {
        let (complaints, fields) = line.split_at(line.char_indices().filter(|(_, c)| *c == '|').nth(1).unwrap().0 + 1);
        assert_eq!(complaints, "||", "packet {n}: {line}");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).map_or_else(|_| text.to_owned(), |value| value.to_string()),
            None => text.to_owned(),
        };
        let fields: Vec<String> = fields.split('|').map(number).collect();
        assert_eq!(fields.join("|"), *expected, "packet {n}");
        opcodes.insert(fields[0].parse::<u8>().unwrap());
        syndromes.extend(fields[5].parse::<u8>());
    }
    // The capture must have all opcodes of RC except SEND with invalidate, all opcodes of UC, and congestion
    // notifications. This crate sends no others.
    let all: Vec<u8> = (0..=0x14).chain(0x20..=0x2b).chain([0x81]).collect();
    assert_eq!(opcodes.into_iter().collect::<Vec<_>>(), all, "opcodes");
    // The syndromes are: acknowledged, receiver not ready, and the four reasons for a refusal.
    assert_eq!(syndromes.into_iter().collect::<Vec<_>>(), [0x1f, 0x21, 0x60, 0x61, 0x62, 0x63], "syndromes");
}
