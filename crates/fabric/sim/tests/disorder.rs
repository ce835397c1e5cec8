//! The fault injector permutes completions: the contract still holds, and completions are really permuted.

mod common;

use common::{SimBed, wrapped};
use stentor_fabric::{
    Access, Completion, Event, Fabric, Opcode, PostError, ProcessId, Purpose, QpConfig, QpId, RegionId, RegionSpec,
    RemoteSpan, Service, Source, Span, Status, Verb, WorkRequest,
};
use stentor_fabric_conformance::{FaultInjector, Faults};
use stentor_fabric_conformance::{Testbed, suite};
use stentor_fabric_sim::{NetworkModel, SimFabric};

type Disordered = SimBed<FaultInjector<SimFabric>>;

/// Cases that rely on completions in the order of posts.
const ORDERED: [&str; 4] = [
    "imm::notifications_are_late_but_not_lost",
    "merge::completions_come_in_order",
    "queue::one_completion_per_signalled",
    "revoke::completed_writes_are_kept",
];

fn disordered(processes: usize, seed: u64, model: &NetworkModel, disorders: Faults) -> Disordered {
    wrapped(processes, seed, model, move |fabric| FaultInjector::new(fabric, disorders))
}

#[test]
fn suite_passes_with_completions_in_any_order() {
    for seed in 0..5 {
        let model = NetworkModel { tagged: true, hardware_multicast: true, ..NetworkModel::adversarial() };
        let report = suite(|processes| {
            disordered(processes, seed, &model, Faults { hold_polls: 3, ..Faults::completions(seed) })
        });
        let failed: Vec<_> = report.failed().into_iter().filter(|case| !ORDERED.contains(case)).collect();
        assert!(failed.is_empty(), "seed {seed}:\n{report}");
    }
}

struct Sent {
    bed: Disordered,
    qps: [QpId; 2],
    inbox: RegionId,
}

/// Returns two processes: one has posted 16 receives that match all tags below 256, and the other 16 messages.
fn sixteen(disorders: Faults) -> Sent {
    let model = NetworkModel { tagged: true, ..NetworkModel::uniform(500) };
    let mut bed = disordered(2, 1, &model, disorders);
    let connect = |bed: &mut Disordered, me: usize| {
        bed.fabrics[me].connect(ProcessId(1 - me as u16), Service(1), QpConfig::reliable(16, 16)).unwrap()
    };
    let qps = [connect(&mut bed, 0), connect(&mut bed, 1)];
    let mut connected = 0;
    while connected < 2 {
        bed.advance();
        for fabric in &mut bed.fabrics {
            while let Some(event) = fabric.next_event() {
                connected += u32::from(matches!(event, Event::Connected { .. }));
            }
        }
    }
    let spec = RegionSpec { purpose: Purpose(1), writer: ProcessId(1), bytes: 1024 };
    let inbox = bed.fabrics[1].register(spec).unwrap();
    for id in 0..16 {
        let place = Span { region: inbox, offset: id * 64, bytes: 64 };
        bed.fabrics[1].post_tagged_recv(qps[1], place, 0, 0xff, id).unwrap();
    }
    for id in 0..16_u64 {
        let verb = Verb::TaggedSend { source: Source::Inline(&id.to_le_bytes()), tag: id };
        bed.fabrics[0].post(qps[0], WorkRequest { id, verb, signalled: true }).unwrap();
    }
    Sent { bed, qps, inbox }
}

/// Returns the completions at both ends: ids of sends; ids and tags of receives.
fn completions_of(sent: &mut Sent, rounds: usize) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        sent.bed.advance();
        for me in 0..2 {
            let mut out = [Completion::BLANK; 64];
            let count = sent.bed.fabrics[me].poll(&mut out);
            for completion in &out[..count] {
                assert_eq!((completion.status, completion.qp), (Status::Success, sent.qps[me]));
                match completion.opcode {
                    Opcode::TaggedSend => sends.push(completion.id),
                    Opcode::TaggedRecv => recvs.push((completion.id, completion.tag)),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    (sends, recvs)
}

#[test]
fn completions_are_permuted_and_arrivals_are_not() {
    let disorders = Faults::completions(7);
    let mut run = sixteen(disorders);
    let (mut sends, mut recvs) = completions_of(&mut run, 40);
    assert!(!sends.is_sorted() && !recvs.is_sorted(), "{sends:?} {recvs:?}");
    assert!(run.bed.fabrics.iter().all(|fabric| fabric.overtaken() > 0 && fabric.lost() == 0));
    assert!(recvs.iter().all(|(recv, tag)| recv == tag), "send-after-send: {recvs:?}");
    let again = completions_of(&mut sixteen(disorders), 40);
    assert_eq!(again, (sends.clone(), recvs.clone()), "one seed, one order");
    sends.sort_unstable();
    recvs.sort_unstable();
    assert_eq!((sends, recvs.len()), ((0..16).collect::<Vec<_>>(), 16), "each once");
    let memory = run.bed.fabrics[1].memory(run.inbox);
    let first: Vec<u64> = (0..16).map(|place| memory[place * 8].load(std::sync::atomic::Ordering::Acquire)).collect();
    assert_eq!(first, (0..16).map(u64::from_le).collect::<Vec<_>>());
}

#[test]
fn arrivals_are_permuted_on_request() {
    let mut run = sixteen(Faults { arrivals: true, ..Faults::completions(7) });
    let (sends, recvs) = completions_of(&mut run, 60);
    assert_eq!((sends.len(), recvs.len()), (16, 16));
    assert!(recvs.iter().any(|(recv, tag)| recv != tag), "{recvs:?}");
}

#[test]
fn unprotected_queue_loses_excess_completions() {
    let mut run = sixteen(Faults { max_completions: 5, ..Faults::completions(7) });
    assert_eq!(run.bed.fabrics[0].capabilities().max_completions, 5);
    let (sends, recvs) = completions_of(&mut run, 60);
    assert!(sends.len() < 16 && recvs.len() < 16, "{sends:?} {recvs:?}");
    let lost: u64 = run.bed.fabrics.iter().map(FaultInjector::lost).sum();
    assert_eq!(sends.len() + recvs.len() + lost as usize, 32);
}

/// Returns the value that remains after 16 writes to one word.
fn last_write(seed: u64) -> u64 {
    let model = NetworkModel { tagged: true, ..NetworkModel::uniform(500) };
    let disorders = Faults { inline_bytes: u32::MAX, ..Faults::efa(seed, u32::MAX, false) };
    let mut bed = disordered(2, 1, &model, disorders);
    let has = bed.fabrics[0].capabilities();
    assert!(!has.ordered_writes && !has.ordered_bytes && !has.tagged);
    let spec = RegionSpec { purpose: Purpose(1), writer: ProcessId(0), bytes: 64 };
    let region = bed.fabrics[1].register(spec).unwrap();
    bed.fabrics[1].grant(region, ProcessId(0), Access::Write).unwrap();
    let config = QpConfig::reliable(16, 16);
    let qp = bed.fabrics[0].connect(ProcessId(1), Service(1), config).unwrap();
    bed.fabrics[1].connect(ProcessId(0), Service(1), config).unwrap();
    let refused = bed.fabrics[1].post_tagged_recv(QpId(0), Span { region, offset: 0, bytes: 8 }, 0, 0, 0);
    assert!(matches!(refused, Err(PostError::Unsupported(_))));
    let (mut ready, mut done) = (false, 0);
    while done < 16 {
        bed.advance();
        for me in 0..2 {
            while let Some(event) = bed.fabrics[me].next_event() {
                if me == 0 && matches!(event, Event::Connected { .. }) {
                    ready = true;
                }
            }
        }
        let Some(remote) = bed.fabrics[0].resolve(ProcessId(1), Purpose(1)).filter(|_| ready) else { continue };
        ready = false;
        for id in 1..=16_u64 {
            let target = RemoteSpan { region: remote, offset: 0 };
            let verb = Verb::Write { source: Source::Inline(&id.to_ne_bytes()), target };
            bed.fabrics[0].post(qp, WorkRequest { id, verb, signalled: true }).unwrap();
        }
        for _ in 0..200 {
            bed.advance();
            let mut out = [Completion::BLANK; 16];
            let count = bed.fabrics[0].poll(&mut out);
            assert!(out[..count].iter().all(|completion| completion.status == Status::Success));
            done += count;
        }
        assert_eq!(done, 16);
    }
    bed.fabrics[1].memory(region)[0].load(std::sync::atomic::Ordering::Acquire)
}

#[test]
fn writes_are_unordered_with_the_capabilities_of_efa() {
    let last: Vec<u64> = (0..8).map(last_write).collect();
    assert!(last.iter().any(|value| *value != 16) && last.iter().all(|value| (1..=16).contains(value)), "{last:?}");
}

#[test]
fn suite_passes_with_the_capabilities_of_efa() {
    for (seed, tags) in [(0, true), (1, false)] {
        let model = NetworkModel { tagged: true, hardware_multicast: true, ..NetworkModel::adversarial() };
        // The suite posts short data inline, so inline data stays permitted.
        let disorders = Faults { hold_polls: 3, inline_bytes: u32::MAX, ..Faults::efa(seed, u32::MAX, tags) };
        let report = suite(|processes| disordered(processes, seed, &model, disorders));
        let failed: Vec<_> = report.failed().into_iter().filter(|case| !ORDERED.contains(case)).collect();
        assert!(failed.is_empty(), "seed {seed}:\n{report}");
    }
}
