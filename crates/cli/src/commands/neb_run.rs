//! `stentor neb run`: one process of the broadcast that `cluster.toml` describes.

use std::io::{BufReader, Write};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use stentor::ClusterConfig;
use stentor::config::NebConfig;
use stentor::runtime::{ShmFabric, now_ns};
use stentor_fabric::{Backoff, ProcessId, WaitMode};
use stentor_fabric_shm::ShmConfig;
use stentor_neb::{Authority, BroadcastError, Node, Notice};

use crate::args::NebRun;
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
}

pub(super) fn run(args: &NebRun, output: Output) -> Result<Verdict, Failure> {
    let plan = live::shm_plan(&args.config, "`stentor neb run`")?;
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
    let interrupt = Interrupt::catch()?;
    let node = start(config, neb, me, args, authority)?;
    output.note(&format!("{}: {}, quorum {}", args.id, neb.config().mode, neb.config().quorum()));
    serve(node, &names, neb.config().payload_bytes, &interrupt)?;
    Ok(Verdict::Good)
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

fn start(
    config: &ClusterConfig,
    neb: &NebConfig,
    me: ProcessId,
    args: &NebRun,
    authority: Option<Authority>,
) -> Result<Node<ShmFabric>, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::run(error, "stentor neb run", "`stentor doctor` says what this machine can do")
    };
    let sized = neb.config();
    let name = format!("{}.neb", config.cluster());
    let shm = ShmConfig {
        directory: live::directory(args.directory.as_ref()),
        fingerprint: config.fingerprint(),
        max_bytes: 2 * sized.memory_bytes() + (64 << 20),
        ..ShmConfig::new(&name, me, &args.id, sized.processes as u16)
    };
    let fabric = ShmFabric::start(shm).map_err(|error| failed(&error))?;
    Node::new(fabric, *sized, config.salt(), authority).map_err(|error| failed(&error))
}

fn serve(mut node: Node<ShmFabric>, names: &[&str], limit: usize, interrupt: &Interrupt) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::run(error, "standard output", "read it to its end");
    let lines = Lines::read(|| Box::new(BufReader::new(std::io::stdin())), limit);
    let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut waiting, mut round, mut written) = (None, 0_u64, Ok(()));
    while !interrupt.came() {
        round += 1;
        let mut worked = (round.is_multiple_of(64) || !node.is_connected()) && node.housekeep();
        worked |= node.step(&mut |notice| {
            let text = serde_json::to_string(&told(names, &notice)).expect("string keys");
            if written.is_ok() {
                written = writeln!(out, "{text}");
            }
        });
        std::mem::replace(&mut written, Ok(())).map_err(failed)?;
        worked |= broadcast(&mut node, &lines, &mut waiting)?;
        if !worked {
            out.flush().map_err(failed)?;
            node.housekeep();
        }
        let slept = backoff.pause(node.fabric_mut(), worked, Duration::from_millis(5));
        slept.map_err(|error| Failure::run(error, "stentor neb run", "report this as a bug"))?;
    }
    out.flush().map_err(failed)
}

/// Broadcasts the line that waits, or the next one. Whether there was one that could go.
fn broadcast(node: &mut Node<ShmFabric>, lines: &Lines, waiting: &mut Option<Vec<u8>>) -> Result<bool, Failure> {
    if !node.is_connected() {
        return Ok(false);
    }
    let limit = node.config().payload_bytes;
    if waiting.is_none() {
        *waiting = match lines.next() {
            Input::Line(Line::Text(line)) => Some(line),
            Input::Line(Line::TooLong { number }) => {
                let what = format_args!("line {number} is longer than {limit} bytes");
                return Err(Failure::usage(what, "standard input", "shorten it, or raise payload_bytes in [neb]"));
            }
            Input::Line(Line::Unreadable { number, error }) => {
                return Err(Failure::usage(error, format_args!("standard input, line {number}"), "give it text"));
            }
            Input::Later | Input::End => return Ok(false),
        };
    }
    let Some(line) = waiting.as_deref() else { return Ok(false) };
    match node.broadcast(now_ns(), 0, line) {
        Ok(_) => *waiting = None,
        Err(BroadcastError::Full) => return Ok(false),
        Err(error) => return Err(Failure::run(error, "stentor neb run", "start it again")),
    }
    Ok(true)
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
    }
}
