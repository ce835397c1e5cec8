//! The handle of a simulated world, with which a harness drives it.

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
    /// Runs one round of the process's loop at virtual time `now_ns`. Returns whether the round did any work. After a
    /// round with work, the process runs again soon. Otherwise it runs when a write, a completion or an event becomes
    /// visible to it, or when a timeout that it passed to [`wait`](stentor_fabric::Fabric::wait) has elapsed.
    fn step(&mut self, now_ns: u64) -> bool;
}

impl<T: Actor + ?Sized> Actor for Box<T> {
    fn step(&mut self, now_ns: u64) -> bool {
        (**self).step(now_ns)
    }
}

/// A simulated world. Clones are handles of the same world.
#[derive(Clone)]
pub struct World {
    pub(crate) state: Rc<RefCell<State>>,
}

impl World {
    /// Creates a world at time 0. Every process is up and due to run.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        World { state: Rc::new(RefCell::new(State::new(config))) }
    }

    /// Returns the fabric of a process in its current life. Call this once for each life.
    ///
    /// # Panics
    /// Panics if the process does not exist.
    #[must_use]
    pub fn fabric(&self, process: ProcessId) -> SimFabric {
        SimFabric::new(Rc::clone(&self.state), process)
    }

    /// Runs the world until the harness has something to do, at most until `until_ns`. Returns `None` if no event is
    /// left up to that time.
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

    /// Reports that the harness has run the process that was due.
    pub fn stepped(&self, process: ProcessId, worked: bool) {
        self.state.borrow_mut().stepped(process, worked);
    }

    /// Runs `actors` (the index is the process) until `done` returns `true`, `until_ns` is reached, or no event is
    /// left. `done` is called after every step, with the process and its actor. Crashed actors become `None`. Planned
    /// restarts are ignored: harnesses that restart processes drive [`next`](World::next) themselves. Returns whether
    /// `done` returned `true`.
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

    /// Advances the time by `ns` without running any process, for tests that play all processes themselves.
    pub fn advance(&self, ns: u64) {
        let until = self.now_ns() + ns;
        while self.next(until).is_some() {}
        self.state.borrow_mut().now = until;
    }

    /// Returns the virtual time, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state.borrow().now
    }

    /// Returns the number of processes.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.state.borrow().processes.len()
    }

    /// Returns whether the process is up.
    #[must_use]
    pub fn is_up(&self, process: ProcessId) -> bool {
        self.state.borrow().processes[process.index()].up
    }

    /// Makes the process run at `at_ns` at the latest, whatever it waits for, unless it is stalled.
    pub fn wake_at(&self, process: ProcessId, at_ns: u64) {
        let mut state = self.state.borrow_mut();
        let at = at_ns.max(state.now);
        state.wake_at(process, at);
    }

    /// Injects a fault at `at_ns`, or now if that time has passed.
    pub fn inject(&self, at_ns: u64, fault: Fault) {
        let mut state = self.state.borrow_mut();
        let at = at_ns.max(state.now);
        state.plan_fault(at, fault);
    }

    /// Ends the safety phase: heals partitions, ends stalls, and forgets planned faults, except restarts.
    pub fn stop_faults(&self) {
        self.state.borrow_mut().stop_faults();
    }

    /// Crashes the process now, if it is up. Its memory and its queues are lost at once. Messages that left its NIC
    /// before may still arrive, however late, and land until their target revokes the access or connects to the next
    /// life. Peers notice the crash when their retries are exhausted. A harness that drives [`next`](World::next) gets
    /// [`Due::Crashed`].
    pub fn crash(&self, process: ProcessId) {
        self.state.borrow_mut().crash(process);
    }

    /// Restarts the process with empty memory (after crashing it, if it is up) as the next [life](SimFabric::life). Its
    /// peers notice by their broken queue pairs. Peers that reset them connect to the new life as soon as it creates
    /// its ends.
    #[must_use]
    pub fn restart(&self, process: ProcessId) -> SimFabric {
        self.state.borrow_mut().restart(process);
        self.fabric(process)
    }

    /// Cuts the path from one process to another until [`heal`](World::heal) or [`stop_faults`](World::stop_faults).
    /// Messages on it are held, in order; the other direction works. Queue pairs with requests in flight break when
    /// their retries are exhausted.
    pub fn cut_one_way(&self, from: ProcessId, to: ProcessId) {
        self.state.borrow_mut().sever(from, to);
    }

    /// Cuts the paths between two processes in both directions, as [`cut_one_way`](World::cut_one_way) does.
    pub fn cut(&self, a: ProcessId, b: ProcessId) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Ends [`cut`](World::cut) and [`cut_one_way`](World::cut_one_way) between two processes. Held messages continue
    /// at once. Planned partitions end at their own time.
    pub fn heal(&self, a: ProcessId, b: ProcessId) {
        self.heal_one_way(a, b);
        self.heal_one_way(b, a);
    }

    /// Ends a cut in one direction only, as [`heal`](World::heal) does.
    pub fn heal_one_way(&self, from: ProcessId, to: ProcessId) {
        self.state.borrow_mut().heal(from, to);
    }

    /// Stalls the process for `for_ns` nanoseconds: it does not run, but its NIC continues to serve its memory.
    pub fn stall(&self, process: ProcessId, for_ns: u64) {
        self.state.borrow_mut().stall(process, for_ns);
    }

    /// Returns the counts of faults so far.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.state.borrow().counts
    }

    /// Returns the counts of the network's work with sets so far.
    #[must_use]
    pub fn set_counts(&self) -> SetCounts {
        self.state.borrow().set_counts
    }

    /// Returns the number of steps of all processes so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state.borrow().process_counts.iter().map(|counts| counts.steps).sum()
    }

    /// Returns the counts of a process's posts so far.
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

    /// Adds a mark to the trace. Costs nothing if no trace is recorded.
    pub fn mark(&self, process: ProcessId, name: impl std::fmt::Display) {
        self.state.borrow_mut().trace_mark(process, name);
    }

    /// Returns whether a trace is recorded.
    #[must_use]
    pub fn traces(&self) -> bool {
        self.state.borrow().trace.is_some()
    }

    /// Returns the transcript so far, if one was requested, and stops recording it.
    #[must_use]
    pub fn take_transcript(&self) -> Option<Transcript> {
        self.state.borrow_mut().transcript.take()
    }

    /// Returns the trace as Chrome trace JSON, for `ui.perfetto.dev`. The list is empty if none was recorded.
    #[must_use]
    pub fn trace_json(&self) -> String {
        let state = self.state.borrow();
        state.trace.as_ref().map_or_else(|| "{\"traceEvents\":[]}\n".to_string(), |trace| trace.json())
    }
}
