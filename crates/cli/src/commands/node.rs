//! `stentor node`: a member of a group, until it is told to stop.

mod report;
mod sink;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use stentor::runtime::{Member, Plan, ShmFabric, Stop, run_member};
use stentor_fabric::ProcessId;

use crate::args;
use crate::failure::{Failure, Verdict};
use crate::live::{self, Interrupt, stop_at_end_of_input, unstarted};
use crate::output::Output;
use crate::style::bytes;
pub(super) use report::Served;
use sink::Sink;

pub(super) fn run(args: &args::Node, output: Output) -> Result<Verdict, Failure> {
    let meeting = &args.meeting;
    let plan = live::plan(&meeting.config)?;
    let me = plan.process(&args.id).map_err(|error| unstarted(error, &meeting.config))?;
    let interrupt = Interrupt::catch()?;
    let stop = Arc::new(Stop::default());
    let directory = live::directory(meeting.directory.as_ref());
    let mut member = plan.member(me, directory).map_err(|error| unstarted(error, &meeting.config))?;
    // Only now: another process with this id may be writing that file.
    let history = meeting.history.as_deref();
    let mut sink = Sink::new(&plan, me, history, !output.is_json())?;
    sink.memory(&member.memory_use());
    output.note(&announce(&plan, &member, me));
    if meeting.operations {
        member.record_operations();
    }
    if args.until_eof {
        stop_at_end_of_input(Arc::clone(&stop));
    }
    serve(&mut member, &mut sink, args, &stop, &interrupt, output)?;
    sink.memory(&member.memory_use());
    let deliveries = sink.finish()?;
    let served = Served::new(&args.id, deliveries, &member);
    if output.is_json() {
        output.report(&served)?;
    } else {
        output.note(&served.text());
    }
    Ok(Verdict::Good)
}

fn announce(plan: &Plan, member: &Member<ShmFabric>, me: ProcessId) -> String {
    let size = plan.topology().size(member.replica().group());
    let limits = plan.limits().memory(plan.topology(), size, u32::MAX);
    format!(
        "{}: memory, fixed from here on: {} shared, {} for copies of messages, at most {} waiting to be written",
        plan.name(me),
        bytes(member.fabric().memory_bytes()),
        bytes(limits.mirrors),
        bytes(limits.queues)
    )
}

/// What is said once, and what was said last.
struct Talk<'a> {
    output: Output,
    name: &'a str,
    ready: bool,
    refusal: String,
}

impl Talk<'_> {
    /// Looks at a member that has nothing to do.
    fn idle(&mut self, member: &mut Member<ShmFabric>) {
        if !self.ready && member.is_connected() {
            self.ready = true;
            let leads = if member.replica().is_leader() { ", leads its group" } else { "" };
            self.output.note(&format!("{}: ready{leads}; all members are connected", self.name));
        }
        while let Some(refusal) = member.fabric_mut().next_refusal() {
            if refusal.reason != self.refusal {
                self.output.note(&format!("{}: refused a connection: {}", self.name, refusal.reason));
                self.refusal = refusal.reason;
            }
        }
    }
}

fn serve(
    member: &mut Member<ShmFabric>,
    sink: &mut Sink,
    args: &args::Node,
    stop: &Stop,
    interrupt: &Interrupt,
    output: Output,
) -> Result<(), Failure> {
    let mut talk = Talk { output, name: &args.id, ready: false, refusal: String::new() };
    let operations = args.meeting.operations;
    let sink = RefCell::new(sink);
    let round = |member: &mut Member<ShmFabric>, worked: bool| {
        let mut sink = sink.borrow_mut();
        if operations {
            sink.operations(&member.take_operations());
        }
        if !worked {
            talk.idle(member);
        }
        sink.round(worked);
        if interrupt.came() || sink.is_broken() {
            stop.stop();
        }
    };
    let deliver = |delivered: &stentor::runtime::Delivered<'_>| sink.borrow_mut().deliver(delivered);
    run_member(member, args.meeting.wait.into(), stop, deliver, round).map_err(|error| unwaited(&error, &args.id))
}

fn unwaited(error: &impl std::fmt::Display, id: &str) -> Failure {
    Failure::run(error, id, "`stentor doctor` says what this machine can do")
}

/// What a history that could not be written means.
fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let what = format_args!("cannot write the history: {error}; it is incomplete");
    Failure::run(what, path.display(), "make room on the disk, or write somewhere else")
}
