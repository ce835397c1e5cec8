//! The handle of a simulated world, and how a harness drives it.

use std::cell::RefCell;
use std::rc::Rc;

use stentor_fabric::ProcessId;

use crate::config::{Due, SimConfig};
use crate::counts::{FaultCounts, ProcessCounts, SetCounts};
use crate::fabric::SimFabric;
use crate::fault::Fault;
use crate::state::State;
use crate::transcript::Transcript;

/// A process as the scheduler sees it.
pub trait Actor {
    /// One round of the process's loop at virtual time `now_ns`. Whether it did anything: then it runs again soon.
    /// Otherwise it runs when something becomes visible to it, or when a timeout that it gave to
    /// [`wait`](stentor_fabric::Fabric::wait) is over.
    fn step(&mut self, now_ns: u64) -> bool;
}

impl<T: Actor + ?Sized> Actor for Box<T> {
    fn step(&mut self, now_ns: u64) -> bool {
        (**self).step(now_ns)
    }
}

/// A simulated world. Clones are handles of the same one.
#[derive(Clone)]
pub struct World {
    pub(crate) state: Rc<RefCell<State>>,
}

impl World {
    /// A new world at time 0; every process is up and due to run.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        World { state: Rc::new(RefCell::new(State::new(config))) }
    }

    /// The fabric of a process, as it is now. Take it once per life.
    ///
    /// # Panics
    /// If there is no such process.
    #[must_use]
    pub fn fabric(&self, process: ProcessId) -> SimFabric {
        SimFabric::new(Rc::clone(&self.state), process)
    }

    /// Lets things happen until the harness has something to do, at most up to `until_ns`. `None`: nothing is left to
    /// happen before that.
    #[must_use]
    pub fn next(&self, until_ns: u64) -> Option<Due> {
        let mut state = self.state.borrow_mut();
        loop {
            if let Some(due) = state.due.pop_front() {
                return Some(due);
            }
            if state.calendar.next_at().is_none_or(|at| at > until_ns) {
                return None;
            }
            let (at, event) = state.calendar.pop()?;
            state.now = state.now.max(at);
            state.handle(event);
        }
    }

    /// The harness ran the process that was due.
    pub fn stepped(&self, process: ProcessId, worked: bool) {
        self.state.borrow_mut().stepped(process, worked);
    }

    /// Runs `actors` (the index is the process) until `done` says so, the time is over or nothing is left to happen.
    /// `done` is asked after every step, with who stepped. Crashed actors become `None`; planned restarts are ignored:
    /// harnesses that restart drive [`next`](World::next) themselves. Returns whether `done` said so.
    pub fn run<A: Actor>(
        &self,
        actors: &mut [Option<A>],
        until_ns: u64,
        mut done: impl FnMut(ProcessId, &mut A) -> bool,
    ) -> bool {
        while let Some(due) = self.next(until_ns) {
            match due {
                Due::Step { process, now_ns } => {
                    let Some(actor) = actors.get_mut(process.index()).and_then(Option::as_mut) else { continue };
                    let worked = actor.step(now_ns);
                    self.stepped(process, worked);
                    if done(process, actor) {
                        return true;
                    }
                }
                Due::Crashed(process) => actors[process.index()] = None,
                Due::Restart(_) => {}
            }
        }
        false
    }

    /// Lets `ns` pass without running anybody: for tests that are all processes at once.
    pub fn advance(&self, ns: u64) {
        let until = self.now_ns() + ns;
        while self.next(until).is_some() {}
        self.state.borrow_mut().now = until;
    }

    /// Virtual time, ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state.borrow().now
    }

    /// How many processes there are.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.state.borrow().processes.len()
    }

    /// Whether the process is up.
    #[must_use]
    pub fn is_up(&self, process: ProcessId) -> bool {
        self.state.borrow().processes[process.index()].up
    }

    /// Makes the process run at `at_ns` at the latest, whatever it waits for.
    pub fn wake_at(&self, process: ProcessId, at_ns: u64) {
        let mut state = self.state.borrow_mut();
        let at = at_ns.max(state.now);
        state.wake_at(process, at);
    }

    /// A fault happens at `at_ns` (now, if that is over).
    pub fn inject(&self, at_ns: u64, fault: Fault) {
        let mut state = self.state.borrow_mut();
        let at = at_ns.max(state.now);
        state.plan_fault(at, fault);
    }

    /// The end of the safety phase: partitions heal, stalls end, planned faults are forgotten, except restarts.
    pub fn stop_faults(&self) {
        self.state.borrow_mut().stop_faults();
    }

    /// Crashes the process now, if it is up: its memory and its queues are gone at once. What left its NIC before still
    /// arrives, however late, and lands until its target revokes the access or connects to the next life. Peers
    /// find out when their retries are over. A harness that drives [`next`](World::next) gets [`Due::Crashed`].
    pub fn crash(&self, process: ProcessId) {
        self.state.borrow_mut().crash(process);
    }

    /// Brings the process back with empty memory (crashing it first if it is up) as the next
    /// [life](SimFabric::life). Its peers find out by their broken queue pairs; those that reset them
    /// connect to it, as soon as it makes its ends.
    #[must_use]
    pub fn restart(&self, process: ProcessId) -> SimFabric {
        self.state.borrow_mut().restart(process);
        self.fabric(process)
    }

    /// Cuts the way from one process to another until [`heal`](World::heal), or
    /// [`stop_faults`](World::stop_faults): what is sent there is held back, in its order; the other way stays open.
    /// Queue pairs break when their retries are over.
    pub fn cut_one_way(&self, from: ProcessId, to: ProcessId) {
        self.state.borrow_mut().sever(from, to);
    }

    /// [`cut_one_way`](World::cut_one_way), both ways.
    pub fn cut(&self, a: ProcessId, b: ProcessId) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Ends what [`cut`](World::cut) and [`cut_one_way`](World::cut_one_way) began between two processes: what was held
    /// goes on at once. Partitions of a plan end when they end.
    pub fn heal(&self, a: ProcessId, b: ProcessId) {
        self.heal_one_way(a, b);
        self.heal_one_way(b, a);
    }

    /// [`heal`](World::heal), one way only.
    pub fn heal_one_way(&self, from: ProcessId, to: ProcessId) {
        self.state.borrow_mut().heal(from, to);
    }

    /// The process does not run for so long; its NIC goes on serving its memory.
    pub fn stall(&self, process: ProcessId, for_ns: u64) {
        self.state.borrow_mut().stall(process, for_ns);
    }

    /// What was done to the processes so far.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.state.borrow().counts
    }

    /// What the network did with sets so far.
    #[must_use]
    pub fn set_counts(&self) -> SetCounts {
        self.state.borrow().set_counts
    }

    /// The steps of all processes so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state.borrow().process_counts.iter().map(|counts| counts.steps).sum()
    }

    /// What a process posted so far.
    #[must_use]
    pub fn process_counts(&self, process: ProcessId) -> ProcessCounts {
        self.state.borrow().process_counts[process.index()].clone()
    }

    /// Names a process in the trace.
    pub fn name(&self, process: ProcessId, name: &str) {
        if let Some(trace) = &mut self.state.borrow_mut().trace {
            trace.name(process, name);
        }
    }

    /// Puts a mark into the trace. Costs nothing without one.
    pub fn mark(&self, process: ProcessId, name: impl std::fmt::Display) {
        self.state.borrow_mut().trace_mark(process, name);
    }

    /// Whether a trace is recorded.
    #[must_use]
    pub fn traces(&self) -> bool {
        self.state.borrow().trace.is_some()
    }

    /// Returns the transcript so far, if one was asked for. Nothing is added to it any more.
    #[must_use]
    pub fn take_transcript(&self) -> Option<Transcript> {
        self.state.borrow_mut().transcript.take()
    }

    /// The trace as Chrome trace JSON, for `ui.perfetto.dev`; an empty list if none was recorded.
    #[must_use]
    pub fn trace_json(&self) -> String {
        let state = self.state.borrow();
        state.trace.as_ref().map_or_else(|| "{\"traceEvents\":[]}\n".to_string(), |trace| trace.json())
    }
}
