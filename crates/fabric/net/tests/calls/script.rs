//! The script: the calls of two processes, step by step.
//!
//! A step ends when all its results have arrived, so the calls of a step do not depend on timing.

use stentor_fabric::{
    Access, Fabric, ProcessId, Purpose, QpConfig, QpId, QpKind, RegionId, RemoteRegion, Source, Verb,
};

use super::log::{say, step};
use super::pair::{Pair, at, inline, span};

/// Purpose of the region of process 0 that process 1 writes.
const TO_0: u16 = 1;
/// Purpose of the region of process 1 that process 0 writes.
const TO_1: u16 = 2;
/// Purpose of the region that process 0 both owns and writes.
const OWN: u16 = 3;
const SERVICE: u16 = 7;
const DEPTHS: QpConfig = QpConfig::reliable(8, 8);
/// A number that no queue pair, region or process has.
const NOWHERE: u32 = 99;

/// The state of the script.
pub(crate) struct Script<F> {
    pub(crate) pair: Pair<F>,
    start: fn(ProcessId) -> F,
    /// The region of each process that its peer writes.
    pub(crate) regions: [RegionId; 2],
    /// The ends of the queue pair between both.
    pub(crate) qps: [QpId; 2],
    /// The remote region that each process may use.
    pub(crate) remotes: [Option<RemoteRegion>; 2],
}

impl<F: Fabric> Script<F> {
    pub(crate) fn new(start: fn(ProcessId) -> F) -> Script<F> {
        let pair = Pair { fabrics: [None, None] };
        Script { pair, start, regions: [RegionId(0); 2], qps: [QpId(0); 2], remotes: [None; 2] }
    }

    /// Runs the steps that all fabrics have in common, except for [`end`](Self::end).
    pub(crate) fn run(&mut self) {
        step("start");
        (0..2).for_each(|process| self.begin(process));
        self.pair.capabilities(0);
        self.connect();
        self.write();
        self.receive();
        self.read_and_add();
        self.refused();
        self.loop_back();
        self.idle();
        self.asleep();
        self.revoke();
        self.grant_again();
        self.without_receive();
        self.too_long();
        self.adjoining();
        self.crash();
        self.unreliable();
        self.tagged();
    }

    fn begin(&mut self, process: usize) {
        say(process, "> start");
        let fabric = (self.start)(ProcessId(process as u16));
        self.pair.fabrics[process] = Some(fabric);
    }

    /// Ends both processes.
    pub(crate) fn end(&mut self) {
        step("end");
        (0..2).for_each(|process| self.pair.end(process));
    }

    fn connect(&mut self) {
        let pair = &mut self.pair;
        step("regions, one of them granted before the peer is there");
        self.regions = [pair.register(0, TO_0, 1, 4096), pair.register(1, TO_1, 0, 4096)];
        pair.register(0, TO_0, 1, 4096);
        pair.register(0, 9, 1, 100);
        pair.register(0, 9, NOWHERE as u16, 64);
        pair.grant(0, self.regions[0], 1, Access::Write);
        pair.grant(0, self.regions[0], 1, Access::Write);
        pair.grant(0, self.regions[0], 1, Access::Atomic);
        pair.grant(0, RegionId(NOWHERE), 1, Access::Read);
        step("connect");
        self.qps = [pair.connect(0, 1, SERVICE, DEPTHS), pair.connect(1, 0, SERVICE, DEPTHS)];
        pair.events([1, 1]);
        pair.connect(0, 1, SERVICE, DEPTHS);
        pair.connect(0, NOWHERE as u16, SERVICE, DEPTHS);
        pair.connect(0, 1, 8, QpConfig::reliable(1 << 30, 8));
        pair.reset(0, self.qps[0]);
        step("grant");
        pair.grant(1, self.regions[1], 0, Access::Atomic);
        self.remotes = [Some(pair.granted(0, TO_1, None)), Some(pair.granted(1, TO_0, None))];
    }

    fn remote(&self, process: usize) -> RemoteRegion {
        self.remotes[process].expect("the other process has granted its region")
    }

    fn write(&mut self) {
        step("write");
        let (qp, region, remote) = (self.qps[0], self.regions[0], self.remote(0));
        let pair = &mut self.pair;
        pair.fill(0, region, 100);
        pair.post(0, qp, 1, Verb::Write { source: inline(&[0x11; 64]), target: at(remote, 0) });
        pair.post_silent(0, qp, 2, Verb::Write { source: inline(&[0x22; 8]), target: at(remote, 64) });
        let source = Source::Region(span(region, 8, 256));
        pair.post(0, qp, 3, Verb::Write { source, target: at(remote, 128) });
        pair.post(0, qp, 4, Verb::Write { source: inline(&[]), target: at(remote, 0) });
        pair.fabric(0).flush();
        pair.completions(0, 3);
        pair.memory(1, self.regions[1], &[0, 7, 8, 16, 47, 48]);
        step("write back");
        let (qp, remote) = (self.qps[1], self.remote(1));
        self.pair.post(1, qp, 5, Verb::Write { source: inline(&[0x33; 16]), target: at(remote, 1024) });
        self.pair.completions(1, 1);
        self.pair.memory(0, region, &[127, 128, 129, 130]);
    }

    fn receive(&mut self) {
        step("receives");
        let (qps, region, remote) = (self.qps, self.regions[1], self.remote(0));
        let pair = &mut self.pair;
        for id in 0..5 {
            pair.receive(1, qps[1], 10 + id, span(region, 2048 + 256 * id, 256));
        }
        pair.receive(1, qps[1], 15, span(region, 0, 0));
        step("sends");
        pair.post(0, qps[0], 20, Verb::Send { source: inline(&[0x44; 24]), imm: Some(7) });
        let source = Source::Region(span(self.regions[0], 0, 128));
        pair.post(0, qps[0], 21, Verb::Send { source, imm: None });
        pair.post_silent(0, qps[0], 22, Verb::Send { source: inline(&[]), imm: None });
        pair.post(0, qps[0], 23, Verb::WriteImm { source: inline(&[0x55; 32]), target: at(remote, 512), imm: 8 });
        pair.post(0, qps[0], 24, Verb::WriteImm { source: inline(&[]), target: at(remote, 0), imm: 9 });
        let source = Source::Region(span(self.regions[0], 0, 64));
        pair.post(0, qps[0], 25, Verb::WriteImm { source, target: at(remote, 576), imm: 10 });
        pair.completions(0, 5);
        pair.completions(1, 6);
        pair.memory(1, region, &[64, 67, 72, 79, 256, 258, 288, 303]);
    }

    fn read_and_add(&mut self) {
        step("reads");
        let (qp, own, remote) = (self.qps[0], self.regions[0], self.remote(0));
        let pair = &mut self.pair;
        pair.post(0, qp, 30, Verb::Read { local: span(own, 2048, 128), remote: at(remote, 0) });
        pair.post(0, qp, 31, Verb::Read { local: span(own, 2048, 0), remote: at(remote, 0) });
        pair.completions(0, 2);
        pair.memory(0, own, &[256, 264, 271]);
        step("atomics");
        pair.fill(1, self.regions[1], 40);
        pair.post(0, qp, 32, Verb::FetchAdd { local: span(own, 3072, 8), remote: at(remote, 0), add: 2 });
        let swap = |id: u64, expected| {
            let local = span(own, 3072 + 8 * (id - 32), 8);
            Verb::CompareSwap { local, remote: at(remote, 0), expected, new: 77 }
        };
        pair.post(0, qp, 33, swap(33, 42));
        pair.post(0, qp, 34, swap(34, 42));
        if pair.fabric(0).capabilities().atomics {
            pair.completions(0, 3);
        }
        pair.memory(0, own, &[384, 385, 386]);
        pair.memory(1, self.regions[1], &[0, 1]);
    }

    /// Posts requests that the fabric refuses without calling the device, and then more requests than the queues hold.
    fn refused(&mut self) {
        step("refused");
        let (qp, own, remote) = (self.qps[0], self.regions[0], self.remote(0));
        let pair = &mut self.pair;
        let write = |source| Verb::Write { source, target: at(remote, 0) };
        pair.post(0, QpId(NOWHERE), 40, write(inline(&[0; 8])));
        pair.post(0, qp, 41, write(inline(&[0; 7])));
        pair.post(0, qp, 42, Verb::Write { source: inline(&[0; 8]), target: at(remote, 4) });
        pair.post(0, qp, 43, write(inline(&[0; 4096])));
        pair.post(0, qp, 44, write(Source::Region(span(own, 4096, 8))));
        pair.post(0, qp, 45, write(Source::Region(span(own, 4, 8))));
        pair.post(0, qp, 46, write(Source::Region(span(RegionId(NOWHERE), 0, 8))));
        pair.post(0, qp, 47, Verb::Read { local: span(own, 0, 12), remote: at(remote, 0) });
        pair.post(0, qp, 48, Verb::FetchAdd { local: span(own, 0, 16), remote: at(remote, 0), add: 1 });
        pair.receive(0, qp, 49, span(own, 4000, 200));
        step("queues that are full");
        for id in 0..10 {
            pair.receive(0, qp, 50 + id, span(own, 0, 0));
        }
        for id in 0..10 {
            let data = [id; 8];
            let verb = Verb::Write { source: inline(&data), target: at(remote, 64) };
            // The last request that fits is signalled and completes all before it.
            if id == 7 {
                pair.post(0, qp, 67, verb)
            } else {
                pair.post_silent(0, qp, 60 + u64::from(id), verb)
            };
        }
        pair.completions(0, 1);
        pair.memory(1, self.regions[1], &[8]);
    }

    fn loop_back(&mut self) {
        step("to itself");
        let pair = &mut self.pair;
        if !pair.fabric(0).capabilities().loopback {
            return;
        }
        let region = pair.register(0, OWN, 0, 512);
        pair.grant(0, region, 0, Access::Atomic);
        pair.grant(0, region, 1, Access::Read);
        pair.grant(0, region, 1, Access::Write);
        let qp = pair.connect(0, 0, SERVICE, DEPTHS);
        pair.events([1, 0]);
        let mut own = None;
        pair.until("its own grant", |pair| {
            own = pair.fabric(0).resolve(ProcessId(0), Purpose(OWN));
            own.is_some()
        });
        let own = own.expect("the process has resolved its own grant");
        pair.post(0, qp, 70, Verb::Write { source: inline(&[0x66; 8]), target: at(own, 8) });
        pair.post(0, qp, 71, Verb::Read { local: span(region, 256, 8), remote: at(own, 8) });
        pair.completions(0, 2);
        pair.memory(0, region, &[0, 1, 32]);
        step("another reader");
        let read = pair.granted(1, OWN, None);
        let local = span(self.regions[1], 0, 8);
        pair.post(1, self.qps[1], 72, Verb::Read { local, remote: at(read, 8) });
        pair.completions(1, 1);
        pair.memory(1, self.regions[1], &[0]);
        pair.revoke(0, region, 1);
        pair.events([1, 0]);
    }

    /// Calls `flush`, `poll_hint` and `arm` while nothing happens.
    fn idle(&mut self) {
        step("idle");
        for process in 0..2 {
            let fabric = self.pair.fabric(process);
            fabric.flush();
            let _ = fabric.poll_hint();
        }
        self.pair.arm(0);
    }

    fn asleep(&mut self) {
        step("asleep");
        let (qps, remote) = (self.qps, self.remote(0));
        let pair = &mut self.pair;
        pair.receive(1, qps[1], 80, span(self.regions[1], 0, 0));
        pair.fabric(1).flush();
        pair.arm(1);
        pair.post(0, qps[0], 81, Verb::WriteImm { source: inline(&[0x77; 8]), target: at(remote, 8), imm: 3 });
        pair.fabric(0).flush();
        pair.completions(0, 1);
        pair.wait(1);
        pair.completions(1, 1);
    }

    fn revoke(&mut self) {
        step("revoke");
        let (qps, old) = (self.qps, self.remote(0));
        let pair = &mut self.pair;
        pair.revoke(1, self.regions[1], 0);
        pair.revoke(1, self.regions[1], NOWHERE as u16);
        pair.events([0, 1]);
        // Process 0 has eight outstanding receives.
        pair.receive(1, qps[1], 90, span(self.regions[1], 0, 64));
        pair.post(0, qps[0], 91, Verb::Write { source: inline(&[0x88; 8]), target: at(old, 16) });
        // Some fabrics have already detected that the queue pair is broken.
        let both = pair.post(0, qps[0], 92, Verb::Write { source: inline(&[0x88; 8]), target: at(old, 24) });
        pair.completions(0, 9 + usize::from(both));
        pair.events([1, 1]);
        pair.completions(1, 1);
        pair.memory(1, self.regions[1], &[2, 3]);
        pair.post(0, qps[0], 93, Verb::Write { source: inline(&[0x88; 8]), target: at(old, 24) });
        pair.receive(0, qps[0], 94, span(self.regions[0], 0, 8));
    }

    fn reset(&mut self) {
        let (pair, qps) = (&mut self.pair, self.qps);
        (0..2).for_each(|process| pair.reset(process, qps[process]));
        pair.events([1, 1]);
    }

    fn grant_again(&mut self) {
        step("grant again");
        let old = self.remotes[0];
        self.pair.grant(1, self.regions[1], 0, Access::Write);
        let fresh = self.pair.granted(0, TO_1, old);
        self.remotes[0] = Some(fresh);
        step("connect again");
        self.reset();
        let write =
            |id: u8| Verb::Write { source: inline(if id == 0 { &[1; 8] } else { &[2; 8] }), target: at(fresh, 0) };
        self.pair.post(0, self.qps[0], 100, write(0));
        self.pair.completions(0, 1);
        self.pair.memory(1, self.regions[1], &[0, 1]);
        step("revoke and grant three times");
        for _ in 0..3 {
            let old = self.remotes[0];
            self.pair.revoke(1, self.regions[1], 0);
            self.pair.events([0, 1]);
            self.pair.grant(1, self.regions[1], 0, Access::Write);
            self.remotes[0] = Some(self.pair.granted(0, TO_1, old));
        }
    }

    fn without_receive(&mut self) {
        step("a send without a receive");
        let qps = self.qps;
        self.pair.post(0, qps[0], 110, Verb::Send { source: inline(&[1; 8]), imm: None });
        self.pair.completions(0, 1);
        self.pair.events([1, 1]);
        step("connect again");
        self.reset();
    }

    fn too_long(&mut self) {
        step("a receive that is too short");
        let qps = self.qps;
        self.pair.receive(1, qps[1], 120, span(self.regions[1], 0, 8));
        self.pair.fabric(1).flush();
        self.pair.post(0, qps[0], 121, Verb::Send { source: inline(&[1; 64]), imm: None });
        self.pair.completions(0, 1);
        self.pair.completions(1, 1);
        self.pair.events([1, 1]);
        step("connect again");
        self.reset();
    }

    fn adjoining(&mut self) {
        step("a queue pair whose writes may become one");
        let config = QpConfig::reliable(8, 0).merging();
        let qp = self.pair.connect(0, 1, 11, config);
        self.pair.connect(1, 0, 11, config);
        self.pair.events([1, 1]);
        step("writes that adjoin");
        let (own, old) = (self.regions[0], self.remote(0));
        let pair = &mut self.pair;
        pair.fill(0, own, 200);
        let write = |data: &'static [u8], offset| Verb::Write { source: inline(data), target: at(old, offset) };
        pair.post_silent(0, qp, 160, write(&[1; 64], 0));
        pair.post(0, qp, 161, write(&[2; 128], 64));
        pair.post_silent(0, qp, 162, write(&[3; 64], 192));
        pair.post(0, qp, 163, write(&[4; 64], 256));
        for (id, offset) in [(164, 0), (165, 512)] {
            let source = Source::Region(span(own, offset, 512));
            pair.post(0, qp, id, Verb::Write { source, target: at(old, 1024 + offset) });
        }
        pair.post_silent(0, qp, 166, write(&[5; 8], 2048));
        pair.post(0, qp, 167, write(&[6; 8], 2064));
        pair.fabric(0).flush();
        pair.completions(0, 5);
        pair.memory(1, self.regions[1], &[0, 7, 8, 23, 24, 31, 32, 39, 40, 128, 191, 192, 255, 256, 257, 258, 259]);
        step("writes that adjoin and are refused");
        pair.revoke(1, self.regions[1], 0);
        pair.events([0, 1]);
        let refused = (170..173).filter(|id| pair.post_silent(0, qp, *id, write(&[7; 8], 8 * (id - 170))));
        let count = refused.count();
        pair.completions(0, count);
        pair.events([1, 1]);
        pair.memory(1, self.regions[1], &[0, 1, 2]);
        step("grant again");
        pair.grant(1, self.regions[1], 0, Access::Write);
        self.remotes[0] = Some(pair.granted(0, TO_1, Some(old)));
    }

    fn crash(&mut self) {
        step("a peer that ends");
        let qps = self.qps;
        self.pair.receive(0, qps[0], 130, span(self.regions[0], 0, 64));
        self.pair.end(1);
        self.pair.events([1, 0]);
        self.pair.completions(0, 1);
        step("and comes back");
        self.begin(1);
        let pair = &mut self.pair;
        self.regions[1] = pair.register(1, TO_1, 0, 4096);
        pair.grant(1, self.regions[1], 0, Access::Atomic);
        pair.reset(0, qps[0]);
        self.qps[1] = pair.connect(1, 0, SERVICE, DEPTHS);
        pair.events([1, 1]);
        self.remotes = [Some(pair.granted(0, TO_1, None)), Some(pair.granted(1, TO_0, None))];
        let (to_1, to_0) = (self.remote(0), self.remote(1));
        let pair = &mut self.pair;
        pair.post(0, qps[0], 131, Verb::Write { source: inline(&[3; 8]), target: at(to_1, 0) });
        pair.completions(0, 1);
        pair.post(1, self.qps[1], 132, Verb::Write { source: inline(&[4; 8]), target: at(to_0, 0) });
        pair.completions(1, 1);
        pair.memory(0, self.regions[0], &[0, 1]);
        pair.memory(1, self.regions[1], &[0, 1]);
    }

    fn unreliable(&mut self) {
        step("unreliable");
        let config = QpConfig { kind: QpKind::Unreliable, ..DEPTHS };
        let remote = self.remote(0);
        let pair = &mut self.pair;
        let qps = [pair.connect(0, 1, 9, config), pair.connect(1, 0, 9, config)];
        if !pair.fabric(0).capabilities().unreliable {
            return;
        }
        pair.events([1, 1]);
        pair.receive(1, qps[1], 140, span(self.regions[1], 64, 64));
        pair.post(0, qps[0], 141, Verb::Write { source: inline(&[5; 8]), target: at(remote, 8) });
        pair.post(0, qps[0], 142, Verb::Send { source: inline(&[6; 16]), imm: Some(1) });
        pair.post(0, qps[0], 143, Verb::Read { local: span(self.regions[0], 0, 8), remote: at(remote, 0) });
        pair.completions(0, 2);
        pair.completions(1, 1);
        pair.memory(1, self.regions[1], &[1, 8, 9]);
    }

    fn tagged(&mut self) {
        step("tagged");
        let qps = self.qps;
        let pair = &mut self.pair;
        let region = self.regions[1];
        for (id, tag) in [(150, (7, 0)), (151, (0x100, 0xff)), (152, (8, 0))] {
            pair.receive_tagged(1, qps[1], id, span(region, (id - 150) * 256, 256), tag);
        }
        pair.cancel(1, qps[1], 152);
        pair.post(0, qps[0], 153, Verb::TaggedSend { source: inline(&[7; 24]), tag: 0x133 });
        let source = Source::Region(span(self.regions[0], 0, 200));
        pair.post(0, qps[0], 154, Verb::TaggedSend { source, tag: 7 });
        if !pair.fabric(0).capabilities().tagged {
            return;
        }
        pair.completions(0, 2);
        pair.completions(1, 3);
        pair.memory(1, region, &[0, 24, 32, 34]);
    }
}
