//! The simulated cluster, and the run of a seed: it builds the clients and machines, runs them, and checks the result.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;

use stentor_fabric::SplitMix64;
use stentor_multicast::{GroupId, NodeError};
use stentor_simulation::sessions::{Machine, Mutant, Service, ServiceRun, Shape};

use super::applies::{Applies, Lent};
use super::clients::Clients;
use super::error::SimError;
use super::failure::{SEED_VARIABLE, SimFailure, SimProperty};
use super::hosted::{Compare, Hosted};
use super::judge::{Decided, decided};
use super::replay::{Difference, differences};
use super::report::SimReport;
use super::run::SimRun;
use super::script::Script;
use super::sequential::Sequential;
use super::wrongs::Wrongs;
use crate::{Group, StateMachine};

/// A simulated cluster: a user's state machines and the clients that call them, under faults and in virtual time. One
/// seed determines a run.
///
/// See the [module](crate::sim) for an example.
pub struct SimCluster<S> {
    machine: Rc<dyn Fn(Group) -> S>,
    script: Box<dyn Fn(usize) -> Box<dyn Script>>,
    /// The constructor of the model. With `None`, the machine itself is the model.
    model: Option<Model>,
    compare: Option<Compare<S>>,
    groups: usize,
    members: usize,
    clients: usize,
    calls: u64,
    at_once: usize,
    command_bytes: usize,
    reply_bytes: usize,
    /// Mutant of Stentor's code.
    mutant: Mutant,
}

/// A constructor of a group's model.
type Model = Box<dyn Fn(Group) -> Box<dyn Applies>>;

/// The result of a run.
struct Ran {
    report: SimReport,
    digest: u64,
    trace: Vec<String>,
    violations: Vec<(SimProperty, String)>,
    /// The call that shows the violation, if a call does.
    call: Option<u64>,
}

impl<S: StateMachine> SimCluster<S> {
    /// Creates a cluster of one group with three members, and two clients that make at most 20 calls each.
    ///
    /// `machine` makes a member's machine, equal for all members. `script` makes the script of a client from the
    /// client's number, which starts at 0. It is called for all clients at the beginning of each seed, in the order of
    /// their numbers.
    pub fn new<C: Script + 'static>(
        machine: impl Fn() -> S + 'static,
        script: impl Fn(usize) -> C + 'static,
    ) -> SimCluster<S> {
        SimCluster::per_group(move |_| machine(), script)
    }

    /// Creates a cluster like that of [`new`](Self::new), with machines that differ by group, for example because each
    /// group has one partition of the keys. `machine` makes the machine of a member of the group, equal for all members
    /// of this group.
    pub fn per_group<C: Script + 'static>(
        machine: impl Fn(Group) -> S + 'static,
        script: impl Fn(usize) -> C + 'static,
    ) -> SimCluster<S> {
        SimCluster {
            machine: Rc::new(machine),
            script: Box::new(move |client| Box::new(script(client))),
            model: None,
            compare: None,
            groups: 1,
            members: 3,
            clients: 2,
            calls: 20,
            at_once: 1,
            command_bytes: 256,
            reply_bytes: 256,
            mutant: Mutant::None,
        }
    }

    /// Runs with a mutant of Stentor's code, by its name in the simulation of sessions.
    #[cfg(feature = "plants")]
    #[doc(hidden)]
    #[must_use]
    pub fn plant(self, name: &str) -> Self {
        SimCluster { mutant: Mutant::named(name).expect("the name of a mutant"), ..self }
    }

    /// Sets the number of groups, 1 to 8.
    #[must_use]
    pub fn groups(self, groups: usize) -> Self {
        SimCluster { groups, ..self }
    }

    /// Sets the number of members of each group, 1 to 5. Only groups of three or more lose members.
    #[must_use]
    pub fn members(self, members: usize) -> Self {
        SimCluster { members, ..self }
    }

    /// Sets the number of clients, 1 to 8. The members of all groups and the clients are together at most 32.
    #[must_use]
    pub fn clients(self, clients: usize) -> Self {
        SimCluster { clients, ..self }
    }

    /// Sets the largest number of calls of a client, 1 to 1000. Calls for which there was no room, which end as
    /// [`Fate::NotApplied`](super::Fate::NotApplied), do not count. In most seeds, the calls are spread over the time
    /// in which faults occur. After the last call the script is not asked again, and the client ends its session when
    /// all calls are answered.
    #[must_use]
    pub fn calls(self, calls: u64) -> Self {
        SimCluster { calls, ..self }
    }

    /// Sets how many calls of a client may be in flight at a time, 1 to 8.
    #[must_use]
    pub fn at_once(self, calls: usize) -> Self {
        SimCluster { at_once: calls, ..self }
    }

    /// Sets the length of the longest command or query, at most 4096 bytes. The default is 256 bytes.
    #[must_use]
    pub fn command_bytes(self, bytes: usize) -> Self {
        SimCluster { command_bytes: bytes, ..self }
    }

    /// Sets the length of the longest reply, at most 4096 bytes. The default is 256 bytes.
    #[must_use]
    pub fn reply_bytes(self, bytes: usize) -> Self {
        SimCluster { reply_bytes: bytes, ..self }
    }

    /// Sets the model that decides which replies are right: another state machine, as simple as possible, which is
    /// neither frozen nor restored.
    ///
    /// The default model is the machine itself, which processes the calls one after the other. An error that the
    /// machine makes in the same way at every member is then not found, unless a script [reports
    /// it](super::Next::Fail).
    #[must_use]
    pub fn model<M: StateMachine>(self, model: impl Fn() -> M + 'static) -> Self {
        self.model_per_group(move |_| model())
    }

    /// Sets a model as [`model`](Self::model) does, with machines that differ by group.
    #[must_use]
    pub fn model_per_group<M: StateMachine>(self, model: impl Fn(Group) -> M + 'static) -> Self {
        SimCluster { model: Some(Box::new(move |group| Box::new(model(group)))), ..self }
    }

    /// Sets the function that returns the bytes of a value that are compared between members. The bytes must be equal
    /// at all members after the same calls. By default, the output of the frozen value is compared. The default is
    /// unsuitable if one value can be written in several ways, for example in the order of a `HashMap`.
    #[must_use]
    pub fn compare_by(self, compared: impl Fn(&S) -> Vec<u8> + 'static) -> Self {
        SimCluster { compare: Some(Rc::new(compared)), ..self }
    }

    /// Runs seeds, one after the other on this thread, up to the first that fails. If the environment variable
    /// `STENTOR_SIM_SEED` is set, only that seed runs, and its trace is printed.
    ///
    /// # Errors
    /// Returns [`SimError::Failed`] with the seed that failed, or [`SimError::NotReached`] if no call was answered, or
    /// if a kind of fault never happened in a hundred seeds or more. Returns another error if the seeds cannot be run.
    pub fn run(&self, seeds: impl IntoIterator<Item = u64>) -> Result<SimReport, SimError> {
        self.check()?;
        if let Some(seed) = seed_of_variable()? {
            return self.run_alone(seed);
        }
        let mut report = SimReport::default();
        for seed in seeds {
            let ran = self.run_one(seed, false)?;
            if !ran.violations.is_empty() {
                return Err(SimError::Failed(Box::new(self.failure(seed, &ran)?)));
            }
            report.add(&ran.report);
        }
        if report.seeds() == 0 {
            return Err(SimError::NoSeeds);
        }
        let missing = report.missing(self.members);
        if !missing.is_empty() {
            return Err(SimError::NotReached { missing, report: Box::new(report) });
        }
        Ok(report)
    }

    /// Runs one seed and returns its report, trace and failure.
    ///
    /// # Errors
    /// Returns an error if the seed could not be run. A seed that fails is not an error here: see [`SimRun::failure`].
    pub fn replay(&self, seed: u64) -> Result<SimRun, SimError> {
        self.check()?;
        let ran = self.run_one(seed, true)?;
        let failure = (!ran.violations.is_empty()).then(|| failure_of(seed, &ran, &ran, true));
        let Ran { report, digest, trace, .. } = ran;
        Ok(SimRun { report, digest, trace, failure })
    }

    fn run_alone(&self, seed: u64) -> Result<SimReport, SimError> {
        let run = self.replay(seed)?;
        run.trace.iter().for_each(|line| eprintln!("{line}"));
        match run.failure {
            Some(failure) => Err(SimError::Failed(Box::new(failure))),
            None => Ok(run.report),
        }
    }

    /// Runs a failed seed again to obtain its trace.
    fn failure(&self, seed: u64, first: &Ran) -> Result<SimFailure, SimError> {
        let again = self.run_one(seed, true)?;
        let repeats = again.violations == first.violations && again.report == first.report;
        Ok(failure_of(seed, first, &again, repeats))
    }

    fn check(&self) -> Result<(), SimError> {
        let bound = |name, given: usize, possible: RangeInclusive<u64>| {
            let (given, least, most) = (given as u64, *possible.start(), *possible.end());
            if possible.contains(&given) { Ok(()) } else { Err(SimError::Argument { name, given, least, most }) }
        };
        bound("groups", self.groups, 1..=8)?;
        bound("members", self.members, 1..=5)?;
        bound("clients", self.clients, 1..=8)?;
        bound("groups * members + clients", self.groups * self.members + self.clients, 1..=32)?;
        bound("calls", self.calls as usize, 1..=1000)?;
        bound("at_once", self.at_once, 1..=8)?;
        bound("command_bytes", self.command_bytes, 0..=4096)?;
        bound("reply_bytes", self.reply_bytes, 0..=4096)
    }

    fn run_one(&self, seed: u64, tells: bool) -> Result<Ran, SimError> {
        let wrongs = Wrongs::default();
        let scripts = (0..self.clients).map(|client| (self.script)(client)).collect();
        let clients = Clients::new(seed, scripts, self.groups, (self.at_once, self.command_bytes), &wrongs);
        let clients = Rc::new(RefCell::new(clients));
        let service = Service {
            shape: self.shape(),
            machine: self.hosts(&wrongs),
            workload: Rc::clone(&clients) as Rc<RefCell<dyn stentor_simulation::sessions::Workload>>,
            mutant: self.mutant,
        };
        let run = service.run(seed, tells).map_err(|error: NodeError| SimError::Start(error.to_string()))?;
        let clients = clients.borrow();
        let mut report = SimReport::of(&run, &clients, self.groups);
        let mut violations: Vec<_> = of_simulation(&run).collect();
        let mut call = None;
        if !wrongs.are_fatal() {
            let (decided, differences) = self.decide(&run, &clients, &wrongs);
            for Difference { property, witness, call: shown } in differences {
                violations.push((property, witness));
                call = call.or(shown);
            }
            match decided {
                Decided::Kept => {}
                Decided::Violated(witness, shown) => {
                    violations.push((SimProperty::Calls, witness));
                    call = call.or(shown);
                }
                Decided::TooHard => report.note_undecided(),
            }
        }
        violations.extend(wrongs.all());
        violations.sort_by_key(|(property, _)| *property);
        let digest = run.hashes.iter().fold(0, |sum, (_, hash)| SplitMix64::mix(sum ^ hash));
        let trace = whole_trace(&run, &clients);
        Ok(Ran { report, digest, trace, violations, call })
    }

    fn shape(&self) -> Shape {
        Shape {
            groups: vec![self.members; self.groups],
            clients: self.clients as u16,
            calls: self.calls,
            command_bytes: self.command_bytes as u32,
            reply_bytes: self.reply_bytes as u32,
        }
    }

    /// Returns a constructor of members' machines.
    fn hosts(&self, wrongs: &Wrongs) -> Box<dyn Fn(GroupId) -> Box<dyn Machine>> {
        let (machine, compare, wrongs) = (Rc::clone(&self.machine), self.compare.clone(), wrongs.clone());
        let most_reply = self.reply_bytes;
        Box::new(move |group| {
            let (machine, compare) = (Some(machine(Group(group))), compare.clone());
            let lent = Lent::new(S::VERSION);
            Box::new(Hosted { machine, lent, is_due: false, group, compare, most_reply, wrongs: wrongs.clone() })
        })
    }

    fn decide(&self, run: &ServiceRun, clients: &Clients, wrongs: &Wrongs) -> (Decided, Vec<Difference>) {
        let machine = |group| -> Box<dyn Applies> { Box::new((self.machine)(group)) };
        let model = Sequential {
            fresh: self.model.as_deref().unwrap_or(&machine),
            version: S::VERSION,
            calls: &clients.calls,
            applied: &run.applied,
            passed: &run.passed,
            most_reply: self.reply_bytes,
            reached: RefCell::new(BTreeMap::new()),
            wrongs: wrongs.clone(),
        };
        let differences = differences(&model, &run.notes, self.groups as u16, self.model.is_none());
        (decided(&model, run.report.finished), differences)
    }
}

impl<S> fmt::Debug for SimCluster<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimCluster { groups, members, clients, calls, at_once, .. } = self;
        let mut text = f.debug_struct("SimCluster");
        text.field("groups", groups).field("members", members).field("clients", clients);
        text.field("calls", calls).field("at_once", at_once).finish_non_exhaustive()
    }
}

/// Returns the violations that the simulation itself has found.
fn of_simulation(run: &ServiceRun) -> impl Iterator<Item = (SimProperty, String)> + '_ {
    run.report.report.properties.iter().filter_map(|(name, verdict)| match verdict {
        stentor_checker::Verdict::Violated(example) => {
            Some((SimProperty::of(name, run.values_differ), example.summary.clone()))
        }
        _ => None,
    })
}

/// Returns the trace. Each line about the beginning of a call ends with the content of the call.
fn whole_trace(run: &ServiceRun, clients: &Clients) -> Vec<String> {
    let with_call = |line: &String| {
        let begins = line.split_once(" begins call ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        let Some(call) = begins.and_then(|token: u64| clients.calls.get(&token)) else { return line.clone() };
        let kind = call.kind();
        let groups: Vec<String> = call.groups.ids().iter().map(|group| group.0.to_string()).collect();
        let bytes = call.bytes[..call.bytes.len().min(60)].escape_ascii();
        format!("{line}: {kind} \"{bytes}\" to group {}", groups.join(", "))
    };
    run.story.iter().map(with_call).collect()
}

/// Returns the failure of a seed, with the trace of the run `traced`, which may be a second one.
fn failure_of(seed: u64, first: &Ran, traced: &Ran, repeats: bool) -> SimFailure {
    let test = std::thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    let (violations, trace) = (first.violations.clone(), traced.trace.clone());
    SimFailure { seed, violations, trace, call: first.call, repeats, test }
}

/// Returns the seed that the environment variable names.
fn seed_of_variable() -> Result<Option<u64>, SimError> {
    let Some(text) = std::env::var_os(SEED_VARIABLE) else { return Ok(None) };
    let text = text.to_string_lossy().into_owned();
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map(Some).map_err(|_| SimError::Variable(text))
}
