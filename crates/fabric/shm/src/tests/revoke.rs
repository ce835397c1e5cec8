//! Revocation: completed writes are in the snapshot, others fail, and a rogue's stores land in memory that no process
//! reads.

use rustix::process::{Pid, Signal, kill_process};
use stentor_fabric::{
    Access, AccessError, Event, Fabric, ProcessId, QpConfig, QpKind, QpState, RegionId, RemoteSpan, Source, Status,
    Verb, WorkRequest,
};

use super::child::Child;
use super::support::*;
use crate::ShmFabric;

const QP: QpConfig = QpConfig::reliable(16, 4);

#[test]
fn completed_writes_are_in_the_snapshot_and_the_next_post_fails() {
    let mut pair = Pair::new(QP);
    pair.write(1, 0, &[1, 2, 3], true);
    assert_eq!(ends(&poll(&mut pair.a)), [(1, Status::Success)]);
    let before = pair.b.memory(pair.region_b).as_ptr();
    pair.b.revoke(pair.region_b, ProcessId(0)).unwrap();
    assert_eq!(events(&mut pair.b), [Event::Revoked { region: pair.region_b, peer: ProcessId(0) }]);
    assert_ne!(pair.b.memory(pair.region_b).as_ptr(), before, "fresh memory");
    assert_eq!([0, 1, 2].map(|word| pair.word_b(word)), [1, 2, 3]);
    pair.write(2, 0, &[9], false);
    pair.write(3, 8, &[9], true);
    assert_eq!(ends(&poll(&mut pair.a)), [(2, Status::RemoteAccess), (3, Status::Flushed)]);
    assert_eq!(pair.word_b(0), 1);
    assert_eq!(events(&mut pair.a), [Event::Disconnected { qp: pair.qp_a, peer: ProcessId(1) }]);
    assert_eq!(pair.a.resolve(ProcessId(1), PURPOSE), None);
}

#[test]
fn a_write_that_the_revocation_overtook_is_not_counted_as_done() {
    let mut pair = Pair::new(QP);
    pair.write(1, 0, &[1], true);
    pair.a.flush();
    // The revocation comes between the stores of this write and the writer's check for revocations.
    pair.write(2, 8, &[2], true);
    pair.b.revoke(pair.region_b, ProcessId(0)).unwrap();
    assert_eq!(ends(&poll(&mut pair.a)), [(1, Status::Success), (2, Status::RemoteAccess)]);
    assert_eq!(pair.word_b(0), 1);
}

#[test]
fn no_immediate_arrives_for_refused_data() {
    for kind in [QpKind::Reliable, QpKind::Unreliable] {
        let mut pair = Pair::new(QpConfig { kind, ..QP });
        pair.b.post_recv(pair.qp_b, span(pair.region_b, 0, 0), 1).unwrap();
        let target = RemoteSpan { region: pair.at_b(), offset: 0 };
        pair.b.revoke(pair.region_b, ProcessId(0)).unwrap();
        let verb = Verb::WriteImm { source: Source::Inline(&[1; 8]), target, imm: 1 };
        pair.a.post(pair.qp_a, WorkRequest { id: 5, verb, signalled: true }).unwrap();
        let status = if kind == QpKind::Reliable { Status::RemoteAccess } else { Status::Success };
        assert_eq!(ends(&poll(&mut pair.a)), [(5, status)]);
        assert_eq!(ends(&poll(&mut pair.b)), [], "{kind:?}");
    }
}

#[test]
fn no_request_executes_after_a_refused_write() {
    let mut pair = Pair::new(QP);
    let other = stentor_fabric::Purpose(4);
    let spec = stentor_fabric::RegionSpec { purpose: other, writer: ProcessId(0), bytes: BYTES };
    let second = pair.b.register(spec).unwrap();
    pair.b.grant(second, ProcessId(0), Access::Write).unwrap();
    until("granted", || {
        events(&mut pair.a);
        pair.a.resolve(ProcessId(1), other).is_some()
    });
    let target = RemoteSpan { region: pair.a.resolve(ProcessId(1), other).unwrap(), offset: 0 };
    pair.write(1, 0, &[1], false);
    pair.b.revoke(pair.region_b, ProcessId(0)).unwrap();
    write(&mut pair.a, pair.qp_a, 2, target, &[2], false).unwrap();
    assert_eq!(load(&pair.b, second, 0), 0, "the first write of this queue pair did not take effect");
    assert_eq!(ends(&poll(&mut pair.a)), [(1, Status::RemoteAccess), (2, Status::Flushed)]);
}

#[test]
fn granting_again_yields_a_new_key_for_the_same_contents() {
    let mut pair = Pair::new(QP);
    pair.write(1, 0, &[1], false);
    pair.a.flush();
    let old = pair.at_b();
    pair.b.revoke(pair.region_b, ProcessId(0)).unwrap();
    pair.b.grant(pair.region_b, ProcessId(0), Access::Write).unwrap();
    events(&mut pair.a);
    let new = pair.at_b();
    assert_ne!(old.key, new.key);
    assert_eq!(pair.a.state(pair.qp_a), QpState::Ready, "nothing was under way");
    pair.write(2, 8, &[2], true);
    assert_eq!(ends(&poll(&mut pair.a)), [(2, Status::Success)]);
    assert_eq!((pair.word_b(0), pair.word_b(1)), (1, 2));
    write(&mut pair.a, pair.qp_a, 3, RemoteSpan { region: old, offset: 0 }, &[3], true).unwrap();
    assert_eq!(ends(&poll(&mut pair.a)), [(3, Status::RemoteAccess)]);
    assert_eq!(pair.word_b(0), 1);
}

#[test]
fn access_is_limited_to_the_peer_of_the_region() {
    let mut pair = Pair::new(QP);
    let region = pair.region_b;
    let not_for = AccessError::NotForPeer { region, writer: ProcessId(0), peer: ProcessId(2) };
    assert_eq!(pair.b.grant(region, ProcessId(2), Access::Write), Err(not_for.clone()));
    assert_eq!(pair.b.revoke(region, ProcessId(2)), Err(not_for));
    let unknown = AccessError::UnknownRegion(RegionId(99));
    assert_eq!(pair.b.revoke(RegionId(99), ProcessId(0)), Err(unknown));
}

fn words(fabric: &ShmFabric, region: RegionId) -> Vec<u64> {
    (0..(BYTES / 8) as usize).map(|word| load(fabric, region, word)).collect()
}

/// The peer does not post through the fabric but stores forever into its mappings: see `child::rogue`.
#[test]
fn stores_of_a_rogue_land_where_nobody_reads() {
    let directory = TestDirectory::new();
    let (mut fabric, region) = owner(&directory);
    let _rogue = Child::start("rogue", &directory, 1);
    until("stored", || {
        events(&mut fabric);
        load(&fabric, region, 5) > 100
    });
    fabric.revoke(region, ProcessId(1)).unwrap();
    let snapshot = words(&fabric, region);
    // The second region is not revoked. It shows that the rogue continues.
    let beats = RegionId(1);
    let seen = load(&fabric, beats, 0);
    until("went on", || load(&fabric, beats, 0) > seen + 100_000);
    assert_eq!(words(&fabric, region), snapshot);
}

/// Starts a fabric with two regions for process 1: the one that it writes, and the one for its heartbeat.
fn owner(directory: &TestDirectory) -> (ShmFabric, RegionId) {
    let mut fabric = ShmFabric::start(config(&directory.0, 0, 2)).unwrap();
    let written = region(&mut fabric, 1, Access::Write);
    let purpose = super::child::BEATS;
    let spec = stentor_fabric::RegionSpec { purpose, writer: ProcessId(1), bytes: 64 };
    let beats = fabric.register(spec).unwrap();
    fabric.grant(beats, ProcessId(1), Access::Write).unwrap();
    fabric.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 0)).unwrap();
    (fabric, written)
}

/// The peer writes 1 to all words, then 2, and so on: see `child::writer`. It is stopped at any point, fenced and
/// resumed. The last write that succeeded is in the snapshot.
#[test]
fn a_writer_stopped_in_the_middle_of_a_write_gets_an_error_or_its_write_is_in_the_snapshot() {
    let directory = TestDirectory::new();
    let (mut fabric, region) = owner(&directory);
    let mut writer = Child::start("writer", &directory, 1);
    let pid = Pid::from_raw(writer.pid()).unwrap();
    let mut torn = 0;
    for round in 0..40_u64 {
        let before = load(&fabric, region, 0);
        until("writing", || {
            events(&mut fabric);
            load(&fabric, region, 0) > before + round
        });
        kill_process(pid, Signal::STOP).unwrap();
        fabric.revoke(region, ProcessId(1)).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        let snapshot = words(&fabric, region);
        let mut done = None;
        until("failed", || {
            events(&mut fabric);
            done = done.take().or_else(|| writer.line());
            done.is_some() && fabric.state(stentor_fabric::QpId(0)) == QpState::Error
        });
        let done: u64 = done.unwrap().parse().unwrap();
        assert!(snapshot.iter().all(|word| *word == done || *word == done + 1), "round {round}: {done}, {snapshot:?}");
        torn += u64::from(snapshot.iter().any(|word| *word != snapshot[0]));
        fabric.grant(region, ProcessId(1), Access::Write).unwrap();
        fabric.reset(stentor_fabric::QpId(0)).unwrap();
    }
    println!("{torn} of 40 were stopped in the middle of a write");
}
