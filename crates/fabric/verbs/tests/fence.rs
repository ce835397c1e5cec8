//! Tests fencing on a real kernel. A writer, which acts as an old leader, floods a region with writes of many packets.
//! The region's owner repeatedly revokes the access. No part of a write may land after the revocation. Ignored by
//! default: see `conformance.rs`.

mod processes;
mod survivor;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use processes::{addresses, start};
use stentor_fabric::{
    Access, Completion, Event, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RemoteRegion,
    RemoteSpan, Service, Source, Span, Status, Verb, WorkRequest,
};
use stentor_fabric_verbs::VerbsFabric;

const OWNER: ProcessId = ProcessId(0);
const WRITER: ProcessId = ProcessId(1);
const TARGET: Purpose = Purpose(1);
const SERVICE: Service = Service(1);
const DEPTH: u32 = 16;
/// Length of a write in bytes. Each write needs many packets.
const BYTES: usize = 32 << 10;
const WORDS: usize = BYTES / 8;
const ROUNDS: usize = 40;
/// Time for which the owner watches its memory after a fence while the writer continues.
const WATCH: Duration = Duration::from_millis(15);
const PATIENCE: Duration = Duration::from_secs(20);

/// Budget for the median duration of a revocation, for which a new leader waits.
const FENCE_BUDGET: Duration = Duration::from_millis(2);
/// Budget for the median time from a new grant until the writer has written again. The fence broke the writer's queue
/// pair, so the writer must reset and reconnect it first. The owner waits for 30 ms of this time for writes that may
/// still be in flight. A whole fail-over may take 100 ms.
const BACK_BUDGET: Duration = Duration::from_millis(100);
/// Budget for the time from the reset of both ends until both have written.
const RECONNECT_BUDGET: Duration = Duration::from_millis(50);

/// State that the two threads share in addition to the fabric.
#[derive(Default)]
struct Shared {
    /// Number of the last write that completed at the writer.
    done: AtomicU64,
    /// Number of writes that were refused because their key was revoked before.
    refused: AtomicU64,
    over: AtomicBool,
}

struct Writer {
    fabric: VerbsFabric,
    qp: QpId,
    source: RegionId,
    next: u64,
    old: Option<RemoteRegion>,
}

impl Writer {
    fn write(&mut self, target: RemoteRegion, id: u64) -> bool {
        // Each outstanding write has a separate source, which is filled with the number of the write.
        let place = (id % u64::from(DEPTH)) as usize * WORDS;
        for word in &self.fabric.memory(self.source)[place..place + WORDS] {
            word.store(id, Ordering::Relaxed);
        }
        let span = Span { region: self.source, offset: (place * 8) as u64, bytes: BYTES as u32 };
        let verb = Verb::Write { source: Source::Region(span), target: RemoteSpan { region: target, offset: 0 } };
        self.fabric.post(self.qp, WorkRequest { id, verb, signalled: true }).is_ok()
    }

    fn poll(&mut self, shared: &Shared) -> bool {
        let mut out = [Completion::BLANK; 16];
        let count = self.fabric.poll(&mut out);
        for done in &out[..count] {
            match done.status {
                Status::Success => shared.done.store(done.id, Ordering::SeqCst),
                Status::RemoteAccess => drop(shared.refused.fetch_add(1, Ordering::SeqCst)),
                _ => {}
            }
        }
        count > 0
    }

    /// Writes as fast as possible and reconnects at once, like an old leader that does not know that it was replaced.
    fn flood(&mut self, shared: &Shared) {
        while !shared.over.load(Ordering::SeqCst) {
            while self.poll(shared) {}
            while self.fabric.next_event().is_some() {}
            match self.fabric.state(self.qp) {
                QpState::Error => {
                    while self.poll(shared) {}
                    self.fabric.reset(self.qp).unwrap();
                }
                QpState::Connecting => std::thread::sleep(Duration::from_micros(200)),
                QpState::Ready => {
                    // Some writes use a key that was revoked long ago.
                    let stale = self.old.filter(|_| self.next.is_multiple_of(97));
                    let fresh = self.fabric.resolve(OWNER, TARGET);
                    let Some(target) = stale.or(fresh) else { continue };
                    while self.write(target, self.next) {
                        self.next += 1;
                    }
                    self.old = fresh.or(self.old);
                }
            }
        }
    }
}

struct Owner {
    fabric: VerbsFabric,
    qp: QpId,
    region: RegionId,
}

impl Owner {
    fn pump(&mut self) -> Vec<Event> {
        let mut out = [Completion::BLANK; 16];
        while self.fabric.poll(&mut out) > 0 {}
        let events = std::iter::from_fn(|| self.fabric.next_event()).collect();
        if self.fabric.state(self.qp) == QpState::Error {
            self.fabric.reset(self.qp).unwrap();
        }
        events
    }

    fn words(&self) -> Vec<u64> {
        self.fabric.memory(self.region).iter().map(|word| word.load(Ordering::Acquire)).collect()
    }

    fn until(&mut self, what: &str, mut happened: impl FnMut(&mut Self) -> bool) {
        let since = Instant::now();
        while !happened(self) {
            self.pump();
            assert!(since.elapsed() < PATIENCE, "still not: {what}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn pair() -> (Owner, Writer) {
    let addresses = addresses(2);
    let [mut fabric, mut other] = [OWNER, WRITER].map(|me| start(me, &addresses, |_, _| {}));
    let spec = RegionSpec { purpose: TARGET, writer: WRITER, bytes: BYTES as u64 };
    let region = fabric.register(spec).unwrap();
    fabric.grant(region, WRITER, Access::Write).unwrap();
    let qp = fabric.connect(WRITER, SERVICE, QpConfig::reliable(4, 0)).unwrap();
    let sources = RegionSpec { purpose: TARGET, writer: WRITER, bytes: (BYTES * DEPTH as usize) as u64 };
    let source = other.register(sources).unwrap();
    let own = other.connect(OWNER, SERVICE, QpConfig::reliable(DEPTH, 0)).unwrap();
    (Owner { fabric, qp, region }, Writer { fabric: other, qp: own, source, next: 1, old: None })
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn no_write_of_a_flooding_writer_lands_after_the_revocation() {
    let (mut owner, mut writer) = pair();
    let shared = Arc::new(Shared::default());
    let thread = {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            writer.flood(&shared);
            writer.next
        })
    };
    let (mut fences, mut cut, mut back) = (Vec::new(), 0, Vec::new());
    for round in 0..ROUNDS {
        let before = shared.done.load(Ordering::SeqCst);
        owner.until("the writer writes", |_| shared.done.load(Ordering::SeqCst) > before + 3);
        // Rounds revoke at different moments of the stream of writes.
        std::thread::sleep(Duration::from_micros(137 * (round as u64 % 11)));
        let done = shared.done.load(Ordering::SeqCst);
        let since = Instant::now();
        owner.fabric.revoke(owner.region, WRITER).unwrap();
        fences.push(since.elapsed());
        let event = Event::Revoked { region: owner.region, peer: WRITER };
        let mut fenced = Vec::new();
        owner.until("the revocation", |owner| {
            let told = owner.pump().contains(&event);
            fenced = owner.words();
            told
        });
        assert!(fenced.iter().all(|word| *word >= done), "round {round}: write {done} had completed");
        cut += usize::from(fenced.iter().any(|word| *word != fenced[0]));
        let watched = Instant::now();
        while watched.elapsed() < WATCH {
            assert_eq!(owner.words(), fenced, "round {round}: a write landed after the revocation");
            owner.pump();
            std::thread::sleep(Duration::from_micros(500));
        }
        let since = Instant::now();
        let before = shared.done.load(Ordering::SeqCst);
        owner.fabric.grant(owner.region, WRITER, Access::Write).unwrap();
        owner.until("the writer writes again", |_| shared.done.load(Ordering::SeqCst) > before);
        back.push(since.elapsed());
    }
    shared.over.store(true, Ordering::SeqCst);
    let posted = thread.join().unwrap();
    let refused = shared.refused.load(Ordering::SeqCst);
    println!(
        "{ROUNDS} fences of {BYTES} bytes under {posted} writes; {cut} fences cut a write in two; {refused} writes were refused"
    );
    assert!(refused >= ROUNDS as u64 / 2, "only {refused} writes were refused");
    within("revoked", fences, FENCE_BUDGET);
    within("granted again, reset and written again", back, BACK_BUDGET);
}

fn within(what: &str, mut took: Vec<Duration>, budget: Duration) {
    took.sort_unstable();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    println!("{what}: {median:?} (median, budget {budget:?}), {most:?} at most");
    assert!(median <= budget, "{what}: {median:?}, where {budget:?} are allowed");
}

/// Another way to fence a writer is to break its queue pair. This test measures the time until both ends have
/// reconnected and written.
#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn reset_and_reconnect_stay_within_the_budget() {
    let addresses = addresses(2);
    let [mut one, mut other] = [survivor::SURVIVOR, survivor::PEER].map(|me| survivor::End::new(me, &addresses));
    survivor::connect(&mut one, &mut other);
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        [&mut one, &mut other].into_iter().for_each(survivor::End::write_with_wrong_key);
        survivor::until(&mut one, Some(&mut other), "both broken", |one, other| {
            one.state() == QpState::Error && other.is_some_and(|other| other.state() == QpState::Error)
        });
        let since = Instant::now();
        [&mut one, &mut other].into_iter().for_each(survivor::End::reset_if_broken);
        survivor::connect(&mut one, &mut other);
        survivor::write_both_ways(&mut one, &mut other);
        took.push(since.elapsed());
    }
    within("reset, connected and written both ways", took, RECONNECT_BUDGET);
}
