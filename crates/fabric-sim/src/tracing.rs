//! What of a run goes into its trace.

use stentor_fabric::ProcessId;

use crate::qp::Message;
use crate::state::State;
use crate::trace::What;

impl State {
    fn trace(&mut self, process: ProcessId, what: impl FnOnce() -> What) {
        let at = self.now;
        if let Some(trace) = &mut self.trace {
            trace.record(at, process, what());
        }
    }

    pub(crate) fn trace_post(&mut self, message: &Message) {
        let (verb, bytes, to, flow) = (message.kind.name(), message.bytes, message.to.0, message.flow);
        self.trace(message.from, || What::Post { verb, bytes, to, flow });
    }

    pub(crate) fn trace_landing(&mut self, landing: u32, part: u8, last: bool) {
        if self.trace.is_some() {
            let landing = self.landings.get(landing);
            let (bytes, parts) = (landing.data.len() as u64 * 8, landing.parts);
            let flow = (last && landing.flow != 0).then_some(landing.flow);
            self.trace(landing.process, || What::Landing { bytes, part, parts, flow });
        }
    }

    pub(crate) fn trace_instant(&mut self, process: ProcessId, name: &'static str) {
        self.trace(process, || What::Instant(name));
    }

    pub(crate) fn trace_mark(&mut self, process: ProcessId, name: &str) {
        self.trace(process, || What::Mark(name.to_string()));
    }
}
