//! The entries of traces and transcripts.
//!
//! The words of transcripts are part of recorded hashes. A change of a word requires recording the hashes again.

use stentor_fabric::{Access, ProcessId, QpConfig, QpKind, RegionId};

use crate::qp::{Message, RequestKind};
use crate::state::State;
use crate::trace::What;

impl State {
    fn trace(&mut self, process: ProcessId, what: impl FnOnce() -> What) {
        let at = self.now;
        if let Some(trace) = &mut self.trace {
            trace.record(at, process, what());
        }
    }

    /// Appends a line without data to the transcript: time, process, and further numbers.
    fn transcribe<const N: usize>(&mut self, word: &str, process: ProcessId, more: [u64; N]) {
        if let Some(transcript) = &mut self.transcript {
            let numbers = [self.now, process.0.into()];
            transcript.line(word, &[&numbers, &more[..]].concat(), &[]);
        }
    }

    pub(crate) fn trace_post(&mut self, message: &Message) {
        let (verb, bytes, to, flow) = (message.kind.name(), message.bytes, message.to.0, message.flow);
        self.trace(message.from, || What::Post { verb, bytes, to, flow });
        if let Some(transcript) = &mut self.transcript {
            // Copies of a set's write are numbered from 1.
            let copy = message.copy.map_or(0, |copy| u64::from(copy) + 1);
            let [a, b, c, d] = arguments(&message.kind);
            let (from, reliable) = (message.from.0.into(), message.reliable.into());
            let numbers = [self.now, from, to.into(), flow, reliable, copy, bytes.into(), a, b, c, d];
            transcript.line_of_words(verb, &numbers, message.data.iter().copied());
        }
    }

    pub(crate) fn trace_landing(&mut self, landing: u32, part: u8, last: bool) {
        if self.trace.is_some() {
            let landing = self.landings.get(landing);
            let (bytes, parts) = (landing.data.len() as u64 * 8, landing.parts);
            let flow = (last && landing.flow != 0).then_some(landing.flow);
            self.trace(landing.process, || What::Landing { bytes, part, parts, flow });
        }
        if let Some(transcript) = &mut self.transcript {
            let landing = self.landings.get(landing);
            let process = landing.process;
            let region = &self.processes[process.index()].regions[landing.region as usize].spec;
            let (process, writer, first) = (process.0.into(), region.writer.0.into(), landing.first as u64);
            let (part, parts) = (part.into(), landing.parts.into());
            let numbers = [self.now, process, writer, region.bytes, first, part, parts, landing.flow];
            let count = landing.data.len();
            let mask = |at| if at + 1 == count { landing.last_mask } else { u64::MAX };
            let words = landing.data.iter().enumerate().map(|(at, word)| word & mask(at));
            let words = words.take(if part == 0 { count } else { 0 });
            transcript.line_of_words("landing", &numbers, words);
        }
    }

    pub(crate) fn trace_instant(&mut self, process: ProcessId, name: &'static str) {
        self.trace(process, || What::Instant(name));
        self.transcribe(name, process, []);
    }

    /// Adds a mark to the trace. Marks are for people and are not in the transcript; the run's history has their
    /// contents.
    pub(crate) fn trace_mark(&mut self, process: ProcessId, name: impl std::fmt::Display) {
        self.trace(process, || What::Mark(name.to_string()));
    }

    pub(crate) fn trace_grant(&mut self, me: ProcessId, region: RegionId, peer: ProcessId, access: Access) {
        let spec = &self.processes[me.index()].regions[region.index()].spec;
        let access = match access {
            Access::Read => 1,
            Access::Write => 2,
            Access::Atomic => 3,
        };
        self.transcribe("grant", me, [spec.writer.0.into(), spec.bytes, peer.0.into(), access]);
    }

    pub(crate) fn trace_revoke(&mut self, me: ProcessId, region: RegionId, peer: ProcessId) {
        let spec = &self.processes[me.index()].regions[region.index()].spec;
        self.transcribe("revoke", me, [spec.writer.0.into(), spec.bytes, peer.0.into()]);
    }

    /// Records that a process creates a queue pair. A set has several `peers`.
    pub(crate) fn trace_connect(&mut self, me: ProcessId, peers: &[ProcessId], config: QpConfig) {
        let reliable = u64::from(config.kind == QpKind::Reliable);
        let depths = [config.send_depth.into(), config.recv_depth.into()];
        for peer in peers {
            self.transcribe("connect", me, [peer.0.into(), peers.len() as u64, reliable, depths[0], depths[1]]);
        }
    }

    pub(crate) fn trace_reset(&mut self, me: ProcessId, peer: ProcessId) {
        self.transcribe("reset", me, [peer.0.into()]);
    }
}

/// Returns the arguments of a request besides its data. Region keys are omitted, because their values depend on the
/// number of grants so far.
fn arguments(kind: &RequestKind) -> [u64; 4] {
    match *kind {
        RequestKind::Write { target } => [target.offset, 0, 0, 0],
        RequestKind::WriteImm { target, imm } => [target.offset, imm.into(), 0, 0],
        RequestKind::Read { local, remote } => [remote.offset, local.offset, local.bytes.into(), 0],
        RequestKind::Send { imm } => [imm.is_some().into(), imm.unwrap_or(0).into(), 0, 0],
        RequestKind::CompareSwap { local, remote, expected, new } => [remote.offset, local.offset, expected, new],
        RequestKind::FetchAdd { local, remote, add } => [remote.offset, local.offset, add, 0],
        RequestKind::Tagged { tag } => [tag, 0, 0, 0],
    }
}
