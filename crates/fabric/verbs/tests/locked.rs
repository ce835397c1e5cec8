//! Tests a process that has reached its limit of locked memory. Operations that need more memory are refused, and the
//! remedy is reported once. Other operations continue, and the refused ones succeed once the limit is raised. Ignored
//! by default: see `conformance.rs`.

mod processes;
mod survivor;

use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use stentor_fabric::{
    Access, AccessError, Completion, Fabric, PostError, Purpose, QpState, RegionSpec, RemoteSpan, Source, Span, Status,
    Verb, WorkRequest,
};
use stentor_fabric_verbs::Trouble;
use survivor::{End, PEER, SURVIVOR};

/// Limit of locked memory, in bytes: enough for the granted regions and the local memory of both processes, but not for
/// a large region.
const LIMIT: u64 = 256 << 10;
const LARGE: u64 = 1 << 20;

/// Drops this thread's capability to lock memory without limit.
fn give_up_privilege() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).expect("capabilities can be changed in the guest");
}

fn may_lock(current: Option<u64>) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: current.or(maximum), maximum }).unwrap();
}

fn troubles(end: &mut End) -> Vec<Trouble> {
    std::iter::from_fn(|| end.fabric.device_mut().next_trouble()).collect()
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn failed_registration_is_reported_once_and_other_operations_continue() {
    give_up_privilege();
    may_lock(Some(LIMIT));
    let addresses = processes::addresses(2);
    let [mut one, mut other] = [SURVIVOR, PEER].map(|me| End::new(me, &addresses));
    let spec = |purpose, writer| RegionSpec { purpose: Purpose(purpose), writer, bytes: LARGE };
    let own = one.fabric.register(spec(8, SURVIVOR)).unwrap();
    let ungranted = one.fabric.register(spec(9, PEER)).unwrap();
    survivor::connect(&mut one, &mut other);
    let span = Span { region: own, offset: 0, bytes: 64 };
    let target = RemoteSpan { region: one.target().unwrap(), offset: 0 };
    let write = |one: &mut End| {
        let verb = Verb::Write { source: Source::Region(span), target };
        one.fabric.post(one.qp, WorkRequest { id: 5, verb, signalled: true })
    };
    let qp = one.qp;
    for _ in 0..3 {
        let error = write(&mut one).unwrap_err();
        assert!(
            matches!(error, PostError::NotRegistered { qp: of, region, .. } if (of, region) == (qp, own)),
            "{error}"
        );
        let error = one.fabric.post_recv(qp, span, 6).unwrap_err();
        assert!(matches!(error, PostError::NotRegistered { .. }), "{error}");
    }
    let told = troubles(&mut one);
    let [Trouble::NotRegistered { peer: PEER, bytes: LARGE, why }] = told.as_slice() else {
        panic!("expected one report: {told:?}")
    };
    println!("{}", told[0]);
    assert!(why.contains("ulimit -l"), "{why}");
    let refused = one.fabric.grant(ungranted, PEER, Access::Write).unwrap_err();
    println!("{refused}");
    assert!(matches!(&refused, AccessError::System { reason, .. } if reason.contains("ulimit -l")), "{refused}");
    // Operations that need no more memory continue on the same queue pair.
    survivor::write_both_ways(&mut one, &mut other);
    may_lock(None);
    write(&mut one).unwrap();
    one.fabric.grant(ungranted, PEER, Access::Write).unwrap();
    let (mut out, since) = ([Completion::BLANK; 4], Instant::now());
    let done = loop {
        let count = one.fabric.poll(&mut out);
        if let Some(done) = out[..count].iter().find(|done| done.id == 5) {
            break *done;
        }
        assert!(since.elapsed() < survivor::PATIENCE, "the write has not completed");
    };
    assert_eq!((done.status, troubles(&mut one)), (Status::Success, vec![]));
}

/// The kernel accepts requests only from a process with the credentials that it had when it opened the device.
#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn dropping_privileges_after_the_start_is_reported_as_the_cause() {
    let addresses = processes::addresses(2);
    let [mut one, mut other] = [SURVIVOR, PEER].map(|me| End::new(me, &addresses));
    survivor::connect(&mut one, &mut other);
    give_up_privilege();
    one.flood(1);
    let told = troubles(&mut one);
    let [Trouble::NotPosted { qp, why }] = told.as_slice() else { panic!("{told:?}") };
    println!("{}", told[0]);
    assert!(*qp == one.qp && why.contains("privileges"), "{why}");
    assert_eq!(one.state(), QpState::Error);
}
