//! The conductor's view of the clients of a service: it starts their processes, kills some, and follows their records.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stentor_support::Failure;
use stentor_support::live::{ChildProcess, ProcessOutput};

use super::client::ClientSpec;
use super::records::ClientRecord;
use super::{ProcessSpec, Role};
use crate::args;
use crate::commands::chaos::PLACE;
use crate::commands::chaos::clients::Clients;
use crate::commands::chaos::clock::RunClock;
use crate::commands::chaos::hang::Waiting;
use crate::commands::chaos::scene::Scene;

/// The time within which a client that was started must have its session.
const JOINING_MS: u64 = 60_000;
/// Time within which a client must end.
const ENDING: Duration = Duration::from_secs(20);
/// Time after which the conductor kills a client that has not killed itself.
const TRAPPED: Duration = Duration::from_millis(150);
/// Number of threads of a client. They share the rate of the client.
const LANES: u64 = 3;

/// The clients of a run.
pub(in crate::commands::chaos) struct Callers<'a> {
    scene: &'a Scene,
    seed: u64,
    pause_us: u64,
    clock: RunClock,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    callers: Vec<Caller>,
    drains: bool,
}

/// A client.
struct Caller {
    number: u64,
    process: ChildProcess,
    records: Option<Records>,
    /// Time at which the client's process was started.
    since: u64,
    /// `true` once the client has its session.
    joined: bool,
    /// `true` once the client was asked to make no more calls.
    drains: bool,
    /// Time of the restart, if the client was killed.
    again: Option<u64>,
    /// Calls without an outcome, with the groups and the time of each call.
    open: BTreeMap<u64, (Vec<usize>, u64)>,
    begun: u64,
    ended: u64,
}

/// A growing file of records, positioned behind the bytes that were read, and the incomplete last line.
struct Records {
    file: File,
    rest: Vec<u8>,
}

impl Records {
    /// Returns the new lines.
    fn next(&mut self) -> io::Result<Vec<ClientRecord>> {
        self.file.read_to_end(&mut self.rest)?;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).map_err(io::Error::other)).collect()
    }
}

fn name(number: u64) -> String {
    format!("caller{number}")
}

/// Returns the file of a client's records in one of its lives.
pub(super) fn journal(scene: &Scene, number: u64, life: u32) -> PathBuf {
    scene.history(&name(number), life)
}

impl<'a> Callers<'a> {
    /// Starts the clients. Dropping the result kills them.
    pub(in crate::commands::chaos) fn start(scene: &'a Scene, args: &args::Chaos, seed: u64) -> Result<Self, Failure> {
        let pause_us = 1_000_000 * u64::from(args.clients) * LANES / u64::from(args.rate);
        let callers = Callers { scene, seed, pause_us, clock: RunClock::default(), state: RefCell::default() };
        for number in 0..u64::from(args.clients) {
            let process = callers.spawn(number, 1)?;
            callers.state.borrow_mut().callers.push(Caller {
                number,
                process,
                records: None,
                since: 0,
                joined: false,
                drains: false,
                again: None,
                open: BTreeMap::new(),
                begun: 0,
                ended: 0,
            });
        }
        Ok(callers)
    }

    fn spawn(&self, number: u64, life: u32) -> Result<ChildProcess, Failure> {
        let (scene, name) = (self.scene, name(number));
        // Removes the trap of the previous process.
        let _ = std::fs::remove_file(self.trap(number));
        let spec = ClientSpec {
            number,
            life,
            journal: journal(scene, number, life),
            before: (1..life).map(|life| journal(scene, number, life)).collect(),
            session: scene.path().join(format!("{name}.session")),
            trap: self.trap(number),
            seed: self.seed,
            pause_us: self.pause_us,
            name: name.clone(),
        };
        let unstarted = |error: &io::Error| broken(&name, "cannot start", error);
        let command = ProcessSpec::of(scene, Role::Client(spec)).command().map_err(|error| unstarted(&error))?;
        ChildProcess::start((&name, life), command, ProcessOutput::Files(scene), unstarted)
    }

    fn trap(&self, number: u64) -> PathBuf {
        self.scene.path().join(format!("{}.trap", name(number)))
    }

    /// Returns the number of processes that each client has had.
    pub(in crate::commands::chaos) fn lives(&self) -> Vec<u32> {
        self.state.borrow().callers.iter().map(|caller| caller.process.life).collect()
    }

    fn follow(&self, caller: &mut Caller, now: u64) -> Result<(), Failure> {
        let path = journal(self.scene, caller.number, caller.process.life);
        if caller.records.is_none() {
            let Ok(file) = File::open(&path) else { return Ok(()) };
            caller.records = Some(Records { file, rest: Vec::new() });
        }
        let Some(records) = &mut caller.records else { return Ok(()) };
        let next = records.next();
        let next = next.map_err(|error| broken(&caller.process.name, "cannot read the records of", &error))?;
        for record in next {
            match record {
                ClientRecord::Session { .. } => caller.joined = true,
                ClientRecord::Begin { call, to, .. } => {
                    caller.begun += 1;
                    caller.open.insert(call, (to.into_iter().map(usize::from).collect(), now));
                }
                ClientRecord::End { call, .. } => {
                    caller.ended += u64::from(caller.open.remove(&call).is_some());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn look(&self, caller: &mut Caller, now: u64, drains: bool) -> Result<(), Failure> {
        if let Some(again) = caller.again {
            if now >= again || drains {
                caller.process = self.spawn(caller.number, caller.process.life + 1)?;
                (caller.again, caller.since) = (None, now);
            }
            return Ok(());
        }
        self.follow(caller, now)?;
        if let Some(status) = caller.process.gone() {
            let said = caller.process.said(self.scene);
            let said = said.last().map_or("nothing", String::as_str);
            let what = format_args!("`{}` ended unexpectedly ({status}); its last output: {said}", caller.process.name);
            return Err(Failure::run(what, self.scene.path().display(), "report this as a bug, with that directory"));
        }
        if !caller.joined && now.saturating_sub(caller.since) > JOINING_MS {
            let what = format_args!("`{}` has no session after {} s", caller.process.name, JOINING_MS / 1000);
            return Err(Failure::run(what, self.scene.path().display(), "report this as a bug, with that directory"));
        }
        if drains && caller.joined && !caller.drains {
            caller.drains = true;
            let told = caller.process.signal(Signal::TERM);
            told.map_err(|error| broken(&caller.process.name, "cannot signal", &error))?;
        }
        Ok(())
    }
}

impl Clients for Callers<'_> {
    fn clock(&self) -> &RunClock {
        &self.clock
    }

    fn check(&self) -> Result<(), Failure> {
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        let drains = state.drains;
        state.callers.iter_mut().try_for_each(|caller| self.look(caller, now, drains))
    }

    fn are_in(&self) -> bool {
        self.state.borrow().callers.iter().all(|caller| caller.joined)
    }

    fn waiting(&self) -> Vec<(String, Waiting)> {
        let state = self.state.borrow();
        let oldest = state.callers.iter().filter_map(|caller| {
            let (call, (to, since)) = caller.open.iter().min_by_key(|(_, (_, since))| *since)?;
            let text = format!("call {call} of `{}` is not answered", caller.process.name);
            Some((text, Waiting { sequence: Some(*call), to: to.clone(), since: *since }))
        });
        oldest.collect()
    }

    fn count_on(&self, _: usize) -> bool {
        // The library's clients do not report which members they count.
        true
    }

    fn outstanding(&self) -> usize {
        let state = self.state.borrow();
        state.callers.iter().map(|caller| caller.open.len() + usize::from(!caller.joined)).sum()
    }

    fn begun(&self) -> u64 {
        self.state.borrow().callers.iter().map(|caller| caller.begun).sum()
    }

    fn ended(&self) -> u64 {
        self.state.borrow().callers.iter().map(|caller| caller.ended).sum()
    }

    fn kill(&self, which: u64, ms: u64) -> Result<bool, Failure> {
        let now = self.clock.now();
        let mut state = self.state.borrow_mut();
        let count = state.callers.len() as u64;
        let caller = &mut state.callers[(which % count) as usize];
        if !caller.joined || caller.again.is_some() || caller.drains {
            return Ok(false);
        }
        // In three of four cases, the client is asked to kill itself right after it has sent a command.
        if which >> 32 & 3 > 0 {
            let path = self.trap(caller.number);
            std::fs::write(&path, "").map_err(|error| Failure::cannot_write(&path, &error))?;
            let until = Instant::now() + TRAPPED;
            while caller.process.gone().is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let killed = caller.process.kill();
        killed.map_err(|error| broken(&caller.process.name, "cannot kill", &error))?;
        // The next process of the client resolves those open calls that have a ticket.
        caller.open.clear();
        (caller.records, caller.joined, caller.again) = (None, false, Some(now + ms));
        Ok(true)
    }

    fn drain(&self) {
        self.state.borrow_mut().drains = true;
    }

    fn end(&self) -> Result<(), Failure> {
        let mut state = self.state.borrow_mut();
        state.callers.iter_mut().for_each(|caller| caller.process.close_input());
        let until = Instant::now() + ENDING;
        for caller in state.callers.iter_mut().filter(|caller| !caller.process.over) {
            if caller.process.end_by(until) {
                let what = format_args!("`{}` did not end within {} s", caller.process.name, ENDING.as_secs());
                let remedy = "report this as a bug, with that directory";
                return Err(Failure::run(what, self.scene.path().display(), remedy));
            }
        }
        Ok(())
    }
}

impl Drop for Callers<'_> {
    fn drop(&mut self) {
        for caller in &mut self.state.get_mut().callers {
            if !caller.process.over {
                // A process that has ended meanwhile needs no signal.
                let _ = caller.process.kill();
            }
        }
    }
}

fn broken(name: &str, what: &str, error: &io::Error) -> Failure {
    let remedy = "allow more processes and memory; `stentor doctor` says what this machine can do";
    Failure::system(format_args!("{what} `{name}`"), error, PLACE, remedy)
}
