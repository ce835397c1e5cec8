//! The fault injector in three modes: every request completes, signalled or not; inline data is refused; the completion
//! queue overruns.

mod common;

use std::sync::atomic::Ordering;

use common::{SimBed, bed};
use stentor_fabric::{
    Access, Completion, ConnectError, Event, Fabric, PostError, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId,
    RegionSpec, RemoteSpan, Service, Source, Span, Status, Verb, WorkRequest,
};
use stentor_fabric_conformance::{FaultInjector, Faults};
use stentor_fabric_sim::{NetworkModel, SimFabric};

/// Number of unsignalled WRITEs before a signalled one.
const SILENT: u64 = 12;

/// A process that writes and its peer, connected.
struct Writer {
    bed: SimBed,
    fabric: FaultInjector<SimFabric>,
    qp: QpId,
    source: RegionId,
    inbox: RegionId,
    target: RemoteSpan,
}

impl Writer {
    fn new(disorders: Faults) -> Writer {
        let mut bed = bed(2, 1, &NetworkModel::uniform(500));
        let mut fabric = FaultInjector::new(bed.fabrics.remove(0), disorders);
        let (me, peer, config) = (ProcessId(0), ProcessId(1), QpConfig::reliable(32, 32));
        let inbox = bed.fabrics[0].register(RegionSpec { purpose: Purpose(1), writer: me, bytes: 256 }).unwrap();
        bed.fabrics[0].grant(inbox, me, Access::Write).unwrap();
        bed.fabrics[0].connect(me, Service(1), config).unwrap();
        let source = fabric.register(RegionSpec { purpose: Purpose(2), writer: me, bytes: 256 }).unwrap();
        for (word, value) in fabric.memory(source).iter().zip(1..) {
            word.store(value, Ordering::Relaxed);
        }
        let qp = fabric.connect(peer, Service(1), config).unwrap();
        loop {
            bed.world.advance(300);
            while bed.fabrics[0].next_event().is_some() {}
            while fabric.next_event().is_some() {}
            if let Some(region) = fabric.resolve(peer, Purpose(1)).filter(|_| fabric.state(qp) == QpState::Ready) {
                let target = RemoteSpan { region, offset: 0 };
                return Writer { bed, fabric, qp, source, inbox, target };
            }
        }
    }

    /// Writes a word of the source to the same offset at the peer.
    fn write(&mut self, word: u64, signalled: bool) -> Result<(), PostError> {
        let source = Source::Region(Span { region: self.source, offset: word * 8, bytes: 8 });
        let target = RemoteSpan { offset: word * 8, ..self.target };
        let verb = Verb::Write { source, target };
        self.fabric.post(self.qp, WorkRequest { id: word, verb, signalled })
    }

    /// Polls until there are completions, at most 1000 times. Returns none if none arrive.
    fn poll(&mut self) -> Vec<Completion> {
        for _ in 0..1000 {
            self.bed.world.advance(300);
            let mut out = [Completion::BLANK; 64];
            let count = self.fabric.poll(&mut out);
            if count > 0 {
                return out[..count].to_vec();
            }
        }
        Vec::new()
    }

    fn landed(&self) -> Vec<u64> {
        let memory = self.bed.fabrics[0].memory(self.inbox);
        memory[..=SILENT as usize].iter().map(|word| word.load(Ordering::Acquire)).collect()
    }
}

#[test]
fn only_the_signalled_request_is_reported_after_all_before_it() {
    for seed in 0..20 {
        let mut writer = Writer::new(Faults::efa(seed, SILENT as u32 + 1, false));
        for word in 0..=SILENT {
            writer.write(word, word == SILENT).unwrap();
        }
        let told = writer.poll();
        assert_eq!(told.iter().map(|told| (told.id, told.status)).collect::<Vec<_>>(), [(SILENT, Status::Success)]);
        assert_eq!(writer.landed(), (1..=SILENT + 1).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(writer.poll(), []);
        // All slots are free again.
        for word in 0..=SILENT {
            writer.write(word, word == SILENT).unwrap();
        }
        assert_eq!(writer.poll().len(), 1);
    }
}

#[test]
fn queue_overrun_fails_everything_by_name() {
    let overrun = |all_complete| {
        let mut writer = Writer::new(Faults { all_complete, ..Faults::efa(3, SILENT as u32, false) });
        for word in 0..=SILENT {
            writer.write(word, word == SILENT).unwrap();
        }
        writer
    };
    assert_eq!(overrun(false).poll().len(), 1, "an unsignalled request occupies no slot");
    let mut writer = overrun(true);
    let mut told = writer.poll();
    told.sort_unstable_by_key(|told| told.id);
    assert_eq!(told.len() as u64, SILENT + 1, "unsignalled requests, too");
    assert!(told.iter().zip(0..).all(|(told, id)| (told.id, told.status) == (id, Status::QueueOverrun)), "{told:?}");
    let peer = ProcessId(1);
    assert_eq!(writer.fabric.next_event(), Some(Event::Disconnected { qp: writer.qp, peer }));
    assert_eq!((writer.fabric.next_event(), writer.fabric.state(writer.qp)), (None, QpState::Error));
    assert_eq!(writer.write(0, true), Err(PostError::NotReady { qp: writer.qp, state: QpState::Error }));
    let Err(ConnectError::System { reason, .. }) = writer.fabric.reset(writer.qp) else { panic!("it was reset") };
    assert!(reason.contains("overran; keep what is outstanding below 12"), "{reason}");
}

#[test]
fn receives_occupy_slots_of_the_queue_too() {
    let mut writer = Writer::new(Faults::efa(3, 4, true));
    let place = Span { region: writer.source, offset: 0, bytes: 0 };
    for id in 0..4 {
        writer.fabric.post_recv(writer.qp, place, id).unwrap();
    }
    assert_eq!(writer.poll(), []);
    writer.write(0, false).unwrap();
    let told = writer.poll();
    assert!(told.len() == 5 && told.iter().all(|told| told.status == Status::QueueOverrun), "{told:?}");
}

#[test]
fn inline_data_is_refused_without_inline_support() {
    let mut writer = Writer::new(Faults::efa(3, u32::MAX, true));
    assert_eq!(writer.fabric.capabilities().inline_bytes, 0);
    let (qp, target) = (writer.qp, writer.target);
    let refused = Err(PostError::InlineTooLong { bytes: 8, limit: 0 });
    assert_eq!(writer.fabric.write_inline(qp, 1, &[0; 8], target, true), refused);
    let verb = Verb::Send { source: Source::Inline(&[0; 8]), imm: None };
    assert_eq!(writer.fabric.post(qp, WorkRequest { id: 1, verb, signalled: true }), refused);
    writer.write(0, true).unwrap();
    assert_eq!(writer.poll().len(), 1, "a refused request does not complete");
}

/// The unsignalled request fails, and the signalled one after it executes. A reported success would cover both.
#[test]
fn no_success_is_reported_after_an_unseen_failure() {
    let mut landed = 0;
    for seed in 0..20 {
        let mut writer = Writer::new(Faults::efa(seed, u32::MAX, false));
        let inside = writer.target;
        // This offset is past the end of the granted region.
        writer.target.offset = 1 << 20;
        let source = Source::Region(Span { region: writer.source, offset: 0, bytes: 8 });
        let verb = Verb::Write { source, target: writer.target };
        writer.fabric.post(writer.qp, WorkRequest { id: 0, verb, signalled: false }).unwrap();
        writer.target = inside;
        writer.write(1, true).unwrap();
        let mut told = writer.poll();
        while writer.fabric.next_event().is_some() {}
        told.extend(writer.poll());
        let second = told.iter().find(|told| told.id == 1).expect("the signalled write completes");
        assert_eq!(second.status, Status::Flushed, "seed {seed}: {told:?}");
        landed += writer.landed()[1];
    }
    assert!(landed > 0, "the second write never landed: all requests executed in order");
}

impl Writer {
    /// Writes past the end of the granted region. This breaks the queue pair.
    fn break_it(&mut self, id: u64, signalled: bool) {
        let source = Source::Region(Span { region: self.source, offset: 0, bytes: 8 });
        let target = RemoteSpan { offset: 1 << 20, ..self.target };
        let verb = Verb::Write { source, target };
        self.fabric.post(self.qp, WorkRequest { id, verb, signalled }).unwrap();
        self.fabric.flush();
    }

    /// Begins another life without polling the completions of the last one.
    fn begin_anew(&mut self) {
        while self.fabric.state(self.qp) != QpState::Error {
            self.bed.world.advance(300);
        }
        self.fabric.reset(self.qp).unwrap();
        let mut ready = false;
        while !ready {
            self.bed.world.advance(300);
            while let Some(event) = self.bed.fabrics[0].next_event() {
                if let Event::Disconnected { qp, .. } = event {
                    self.bed.fabrics[0].reset(qp).unwrap();
                }
            }
            while let Some(event) = self.fabric.next_event() {
                ready |= matches!(event, Event::Connected { .. });
            }
        }
    }
}

#[test]
fn new_life_drops_requests_that_waited_in_the_last() {
    let mut writer = Writer::new(Faults::efa(3, u32::MAX, false));
    writer.break_it(99, true);
    for word in 0..4 {
        writer.write(word, true).unwrap();
    }
    writer.begin_anew();
    let told = writer.poll();
    assert!(told.iter().all(|told| told.id == 99), "{told:?}");
    assert_eq!(writer.landed()[..4], [0; 4]);
    writer.write(5, true).unwrap();
    assert_eq!(writer.poll().iter().map(|told| (told.id, told.status)).collect::<Vec<_>>(), [(5, Status::Success)]);
    assert_eq!(writer.landed()[5], 6);
}

/// Held completions, slots of the queue, and an unreported failure must not pass to the next life.
#[test]
fn new_life_begins_with_an_empty_queue_and_nothing_held() {
    let disorders = Faults { hold_polls: 1000, ..Faults::efa(3, u32::MAX, false) };
    let mut writer = Writer::new(disorders);
    for life in 1..=3 {
        for word in 0..20 {
            let source = Source::Region(Span { region: writer.source, offset: word % 8 * 8, bytes: 8 });
            let verb = Verb::Write { source, target: writer.target };
            let request = WorkRequest { id: 100 * life + word, verb, signalled: true };
            writer.fabric.post(writer.qp, request).unwrap_or_else(|error| panic!("life {life}, {word}: {error}"));
        }
        writer.fabric.flush();
        let told = writer.poll();
        assert!(told.len() < 20, "life {life}: nothing is held: {told:?}");
        let own = |told: &Completion| told.id / 100 == life && told.status == Status::Success;
        assert!(told.iter().all(own), "life {life}: {told:?}");
        writer.break_it(100 * life + 50, false);
        while writer.fabric.state(writer.qp) != QpState::Error {
            writer.bed.world.advance(300);
        }
        // After this call the wrapper holds all completions of this life.
        writer.fabric.poll(&mut []);
        writer.begin_anew();
    }
}
