//! The hooks of `stentor node`: they choose the election, write the log, print deliveries, and record the history.

use std::sync::{Arc, Mutex, PoisonError};

use stentor::runtime::{ClusterRuntime, Delivered, FabricDiagnostics, Member, StartError, Stop};
use stentor::{Hooks, Round, Voice, Wish};
use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, Origin};
use stentor_support::live::{self, Interrupt};
use stentor_support::{Failure, Level, Output, bytes};

use super::keeping::Keeping;
use super::report::Served;
use super::sink::Sink;
use super::talk::Talk;
use crate::args;

/// The result of a node, kept after the node has ended: the failure that prevented its start, or how it ended.
#[derive(Clone, Default)]
pub(super) struct Left(Arc<Mutex<Option<Result<Served, Failure>>>>);

impl Left {
    fn set(&self, ended: Result<Served, Failure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }

    pub(super) fn take(&self) -> Option<Result<Served, Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The hooks of one node.
pub(super) struct Watching {
    args: args::Node,
    plan: Arc<ClusterRuntime>,
    output: Output,
    /// Flag that is set when standard input ends.
    input: Arc<Stop>,
    /// The parts that exist while the member runs. `None` before the start of the member and after the end of the node.
    begun: Option<Begun>,
    /// Flag that is set when the node no longer waits for the reader of its deliveries.
    ends: Arc<Stop>,
    /// The ballot in which this member leads.
    led: Option<Ballot>,
    origins: Vec<Origin>,
    /// The error that ends the node.
    over: Option<Failure>,
    left: Left,
}

/// The parts that live from the start of the member to the end of the node.
struct Begun {
    /// The handling of signals. Signals are caught only once the member has started, and then end the node in order. An
    /// earlier signal ends the process at once.
    interrupt: Interrupt,
    talk: Talk,
    /// Sink of the deliveries. It is created only when the member has started, because until then another process with
    /// this id may be writing the history.
    sink: Sink,
}

impl Watching {
    pub(super) fn new(
        args: &args::Node,
        plan: &Arc<ClusterRuntime>,
        output: Output,
        (input, left): (Arc<Stop>, Left),
    ) -> Self {
        Watching {
            args: args.clone(),
            plan: Arc::clone(plan),
            output,
            input,
            begun: None,
            ends: Arc::default(),
            led: None,
            origins: Vec::new(),
            over: None,
            left,
        }
    }

    /// Catches signals, and begins the history, the log and the output.
    fn begin(&self, me: ProcessId) -> Result<Begun, Failure> {
        let interrupt = Interrupt::catch()?;
        let stopping = {
            let (interrupt, input, ends) = (interrupt.clone(), Arc::clone(&self.input), Arc::clone(&self.ends));
            Box::new(move || interrupt.came() || input.is_stopped() || ends.is_stopped())
        };
        let Watching { args, plan, output, .. } = self;
        let history = args.meeting.history.as_deref();
        let sink = Sink::new(plan, me, history, args.life, !output.is_json(), stopping)?;
        let directory = live::directory(args.meeting.directory.as_ref());
        let talk = Talk::new(plan, me, *output, directory);
        Ok(Begun { interrupt, talk, sink })
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        self.begun.as_mut().map(|begun| &mut begun.sink)
    }
}

impl Hooks for Watching {
    type Election = Keeping;

    fn election(&self, plan: &ClusterRuntime, me: ProcessId) -> Result<Keeping, StartError> {
        #[cfg(feature = "zookeeper")]
        let servers = &self.args.zookeeper;
        #[cfg(not(feature = "zookeeper"))]
        let servers = &[];
        Keeping::new(plan, me, servers)
    }

    fn voice(&self, name: &str) -> Voice {
        let (output, name) = (self.output, name.to_owned());
        Arc::new(move |level, text| output.log(level.into(), &name, text))
    }

    fn started<F: FabricDiagnostics>(&mut self, plan: &ClusterRuntime, member: &mut Member<F>) {
        let me = member.fabric().me();
        let mut begun = match self.begin(me) {
            Ok(begun) => begun,
            Err(failure) => return self.left.set(Err(failure)),
        };
        begun.sink.memory(&member.memory_use());
        let directory = live::directory(self.args.meeting.directory.as_ref());
        begun.talk.say(&live::origin(plan, me, &directory));
        member.fabric().carrier().iter().for_each(|line| begun.talk.say(line));
        begun.talk.say(&announce(plan, member));
        self.begun = Some(begun);
        if self.args.meeting.operations {
            member.record_operations();
        }
    }

    #[inline]
    fn delivered(&mut self, delivered: &Delivered<'_>, command: Option<&[u8]>) {
        if let Some(sink) = self.sink() {
            sink.deliver(delivered, command);
        }
    }

    fn freezes(&mut self) {
        self.sink().into_iter().for_each(Sink::hand_over);
    }

    fn restored(&mut self, number: u64) {
        self.sink().into_iter().for_each(|sink| sink.restore(number));
    }

    fn round<F: FabricDiagnostics>(&mut self, round: Round<'_, F, Keeping>) -> Wish {
        let Round { now, member, election, operator, .. } = round;
        let Watching { input, ends, led, origins, over, .. } = self;
        let Some(Begun { interrupt, talk, sink }) = &mut self.begun else { return Wish::End };
        // Rounds that only exchange heartbeats count as idle. Otherwise the lines of an idle member would wait.
        let worked = member.had_work();
        let replica = member.replica();
        if replica.origins() != origins {
            *origins = replica.origins().to_vec();
            sink.begun(origins);
        }
        let leads = replica.is_leader().then(|| replica.ballot());
        if leads != *led {
            *led = leads;
            leads.into_iter().for_each(|ballot| sink.epoch(ballot));
        }
        talk.epoch(member);
        talk.transfers(member);
        if self.args.meeting.operations {
            sink.operations(&member.take_operations());
        }
        if !worked {
            operator.paused().into_iter().for_each(|pause| talk.paused(pause));
            talk.idle(now, member, election);
            *over = talk.final_word();
        }
        sink.round(worked);
        sink.news().into_iter().for_each(|failure| talk.unrecorded(failure));
        let asked = operator.ends();
        if asked || over.is_some() {
            ends.stop();
        }
        if interrupt.came() || asked {
            talk.stopping(if asked { "`stentor stop`" } else { interrupt.name() });
        }
        if sink.is_broken() || over.is_some() || interrupt.insists() || input.is_stopped() {
            return Wish::End;
        }
        if interrupt.came() { Wish::Leave } else { Wish::GoOn }
    }

    fn ended<F: FabricDiagnostics>(&mut self, member: Option<&mut Member<F>>) {
        let (Some(member), Some(Begun { mut sink, .. })) = (member, self.begun.take()) else { return };
        for trouble in member.fabric_mut().last_troubles() {
            self.output.log(Level::Warn, &self.args.id, &trouble);
        }
        sink.memory(&member.memory_use());
        let over = self.over.take();
        let served = sink.finish().map(|delivered| Served::new(&self.args.id, delivered, member));
        self.left.set(over.map_or(served, Err));
    }
}

fn announce<F: FabricDiagnostics>(plan: &ClusterRuntime, member: &Member<F>) -> String {
    let size = plan.topology().size(member.replica().group());
    let planned = plan.config().memory().of(Some(size)).map_or(0, |process| process.bytes());
    let limits = plan.limits().memory(plan.topology(), size, u32::MAX);
    format!(
        "memory, fixed from here on: {} as `config check` prints it, touched as it is used (copies of messages {} of it, their \
         slots {}); {} shared, with the fabric's queues; at most {} waiting to be written",
        bytes(planned),
        bytes(limits.mirrors),
        bytes(limits.windows),
        bytes(member.fabric().memory_bytes()),
        bytes(limits.queues)
    )
}
