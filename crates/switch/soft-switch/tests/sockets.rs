//! The switch on real sockets with real endpoints. Every message arrives once, at the linked members, despite faults of
//! links and of the loop.

mod common;

use common::{Bed, GID};
use stentor_fabric::Status;
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::endpoint::{Data, Remote, Request};
use stentor_soft_switch::Faults;
use stentor_switch::control::Operation;

fn pattern(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|n| (n as u8).wrapping_mul(7) ^ salt).collect()
}

/// Sends SEND, WRITE and WRITE_IMM of several lengths to several lists of members.
fn everything_arrives_once(bed: &mut Bed) {
    let all: Vec<usize> = (0..bed.hosts.len()).collect();
    let lists: Vec<Vec<usize>> = vec![all.clone(), vec![1], all[1..].to_vec(), all];
    let mut expected: Vec<Vec<(u32, Option<u32>)>> = vec![Vec::new(); bed.hosts.len()];
    for (salt, list) in lists.iter().enumerate() {
        assert_eq!(bed.link(list), Status::Success);
        for bytes in [0_usize, 1, 64, 1024, 1025, 5000] {
            let data = pattern(bytes, salt as u8);
            let remote = |va| Remote { va, rkey: 0 };
            let send = Request::Send { data: Data::Inline(&data), imm: Some(bytes as u32) };
            let write = Request::Write { data: Data::Inline(&data), remote: remote(64), imm: None };
            let with_imm = Request::Write { data: Data::Inline(&data), remote: remote(8192), imm: Some(7) };
            for request in [send, write, with_imm] {
                assert_eq!(bed.request(request), Status::Success);
            }
            for rank in list {
                let host = &mut bed.hosts[*rank];
                assert_eq!(host.bytes(64, bytes), data, "WRITE at {rank}");
                assert_eq!(host.bytes(8192, bytes), data, "WRITE_IMM at {rank}");
                assert_eq!(host.received(0, bytes), data, "SEND at {rank}");
                host.post_receives(2, 8192).unwrap();
                expected[*rank].extend([(bytes as u32, Some(bytes as u32)), (bytes as u32, Some(7))]);
            }
        }
    }
    bed.rest();
    assert_eq!(bed.received, expected, "each once, in order");
    assert!(bed.hosts.iter().all(|host| host.is_well()));
}

#[test]
fn all_operations_arrive_at_exactly_the_members() {
    let mut bed = Bed::new(1, 5, |_| {});
    everything_arrives_once(&mut bed);
    let shown = bed.switch.show(&bed.settings, Some(GID));
    assert_eq!((shown.sets.len(), shown.sets[0].state.as_str()), (1, "active"));
    assert_eq!(shown.registers.unwrap().stages.len(), 3 * 5 + 3);
    assert_eq!(bed.switch.tally().overlong + bed.switch.kernel_lost()[0], 0);
}

#[test]
fn faults_of_network_and_loop_only_cost_time() {
    let mut bed = Bed::new(2, 4, |settings| {
        let links = Chances { drop: 0.02, duplicate: 0.02, reorder: 0.02, corrupt: 0.01, delay: 0 };
        settings.faults = Faults { links, loop_drop: 0.02, seed: 3 };
        settings.check_data = true;
    });
    for _ in 0..3 {
        bed.received.iter_mut().for_each(Vec::clear);
        everything_arrives_once(&mut bed);
    }
    let injected = bed.switch.injected();
    assert!(injected.iter().all(|count| *count > 0), "{injected:?}");
}

#[test]
fn set_changes_its_holder() {
    let mut bed = Bed::new(3, 3, |_| {});
    for turn in 0..12_u8 {
        bed.lead(usize::from(turn % 3));
        assert_eq!(bed.link(&[1, 2]), Status::Success);
        let data = [turn; 100];
        let write = Request::Write { data: Data::Inline(&data), remote: Remote { va: 0, rkey: 0 }, imm: None };
        assert_eq!(bed.request(write), Status::Success);
        assert_eq!(bed.hosts[1].bytes(0, 100), data);
        assert_eq!(bed.hosts[2].bytes(0, 100), data);
        assert_eq!(bed.control(Operation::Release, &[]), Status::Success);
    }
}

/// A restarted switch has lost its memory, so it sends no answers instead of wrong ones. The hosts then create their
/// queue pairs again, and the test creates the set again. Outstanding messages are delivered at most once.
#[test]
fn restart_leaves_sets_silent_until_recreated() {
    let mut bed = Bed::new(4, 3, |_| {});
    assert_eq!(bed.link(&[1, 2]), Status::Success);
    let send = |data| Request::Send { data: Data::Inline(data), imm: None };
    assert_eq!(bed.request(send(b"first")), Status::Success);
    bed.switch.switch_mut().restart();
    // The sender gets no answer until its retries are exhausted.
    let status = bed.request(send(b"second"));
    assert_eq!(status, Status::RetryExceeded);
    assert_eq!(bed.switch.show(&bed.settings, None).sets, []);
    for host in &mut bed.hosts {
        host.begin_anew().unwrap();
        host.connect(GID + 1).unwrap();
        host.post_receives(8, 64).unwrap();
    }
    let descriptions: Vec<_> = bed.hosts.iter().map(|host| host.description()).collect();
    bed.switch.switch_mut().create(GID + 1, common::LEASE, &descriptions).unwrap();
    assert_eq!(bed.link(&[1, 2]), Status::Success);
    assert_eq!(bed.request(send(b"second again")), Status::Success);
    bed.rest();
    assert_eq!(bed.received[1..], [vec![(5, None), (12, None)], vec![(5, None), (12, None)]]);
}
