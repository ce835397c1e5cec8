//! The environment of the cases: a testbed, with the completions and events that were collected from it.

use std::collections::VecDeque;
use std::fmt::Debug;

use super::Testbed;
use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{
    Access, Completion, Event, Fabric, Opcode, PostError, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId,
    RegionSpec, RemoteRegion, RemoteSpan, Service, Source, Span, Status, Verb, WorkRequest,
};

/// The reason why a case ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The fabric or the testbed does not have this capability.
    Skip(&'static str),
    /// The fabric violated the contract.
    Fail(String),
}

pub(super) type Outcome<R = ()> = Result<R, Stop>;

/// Returns a failure unless `holds` is true.
pub(super) fn check(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Stop::Fail(what())) }
}

/// Returns a failure unless `got` equals `expected`.
pub(super) fn same<V: PartialEq + Debug>(what: &str, got: &V, expected: &V) -> Outcome {
    check(got == expected, || format!("{what}: expected {expected:?}, got {got:?}"))
}

/// Skips the case unless the fabric has the capability.
pub(super) fn need(capable: bool, capability: &'static str) -> Outcome {
    if capable { Ok(()) } else { Err(Stop::Skip(capability)) }
}

/// Turns an error of a call into a failure.
pub(super) fn called<R, E: Debug>(what: &str, result: Result<R, E>) -> Outcome<R> {
    result.map_err(|error| Stop::Fail(format!("{what} failed: {error:?}")))
}

/// Both ends of a queue pair, usually between processes 0 and 1.
#[derive(Clone, Copy)]
pub(super) struct QpPair {
    /// The end at the first process.
    pub(super) a: QpId,
    /// The end at the second process.
    pub(super) b: QpId,
}

/// The first of the two processes in most cases: A posts requests to B.
pub(super) const A: ProcessId = ProcessId(0);
/// The second process, which owns the memory; see [`A`].
pub(super) const B: ProcessId = ProcessId(1);
/// The service of [`Bed::link`].
pub(super) const SERVICE: Service = Service(7);

pub(super) struct Bed<T: Testbed> {
    testbed: T,
    completions: Vec<VecDeque<Completion>>,
    events: Vec<VecDeque<Event>>,
    down: Vec<bool>,
}

impl<T: Testbed> Bed<T> {
    pub(super) fn new(testbed: T) -> Self {
        let processes = testbed.processes();
        let (completions, events) = (vec![VecDeque::new(); processes], vec![VecDeque::new(); processes]);
        Bed { testbed, completions, events, down: vec![false; processes] }
    }

    pub(super) fn check_size(&self, processes: usize) -> Outcome {
        check(self.testbed.processes() >= processes, || {
            format!("the testbed has {} processes, but the case needs {processes}", self.testbed.processes())
        })
    }

    pub(super) fn repeats(&self) -> u64 {
        self.testbed.repeats()
    }

    pub(super) fn processes(&self) -> usize {
        self.testbed.processes()
    }

    pub(super) fn at(&mut self, process: ProcessId) -> &mut T::F {
        self.testbed.fabric(process)
    }

    /// Lets time pass without polling any process.
    pub(super) fn pass(&mut self) {
        self.testbed.advance();
    }

    /// Returns the maximum number of [`pass`](Self::pass)es to wait for an event or a condition.
    pub(super) fn patience(&self) -> usize {
        self.testbed.patience()
    }

    /// Kills a process and drops its pending completions and events.
    pub(super) fn crash(&mut self, process: ProcessId) {
        self.testbed.crash(process);
        self.down[process.index()] = true;
        self.completions[process.index()].clear();
        self.events[process.index()].clear();
    }

    /// Starts the next life of a process.
    pub(super) fn restart(&mut self, process: ProcessId) {
        self.testbed.restart(process);
        self.down[process.index()] = false;
    }

    /// Cuts the path in one direction, or skips the case.
    pub(super) fn cut(&mut self, from: ProcessId, to: ProcessId) -> Outcome {
        need(self.testbed.cut(from, to), "links that can be cut")
    }

    /// Ends a cut.
    pub(super) fn heal(&mut self, from: ProcessId, to: ProcessId) {
        self.testbed.heal(from, to);
    }

    /// Drops all completions and events up to now.
    pub(super) fn forget(&mut self) {
        for process in 0..self.testbed.processes() {
            self.collect(ProcessId(process as u16));
            self.completions[process].clear();
            self.events[process].clear();
        }
    }

    /// Removes and returns the collected events of a process.
    pub(super) fn events(&mut self, process: ProcessId) -> Vec<Event> {
        self.events[process.index()].drain(..).collect()
    }

    /// Collects the completions and events of one process, unless it is down.
    pub(super) fn collect(&mut self, process: ProcessId) {
        if self.down[process.index()] {
            return;
        }
        let mut out = [Completion::BLANK; 16];
        loop {
            let count = self.testbed.fabric(process).poll(&mut out).min(out.len());
            self.completions[process.index()].extend(&out[..count]);
            if count < out.len() {
                break;
            }
        }
        while let Some(event) = self.testbed.fabric(process).next_event() {
            self.events[process.index()].push_back(event);
        }
    }

    /// Runs one round: polls every process, then lets time pass.
    pub(super) fn round(&mut self) {
        for process in 0..self.testbed.processes() {
            self.collect(ProcessId(process as u16));
        }
        self.testbed.advance();
    }

    /// Runs enough rounds for everything in flight to arrive in most cases.
    pub(super) fn settle(&mut self) {
        for _ in 0..self.testbed.settling() {
            self.round();
        }
    }

    /// Runs rounds until `happened` returns a value.
    pub(super) fn until<R>(
        &mut self,
        what: &str,
        mut happened: impl FnMut(&mut Self) -> Outcome<Option<R>>,
    ) -> Outcome<R> {
        let patience = self.patience();
        for _ in 0..patience {
            if let Some(result) = happened(self)? {
                return Ok(result);
            }
            self.round();
        }
        Err(Stop::Fail(format!("{what}: not within {patience} rounds")))
    }

    /// Runs rounds until `holds` returns true.
    pub(super) fn eventually(&mut self, what: &str, holds: impl Fn(&mut Self) -> bool) -> Outcome {
        self.until(what, |bed| Ok(holds(bed).then_some(())))
    }

    /// Removes and returns the completion with this id, if it has arrived.
    pub(super) fn take(&mut self, process: ProcessId, qp: QpId, id: u64) -> Option<Completion> {
        let inbox = &mut self.completions[process.index()];
        let place = inbox.iter().position(|completion| completion.qp == qp && completion.id == id)?;
        inbox.remove(place)
    }

    /// Removes and returns the next completion of any id.
    pub(super) fn take_any(&mut self, process: ProcessId) -> Option<Completion> {
        self.completions[process.index()].pop_front()
    }

    /// Removes all completions. Collects the ids of successes and the statuses of failures.
    pub(super) fn sort_completions(&mut self, process: ProcessId, done: &mut Vec<u64>, failed: &mut Vec<Status>) {
        while let Some(completion) = self.take_any(process) {
            match completion.status {
                Status::Success => done.push(completion.id),
                status => failed.push(status),
            }
        }
    }

    /// Waits for the completion with this id.
    pub(super) fn completion(&mut self, process: ProcessId, qp: QpId, id: u64) -> Outcome<Completion> {
        self.until(&format!("the completion of request {id} at {process}"), |bed| Ok(bed.take(process, qp, id)))
    }

    /// Waits for the completion with this id and checks its opcode and status.
    pub(super) fn expect(
        &mut self,
        process: ProcessId,
        qp: QpId,
        id: u64,
        (opcode, status): (Opcode, Status),
    ) -> Outcome<Completion> {
        let completion = self.completion(process, qp, id)?;
        same(
            &format!("completion of request {id} at {process}"),
            &(completion.opcode, completion.status),
            &(opcode, status),
        )?;
        Ok(completion)
    }

    /// Removes and returns an event, if it has arrived.
    pub(super) fn take_event(&mut self, process: ProcessId, event: Event) -> Option<Event> {
        let inbox = &mut self.events[process.index()];
        let place = inbox.iter().position(|other| *other == event)?;
        inbox.remove(place)
    }

    /// Waits for an event.
    pub(super) fn event(&mut self, process: ProcessId, event: Event) -> Outcome {
        self.until(&format!("{event:?} at {process}"), |bed| Ok(bed.take_event(process, event)))?;
        Ok(())
    }

    /// Registers a region, and grants access if `access` is given.
    pub(super) fn region(
        &mut self,
        owner: ProcessId,
        writer: ProcessId,
        purpose: u16,
        words: usize,
        access: Option<Access>,
    ) -> Outcome<RegionId> {
        let spec = RegionSpec { purpose: Purpose(purpose), writer, bytes: (words * WORD) as u64 };
        let region = called("register", self.at(owner).register(spec))?;
        if let Some(access) = access {
            called("grant", self.at(owner).grant(region, writer, access))?;
        }
        Ok(region)
    }

    /// Waits until a peer's region can be resolved.
    pub(super) fn resolve(&mut self, me: ProcessId, owner: ProcessId, purpose: u16) -> Outcome<RemoteRegion> {
        let what = format!("purpose {purpose} of {owner}, granted, can be resolved at {me}");
        self.until(&what, |bed| Ok(bed.at(me).resolve(owner, Purpose(purpose))))
    }

    /// Connects two processes.
    pub(super) fn connect(
        &mut self,
        (first, second): (ProcessId, ProcessId),
        service: Service,
        config: QpConfig,
    ) -> Outcome<QpPair> {
        let a = called("connect", self.at(first).connect(second, service, config))?;
        let b = called("connect", self.at(second).connect(first, service, config))?;
        self.event(first, Event::Connected { qp: a, peer: second })?;
        self.event(second, Event::Connected { qp: b, peer: first })?;
        same("state after Connected", &self.at(first).state(a), &QpState::Ready)?;
        Ok(QpPair { a, b })
    }

    /// Connects A and B by a reliable queue pair.
    pub(super) fn link(&mut self, send_depth: u32, recv_depth: u32) -> Outcome<QpPair> {
        self.connect((A, B), SERVICE, QpConfig::reliable(send_depth, recv_depth))
    }

    /// Creates a region of `words` words at B that A may access, and connects A to B with a send queue of `depth`
    /// requests.
    pub(super) fn linked(
        &mut self,
        words: usize,
        access: Access,
        depth: u32,
    ) -> Outcome<(RegionId, QpPair, RemoteRegion)> {
        let region = self.region(B, A, 1, words, Some(access))?;
        let link = self.link(depth, 4)?;
        Ok((region, link, self.resolve(A, B, 1)?))
    }

    /// Resets both ends after an error until they are connected again.
    pub(super) fn reconnect(&mut self, link: QpPair) -> Outcome {
        self.until("both ends are ready again after resets", |bed| {
            let mut ready = true;
            for (process, qp) in [(A, link.a), (B, link.b)] {
                ready &= bed.at(process).state(qp) == QpState::Ready;
                bed.reset_if_broken(process, qp)?;
            }
            // An end may not have detected yet that the other one broke.
            Ok(ready.then_some(()))
        })
    }

    /// Waits until a queue pair is broken.
    pub(super) fn broken(&mut self, process: ProcessId, qp: QpId, peer: ProcessId) -> Outcome {
        self.event(process, Event::Disconnected { qp, peer })?;
        same("state after Disconnected", &self.at(process).state(qp), &QpState::Error)
    }

    /// Waits until a queue pair is broken, and resets it.
    pub(super) fn renew(&mut self, process: ProcessId, qp: QpId, peer: ProcessId) -> Outcome {
        self.broken(process, qp, peer)?;
        self.reset(process, qp)
    }

    /// Revokes access, and waits until that has taken effect.
    pub(super) fn revoke(&mut self, owner: ProcessId, region: RegionId, peer: ProcessId) -> Outcome {
        called("revoke", self.at(owner).revoke(region, peer))?;
        self.event(owner, Event::Revoked { region, peer })
    }

    pub(super) fn reset_if_broken(&mut self, process: ProcessId, qp: QpId) -> Outcome {
        match self.at(process).state(qp) {
            QpState::Error => called("reset", self.at(process).reset(qp)),
            _ => Ok(()),
        }
    }

    /// Resets a broken queue pair. It may be ready at once if the other end was reset earlier.
    pub(super) fn reset(&mut self, process: ProcessId, qp: QpId) -> Outcome {
        called("reset", self.at(process).reset(qp))?;
        let state = self.at(process).state(qp);
        check(state != QpState::Error, || format!("{qp:?} of {process} is {state:?} after its reset"))
    }

    /// Waits until both ends are connected.
    pub(super) fn connected(&mut self, link: QpPair) -> Outcome {
        self.event(A, Event::Connected { qp: link.a, peer: B })?;
        self.event(B, Event::Connected { qp: link.b, peer: A })?;
        let states = (self.at(A).state(link.a), self.at(B).state(link.b));
        same("states after Connected", &states, &(QpState::Ready, QpState::Ready))
    }

    /// Runs until a queue pair is connected, and returns the contents of a region at that moment.
    pub(super) fn words_at_connected(
        &mut self,
        process: ProcessId,
        (qp, peer): (QpId, ProcessId),
        region: RegionId,
    ) -> Outcome<Vec<u64>> {
        for _ in 0..self.testbed.patience() {
            self.collect(process);
            if self.take_event(process, Event::Connected { qp, peer }).is_some() {
                return Ok(self.words(process, region));
            }
            self.round();
        }
        Err(Stop::Fail(format!("{qp:?} of {process} did not connect")))
    }

    /// Writes one word and waits until its owner sees it.
    pub(super) fn write_and_see(
        &mut self,
        (process, qp): (ProcessId, QpId),
        (owner, region): (ProcessId, RegionId),
        (remote, word): (RemoteRegion, usize),
        value: u64,
    ) -> Outcome {
        self.complete_write(process, qp, value, (remote, word), &[value], Status::Success)?;
        let what = format!("{value} of {process} at word {word}");
        self.eventually(&what, |bed| bed.word(owner, region, word) == value)
    }

    /// Posts and flushes a signalled request.
    pub(super) fn post(&mut self, process: ProcessId, qp: QpId, id: u64, verb: Verb<'_>) -> Outcome {
        called("post", self.try_post(process, qp, id, verb, true))
    }

    /// Posts and flushes a request, and returns an error to the caller.
    pub(super) fn try_post(
        &mut self,
        process: ProcessId,
        qp: QpId,
        id: u64,
        verb: Verb<'_>,
        signalled: bool,
    ) -> Result<(), PostError> {
        let fabric = self.at(process);
        fabric.post(qp, WorkRequest { id, verb, signalled })?;
        fabric.flush();
        Ok(())
    }

    /// Posts an inline WRITE of words to a word of a region.
    pub(super) fn write(
        &mut self,
        process: ProcessId,
        qp: QpId,
        id: u64,
        (region, word): (RemoteRegion, usize),
        values: &[u64],
    ) -> Outcome {
        self.post(process, qp, id, write(&bytes_of(values), region, word))
    }

    /// Posts a request and checks that it completes with this status.
    pub(super) fn complete(
        &mut self,
        process: ProcessId,
        qp: QpId,
        id: u64,
        verb: Verb<'_>,
        status: Status,
    ) -> Outcome {
        let opcode = verb.opcode();
        self.post(process, qp, id, verb)?;
        self.expect(process, qp, id, (opcode, status)).map(drop)
    }

    /// Posts an inline WRITE and checks that it completes with this status.
    pub(super) fn complete_write(
        &mut self,
        process: ProcessId,
        qp: QpId,
        id: u64,
        (region, word): (RemoteRegion, usize),
        values: &[u64],
        status: Status,
    ) -> Outcome {
        self.complete(process, qp, id, write(&bytes_of(values), region, word), status)
    }

    /// Returns a word as the CPU of its owner sees it.
    pub(super) fn word(&mut self, process: ProcessId, region: RegionId, word: usize) -> u64 {
        self.at(process).memory(region)[word].load(Ordering::Acquire)
    }

    /// Returns all words as the CPU of their owner sees them. The last word is loaded first: if a thread of the fabric
    /// meanwhile executes writes at rising addresses, no write appears without the earlier ones.
    pub(super) fn words(&mut self, process: ProcessId, region: RegionId) -> Vec<u64> {
        let from_the_end = self.at(process).memory(region).iter().rev().map(|word| word.load(Ordering::Acquire));
        let mut words: Vec<u64> = from_the_end.collect();
        words.reverse();
        words
    }

    /// Stores words in a region of `process`, as its owner.
    pub(super) fn store(&mut self, process: ProcessId, region: RegionId, first: usize, values: &[u64]) {
        for (word, value) in self.at(process).memory(region)[first..].iter().zip(values) {
            word.store(*value, Ordering::Release);
        }
    }
}

/// Returns the bytes of words in native byte order.
pub(super) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns a WRITE of inline bytes to a word of a region.
pub(super) fn write(data: &[u8], region: RemoteRegion, word: usize) -> Verb<'_> {
    Verb::Write { source: Source::Inline(data), target: place(region, word) }
}

/// Returns the span that begins at a word of a remote region.
pub(super) fn place(region: RemoteRegion, word: usize) -> RemoteSpan {
    RemoteSpan { region, offset: (word * WORD) as u64 }
}

/// Returns a span of words of a local region.
pub(super) fn span(region: RegionId, first: usize, words: usize) -> Span {
    Span { region, offset: (first * WORD) as u64, bytes: (words * WORD) as u32 }
}
