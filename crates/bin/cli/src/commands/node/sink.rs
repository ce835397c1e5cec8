//! The destinations of a node's deliveries: standard output and its history.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::runtime::{ClusterRuntime, Delivered, Recorder, life_now, now_ns};
use stentor_fabric::{OsError, ProcessId};
use stentor_multicast::{Ballot, MemoryUse, Origin, RemoteOp};
use stentor_support::live::{HistoryFile, unwritten};
use stentor_support::streams::write_until;
use stentor_support::{Digits, Failure, hex};

/// Size of the lines that are collected under load, in bytes.
const BATCH_BYTES: usize = 64 << 10;
/// Number of idle rounds after which lines are printed. In every wait mode, a node has more idle rounds before it
/// sleeps.
const PRINT_AFTER: u32 = 16;
/// Time after which lines for standard output are written at the end of any round, and lines of a history at the end of
/// an idle one. An event that must not be lost is written at once, with all lines of the history before it.
const WRITE_AFTER: Duration = Duration::from_millis(50);

/// One line on standard output.
#[derive(Serialize)]
struct Line<'a> {
    m: (&'a str, Digits),
    n: u64,
    ts: (u64, &'a str),
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    /// The bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
}

/// Line on standard output in place of the deliveries that this process does not make, because it restored a state that
/// contains them.
#[derive(Serialize)]
struct Restored {
    restored: After,
}

#[derive(Serialize)]
struct After {
    /// Number of the last delivery that the state contains.
    n: u64,
    /// Number of deliveries that are not printed because the state contains their effects.
    skipped: u64,
}

/// Handles deliveries. If standard output cannot be written, the node ends. The error is kept, unless the reader has
/// closed the output. If the history cannot be written, the history ends there and the node continues, because no
/// delivery depends on a record.
pub(super) struct Sink {
    clients: Vec<String>,
    groups: Vec<String>,
    prints: bool,
    lines: Vec<u8>,
    history: Option<(PathBuf, Recorder<HistoryFile>)>,
    /// The failure that ended the history, and whether it was reported.
    unrecorded: Option<(Failure, bool)>,
    written: Instant,
    /// Time at which deliveries were last printed.
    printed: Instant,
    deliveries: u64,
    /// Number of deliveries that are commands. Only these can be printed.
    commands: u64,
    /// Number of deliveries that this process did not make, because a restored state contains them.
    skipped: u64,
    /// `true` if the history already records the number of deliveries after which this life begins.
    begun: bool,
    idle: u32,
    failed: Option<Failure>,
    /// `true` if the reader of standard output has closed it.
    abandoned: bool,
    /// Returns whether this process no longer waits for the reader of standard output.
    stopping: Box<dyn Fn() -> bool + Send>,
}

impl Sink {
    pub(super) fn new(
        plan: &ClusterRuntime,
        me: ProcessId,
        history: Option<&Path>,
        life: Option<u64>,
        prints: bool,
        stopping: Box<dyn Fn() -> bool + Send>,
    ) -> Result<Self, Failure> {
        let topology = plan.topology();
        let recorder = |path: &Path| {
            let recorder = HistoryFile::record(plan, me, path)?.in_life(life.unwrap_or_else(life_now));
            Ok::<_, Failure>((path.to_owned(), recorder))
        };
        let client = |n| plan.name(topology.client_process(stentor::runtime::ClientId(n))).to_owned();
        Ok(Sink {
            clients: (0..topology.clients() as u16).map(client).collect(),
            groups: plan.config().groups().iter().map(|group| group.id().to_owned()).collect(),
            prints,
            lines: Vec::with_capacity(2 * BATCH_BYTES),
            history: history.map(recorder).transpose()?,
            unrecorded: None,
            written: Instant::now(),
            printed: Instant::now(),
            deliveries: 0,
            commands: 0,
            skipped: 0,
            begun: false,
            idle: 0,
            failed: None,
            abandoned: false,
            stopping,
        })
    }

    /// Records a delivery as it was multicast, with a session's envelope if it had one, and prints it if it is a
    /// command.
    pub(super) fn deliver(&mut self, delivered: &Delivered<'_>, command: Option<&[u8]>) {
        self.deliveries += 1;
        if !std::mem::replace(&mut self.begun, true) {
            // No state was restored: the group has just begun, or the member from which this process joined had made
            // no delivery. An earlier life of this process may have made some, and this life repeats them.
            self.record(|recorder| recorder.recover(now_ns(), delivered.number - 1));
        }
        self.record(|recorder| recorder.deliver(now_ns(), delivered));
        if let Some(command) = command {
            self.line(delivered, command);
        }
    }

    /// Prints the command that was delivered.
    fn line(&mut self, delivered: &Delivered<'_>, command: &[u8]) {
        self.commands += 1;
        if !self.prints {
            return;
        }
        let (client, ts) = (usize::from(delivered.id.client.0), delivered.timestamp);
        let text = std::str::from_utf8(command).ok();
        let line = Line {
            m: (&self.clients[client], Digits(delivered.id.sequence)),
            n: delivered.number,
            ts: (ts.time, &self.groups[usize::from(ts.group)]),
            payload: text,
            payload_hex: text.is_none().then(|| hex(command)),
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
            match write_until(&self.lines, &*self.stopping) {
                Ok(0) => {}
                Ok(left) => {
                    let what = format_args!("nobody reads the deliveries: their last {left} bytes were not printed");
                    let failure =
                        Failure::run(what, "standard output", "let the reader go on before stopping this process");
                    self.failed = Some(failure);
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.abandoned = true,
                Err(error) => {
                    let what = format_args!("cannot write deliveries: {error}");
                    let remedy = OsError::remedy_for(&error).unwrap_or("write to another file or device");
                    self.failed = Some(Failure::run(what, "standard output", remedy));
                }
            }
        }
        self.lines.clear();
        self.printed = Instant::now();
    }

    fn record(&mut self, write: impl FnOnce(&mut Recorder<HistoryFile>) -> std::io::Result<()>) {
        if let Some((path, recorder)) = &mut self.history
            && let Err(error) = write(recorder)
        {
            // If the final event finds no room either, the history ends without it.
            let _ = recorder.give_up(now_ns());
            self.unrecorded = Some((unwritten(path, &error), false));
            self.history = None;
        }
    }

    /// Returns why the history ended. Returns it only once.
    pub(super) fn news(&mut self) -> Option<&Failure> {
        let (failure, told) = self.unrecorded.as_mut()?;
        (!std::mem::replace(told, true)).then_some(&*failure)
    }

    pub(super) fn operations(&mut self, operations: &[RemoteOp]) {
        if !operations.is_empty() {
            self.record(|recorder| recorder.operations(now_ns(), operations));
        }
    }

    /// Records that this member begins to lead its group in this ballot.
    pub(super) fn epoch(&mut self, ballot: Ballot) {
        self.record(|recorder| recorder.epoch(now_ns(), ballot));
        // The history of a process that is killed must contain its claim to lead.
        self.record(Recorder::flush);
    }

    /// Records that this member holds the state of a history of its group. `origins` are the beginnings of that
    /// history.
    pub(super) fn begun(&mut self, origins: &[Origin]) {
        self.record(|recorder| recorder.begun(now_ns(), origins));
        self.record(Recorder::flush);
    }

    /// Flushes the history. The node is about to send its state to another member, and the history must contain all
    /// deliveries that the state contains.
    pub(super) fn hand_over(&mut self) {
        self.record(Recorder::flush);
    }

    /// Records that this process continues after `number` deliveries.
    pub(super) fn restore(&mut self, number: u64) {
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

    /// Flushes lines after each round, if that is due.
    pub(super) fn round(&mut self, worked: bool) {
        // If processors are scarce, every round may have work, so printing must not wait for an idle one.
        if !self.lines.is_empty() && self.printed.elapsed() > WRITE_AFTER {
            self.print();
        }
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

    /// Returns whether the node must end because it cannot print its deliveries.
    pub(super) fn is_broken(&self) -> bool {
        self.abandoned || self.failed.is_some()
    }

    /// Writes all buffered lines. Returns the numbers of deliveries.
    pub(super) fn finish(mut self) -> Result<Deliveries, Failure> {
        self.print();
        self.record(Recorder::flush);
        let failed = self.failed.or(self.unrecorded.map(|(failure, _)| failure));
        let Sink { deliveries, commands, skipped, .. } = self;
        let delivered = Deliveries { commands, of_sessions: deliveries - commands, skipped };
        failed.map_or(Ok(delivered), Err)
    }
}

/// Numbers of messages that a node delivered.
#[derive(Clone, Copy)]
pub(super) struct Deliveries {
    pub(super) commands: u64,
    /// Messages of clients' sessions, copies of commands, and others that are not commands.
    pub(super) of_sessions: u64,
    /// Deliveries that the node did not make, because a restored state contains them.
    pub(super) skipped: u64,
}

fn put(lines: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *lines, line).expect("a Vec takes everything");
    lines.push(b'\n');
}
