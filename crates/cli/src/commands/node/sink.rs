//! Where the deliveries of a node go: standard output, its history.

use std::cell::RefCell;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use serde::Serialize;
use stentor::runtime::{Application, Delivered, Plan, Recorder, life_now, now_ns};
use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, MemoryUse, RemoteOp};

use super::unwritten;
use crate::failure::Failure;
use crate::live::new_history;

/// Bytes of lines that are collected under load.
const BATCH_BYTES: usize = 64 << 10;
/// Idle rounds after which lines are printed; every wait mode gets that far before it sleeps.
const PRINT_AFTER: u32 = 16;
/// POSIX's PIPE_BUF on Linux.
const PIPE_BYTES: usize = 4096;
/// How often a node whose deliveries nobody reads looks whether it is to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How old lines of a history may become in memory, when there is nothing else to do.
const WRITE_AFTER: Duration = Duration::from_millis(50);

/// One line on standard output.
#[derive(Serialize)]
struct Line<'a> {
    m: (&'a str, u64),
    n: u64,
    ts: (u64, &'a str),
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    /// When the bytes are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
}

/// What stands in place of deliveries that this process has not made, because it took over the state after them.
#[derive(Serialize)]
struct Restored {
    restored: After,
}

#[derive(Serialize)]
struct After {
    /// The last delivery that the state has.
    n: u64,
    /// Deliveries that are not printed because of it.
    skipped: u64,
}

/// Takes deliveries. What goes wrong is kept, and ends the node.
pub(super) struct Sink {
    clients: Vec<String>,
    groups: Vec<String>,
    prints: bool,
    lines: Vec<u8>,
    history: Option<(PathBuf, Recorder<File>)>,
    written: Instant,
    deliveries: u64,
    /// Deliveries that another member's state stands for.
    skipped: u64,
    /// Whether the history already records the delivery after which this life begins.
    begun: bool,
    idle: u32,
    failed: Option<Failure>,
    /// Nobody reads standard output any more.
    abandoned: bool,
    /// Whether this process is to stop.
    stopping: Box<dyn Fn() -> bool>,
}

impl Sink {
    pub(super) fn new(
        plan: &Plan,
        me: ProcessId,
        history: Option<&Path>,
        life: Option<u64>,
        prints: bool,
        stopping: Box<dyn Fn() -> bool>,
    ) -> Result<Self, Failure> {
        let topology = plan.topology();
        let recorder = |path: &Path| {
            let file = new_history(path)?;
            let recorder = Recorder::new(plan, me, file).map_err(|error| unwritten(path, &error))?;
            Ok::<_, Failure>((path.to_owned(), recorder.in_life(life.unwrap_or_else(life_now))))
        };
        let client = |n| plan.name(topology.client_process(stentor::runtime::ClientId(n))).to_owned();
        Ok(Sink {
            clients: (0..topology.clients() as u16).map(client).collect(),
            groups: plan.config().groups().iter().map(|group| group.id().to_owned()).collect(),
            prints,
            lines: Vec::with_capacity(2 * BATCH_BYTES),
            history: history.map(recorder).transpose()?,
            written: Instant::now(),
            deliveries: 0,
            skipped: 0,
            begun: false,
            idle: 0,
            failed: None,
            abandoned: false,
            stopping,
        })
    }

    pub(super) fn deliver(&mut self, delivered: &Delivered<'_>) {
        self.deliveries += 1;
        if !std::mem::replace(&mut self.begun, true) {
            // Nothing was restored: the state that took this process in holds no delivery, as it does when its leader had
            // made none. An earlier life may have made some all the same, and this one repeats them.
            self.record(|recorder| recorder.recover(now_ns(), delivered.number - 1));
        }
        self.record(|recorder| recorder.deliver(now_ns(), delivered));
        if self.prints {
            self.line(delivered);
        }
    }

    fn line(&mut self, delivered: &Delivered<'_>) {
        let (client, ts) = (usize::from(delivered.id.client.0), delivered.timestamp);
        let text = std::str::from_utf8(delivered.payload).ok();
        let line = Line {
            m: (&self.clients[client], delivered.id.sequence),
            n: delivered.number,
            ts: (ts.time, &self.groups[usize::from(ts.group)]),
            payload: text,
            payload_hex: text.is_none().then(|| hex(delivered.payload)),
        };
        put(&mut self.lines, &line);
        self.print_batch();
    }

    fn print_batch(&mut self) {
        if self.lines.len() >= BATCH_BYTES {
            self.print();
        }
    }

    fn print(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        if !self.is_broken() {
            match write_patiently(&self.lines, &*self.stopping) {
                Ok(0) => {}
                Ok(left) => {
                    let what = format_args!("nobody reads the deliveries: their last {left} bytes were not printed");
                    let failure = Failure::run(what, "standard output", "let the reader go on before stopping this");
                    self.failed = Some(failure);
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.abandoned = true,
                Err(error) => {
                    let what = format_args!("cannot write deliveries: {error}");
                    let remedy = "make room on the disk, or write somewhere else";
                    self.failed = Some(Failure::run(what, "standard output", remedy));
                }
            }
        }
        self.lines.clear();
    }

    fn record(&mut self, write: impl FnOnce(&mut Recorder<File>) -> std::io::Result<()>) {
        if let Some((path, recorder)) = &mut self.history
            && let Err(error) = write(recorder)
        {
            self.failed.get_or_insert(unwritten(path, &error));
        }
    }

    pub(super) fn operations(&mut self, operations: &[RemoteOp]) {
        if !operations.is_empty() {
            self.record(|recorder| recorder.operations(now_ns(), operations));
        }
    }

    /// This member leads its group from here on, in this ballot.
    pub(super) fn epoch(&mut self, ballot: Ballot) {
        self.record(|recorder| recorder.epoch(now_ns(), ballot));
        // Whoever looks at the history of a process that is killed finds what it said.
        self.record(Recorder::flush);
    }

    /// The state goes to another member: what was delivered before must be in the history by then.
    fn hand_over(&mut self) {
        self.record(Recorder::flush);
    }

    /// This process goes on after so many deliveries.
    fn restore(&mut self, number: u64) {
        self.begun = true;
        self.record(|recorder| recorder.recover(now_ns(), number));
        self.record(Recorder::flush);
        let skipped = number.saturating_sub(self.deliveries + self.skipped);
        if skipped > 0 {
            self.skipped += skipped;
            if self.prints {
                put(&mut self.lines, &Restored { restored: After { n: number, skipped } });
                self.print_batch();
            }
        }
    }

    pub(super) fn memory(&mut self, used: &MemoryUse) {
        self.record(|recorder| recorder.memory(now_ns(), used));
    }

    /// After each round.
    pub(super) fn round(&mut self, worked: bool) {
        if worked {
            self.idle = 0;
            return;
        }
        self.idle = self.idle.saturating_add(1);
        if self.idle == PRINT_AFTER {
            self.print();
        }
        if self.idle >= PRINT_AFTER && self.written.elapsed() > WRITE_AFTER {
            self.record(Recorder::flush);
            self.written = Instant::now();
        }
    }

    /// Whether there is no point in going on.
    pub(super) fn is_broken(&self) -> bool {
        self.abandoned || self.failed.is_some()
    }

    /// Writes what is left. Returns the number of deliveries, and of those that a state of another member stands for.
    pub(super) fn finish(mut self) -> Result<(u64, u64), Failure> {
        self.print();
        self.record(Recorder::flush);
        self.failed.map_or(Ok((self.deliveries, self.skipped)), Err)
    }
}

/// The application of a node: it has delivered so many messages, and keeps nothing else.
pub(super) struct Told<'a, 'b>(pub(super) &'a RefCell<&'b mut Sink>);

impl Application for Told<'_, '_> {
    fn deliver(&mut self, delivered: &Delivered<'_>) {
        self.0.borrow_mut().deliver(delivered);
    }

    fn snapshot(&mut self, _: &mut Vec<u8>) {
        self.0.borrow_mut().hand_over();
    }

    fn restore(&mut self, number: u64, _: &[u8]) {
        self.0.borrow_mut().restore(number);
    }
}

/// Writes to standard output, which may be a pipe that nobody reads: then it waits until somebody does or this process
/// is to stop. Returns the bytes that were not written.
fn write_patiently(mut bytes: &[u8], stopping: &dyn Fn() -> bool) -> std::io::Result<usize> {
    let stdout = std::io::stdout();
    while !bytes.is_empty() {
        let mut looked = [PollFd::new(&stdout, PollFlags::OUT)];
        match poll(&mut looked, Some(&LOOK)) {
            Ok(0) if stopping() => return Ok(bytes.len()),
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        // A pipe that can be written takes so much without blocking.
        match rustix::io::write(&stdout, &bytes[..bytes.len().min(PIPE_BYTES)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(0)
}

fn put(lines: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *lines, line).expect("a Vec takes everything");
    lines.push(b'\n');
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
