//! A client of a service, as a process: one session, and threads that each make one call after the other.
//!
//! The client records each call before it sends the first message of the call, and records the outcome of the call
//! afterwards. SIGTERM ends the calls. The end of standard input ends the process after a pause, in which outstanding
//! notifications can arrive.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use stentor::runtime::{Stop, now_ns};
use stentor::{
    Answer, CallError, Client, Cluster, Consistency, Group, Groups, Notification, Position, Refused, Session, Ticket,
};
use stentor_fabric_sim::SimRng;
use stentor_support::live::{Interrupt, lock, stop_at_end_of_input};
use stentor_support::{Failure, Verdict, hex};

use super::ProcessSpec;
use super::machine::{LEASES, REGISTERS, session_text};
use super::records::{CallKind, ClientRecord, How, Journal, Place, read};

/// Number of threads that make calls.
const LANES: u64 = 3;
/// The time within which a call ends.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time within which the client connects.
const CONNECTING: Duration = Duration::from_secs(30);
/// The pause after an attempt to connect that failed.
const AGAIN: Duration = Duration::from_millis(100);
/// Maximum number of times that the client asks for the unknown outcome of a call.
const ATTEMPTS: usize = 3;
/// Time for which the client waits at the end for outstanding notifications.
const LATE_NOTES: Duration = Duration::from_millis(1500);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Unit of the delay between a command and the kill, in microseconds.
const FALL_US: u64 = 40;
/// Longest time of a lease, in milliseconds.
const LEASE_MS: u64 = 1500;

/// The specification of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::commands::chaos) struct ClientSpec {
    pub(super) name: String,
    pub(super) number: u64,
    /// Number of the client's process, counted from 1.
    pub(super) life: u32,
    pub(super) journal: PathBuf,
    /// The records of the client's earlier processes.
    pub(super) before: Vec<PathBuf>,
    /// The file that stores the session.
    pub(super) session: PathBuf,
    pub(super) seed: u64,
    /// Mean pause of a thread before a call, in microseconds.
    pub(super) pause_us: u64,
    /// Once this file exists, the process kills itself right after it has sent a command. A kill from outside rarely
    /// hits that moment.
    pub(super) trap: PathBuf,
}

/// The state that the threads of a client share.
struct Shared {
    client: Client,
    groups: Vec<Group>,
    journal: Mutex<Journal>,
    /// Position of the latest answer.
    seen: Mutex<Option<Position>>,
    next: AtomicU64,
    drains: AtomicBool,
    failure: Mutex<Option<Failure>>,
    name: String,
    trap: PathBuf,
}

pub(super) fn run(process: &ProcessSpec, spec: &ClientSpec) -> Result<Verdict, Failure> {
    let interrupt = Interrupt::catch()?;
    let stop = Arc::new(Stop::default());
    stop_at_end_of_input(Arc::clone(&stop))?;
    let cluster = process.cluster()?;
    let client = connect(&cluster, spec, &interrupt, &stop)?;
    replace(&spec.session, &client.session().to_bytes())?;
    // The stream must exist before the first notification can arrive.
    let notifications = client.notifications();
    let shared = Shared {
        groups: cluster.groups().collect(),
        journal: Mutex::new(Journal::open(&spec.journal)?),
        seen: Mutex::default(),
        next: AtomicU64::new(spec.number << 48 | u64::from(spec.life) << 32),
        drains: AtomicBool::new(false),
        failure: Mutex::default(),
        name: spec.name.clone(),
        trap: spec.trap.clone(),
        client,
    };
    shared.write(&ClientRecord::Session { at: now_ns(), session: session_text(shared.client.session().id()) })?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let shared = &shared;
        scope.spawn(|| shared.note(shared.take_notes(notifications, &is_over)));
        shared.note(shared.settle(&spec.before).and_then(|()| shared.watch()));
        for lane in 0..LANES {
            let rng = SimRng::new(spec.seed ^ u64::from(spec.life) << 32, spec.number * LANES + lane);
            scope.spawn(move || shared.note(Lane { shared, rng, pause_us: spec.pause_us }.run()));
        }
        while !stop.is_stopped() && lock(&shared.failure).is_none() {
            if interrupt.came() {
                shared.drains.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(LOOK);
        }
        shared.drains.store(true, Ordering::Relaxed);
        std::thread::sleep(LATE_NOTES);
        is_over.store(true, Ordering::Relaxed);
    });
    if let Some(failure) = lock(&shared.failure).take() {
        return Err(failure);
    }
    shared.write(&ClientRecord::Closed { at: now_ns() })?;
    shared.client.close().map_err(|error| Failure::run(error.what(), &spec.name, error.remedy()))?;
    Ok(Verdict::Good)
}

/// Opens a session, or resumes the one of the previous process.
fn connect(cluster: &Cluster, spec: &ClientSpec, interrupt: &Interrupt, stop: &Stop) -> Result<Client, Failure> {
    let until = Instant::now() + CONNECTING;
    loop {
        let builder = cluster.client().patience(PATIENCE);
        let builder = match std::fs::read(&spec.session) {
            Ok(bytes) => builder.session(Session::from_bytes(&bytes).map_err(|error| failed(spec, &error))?),
            Err(_) => builder,
        };
        match builder.connect() {
            Ok(client) => return Ok(client),
            Err(error) => {
                if !error.is_retryable() || Instant::now() > until || interrupt.insists() || stop.is_stopped() {
                    return Err(failed(spec, &error));
                }
            }
        }
        std::thread::sleep(AGAIN);
    }
}

fn failed(spec: &ClientSpec, error: &stentor::ClientError) -> Failure {
    Failure::run(error.what(), &spec.name, error.remedy())
}

/// Replaces a file atomically: a kill leaves either the old one or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| Failure::cannot_write(path, &error))
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    (0..text.len()).step_by(2).filter_map(byte).collect()
}

impl Shared {
    fn write(&self, record: &ClientRecord) -> Result<(), Failure> {
        let written = lock(&self.journal).write(record);
        written.map_err(|error| Failure::cannot_write(Path::new(&self.name), &error))
    }

    /// Keeps the first failure of all threads. A failure ends the process.
    fn note(&self, ended: Result<(), Failure>) {
        if let Err(failure) = ended {
            lock(&self.failure).get_or_insert(failure);
        }
    }

    fn number(&self, group: Group) -> u16 {
        self.groups.iter().position(|other| *other == group).unwrap_or(usize::MAX) as u16
    }

    fn place(&self, position: Position) -> Place {
        Place::of(position, |group| self.number(group))
    }

    /// Resolves the calls of earlier processes that have a ticket but no outcome in the records.
    fn settle(&self, before: &[PathBuf]) -> Result<(), Failure> {
        let mut open = BTreeMap::new();
        for path in before {
            for record in read::<ClientRecord>(path)? {
                match record {
                    ClientRecord::Ticket { call, ticket } => drop(open.insert(call, ticket)),
                    ClientRecord::End { call, .. } => drop(open.remove(&call)),
                    _ => {}
                }
            }
        }
        for (call, ticket) in open {
            let ticket = Ticket::from_bytes(&unhex(&ticket));
            let ticket = ticket.map_err(|error| Failure::run(error.what(), &self.name, error.remedy()))?;
            let how = self.resolve(&ticket);
            self.write(&ClientRecord::End { at: now_ns(), call, how })?;
        }
        Ok(())
    }

    /// Asks for the outcome of a call until it is known, at most [`ATTEMPTS`] times.
    fn resolve(&self, ticket: &Ticket) -> How {
        let mut last = "it was not asked".to_owned();
        for _ in 0..ATTEMPTS {
            match self.client.resolve(ticket).wait() {
                Ok(answer) => return self.answered(&answer),
                Err(CallError::Unknown(_, why)) => last = why.to_string(),
                Err(CallError::NotApplied(why)) => return How::NotApplied(why.to_string()),
                Err(error) => last = error.to_string(),
            }
        }
        How::Unknown(last)
    }

    fn answered(&self, answer: &Answer) -> How {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let replies = answer.replies().map(|(group, bytes)| (self.number(group), text(bytes))).collect();
        *lock(&self.seen) = Some(answer.position());
        How::Answered { place: self.place(answer.position()), replies }
    }

    /// Subscribes this session to notifications of all groups.
    fn watch(&self) -> Result<(), Failure> {
        for group in &self.groups {
            self.command(&[*group], "watch", true)?;
        }
        Ok(())
    }

    /// Records the beginning of a call. Returns its number and the operation.
    fn begin(
        &self,
        to: &[Group],
        kind: CallKind,
        operation: &str,
        after: Option<Position>,
    ) -> Result<(u64, String), Failure> {
        let call = 1 + self.next.fetch_add(1, Ordering::Relaxed);
        let operation = if kind == CallKind::Command { format!("{operation} {call}") } else { operation.to_owned() };
        let to = to.iter().map(|group| self.number(*group)).collect();
        let after = after.map(|position| self.place(position));
        self.write(&ClientRecord::Begin { at: now_ns(), call, to, kind, operation: operation.clone(), after })?;
        Ok((call, operation))
    }

    /// Calls a command. If `with_ticket` is set, the ticket of the command is recorded before the command is sent.
    fn command(&self, to: &[Group], operation: &str, with_ticket: bool) -> Result<(), Failure> {
        let (call, operation) = self.begin(to, CallKind::Command, operation, None)?;
        let pending = if with_ticket {
            match self.client.prepare(Groups::from(to), operation.as_bytes()).wait() {
                Ok(prepared) => {
                    self.write(&ClientRecord::Ticket { call, ticket: hex(&prepared.ticket().to_bytes()) })?;
                    Ok(prepared.send())
                }
                Err(error) => Err(error),
            }
        } else {
            Ok(self.client.call(Groups::from(to), operation.as_bytes()))
        };
        self.fall_into_trap(call);
        let ended = pending.and_then(stentor::Call::wait);
        let ended = match ended {
            Err(CallError::Unknown(ticket, _)) => Ok(self.resolve(&ticket)),
            other => other.map(|answer| self.answered(&answer)),
        };
        self.end(call, ended)
    }

    /// Kills this process with SIGKILL if the conductor has requested that. `call` determines the delay between the
    /// command and the kill.
    fn fall_into_trap(&self, call: u64) {
        if self.trap.exists() {
            std::thread::sleep(Duration::from_micros(call % 8 * FALL_US));
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }

    fn read(&self, at: &[Group], kind: CallKind, query: &str) -> Result<(), Failure> {
        let seen = *lock(&self.seen);
        let (kind, how) = match (kind, seen) {
            (CallKind::Leader, _) => (kind, Consistency::Leader),
            (CallKind::After, Some(seen)) => (kind, Consistency::After(seen)),
            (CallKind::After | CallKind::Local, _) => (CallKind::Local, Consistency::Local),
            _ => (kind, Consistency::Ordered),
        };
        let after = seen.filter(|_| kind == CallKind::After);
        let (call, query) = self.begin(at, kind, query, after)?;
        let ended = self.client.read(Groups::from(at), query.as_bytes(), how).wait();
        self.end(call, ended.map(|answer| self.answered(&answer)))
    }

    /// Records the outcome of a call.
    fn end(&self, call: u64, ended: Result<How, CallError>) -> Result<(), Failure> {
        let how = match ended {
            Ok(how) => how,
            Err(CallError::NotApplied(why)) => {
                if matches!(why, Refused::SessionNotOpen | Refused::ClientEnded | Refused::Superseded) {
                    let what = format_args!("call {call}: {why}");
                    return Err(Failure::run(what, &self.name, "report this as a bug, with the directory of the run"));
                }
                How::NotApplied(why.to_string())
            }
            Err(error) => How::Unknown(error.to_string()),
        };
        self.write(&ClientRecord::End { at: now_ns(), call, how })
    }

    fn take_notes(&self, mut notes: stentor::Notifications, is_over: &AtomicBool) -> Result<(), Failure> {
        while !is_over.load(Ordering::Relaxed) {
            let record = match notes.recv_timeout(LOOK) {
                Some(Notification::Sent { group, position, .. }) => {
                    ClientRecord::Note { at: now_ns(), group: self.number(group), place: self.place(position) }
                }
                Some(Notification::Missed { group, count }) => {
                    ClientRecord::Missed { at: now_ns(), group: self.number(group), count }
                }
                _ if notes.is_ended() => return Ok(()),
                _ => continue,
            };
            self.write(&record)?;
        }
        Ok(())
    }
}

/// A thread that makes calls.
struct Lane<'a> {
    shared: &'a Shared,
    rng: SimRng,
    pause_us: u64,
}

impl Lane<'_> {
    fn run(mut self) -> Result<(), Failure> {
        while !self.shared.drains.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(self.rng.below(2 * self.pause_us + 1)));
            if self.rng.below(5) < 3 { self.command()? } else { self.read()? }
        }
        Ok(())
    }

    /// Draws one group or, one time in four, all of them.
    fn to(&mut self) -> Vec<Group> {
        let groups = &self.shared.groups;
        if self.rng.below(4) == 0 {
            return groups.clone();
        }
        vec![groups[self.rng.below(groups.len() as u64) as usize]]
    }

    fn command(&mut self) -> Result<(), Failure> {
        let to = self.to();
        let register = self.rng.below(REGISTERS);
        let operation = match self.rng.below(8) {
            0 => format!("put {register}"),
            1 => format!("cas {register} {}", self.rng.below(2)),
            2 => format!("lease {} {}", self.rng.below(LEASES), 1 + self.rng.below(LEASE_MS)),
            _ => format!("mix {register}"),
        };
        let with_ticket = self.rng.below(2) == 0;
        self.shared.command(&to, &operation, with_ticket)
    }

    fn read(&mut self) -> Result<(), Failure> {
        let kinds = [CallKind::Ordered, CallKind::Leader, CallKind::Leader, CallKind::After, CallKind::Local];
        let kind = kinds[self.rng.below(kinds.len() as u64) as usize];
        let mut at = self.to();
        if kind != CallKind::Ordered {
            at.truncate(1);
        }
        let query = match self.rng.below(3) {
            0 => format!("get {}", self.rng.below(REGISTERS)),
            1 => format!("who {}", self.rng.below(LEASES)),
            _ => "sum".to_owned(),
        };
        self.shared.read(&at, kind, &query)
    }
}
