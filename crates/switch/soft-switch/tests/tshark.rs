//! Captures the packets of a switch between Stentor's endpoints, and dissects them with Wireshark. SEND, WRITE and
//! WRITE_IMM go to one, two and eight receivers, without loss and with 1 % loss, and the contents are verified. The
//! test is ignored by default because it needs `tshark` (the step `roce-tshark` of `cargo xtask test`).

mod capture;
mod common;

use common::Bed;
use stentor_fabric::Status;
use stentor_fabric_roce::driver::{Chances, Pcap};
use stentor_fabric_roce::endpoint::{Data, Remote, Request};
use stentor_soft_switch::Faults;

/// Lengths of the messages in bytes. No packet has a payload of one byte, because Wireshark takes that byte and its
/// three bytes of padding for an EtherType.
const LENGTHS: [usize; 6] = [0, 3, 64, 1024, 1027, 5000];

/// Sends each length by each operation to the first one, two and eight receivers.
fn all_operations(bed: &mut Bed, salt: &mut u32) {
    let mut expected: Vec<Vec<(u32, Option<u32>)>> = vec![Vec::new(); bed.hosts.len()];
    bed.received.iter_mut().for_each(Vec::clear);
    for n in [1, 2, 8] {
        let ranks: Vec<usize> = (1..=n).collect();
        assert_eq!(bed.link(&ranks), Status::Success);
        for bytes in LENGTHS {
            *salt += 1;
            let data: Vec<u8> = (0..bytes as u32).map(|n| (*salt + 7 * n) as u8).collect();
            let (payload, remote) = (Data::Inline(&data), |va| Remote { va, rkey: 0 });
            for request in [
                Request::Send { data: payload, imm: Some(*salt) },
                Request::Write { data: payload, remote: remote(64), imm: None },
                Request::Write { data: payload, remote: remote(8192), imm: Some(*salt) },
            ] {
                assert_eq!(bed.request(request), Status::Success);
            }
            for (rank, expected) in expected.iter_mut().enumerate().take(1 + n).skip(1) {
                let host = &mut bed.hosts[rank];
                assert!(host.bytes(64, bytes) == data && host.bytes(8192, bytes) == data, "WRITE at {rank}");
                assert_eq!(host.received(0, bytes), data, "SEND at {rank}");
                host.post_receives(2, 8192).unwrap();
                expected.extend([(bytes as u32, Some(*salt)); 2]);
            }
        }
    }
    bed.rest();
    assert_eq!(bed.received, expected, "each once, in order, and at nobody else");
}

#[test]
#[ignore = "needs tshark: run by `cargo xtask test --only roce-tshark`"]
fn wireshark_reads_all_that_the_switch_takes_in_and_sends() {
    let file = std::env::temp_dir().join(format!("stentor-switch-{}.pcap", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let mut bed = Bed::new(23, 9, |settings| settings.check_data = true);
    bed.switch.capture(Pcap::create(&file).unwrap());
    let mut salt = 0;
    for (drop, rounds) in [(0.0, 1), (0.01, 10)] {
        bed.switch.inject(Faults { links: Chances { drop, ..Chances::default() }, loop_drop: drop, seed: 5 });
        (0..rounds).for_each(|_| all_operations(&mut bed, &mut salt));
        let injected = bed.switch.injected();
        assert_eq!(injected[0] > 20 && injected[4] > 0, drop > 0.0, "{injected:?}");
    }
    bed.switch.pcap_mut().unwrap().finish().unwrap();
    let (tally, packets) = (bed.switch.tally(), capture::dissected(&file));
    assert_eq!(packets.len() as u64, tally.received + tally.sent, "every packet is in the capture");
    capture::all_are_sound(&file, &packets);
    println!("switch: {} packets dissected", packets.len());
    std::fs::remove_file(&file).unwrap();
}
