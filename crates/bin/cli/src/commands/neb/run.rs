//! `stentor neb run`: one process of the broadcast that `cluster.toml` describes.

use std::io::BufReader;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::ClusterConfig;
use stentor::config::NebConfig;
use stentor::operator::Place;
use stentor::runtime::{ClusterFabric, ClusterRuntime, FabricDiagnostics, Role, clock_name, now_ns};
use stentor::with_fabric;
use stentor_checker::Cluster;
use stentor_fabric::{Backoff, Fabric, ProcessId, WaitMode};
use stentor_host::{Beside, StandingSeat};
use stentor_neb::{Authority, Mode, Node, Notice};
use stentor_support::live::{
    self, Input, Interrupt, Line, Lines, Need, Refusals, TooLong, Troubles, Waiting, addressed, with_fault,
};
use stentor_support::streams::{StandardInput, write_until};
use stentor_support::{Failure, Level, Output, Verdict, hex};

use super::history::NebHistory;
use super::remove::Listening;
use super::unsent::Unsent;
use crate::args::{NebRun, OnRoce};
use crate::commands::node::make_room;

/// Size of the lines that are collected under load, in bytes.
const BATCH_BYTES: usize = 64 << 10;

/// An event, printed as one JSON document per line.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Told<'a> {
    Deliver {
        sender: &'a str,
        index: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<&'a str>,
        /// The bytes in hexadecimal, if they are not UTF-8.
        #[serde(skip_serializing_if = "Option::is_none")]
        payload_hex: Option<String>,
    },
    /// The value of the index arrived too late at this process, so it is not delivered here.
    Skip { sender: &'a str, index: u64 },
    /// The sender broadcast two values; its stream ends here.
    Equivocation { sender: &'a str, index: u64, witness: &'a str, proven: bool },
    /// The sender broke the protocol; its stream ends here.
    Refused { sender: &'a str, why: String },
    /// An operator removed the sender; its stream ends before this index at all processes.
    Removed { sender: &'a str, index: u64 },
}

pub(super) fn run(args: &NebRun, output: Output) -> Result<Verdict, Failure> {
    let plan = live::plan(&args.config)?;
    let config = plan.config();
    let Some(neb) = config.neb() else {
        let remedy = "add one with `group`, `mode` and `fault_model`; `stentor config init` shows it";
        return Err(Failure::usage("there is no [neb]", args.config.display(), remedy));
    };
    let names: Vec<&str> = config.groups()[neb.group()].members().iter().map(|member| member.id()).collect();
    let Some(me) = names.iter().position(|name| *name == args.id) else {
        let what = format_args!("`{}` is no process of the broadcast", args.id);
        return Err(Failure::usage(what, args.config.display(), format_args!("name one of {}", names.join(", "))));
    };
    let me = ProcessId(me as u16);
    let authority = authority(config, neb, me, args)?;
    let need = Need::of_neb(&plan, neb.config().processes);
    need.refuse(args.config.display())?;
    make_room(&need, &args.id, output);
    let run = Run { args, plan: &plan, neb, names: &names, output };
    with_fabric!(config.fabric(), F => run.start::<F>(me, authority))
}

/// A process of the broadcast that is to run.
#[derive(Clone, Copy)]
struct Run<'a> {
    args: &'a NebRun,
    plan: &'a ClusterRuntime,
    neb: &'a NebConfig,
    /// Names of all processes of the broadcast.
    names: &'a [&'a str],
    output: Output,
}

impl Run<'_> {
    fn log(&self, level: Level, text: &str) {
        self.output.log(level, &self.args.id, text);
    }

    /// Starts the process on its fabric and runs it.
    fn start<F: ClusterFabric>(self, me: ProcessId, authority: Option<Authority>) -> Result<Verdict, Failure> {
        let Run { args, plan, neb, .. } = self;
        let OnRoce { bind, network } = &args.roce;
        live::refuse_foreign(plan, *bind, network, &args.config)?;
        let say = |text: &str| self.log(Level::Info, text);
        let place = if F::MEETS_IN_DIRECTORY { None } else { self.beside(me)? };
        let bind = live::bind_config(&args.config, live::directory(args.directory.as_ref()), *bind, network);
        let fabric = live::patiently(|| F::start_in(plan, Role::Broadcast(neb), me, &bind), say)
            .map_err(|error| live::unstarted(error, &args.config))?;
        let operator = fabric.operator_socket().or_else(|| place.as_ref().map(StandingSeat::beside));
        self.serve(fabric, authority, operator)
    }

    /// Creates the directory in which the process listens for operators. If that fails, the process runs without it.
    /// Returns an error if another process of this name runs.
    fn beside(&self, me: ProcessId) -> Result<Option<StandingSeat>, Failure> {
        let Run { args, plan, neb, output, .. } = *self;
        let (meeting, source) = (live::neb_meeting_name(plan), plan.neb_source(neb.group()));
        let (directory, id) = (live::directory(args.directory.as_ref()), args.id.clone());
        let say = move |text: &str| output.log(Level::Warn, &id, text);
        let place = Place { directory, meeting, me, name: &args.id, source };
        place.take("stentor neb remove", say).map_err(|error| live::unstarted(error, &args.config))
    }

    /// Runs the process on any fabric.
    fn serve<F: FabricDiagnostics>(
        self,
        fabric: F,
        authority: Option<Authority>,
        operator: Option<Beside>,
    ) -> Result<Verdict, Failure> {
        let Run { args, plan, neb, names, .. } = self;
        let config = plan.config();
        let group = &config.groups()[neb.group()];
        let interrupt = Interrupt::catch()?;
        let me = plan.process(&args.id).map_err(|error| live::unstarted(error, &args.config))?;
        self.log(Level::Info, &live::origin(plan, me, &live::directory(args.directory.as_ref())));
        fabric.carrier().iter().for_each(|line| self.log(Level::Info, line));
        // In the other modes no process waits for a stopped one, so operators remove none.
        let operator = operator.filter(|_| neb.config().mode == Mode::All);
        let operator = operator.map(|path| Listening::at(&path, config.fingerprint(), fabric.waker())).transpose()?;
        let node = Node::new(fabric, *neb.config(), config.salt(), authority).map_err(|error| {
            Failure::refused(&error, args.config.display(), "`stentor doctor` says what this machine can do")
        })?;
        self.log(Level::Info, &format!("{}, quorum {}", neb.config().mode, neb.config().quorum()));
        // The file is created only now: until the fabric has started, another process with this id may be writing it.
        let history = args.history.as_deref().map(|path| history(path, group.id(), names, &node));
        let mut serving = Serving {
            node,
            history: history.transpose()?,
            waiting: None,
            unsent: Unsent::default(),
            refusals: Refusals::default(),
            troubles: Troubles::default(),
            waiting_for: Waiting::default(),
            addressed: group.members().iter().map(|member| addressed(config, member)).collect(),
            met: false,
            operator,
            begun: false,
            config: &args.config,
            enough_since: None,
        };
        let served = serving.run(names, &interrupt, |level, text| self.log(level, text));
        // The history is finished even after a failure, so that earlier records are kept.
        serving.node.fabric_mut().last_troubles().iter().for_each(|trouble| self.log(Level::Warn, trouble));
        serving.finish()?;
        served?;
        if serving.node.has_left() {
            let remedy = "it can join again only when the whole cluster is started anew";
            return Err(Failure::run(format_args!("an operator removed `{}`", args.id), args.config.display(), remedy));
        }
        Ok(Verdict::Good)
    }
}

/// Begins the history of this process.
fn history<F: Fabric>(path: &Path, group: &str, names: &[&str], node: &Node<F>) -> Result<NebHistory, Failure> {
    let mut builder = Cluster::builder().group(group, names.iter().copied());
    if let Some(name) = clock_name() {
        builder = builder.host_clock(name);
    }
    let cluster = builder.window(u64::from(node.config().window)).build();
    let cluster = cluster.expect("a checked configuration names its processes once");
    let mut history = NebHistory::new(path, cluster, node.me(), node.config())?;
    history.memory(node);
    history.flush();
    history.check()?;
    Ok(history)
}

fn authority(
    config: &ClusterConfig,
    neb: &NebConfig,
    me: ProcessId,
    args: &NebRun,
) -> Result<Option<Authority>, Failure> {
    let place = args.config.display();
    match (neb.config().signed, args.secret.as_deref()) {
        (false, None) => Ok(None),
        (true, Some(file)) => {
            let secret = super::key::read(file)?;
            let refuse = |error| Failure::usage(error, file.display(), "name the secret key of this process");
            neb.authority(config.salt(), me, &secret).map(Some).map_err(refuse)
        }
        (true, None) => {
            Err(Failure::usage("[neb] has keys, and no secret key is named", place, "name its file with --secret"))
        }
        (false, Some(_)) => {
            Err(Failure::usage("[neb] has no keys, so nothing is signed", place, "add `keys`, or leave out --secret"))
        }
    }
}

/// A running process.
struct Serving<'a, F: FabricDiagnostics> {
    node: Node<F>,
    history: Option<NebHistory>,
    /// A line that was read and could not be broadcast yet.
    waiting: Option<Vec<u8>>,
    /// Lines that were too long.
    unsent: Unsent,
    refusals: Refusals,
    troubles: Troubles,
    waiting_for: Waiting,
    /// All processes, with their addresses.
    addressed: Vec<String>,
    /// `true` once some other process has been connected.
    met: bool,
    /// The socket for requests of operators.
    operator: Option<Listening>,
    /// `true` once broadcasts may be sent.
    begun: bool,
    /// The configuration file, for errors.
    config: &'a Path,
    /// Time since which enough other processes are connected to credit a message.
    enough_since: Option<u64>,
}

impl<F: FabricDiagnostics> Serving<'_, F> {
    fn run(&mut self, names: &[&str], interrupt: &Interrupt, log: impl Fn(Level, &str)) -> Result<(), Failure> {
        let (say, trouble) = (|text: &str| log(Level::Warn, text), |text: &str| log(Level::Error, text));
        let limit = self.node.config().payload_bytes;
        // A process that ends can never return under its id, so a line that cannot be broadcast must not end it.
        let lines = Lines::read(|| Box::new(BufReader::new(StandardInput)), limit, TooLong::Skipped)?;
        let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
        let (mut out, mut round) = (Vec::with_capacity(2 * BATCH_BYTES), 0_u64);
        while !interrupt.came() && !self.node.has_left() {
            round += 1;
            let mut worked = (round.is_multiple_of(64) || !self.node.is_connected()) && self.node.housekeep();
            let history = &mut self.history;
            worked |= self.node.step(&mut |notice| report(history, names, &mut out, &notice));
            if out.len() >= BATCH_BYTES {
                print(&mut out, interrupt)?;
            }
            worked |= self.broadcast(&lines, &say)?;
            if self.unsent.is_any() {
                self.unsent.tell(now_ns(), limit, &say);
            }
            if !worked {
                print(&mut out, interrupt)?;
                self.node.housekeep();
                worked |= self.answer_operator(names, &mut out);
                self.refusals(names, say)?;
                self.flush_history();
            }
            if round.is_multiple_of(64) {
                // Operators are answered even if every round has other work to do.
                self.answer_operator(names, &mut out);
            }
            self.history.iter_mut().filter_map(NebHistory::news).for_each(|failure| trouble(&failure.while_going_on()));
            let slept = backoff.pause(self.node.fabric_mut(), worked, Duration::from_millis(5));
            slept.map_err(|error| Failure::run(error, "stentor neb run", "report this as a bug"))?;
        }
        self.unsent.tell_all(limit, &say);
        print(&mut out, interrupt)
    }

    /// Answers an operator's next request. Returns whether there was one.
    fn answer_operator(&mut self, names: &[&str], out: &mut Vec<u8>) -> bool {
        let Serving { node, history, operator, .. } = self;
        let notify = &mut |notice: Notice<'_>| report(history, names, out, &notice);
        operator.as_ref().is_some_and(|operator| operator.round(node, notify))
    }

    /// Reports refused connections, such as those of a process of another cluster or with another configuration,
    /// troubles of the fabric, and processes that are missing before the first broadcast. Returns an error if no other
    /// process has ever accepted this one, and most other processes will never accept it.
    fn refusals(&mut self, names: &[&str], say: impl Fn(&str)) -> Result<(), Failure> {
        let named = |process: ProcessId| names[process.index()].to_owned();
        self.refusals.take(self.node.fabric_mut(), named, &say);
        self.troubles.report(self.node.fabric_mut(), &say);
        if !self.node.is_connected() && !self.begun {
            let fabric = self.node.fabric();
            let absent = |n: &usize| *n != fabric.me().index() && !fabric.sees(ProcessId(*n as u16));
            let where_is = |n: usize| with_fault(self.addressed[n].clone(), fabric.unresolved(ProcessId(n as u16)));
            let whom = || (0..names.len()).filter(absent).map(where_is).collect();
            self.waiting_for.look(Instant::now(), whom).iter().for_each(|text| say(text));
        }
        self.met |= self.node.connected_others() > 0;
        let me = names[self.node.me().index()];
        let enough = if self.met { 0 } else { (names.len() - 1) / 2 + 1 };
        let place = format_args!("{me}, {}", self.config.display());
        self.refusals.final_word(enough, |_| true, &place).map_or(Ok(()), Err)
    }

    fn flush_history(&mut self) {
        if let Some(history) = &mut self.history {
            history.flush();
        }
    }

    fn check_history(&self) -> Result<(), Failure> {
        self.history.as_ref().map_or(Ok(()), NebHistory::check)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if let Some(history) = &mut self.history {
            history.memory(&self.node);
        }
        self.flush_history();
        self.check_history()
    }

    /// Returns whether broadcasts may begin. At the start, this process waits until all processes are connected, so
    /// that none misses a broadcast. In modes where some may have stopped for good, it waits only for as many as must
    /// credit a message, and then for the time of `patience`. Once broadcasts have begun, it waits no more: flow
    /// control decides what may be sent.
    fn has_begun(&mut self, now_ns: u64) -> bool {
        if self.begun || self.node.is_connected() {
            self.begun = true;
            return true;
        }
        let config = *self.node.config();
        if self.node.connected_others() < config.must_credit() {
            self.enough_since = None;
            return false;
        }
        let since = *self.enough_since.get_or_insert(now_ns);
        self.begun = config.mode != Mode::All && now_ns.saturating_sub(since) >= config.patience_ns;
        self.begun
    }

    /// Broadcasts the waiting line, or the next one. Returns whether a line was broadcast.
    fn broadcast(&mut self, lines: &Lines, say: &impl Fn(&str)) -> Result<bool, Failure> {
        let now = now_ns();
        if !self.has_begun(now) {
            return Ok(false);
        }
        if self.waiting.is_none() {
            self.waiting = self.next_line(lines, say);
        }
        let Some(line) = self.waiting.take_if(|_| self.node.has_room(now)) else { return Ok(false) };
        if let Some(history) = &mut self.history {
            // The record is written before any other process gets the line, because others may deliver the line even if
            // this process is killed right after the broadcast.
            history.broadcast(now, self.node.own_stream().next(), &line);
            history.flush();
        }
        let sent = self.node.broadcast(now, 0, &line);
        sent.map_err(|error| Failure::run(error, "stentor neb run", "report this as a bug"))?;
        Ok(true)
    }

    /// Returns the next line that can be broadcast, if it is among the next 64 lines.
    fn next_line(&mut self, lines: &Lines, say: &impl Fn(&str)) -> Option<Vec<u8>> {
        for _ in 0..64 {
            match lines.next() {
                Input::Line(Line::Text(line)) => return Some(line),
                Input::Line(Line::TooLong { number }) => self.unsent.add(number),
                Input::Line(Line::Unreadable { number, error }) => say(&format!(
                    "cannot read standard input at line {number}: {error}; this process goes on and broadcasts nothing more"
                )),
                Input::Later | Input::End => break,
            }
        }
        None
    }
}

/// Prints events. If the reader stalls, this process waits until it is asked to end.
fn print(lines: &mut Vec<u8>, interrupt: &Interrupt) -> Result<(), Failure> {
    match write_until(lines, &|| interrupt.came()) {
        Ok(0) => {
            lines.clear();
            Ok(())
        }
        Ok(left) => {
            let what = format_args!("nobody reads the events: the last {left} bytes were not printed");
            Err(Failure::run(what, "standard output", "let the reader go on before stopping this process"))
        }
        Err(error) => Err(Failure::refused(&error, "standard output", "let its reader read it to its end")),
    }
}

/// Records a notice of the node in the history, if there is one, and appends its event to the lines to print.
fn report(history: &mut Option<NebHistory>, names: &[&str], out: &mut Vec<u8>, notice: &Notice<'_>) {
    if let Some(history) = history {
        history.notice(notice);
    }
    serde_json::to_writer(&mut *out, &told(names, notice)).expect("string keys");
    out.push(b'\n');
}

fn told<'a>(names: &[&'a str], notice: &'a Notice<'_>) -> Told<'a> {
    let name = |process: ProcessId| names[process.index()];
    match notice {
        Notice::Deliver(sender, value) => {
            let payload = std::str::from_utf8(value.payload()).ok();
            let payload_hex = payload.is_none().then(|| hex(value.payload()));
            Told::Deliver { sender: name(*sender), index: value.index(), payload, payload_hex }
        }
        Notice::Skip(sender, index) => Told::Skip { sender: name(*sender), index: *index },
        Notice::Equivocation(evidence) => Told::Equivocation {
            sender: name(evidence.sender),
            index: evidence.index,
            witness: name(evidence.witness),
            proven: evidence.proven,
        },
        Notice::Refused(sender, why) => Told::Refused { sender: name(*sender), why: why.to_string() },
        Notice::Removed(sender, index) => Told::Removed { sender: name(*sender), index: *index },
    }
}
