//! Where the deliveries of a node go: standard output, its history.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::runtime::{Delivered, Plan, Recorder, now_ns};
use stentor_fabric::ProcessId;
use stentor_multicast::{MemoryUse, RemoteOp};

use super::unwritten;
use crate::failure::Failure;
use crate::live::new_history;

/// Bytes of lines that are collected under load.
const BATCH_BYTES: usize = 64 << 10;
/// Idle rounds after which lines are printed; every wait mode gets that far before it sleeps.
const PRINT_AFTER: u32 = 16;
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

/// Takes deliveries. What goes wrong is kept, and ends the node.
pub(super) struct Sink {
    clients: Vec<String>,
    groups: Vec<String>,
    prints: bool,
    lines: Vec<u8>,
    history: Option<(PathBuf, Recorder<File>)>,
    written: Instant,
    deliveries: u64,
    idle: u32,
    failed: Option<Failure>,
    /// Nobody reads standard output any more.
    abandoned: bool,
}

impl Sink {
    pub(super) fn new(plan: &Plan, me: ProcessId, history: Option<&Path>, prints: bool) -> Result<Self, Failure> {
        let topology = plan.topology();
        let recorder = |path: &Path| {
            let file = new_history(path)?;
            let recorder = Recorder::new(plan, me, file).map_err(|error| unwritten(path, &error))?;
            Ok::<_, Failure>((path.to_owned(), recorder))
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
            idle: 0,
            failed: None,
            abandoned: false,
        })
    }

    pub(super) fn deliver(&mut self, delivered: &Delivered<'_>) {
        self.deliveries += 1;
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
        serde_json::to_writer(&mut self.lines, &line).expect("a Vec takes everything");
        self.lines.push(b'\n');
        if self.lines.len() >= BATCH_BYTES {
            self.print();
        }
    }

    fn print(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(&self.lines).and_then(|()| stdout.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.abandoned = true,
            Err(error) => {
                let what = format_args!("cannot write deliveries: {error}");
                let failure = Failure::run(what, "standard output", "make room on the disk, or write somewhere else");
                self.failed.get_or_insert(failure);
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

    /// Writes what is left. Returns the number of deliveries.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        self.print();
        self.record(Recorder::flush);
        self.failed.map_or(Ok(self.deliveries), Err)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
