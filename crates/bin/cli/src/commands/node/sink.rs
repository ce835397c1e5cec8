//! Where the deliveries of a node go: standard output, its history.

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

/// Bytes of lines that are collected under load.
const BATCH_BYTES: usize = 64 << 10;
/// Idle rounds after which lines are printed; every wait mode gets that far before it sleeps.
const PRINT_AFTER: u32 = 16;
/// How old lines become in memory before they are written: those of a history only when there is nothing else to do.
const WRITE_AFTER: Duration = Duration::from_millis(50);

/// One line on standard output.
#[derive(Serialize)]
struct Line<'a> {
    m: (&'a str, Digits),
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

/// Takes deliveries. If standard output cannot be written, that is kept and ends the node. A history that cannot be written ends
/// there, and the node goes on without: a record is no reason to take a member from its group.
pub(super) struct Sink {
    clients: Vec<String>,
    groups: Vec<String>,
    prints: bool,
    lines: Vec<u8>,
    history: Option<(PathBuf, Recorder<HistoryFile>)>,
    /// Why there is no history any more, and whether that was told.
    unrecorded: Option<(Failure, bool)>,
    written: Instant,
    /// When deliveries were printed last.
    printed: Instant,
    deliveries: u64,
    /// Of these, those that are commands, which are printed.
    commands: u64,
    /// Deliveries that another member's state stands for.
    skipped: u64,
    /// Whether the history already records the delivery after which this life begins.
    begun: bool,
    idle: u32,
    failed: Option<Failure>,
    /// Nobody reads standard output any more.
    abandoned: bool,
    /// Whether this process is to stop.
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

    /// Records a delivery as it was multicast, in a session's envelope if it came in one, and prints it if it was a command.
    pub(super) fn deliver(&mut self, delivered: &Delivered<'_>, command: Option<&[u8]>) {
        self.deliveries += 1;
        if !std::mem::replace(&mut self.begun, true) {
            // Nothing was restored: the state that took this process in holds no delivery, as it does when its leader had
            // made none. An earlier life may have made some all the same, and this one repeats them.
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
                    let failure = Failure::run(what, "standard output", "let the reader go on before stopping this");
                    self.failed = Some(failure);
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.abandoned = true,
                Err(error) => {
                    let what = format_args!("cannot write deliveries: {error}");
                    let remedy = OsError::remedy_for(&error).unwrap_or("write somewhere else");
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
            // If the last word finds no room, either, the history is short without saying so.
            let _ = recorder.give_up(now_ns());
            self.unrecorded = Some((unwritten(path, &error), false));
            self.history = None;
        }
    }

    /// Why the history ended, once.
    pub(super) fn news(&mut self) -> Option<&Failure> {
        let (failure, told) = self.unrecorded.as_mut()?;
        (!std::mem::replace(told, true)).then_some(&*failure)
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

    /// Records that this member holds the state of a history of its group. `origins`: the beginnings of that history.
    pub(super) fn begun(&mut self, origins: &[Origin]) {
        self.record(|recorder| recorder.begun(now_ns(), origins));
        self.record(Recorder::flush);
    }

    /// The state goes to another member: what was delivered before must be in the history by then.
    pub(super) fn hand_over(&mut self) {
        self.record(Recorder::flush);
    }

    /// This process goes on after so many deliveries.
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

    /// After each round.
    pub(super) fn round(&mut self, worked: bool) {
        // Where processors are scarce there may be something to do in every round.
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

    /// Whether there is no point in going on.
    pub(super) fn is_broken(&self) -> bool {
        self.abandoned || self.failed.is_some()
    }

    /// Writes what is left. Returns what was delivered.
    pub(super) fn finish(mut self) -> Result<Deliveries, Failure> {
        self.print();
        self.record(Recorder::flush);
        let failed = self.failed.or(self.unrecorded.map(|(failure, _)| failure));
        let Sink { deliveries, commands, skipped, .. } = self;
        let delivered = Deliveries { commands, of_sessions: deliveries - commands, skipped };
        failed.map_or(Ok(delivered), Err)
    }
}

/// How many messages a node delivered.
#[derive(Clone, Copy)]
pub(super) struct Deliveries {
    pub(super) commands: u64,
    /// Messages of clients' sessions, and copies of commands.
    pub(super) of_sessions: u64,
    /// Those that a state of another member stands for.
    pub(super) skipped: u64,
}

fn put(lines: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *lines, line).expect("a Vec takes everything");
    lines.push(b'\n');
}
