//! `stentor neb run`: one process of the broadcast that `cluster.toml` describes.

use std::collections::VecDeque;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use stentor::ClusterConfig;
use stentor::config::{FabricKind, NebConfig};
use stentor::runtime::{Hosted, Plan, Seat, ShmFabric, clock_name, now_ns};
use stentor_checker::Cluster;
use stentor_fabric::{Backoff, Fabric, ProcessId, WaitMode};
use stentor_fabric_shm::{Place, ShmConfig, StartError};
use stentor_neb::{Authority, Mode, Node, Notice};

use super::neb_history::NebHistory;
use super::neb_remove::Listening;
use crate::args::{NebRun, OnRoce};
use crate::failure::{Failure, Verdict};
use crate::live::{self, Input, Interrupt, Line, Lines};
use crate::output::Output;

/// What happened, one JSON document per line.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Told<'a> {
    Deliver {
        sender: &'a str,
        index: u64,
        payload: String,
    },
    /// The index came too late here.
    Skip {
        sender: &'a str,
        index: u64,
    },
    /// The sender broadcast two values; its stream ends here.
    Equivocation {
        sender: &'a str,
        index: u64,
        witness: &'a str,
        proven: bool,
    },
    /// The sender broke the protocol; its stream ends here.
    Refused {
        sender: &'a str,
        why: String,
    },
    /// An operator removed the sender; its stream ends before this index, here as everywhere.
    Removed {
        sender: &'a str,
        index: u64,
    },
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
    let authority = authority(config, neb, me, args.secret.as_deref())?;
    let say = |text: &str| output.note(&format!("{}: {text}", args.id));
    let OnRoce { bind, network } = &args.roce;
    if config.fabric() == FabricKind::Roce {
        let seat = live::roce_seat(&args.config, *bind, network);
        let fabric = live::patiently(|| plan.neb_roce(neb, me, &seat), say)
            .map_err(|error| live::unstarted(error, &args.config))?;
        let place = beside(args, &plan, me, output);
        return serve(args, config, neb, fabric, authority, place.as_ref().map(Place::beside), output);
    }
    if config.fabric() == FabricKind::Verbs {
        live::refuse_traffic(network, args.config.display())?;
        let seat = Seat::beside(&args.config, *bind);
        let fabric = live::patiently(|| plan.neb_verbs(neb, me, &seat), say)
            .map_err(|error| live::unstarted(error, &args.config))?;
        let place = beside(args, &plan, me, output);
        return serve(args, config, neb, fabric, authority, place.as_ref().map(Place::beside), output);
    }
    if config.fabric() == FabricKind::Ofi {
        live::refuse_traffic(network, args.config.display())?;
        let seat = Seat::beside(&args.config, *bind);
        let fabric = live::patiently(|| plan.neb_ofi(neb, me, &seat), say)
            .map_err(|error| live::unstarted(error, &args.config))?;
        let place = beside(args, &plan, me, output);
        return serve(args, config, neb, fabric, authority, place.as_ref().map(Place::beside), output);
    }
    live::refuse_network(*bind, network, args.config.display())?;
    let fabric = live::patiently(|| shm(config, neb, me, args), say).map_err(|error| failed(&error))?;
    let path = fabric.beside();
    serve(args, config, neb, fabric, authority, Some(path), output)
}

/// Where a process listens for operators whose fabric needs no directory. Without such a place it runs as well.
fn beside(args: &NebRun, plan: &Plan, me: ProcessId, output: Output) -> Option<Place> {
    let directory = live::directory(args.directory.as_ref());
    match Place::take(directory, &live::neb_meeting_name(plan), me, &args.id) {
        Ok(place) => Some(place),
        Err(error) => {
            output.note(&format!("{}: `stentor neb remove` cannot ask this process: {error}", args.id));
            None
        }
    }
}

/// A process's life, on any fabric.
fn serve<F: Hosted>(
    args: &NebRun,
    config: &ClusterConfig,
    neb: &NebConfig,
    fabric: F,
    authority: Option<Authority>,
    operator: Option<PathBuf>,
    output: Output,
) -> Result<Verdict, Failure> {
    let group = &config.groups()[neb.group()];
    let names: Vec<&str> = group.members().iter().map(|member| member.id()).collect();
    let interrupt = Interrupt::catch()?;
    live::carrier_line(&args.id, &fabric).iter().for_each(|line| output.note(line));
    // In the other modes nobody waits for who has stopped.
    let operator = operator.filter(|_| neb.config().mode == Mode::All);
    let operator = operator.map(|path| Listening::at(&path, config.fingerprint())).transpose()?;
    let node = Node::new(fabric, *neb.config(), config.salt(), authority).map_err(|error| failed(&error))?;
    output.note(&format!("{}: {}, quorum {}", args.id, neb.config().mode, neb.config().quorum()));
    // Only now: another process with this id may be writing that file.
    let history = args.history.as_deref().map(|path| history(path, group.id(), &names, &node));
    let mut serving = Serving {
        node,
        history: history.transpose()?,
        waiting: None,
        refusals: VecDeque::new(),
        operator,
        begun: false,
        enough_since: None,
    };
    let served = serving.run(&names, &interrupt, |text| output.note(&format!("{}: {text}", args.id)));
    // What was recorded until it failed is worth having, too.
    for trouble in serving.node.fabric_mut().last_troubles() {
        output.note(&format!("{}: {trouble}", args.id));
    }
    serving.finish()?;
    served?;
    if serving.node.has_left() {
        let remedy = "it can take part again when the whole cluster starts anew";
        return Err(Failure::run(format_args!("an operator removed `{}`", args.id), args.config.display(), remedy));
    }
    Ok(Verdict::Good)
}

/// The history of this process, begun.
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
    secret: Option<&Path>,
) -> Result<Option<Authority>, Failure> {
    match (neb.config().signed, secret) {
        (false, None) => Ok(None),
        (true, Some(file)) => {
            let secret = super::neb_key::read(file)?;
            let refuse = |error| Failure::usage(error, file.display(), "name the secret key of this process");
            neb.authority(config.salt(), me, &secret).map(Some).map_err(refuse)
        }
        (true, None) => Err(Failure::usage("[neb] has keys, and no secret one is named", "--secret", "name its file")),
        (false, Some(_)) => {
            Err(Failure::usage("[neb] has no keys, so nothing is signed", "--secret", "add `keys`, or leave it out"))
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::run(error, "stentor neb run", "`stentor doctor` says what this machine can do")
}

fn shm(config: &ClusterConfig, neb: &NebConfig, me: ProcessId, args: &NebRun) -> Result<ShmFabric, StartError> {
    let sized = neb.config();
    // As `meeting_name` says.
    let name = format!("{}.neb", config.cluster());
    let shm = ShmConfig {
        directory: live::directory(args.directory.as_ref()),
        fingerprint: config.fingerprint(),
        max_bytes: 2 * sized.memory_bytes() + (64 << 20),
        // Registers are written once: a process without its memory would split what others have agreed on.
        one_life: true,
        ..ShmConfig::new(&name, me, &args.id, sized.processes as u16)
    };
    ShmFabric::start(shm)
}

/// A process at work.
struct Serving<F: Hosted> {
    node: Node<F>,
    history: Option<NebHistory>,
    /// A line that was read and could not go out yet.
    waiting: Option<Vec<u8>>,
    /// What was said last of who is not let in.
    refusals: VecDeque<String>,
    /// Where operators ask.
    operator: Option<Listening>,
    /// Whether broadcasts go out.
    begun: bool,
    /// Since when as many are there as have to be.
    enough_since: Option<u64>,
}

impl<F: Hosted> Serving<F> {
    fn run(&mut self, names: &[&str], interrupt: &Interrupt, say: impl Fn(&str)) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::run(error, "standard output", "read it to its end");
        let lines = Lines::read(|| Box::new(BufReader::new(std::io::stdin())), self.node.config().payload_bytes);
        let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let (mut round, mut written) = (0_u64, Ok(()));
        while !interrupt.came() && !self.node.has_left() {
            round += 1;
            let mut worked = (round.is_multiple_of(64) || !self.node.is_connected()) && self.node.housekeep();
            let history = &mut self.history;
            worked |= self.node.step(&mut |notice| {
                if let Some(history) = history {
                    history.notice(&notice);
                }
                let text = serde_json::to_string(&told(names, &notice)).expect("string keys");
                if written.is_ok() {
                    written = writeln!(out, "{text}");
                }
            });
            std::mem::replace(&mut written, Ok(())).map_err(failed)?;
            worked |= self.broadcast(&lines)?;
            if !worked {
                out.flush().map_err(failed)?;
                self.node.housekeep();
                worked |= self.operator.as_ref().is_some_and(|operator| operator.round(&mut self.node));
                self.refusals(&say);
                self.flush_history();
            }
            if round.is_multiple_of(64) {
                // Also where there is always something to do.
                self.operator.iter().for_each(|operator| {
                    operator.round(&mut self.node);
                });
            }
            self.check_history()?;
            let slept = backoff.pause(self.node.fabric_mut(), worked, Duration::from_millis(5));
            slept.map_err(|error| Failure::run(error, "stentor neb run", "report this as a bug"))?;
        }
        out.flush().map_err(failed)
    }

    /// Says who was not let in: a process of another cluster, or with another configuration. None of the last ones
    /// twice.
    fn refusals(&mut self, say: impl Fn(&str)) {
        while let Some(refusal) = self.node.fabric_mut().next_refusal() {
            if !self.refusals.contains(&refusal) {
                say(&format!("refused a connection: {refusal}"));
                self.refusals.push_back(refusal);
                if self.refusals.len() > 16 {
                    self.refusals.pop_front();
                }
            }
        }
        if let Some(trouble) = self.node.fabric_mut().next_trouble() {
            say(&trouble);
        }
    }

    fn flush_history(&mut self) {
        if let Some(history) = &mut self.history {
            history.flush();
        }
    }

    fn check_history(&mut self) -> Result<(), Failure> {
        self.history.as_mut().map_or(Ok(()), NebHistory::check)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if let Some(history) = &mut self.history {
            history.memory(&self.node);
        }
        self.flush_history();
        self.check_history()
    }

    /// Broadcasts the line that waits, or the next one. Whether there was one that could go.
    /// Everybody is waited for at the start, so that nobody misses anything: where some may stop for good, for as long as
    /// patience lasts. Later, who is gone holds up nobody: flow control says what may go out.
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

    fn broadcast(&mut self, lines: &Lines) -> Result<bool, Failure> {
        let now = now_ns();
        if !self.has_begun(now) {
            return Ok(false);
        }
        if self.waiting.is_none() {
            self.waiting = next_line(lines, self.node.config().payload_bytes)?;
        }
        let Some(line) = self.waiting.take_if(|_| self.node.has_room(now)) else { return Ok(false) };
        if let Some(history) = &mut self.history {
            // Out of this process's hands before anybody gets it: if this process is killed next, others may deliver it.
            history.broadcast(now, self.node.own_stream().next(), &line);
            history.flush();
            history.check()?;
        }
        let sent = self.node.broadcast(now, 0, &line);
        sent.map_err(|error| Failure::run(error, "stentor neb run", "start it again"))?;
        Ok(true)
    }
}

fn next_line(lines: &Lines, limit: usize) -> Result<Option<Vec<u8>>, Failure> {
    match lines.next() {
        Input::Line(Line::Text(line)) => Ok(Some(line)),
        Input::Line(Line::TooLong { number }) => {
            let what = format_args!("line {number} is longer than {limit} bytes");
            Err(Failure::usage(what, "standard input", "shorten it, or raise payload_bytes in [neb]"))
        }
        Input::Line(Line::Unreadable { number, error }) => {
            Err(Failure::usage(error, format_args!("standard input, line {number}"), "give it text"))
        }
        Input::Later | Input::End => Ok(None),
    }
}

fn told<'a>(names: &[&'a str], notice: &Notice<'_>) -> Told<'a> {
    let name = |process: ProcessId| names[process.index()];
    match notice {
        Notice::Deliver(sender, value) => {
            let payload = String::from_utf8_lossy(value.payload()).into_owned();
            Told::Deliver { sender: name(*sender), index: value.index(), payload }
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
