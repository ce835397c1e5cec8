//! Two processes, and the contract's calls on them, each recorded with its result.

use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Completion, Fabric, ProcessId, Purpose, QpConfig, QpId, RegionId, RegionSpec, RemoteRegion, RemoteSpan,
    Service, Source, Span, Verb, Wake, WorkRequest,
};

use super::log::{last, say};
use super::words;

/// Maximum time to wait for one step.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Pair<F> {
    pub(crate) fabrics: [Option<F>; 2],
}

fn told<T, E>(
    result: Result<T, E>,
    yes: impl Fn(&T) -> String,
    no: impl Fn(&E) -> &'static str,
) -> (String, Option<T>) {
    match result {
        Ok(value) => (yes(&value), Some(value)),
        Err(error) => (format!("error: {}", no(&error)), None),
    }
}

impl<F: Fabric> Pair<F> {
    pub(crate) fn fabric(&mut self, process: usize) -> &mut F {
        self.fabrics[process].as_mut().expect("the process is up")
    }

    pub(crate) fn capabilities(&mut self, process: usize) {
        let it = self.fabric(process).capabilities();
        let line = format!(
            "< {}: inline {} depths {} {} message {} completions {} ordered {} {} atomics {} unreliable {} tagged {} {} \
             loopback {} readers {} multicast {} revokes {}",
            it.name,
            it.inline_bytes,
            it.max_send_depth,
            it.max_recv_depth,
            it.max_message_bytes,
            it.max_completions,
            it.ordered_writes,
            it.ordered_bytes,
            it.atomics,
            it.unreliable,
            it.tagged,
            it.masks_find_early,
            it.loopback,
            it.many_readers,
            it.hardware_multicast,
            it.revokes_in_hardware
        );
        say(process, line);
    }

    pub(crate) fn register(&mut self, process: usize, purpose: u16, writer: u16, bytes: u64) -> RegionId {
        say(process, format!("> register {bytes} bytes for p{writer}, purpose {purpose}"));
        let spec = RegionSpec { purpose: Purpose(purpose), writer: ProcessId(writer), bytes };
        let made = self.fabric(process).register(spec);
        let (line, region) = told(made, |region| format!("r{}", region.0), words::register_error);
        say(process, format!("< {line}"));
        region.unwrap_or(RegionId(u32::MAX))
    }

    pub(crate) fn grant(&mut self, process: usize, region: RegionId, peer: u16, access: Access) {
        say(process, format!("> grant r{} to p{peer}, {}", region.0 as i32, words::access(access)));
        let granted = self.fabric(process).grant(region, ProcessId(peer), access);
        say(process, format!("< {}", told(granted, |()| "ok".into(), words::access_error).0));
    }

    pub(crate) fn revoke(&mut self, process: usize, region: RegionId, peer: u16) {
        say(process, format!("> revoke r{} from p{peer}", region.0 as i32));
        let revoked = self.fabric(process).revoke(region, ProcessId(peer));
        say(process, format!("< {}", told(revoked, |()| "ok".into(), words::access_error).0));
    }

    pub(crate) fn connect(&mut self, process: usize, peer: u16, service: u16, config: QpConfig) -> QpId {
        let QpConfig { send_depth, recv_depth, .. } = config;
        say(process, format!("> connect to p{peer}, service {service}, depths {send_depth} {recv_depth}"));
        let made = self.fabric(process).connect(ProcessId(peer), Service(service), config);
        let (line, qp) = told(made, |qp| format!("q{}", qp.0), words::connect_error);
        say(process, format!("< {line}"));
        qp.unwrap_or(QpId(u32::MAX))
    }

    pub(crate) fn reset(&mut self, process: usize, qp: QpId) {
        say(process, format!("> reset q{}", qp.0));
        let reset = self.fabric(process).reset(qp);
        say(process, format!("< {}", told(reset, |()| "ok".into(), words::connect_error).0));
    }

    /// Posts a request. Returns whether the fabric accepted it.
    fn request(&mut self, process: usize, qp: QpId, request: WorkRequest<'_>) -> bool {
        let WorkRequest { id, verb, signalled } = &request;
        let silent = if *signalled { "" } else { ", unsignalled" };
        say(process, format!("> q{} #{id} {}{silent}", qp.0 as i32, words::verb(verb)));
        let posted = self.fabric(process).post(qp, request);
        if let Err(error) = &posted {
            say(process, format!("< error: {}", words::post_error(error)));
        }
        posted.is_ok()
    }

    pub(crate) fn post(&mut self, process: usize, qp: QpId, id: u64, verb: Verb<'_>) -> bool {
        self.request(process, qp, WorkRequest { id, verb, signalled: true })
    }

    pub(crate) fn post_silent(&mut self, process: usize, qp: QpId, id: u64, verb: Verb<'_>) -> bool {
        self.request(process, qp, WorkRequest { id, verb, signalled: false })
    }

    pub(crate) fn receive(&mut self, process: usize, qp: QpId, id: u64, local: Span) {
        let Span { region, offset, bytes } = local;
        say(process, format!("> q{} #{id} receive {bytes} bytes into r{}+{offset}", qp.0, region.0 as i32));
        if let Err(error) = self.fabric(process).post_recv(qp, local, id) {
            say(process, format!("< error: {}", words::post_error(&error)));
        }
    }

    pub(crate) fn receive_tagged(&mut self, process: usize, qp: QpId, id: u64, local: Span, tag: (u64, u64)) {
        let (bytes, (tag, ignore)) = (local.bytes, tag);
        say(process, format!("> q{} #{id} tagged receive {bytes} bytes, tag {tag} but {ignore}", qp.0));
        if let Err(error) = self.fabric(process).post_tagged_recv(qp, local, tag, ignore, id) {
            say(process, format!("< error: {}", words::post_error(&error)));
        }
    }

    pub(crate) fn cancel(&mut self, process: usize, qp: QpId, id: u64) {
        say(process, format!("> q{} cancel #{id}", qp.0));
        if let Err(error) = self.fabric(process).cancel_tagged_recv(qp, id) {
            say(process, format!("< error: {}", words::post_error(&error)));
        }
    }

    /// Returns the region that the other process has granted to this one.
    pub(crate) fn resolve(&mut self, process: usize, purpose: u16) -> Option<RemoteRegion> {
        self.fabric(process).resolve(ProcessId(1 - process as u16), Purpose(purpose))
    }

    /// Waits until the other process has granted a region that is not `old`, and returns it.
    pub(crate) fn granted(&mut self, process: usize, purpose: u16, old: Option<RemoteRegion>) -> RemoteRegion {
        let mut found = None;
        self.until("a grant", |pair| {
            pair.pump_quietly();
            found = pair.resolve(process, purpose).filter(|region| Some(*region) != old);
            found.is_some()
        });
        let region = found.expect("the other process has granted a region");
        say(process, format!("< granted purpose {purpose}, {} bytes", region.bytes));
        region
    }

    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < until, "{what} does not arrive after\n{}", last());
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Pumps both control planes. No events are expected.
    fn pump_quietly(&mut self) {
        for process in 0..2 {
            if let Some(fabric) = &mut self.fabrics[process]
                && let Some(event) = fabric.next_event()
            {
                say(process, format!("< {}", words::event(&event)));
            }
        }
    }

    /// Waits until each process has the given number of events.
    pub(crate) fn events(&mut self, counts: [usize; 2]) {
        let mut seen = [0; 2];
        self.until("an event", |pair| {
            for (process, seen) in seen.iter_mut().enumerate() {
                let Some(fabric) = &mut pair.fabrics[process] else { continue };
                // Providers without hardware move data only while they are polled.
                fabric.poll(&mut []);
                if let Some(event) = fabric.next_event() {
                    say(process, format!("< {}", words::event(&event)));
                    *seen += 1;
                }
            }
            seen[0] >= counts[0] && seen[1] >= counts[1]
        });
        assert_eq!(seen, counts, "events after\n{}", last());
    }

    /// Waits until a process has `count` completions.
    pub(crate) fn completions(&mut self, process: usize, count: usize) {
        let mut seen = 0;
        self.until("a completion", |pair| {
            let mut out = [Completion::BLANK; 4];
            let taken = pair.fabric(process).poll(&mut out);
            for done in &out[..taken] {
                say(process, format!("< {}", words::completion(done)));
            }
            seen += taken;
            if seen < count
                && let Some(peer) = &mut pair.fabrics[1 - process]
            {
                peer.poll(&mut []);
            }
            seen >= count
        });
        assert_eq!(seen, count, "completions after\n{}", last());
    }

    /// Records words of a region.
    pub(crate) fn memory(&mut self, process: usize, region: RegionId, words: &[usize]) {
        let memory = self.fabric(process).memory(region);
        let values: Vec<_> = words.iter().map(|at| format!("{:x}", memory[*at].load(Ordering::Acquire))).collect();
        say(process, format!("  r{} at {words:?}: {}", region.0, values.join(" ")));
    }

    pub(crate) fn fill(&mut self, process: usize, region: RegionId, first: u64) {
        for (word, value) in self.fabric(process).memory(region).iter().zip(first..) {
            word.store(value, Ordering::Release);
        }
    }

    pub(crate) fn arm(&mut self, process: usize) {
        say(process, "> arm");
        self.fabric(process).arm();
    }

    pub(crate) fn wait(&mut self, process: usize) {
        say(process, "> wait");
        let woken = match self.fabric(process).wait(PATIENCE) {
            Ok(Wake::Notified) => "notified",
            Ok(Wake::TimedOut) => "timed out",
            Err(_) => "error",
        };
        say(process, format!("< {woken}"));
    }

    /// Ends a process, as far as that is possible inside one operating-system process.
    pub(crate) fn end(&mut self, process: usize) {
        say(process, "> end");
        self.fabrics[process] = None;
    }
}

/// Returns a source that is copied while posting.
pub(crate) fn inline(data: &[u8]) -> Source<'_> {
    Source::Inline(data)
}

pub(crate) fn span(region: RegionId, offset: u64, bytes: u32) -> Span {
    Span { region, offset, bytes }
}

pub(crate) fn at(region: RemoteRegion, offset: u64) -> RemoteSpan {
    RemoteSpan { region, offset }
}
