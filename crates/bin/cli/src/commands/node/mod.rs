//! `stentor node`: a member of a group, until it is told to stop.

mod artificial;
mod beginnings;
mod clocks;
mod elsewhere;
#[cfg(feature = "zookeeper")]
mod ensemble;
mod hindrance;
mod keeping;
mod loss;
mod majority;
mod operator;
mod report;
mod sink;
mod talk;
mod transfers;

use std::cell::RefCell;
use std::sync::Arc;

use stentor::runtime::{
    BindConfig, ClusterFabric, ClusterRuntime, FabricDiagnostics, Goodbye, Member, Role, Stop, run_member,
};
use stentor::{NodeError, with_fabric};
use stentor_fabric::ProcessId;
use stentor_host::{Beside, StandingSeat};

use crate::args::{self, OnRoce};
use artificial::Artificial;
use keeping::Keeping;
use operator::Operator;
pub(super) use report::Served;
use sink::{Sink, Told};
use stentor_support::live::{self, At, Interrupt, Need, stop_at_end_of_input, unstarted};
use stentor_support::{Failure, Level, Output, Verdict, bytes};
use talk::Talk;

pub(super) fn run(args: &args::Node, output: Output) -> Result<Verdict, Failure> {
    let meeting = &args.meeting;
    args.follow.map_or(Ok(()), live::follow)?;
    let plan = live::plan(&meeting.config)?;
    let me = plan.process(&args.id).map_err(|error| unstarted(error, &meeting.config))?;
    let need = Need::of(&plan);
    need.refuse(meeting.config.display())?;
    make_room(&need, &args.id, output);
    let run = Run { args, plan: &plan, me, output };
    with_fabric!(plan.config().fabric(), F => run.start::<F>())
}

/// A member that is to run.
#[derive(Clone, Copy)]
struct Run<'a> {
    args: &'a args::Node,
    plan: &'a ClusterRuntime,
    me: ProcessId,
    output: Output,
}

impl Run<'_> {
    fn log(&self, level: Level, text: &str) {
        self.output.log(level, &self.args.id, text);
    }

    /// Starts the member on its fabric and runs it.
    fn start<F: ClusterFabric>(self) -> Result<Verdict, Failure> {
        let Run { args, plan, me, .. } = self;
        let config = &args.meeting.config;
        let failed = |error| unstarted(error, config);
        let say = |text: &str| self.log(Level::Info, text);
        let OnRoce { bind, network } = &args.meeting.roce;
        live::refuse_foreign(plan, *bind, network, config)?;
        let directory = live::directory(args.meeting.directory.as_ref());
        let place = if F::MEETS_IN_DIRECTORY {
            plan.source().map_or(Ok(()), |source| live::refuse_twin(&source, &args.id, me, say))?;
            plan.check_member(me).map_err(failed)?;
            None
        } else {
            self.beside()?
        };
        let bind = BindConfig { faults: args.faults, ..live::bind_config(config, directory, *bind, network) };
        let fabric = live::patiently(|| F::start_in(plan, Role::Groups, me, &bind), say).map_err(failed)?;
        let member = plan.joining_on(fabric, me).map_err(failed)?;
        let operator = member.fabric().operator_socket().or_else(|| place.as_ref().map(StandingSeat::beside));
        self.live(member, operator.as_ref())
    }

    /// Where a node listens for operators whose fabric needs no directory. Without such a place it runs as well, but not beside
    /// another process of its name.
    fn beside(&self) -> Result<Option<StandingSeat>, Failure> {
        let Run { args, plan, me, output } = *self;
        let (directory, config) = (live::directory(args.meeting.directory.as_ref()), &args.meeting.config);
        let (meeting, source) = (live::meeting_name(plan), plan.source());
        At { directory, meeting, me, name: &args.id, source, config }.take("stentor leader", output)
    }

    /// The node's life; `operator` is where it listens for `stentor leader`.
    fn live<F: FabricDiagnostics>(self, mut member: Member<F>, operator: Option<&Beside>) -> Result<Verdict, Failure> {
        let Run { args, plan, me, output } = self;
        let meeting = &args.meeting;
        let interrupt = Interrupt::catch()?;
        let stop = Arc::new(Stop::default());
        // Only now: another process with this id may be writing that file.
        let history = meeting.history.as_deref();
        let stopping = {
            let (interrupt, stop) = (interrupt.clone(), Arc::clone(&stop));
            Box::new(move || interrupt.came() || stop.is_stopped())
        };
        let mut sink = Sink::new(plan, me, history, args.life, !output.is_json(), stopping)?;
        sink.memory(&member.memory_use());
        let origin = live::origin(plan, me, &live::directory(meeting.directory.as_ref()));
        self.log(Level::Info, &origin);
        member.fabric().carrier().iter().for_each(|line| self.log(Level::Info, line));
        self.log(Level::Info, &announce(plan, &member));
        if meeting.operations {
            member.record_operations();
        }
        if args.until_eof {
            stop_at_end_of_input(Arc::clone(&stop))?;
        }
        let mut keeper = Keeping::new(plan, me, args)?;
        let directory = live::directory(meeting.directory.as_ref());
        let told =
            Listeners { talk: Talk::new(plan, me, output, directory), operator: Operator::listen(plan, operator)? };
        let ended = serve(&mut member, &mut sink, told, &mut keeper, args, &stop, &interrupt);
        member.fabric_mut().last_troubles().iter().for_each(|trouble| self.log(Level::Warn, trouble));
        sink.memory(&member.memory_use());
        let finished = sink.finish();
        ended?;
        let served = Served::new(&args.id, finished?, &member);
        if output.is_json() {
            output.report(&served)?;
        } else {
            self.log(Level::Info, &served.text());
        }
        Ok(Verdict::Good)
    }
}

/// Sees to it that all peers can be let in, or says which cannot.
pub(super) fn make_room(need: &Need, name: &str, output: Output) {
    need.make_room().into_iter().for_each(|short| output.log(Level::Warn, name, &short));
}

fn announce<F: FabricDiagnostics>(plan: &ClusterRuntime, member: &Member<F>) -> String {
    let size = plan.topology().size(member.replica().group());
    let planned = plan.config().memory().of(Some(size)).map_or(0, |process| process.bytes());
    let limits = plan.limits().memory(plan.topology(), size, u32::MAX);
    format!(
        "memory, fixed from here on: {} as `config check` prints it, touched as it is used ({} of it copies of messages, {} their \
         places); {} shared, with the fabric's queues; at most {} waiting to be written",
        bytes(planned),
        bytes(limits.mirrors),
        bytes(limits.windows),
        bytes(member.fabric().memory_bytes()),
        bytes(limits.queues)
    )
}

/// Whoever wants to know how the node stands.
struct Listeners<'a> {
    talk: Talk<'a>,
    operator: Operator<'a>,
}

fn serve<F: FabricDiagnostics>(
    member: &mut Member<F>,
    sink: &mut Sink,
    mut told: Listeners<'_>,
    keeper: &mut Keeping,
    args: &args::Node,
    stop: &Stop,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let operations = args.meeting.operations;
    let sink = RefCell::new(sink);
    let (mut led, mut over, mut goodbye, mut origins) = (None, None, Goodbye::default(), Vec::new());
    let round = |member: &mut Member<F>, now, _: bool| {
        // Heartbeats alone are no reason to keep lines back: a member that rests does nothing else in any round.
        let worked = member.had_work();
        keeper.round(now, member, |text| told.talk.say(text));
        let mut sink = sink.borrow_mut();
        let replica = member.replica();
        if replica.origins() != origins {
            origins = replica.origins().to_vec();
            sink.begun(&origins);
        }
        let leads = replica.is_leader().then(|| replica.ballot());
        if leads != led {
            led = leads;
            leads.into_iter().for_each(|ballot| sink.epoch(ballot));
        }
        told.talk.epoch(member);
        told.talk.transfers(member);
        told.operator.round(now, member, keeper);
        if operations {
            sink.operations(&member.take_operations());
        }
        if !worked {
            told.operator.paused().into_iter().for_each(|pause| told.talk.paused(pause));
            told.talk.idle(now, member, keeper);
            over = told.talk.final_word();
        }
        sink.round(worked);
        sink.news().into_iter().for_each(|failure| told.talk.unrecorded(failure));
        let asked = told.operator.ends();
        if interrupt.came() || asked {
            told.talk.stopping(if asked { "`stentor stop`" } else { interrupt.name() });
            let hands_over = |heir| told.talk.say(&format!("told to stop: hands over to {}", told.talk.name_of(heir)));
            let (may_end, is_said) = (keeper.leave(now, member, hands_over), goodbye.is_said(now));
            if interrupt.insists() || may_end && is_said {
                stop.stop();
            }
        }
        if sink.is_broken() || over.is_some() {
            stop.stop();
        }
    };
    let wait = args.meeting.wait.into();
    let mut app = Told { sink: &sink, state: Artificial::new(args.state_bytes) };
    run_member(member, wait, stop, &mut app, round).map_err(|error| {
        let error = NodeError::ended(&args.id, error);
        Failure::run(error.what(), &args.id, error.remedy())
    })?;
    over.map_or(Ok(()), Err)
}
