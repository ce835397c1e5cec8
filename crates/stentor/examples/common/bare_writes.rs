//! Measures the fabric's share of a call: two processes that write to each other, without a protocol.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use stentor::runtime::{BindConfig, ClusterFabric, ClusterRuntime, Role};
use stentor::{ClusterConfig, WaitMode};
use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Backoff, Completion, Fabric, ProcessId, Purpose, QpConfig, QpId, QpKind, QpState, RegionId, RegionSpec,
    RemoteSpan, Service, Source, Verb, WorkRequest,
};

use super::nodes::{KEY, Result, wait_mode};

/// Number of words of each write: one cache line, the minimum for a short query and for its answer.
const WORDS: usize = 8;
const TARGET: Purpose = Purpose(1);
/// Time limit; reached only if the other process has died.
const LONG: Duration = Duration::from_secs(20);
/// Longest sleep while nothing lands.
const SLEEP: Duration = Duration::from_millis(2);

/// One of the two processes.
struct End<F> {
    fabric: F,
    qp: QpId,
    target: RegionId,
    to: Option<RemoteSpan>,
    wait: WaitMode,
    writes: u64,
    /// Number of signalled writes.
    posted: u64,
    /// Number of completions of signalled writes.
    completed: u64,
}

impl<F: Fabric> End<F> {
    /// Connects to the other process.
    fn new(mut fabric: F, wait: WaitMode) -> Result<Self> {
        let peer = ProcessId(1 - fabric.me().0);
        let target = fabric.register(RegionSpec { purpose: TARGET, writer: peer, bytes: (WORDS * 8) as u64 })?;
        fabric.grant(target, peer, Access::Write)?;
        let config = QpConfig { kind: QpKind::Reliable, send_depth: 16, recv_depth: 0, merges: false };
        let qp = fabric.connect(peer, Service(0), config)?;
        let mut end = End { fabric, qp, target, to: None, wait, writes: 0, posted: 0, completed: 0 };
        end.until(|end| {
            while end.fabric.next_event().is_some() {}
            end.to = end.fabric.resolve(peer, TARGET).map(|region| RemoteSpan { region, offset: 0 });
            end.to.is_some() && end.fabric.state(end.qp) == QpState::Ready
        })?;
        Ok(end)
    }

    /// Polls, and pauses according to the wait mode, until the condition holds.
    fn until(&mut self, mut is: impl FnMut(&mut Self) -> bool) -> Result<()> {
        let (mut backoff, since) = (Backoff::new(self.wait), Instant::now());
        let mut completions = [Completion::BLANK; 4];
        loop {
            let came = self.fabric.poll(&mut completions);
            self.completed += came as u64;
            if is(self) {
                return Ok(());
            }
            if backoff.pause(&mut self.fabric, came > 0, SLEEP)? && since.elapsed() > LONG {
                return Err("the other process does not answer".into());
            }
        }
    }

    /// Writes a value. At least every eighth write is signalled, because completions free the queue.
    fn write(&mut self, value: u64, signalled: bool) -> Result<()> {
        self.writes += 1;
        let signalled = signalled || self.writes.is_multiple_of(8);
        let words = [value; WORDS];
        let bytes = words.map(u64::to_ne_bytes);
        let target = self.to.ok_or("the other process is not connected")?;
        let verb = Verb::Write { source: Source::Inline(bytes.as_flattened()), target };
        self.posted += u64::from(signalled);
        self.fabric.post(self.qp, WorkRequest { id: value, verb, signalled })?;
        self.fabric.flush();
        Ok(())
    }

    fn landed(&self) -> u64 {
        self.fabric.memory(self.target)[WORDS - 1].load(Ordering::Acquire)
    }

    /// Writes a value, and waits for the write back.
    fn there_and_back(&mut self, value: u64) -> Result<()> {
        self.write(value, false)?;
        self.until(|end| end.landed() == value)
    }

    /// Writes a value, and waits for its completion.
    fn completed(&mut self, value: u64) -> Result<()> {
        self.write(value, true)?;
        self.until(|end| end.completed == end.posted)
    }

    /// Answers each even value with a write. Odd values need no answer.
    fn echo(&mut self) -> Result<()> {
        let mut last = 0;
        loop {
            self.until(|end| end.landed() != last)?;
            last = self.landed();
            if last.is_multiple_of(2) {
                self.write(last, false)?;
            }
        }
    }
}

/// Starts one end on a fabric, in the directory that both ends share.
fn start<F: ClusterFabric>(fabric: &str, me: u16, directory: &Path, wait: WaitMode) -> Result<End<F>> {
    let process = |n: u8| format!("{{ id = \"n{n}\", address = \"127.77.1.{n}:7001\" }}");
    let text = format!(
        "cluster = \"bare\"\nfabric = \"{fabric}\"\nkey = \"file:key\"\n[election]\nkind = \"heartbeat\"\n[[group]]\n\
         id = \"g1\"\nprocess = [ {}, {} ]\n",
        process(1),
        process(2)
    );
    let file = directory.join("bare.toml");
    std::fs::write(directory.join("key"), KEY)?;
    let plan = ClusterRuntime::new(ClusterConfig::parse(&file, &text)?)?.with_file(&file);
    let bind = BindConfig { sockets: directory.to_owned(), ..BindConfig::beside(&file) };
    End::new(F::start_in(&plan, Role::Groups, ProcessId(me), &bind)?, wait)
}

/// Runs the other process until it is killed.
pub(crate) fn echo<F: ClusterFabric>(fabric: &str, directory: &str, wait: &str) -> Result<()> {
    start::<F>(fabric, 1, Path::new(directory), wait_mode(wait)?)?.echo()
}

/// The two processes: this one, and a child, which is killed when this value is dropped.
pub(crate) struct BareWrites<F> {
    end: End<F>,
    echo: Child,
    value: u64,
}

impl<F: ClusterFabric> BareWrites<F> {
    /// Starts this program as `PROGRAM echo FABRIC DIRECTORY WAIT`, which must call [`echo`].
    pub(crate) fn start(fabric: &str, directory: &Path, wait: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let echo = command.args(["echo", fabric]).arg(directory).arg(wait).spawn()?;
        let end = start::<F>(fabric, 0, directory, wait_mode(wait)?)?;
        Ok(BareWrites { end, echo, value: 0 })
    }

    /// Writes to the other process, and waits for the write back.
    pub(crate) fn there_and_back(&mut self) -> Result<()> {
        self.value += 2;
        self.end.there_and_back(self.value & !1)
    }

    /// Writes to the other process, and waits for the completion.
    pub(crate) fn completed(&mut self) -> Result<()> {
        self.value += 2;
        self.end.completed(self.value | 1)
    }
}

impl<F> Drop for BareWrites<F> {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.echo.kill();
        let _ = self.echo.wait();
    }
}
