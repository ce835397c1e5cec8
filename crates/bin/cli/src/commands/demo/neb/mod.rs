//! `stentor demo --neb`: five real processes. Four of them broadcast a text to each other. The fifth one lies; by
//! default it sends different values to different processes.

mod process;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor_checker::{Report, check_files};

use stentor_support::args::{DemoFabric, device_address};
use stentor_support::live::{Captures, Interrupt, this_program, thread};
use stentor_support::{Failure, Human, Output, Style, Verdict, Verdicts, verdict_lines, verdicts};

use super::copier::{Copier, Switched};
use super::stage::{Stage, network_number, switch_places};
use super::text::Text;
use process::{CLUSTER, Carrier, Said, WorkerSpec};

use crate::args;
pub(in crate::commands) use process::process;

const PROCESSES: usize = 5;
/// The process that lies.
const LIAR: u16 = 3;
/// The processes that receive the liar's second value.
const VICTIMS: [u16; 2] = [2, 4];
const PAYLOAD_BYTES: usize = 4096;
const WINDOW: u32 = 16;
/// Longest time until one more correct process has delivered everything, and longest wait for a report at the end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of lines that are broadcast, unless the user chose another number.
const LINES: u64 = 400;

/// An equivocation, as a process reported it.
#[derive(Clone, Serialize)]
struct Evidence {
    by: String,
    sender: String,
    index: u64,
    /// Payloads, as hexadecimal digits.
    ours: String,
    other: String,
    witness: String,
    /// `true` if the sender has signed both payloads.
    proven: bool,
}

#[derive(Default, Serialize)]
struct NebReport {
    ok: bool,
    properties: Verdicts,
    counter_example: Option<String>,
    processes: usize,
    liar: String,
    broadcasts: u64,
    deliveries: u64,
    /// Number of deliveries that needed no READ.
    fast: u64,
    reads: u64,
    skipped: u64,
    /// The lies of the liar.
    lies: Vec<String>,
    /// The provider that carried the broadcasts, if it is chosen at start.
    carrier: Option<String>,
    /// Number of second values that the liar sent.
    equivocated: u64,
    /// Number of writes of the liar outside its own region, all of which were refused.
    refused: u64,
    /// Number of records that a switch was asked to copy, counted once for each receiver.
    #[serde(skip)]
    copies_asked: u64,
    switch: Option<Switched>,
    evidence: Vec<Evidence>,
    history: PathBuf,
    input: String,
}

fn name(process: u16) -> String {
    format!("p{process}")
}

struct Cast {
    children: Vec<Child>,
    said: Receiver<(u16, Said)>,
}

impl Drop for Cast {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        let until = Instant::now() + Duration::from_secs(3);
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            // Has no effect on a process that has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(super) fn run(args: &args::Demo, output: Output) -> Result<Verdict, Failure> {
    let limited = args::Demo { messages_limit: args.messages_limit.or(Some(LINES)), ..args.clone() };
    let text = Text::read(&limited, PAYLOAD_BYTES)?;
    Captures::from(&args.network).check((0..PROCESSES as u16).map(name), 1)?;
    let interrupt = Interrupt::catch()?;
    let stage = Stage::bare(args)?;
    let specs = specs(args, &stage, &text)?;
    let mut copier = args.switch.then(|| Copier::start(&stage, CLUSTER, args.wait)).transpose()?;
    let mut cast = start(&specs)?;
    output.note("five processes; one of them lies");
    let check = || interrupt.check().and_then(|()| copier.as_ref().map_or(Ok(()), Copier::check));
    let mut shown = conduct(&mut cast, &specs, &text, stage.path(), &check)?;
    if let Some(copier) = &mut copier {
        shown.copied(copier.stop(shown.copies_asked, &interrupt)?);
    }
    stage.keep();
    output.conclude(&shown, Verdict::of(shown.ok))
}

/// Splits the text among the correct processes and writes the specification of each process.
fn specs(args: &args::Demo, stage: &Stage, text: &Text) -> Result<Vec<WorkerSpec>, Failure> {
    let (directory, sockets) = (stage.path(), stage.sockets());
    let key = if args.fabric == DemoFabric::Shm { PathBuf::new() } else { stage.write_key()? };
    let network = network_number();
    let carrier = |me| {
        let key = key.clone();
        Ok::<_, Failure>(match args.fabric {
            DemoFabric::Shm => Carrier::Shm,
            DemoFabric::Roce => {
                let (traffic, switch) = (stage.captures.of(&name(me), 1), args.switch.then(|| switch_places().2));
                Carrier::Roce { network, key, traffic, switch }
            }
            DemoFabric::Verbs => Carrier::Verbs { address: device_address("stentor demo")?, key },
            DemoFabric::Ofi => {
                let as_efa = args.ofi.as_efa.map(|efa| efa.name().to_owned());
                Carrier::Ofi { network, key, providers: args.ofi.providers(), as_efa }
            }
        })
    };
    // Each sender waits once for a process that never answers.
    let patience_ms = if args.lies.iter().any(|lie| lie == "silent") { 2_000 } else { 10_000 };
    let correct: Vec<u16> = (0..PROCESSES as u16).filter(|process| *process != LIAR).collect();
    let mut shares: Vec<Vec<u8>> = vec![Vec::new(); PROCESSES];
    let mut counts = vec![0_u64; PROCESSES];
    for (n, line) in text.lines.iter().enumerate() {
        let process = usize::from(correct[n % correct.len()]);
        shares[process].extend_from_slice(line);
        shares[process].push(b'\n');
        counts[process] += 1;
    }

    let mut specs = Vec::new();
    for me in 0..PROCESSES as u16 {
        let input = stage.write(&format!("{}.txt", name(me)), &shares[usize::from(me)])?;
        specs.push(WorkerSpec {
            me,
            sockets: sockets.clone(),
            history: directory.join(format!("{}.jsonl", name(me))),
            input,
            shares: counts.clone(),
            lies: args.lies.clone(),
            patience_ms,
            carrier: carrier(me)?,
        });
    }
    Ok(specs)
}

fn start(specs: &[WorkerSpec]) -> Result<Cast, Failure> {
    let refuse = |error: std::io::Error| {
        Failure::system("cannot start a process", &error, "stentor demo --neb", "allow more processes and memory")
    };
    let (tell, said) = channel();
    let mut cast = Cast { children: Vec::new(), said };
    for spec in specs {
        let text = serde_json::to_string(spec).expect("a specification has string keys");
        let mut child = this_program()
            .map_err(refuse)?
            .args(["neb", "process", &text])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(refuse)?;
        let (out, me, tell) = (child.stdout.take(), spec.me, tell.clone());
        let work = move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                let Ok(said) = serde_json::from_str(&line) else { break };
                if tell.send((me, said)).is_err() {
                    break;
                }
            }
        };
        cast.children.push(child);
        thread("that reads what a process says", work)?;
    }
    Ok(cast)
}

/// Waits until every correct process is done and, if the liar must be caught, a process has evidence. Then ends the
/// processes and judges their histories.
fn conduct(
    cast: &mut Cast,
    specs: &[WorkerSpec],
    text: &Text,
    directory: &Path,
    check: &dyn Fn() -> Result<(), Failure>,
) -> Result<NebReport, Failure> {
    let (mut done, mut evidence, mut since) = (0, Vec::new(), Instant::now());
    let mut carrier = None;
    let lies = specs[0].lies.clone();
    while done < PROCESSES - 1 || (is_caught(&lies) && evidence.is_empty()) {
        check()?;
        match cast.said.recv_timeout(Duration::from_millis(100)) {
            Ok((_, Said::Done)) => (done, since) = (done + 1, Instant::now()),
            // All processes report the same provider, because processes with different providers cannot connect.
            Ok((_, Said::Carried { by })) => carrier = Some(by),
            Ok((by, said)) => evidence.extend(reported(by, &said)),
            Err(RecvTimeoutError::Timeout) if since.elapsed() < PATIENCE => gone(cast)?,
            Err(_) => {
                let what =
                    format!("{done} of {} processes delivered everything, {} reports", PROCESSES - 1, evidence.len());
                return Err(Failure::run(what, "stentor demo --neb", "report this as a bug"));
            }
        }
    }
    for child in &mut cast.children {
        drop(child.stdin.take());
    }
    let mut shown = NebReport {
        processes: PROCESSES,
        liar: name(LIAR),
        lies,
        carrier,
        evidence,
        history: directory.to_owned(),
        input: text.source.clone(),
        ..NebReport::default()
    };
    let mut summaries = 0;
    while summaries < PROCESSES {
        match cast.said.recv_timeout(PATIENCE) {
            Ok((by, said)) => {
                summaries += usize::from(shown.add(by, &said));
                shown.evidence.extend(reported(by, &said));
            }
            Err(_) => {
                return Err(Failure::run("a process does not stop", "stentor demo --neb", "report this as a bug"));
            }
        }
    }
    let histories: Vec<_> = specs.iter().filter(|spec| spec.me != LIAR).map(|spec| &spec.history).collect();
    shown.judge(&check_files(&histories, true)?);
    Ok(shown)
}

/// Returns whether some process must get evidence: the liar sends two values, and it also answers.
fn is_caught(lies: &[String]) -> bool {
    let tells = |name: &str| lies.iter().any(|lie| lie == name);
    tells("two-values") && !tells("silent")
}

fn gone(cast: &mut Cast) -> Result<(), Failure> {
    for (process, child) in cast.children.iter_mut().enumerate() {
        if let Ok(Some(status)) = child.try_wait() {
            let what = format!("{} ended unexpectedly ({status}); its output is above", name(process as u16));
            return Err(Failure::run(what, "stentor demo --neb", "`stentor doctor` says what this machine can do"));
        }
    }
    Ok(())
}

fn reported(by: u16, said: &Said) -> Option<Evidence> {
    let Said::Evidence { sender, index, ours, other, witness, proven } = said else { return None };
    let (by, sender, witness) = (name(by), name(*sender), name(*witness));
    let (ours, other) = (ours.clone(), other.clone());
    Some(Evidence { by, sender, index: *index, ours, other, witness, proven: *proven })
}

impl NebReport {
    /// Adds a summary of a process. Returns whether `said` is one.
    fn add(&mut self, by: u16, said: &Said) -> bool {
        let Said::Summary { broadcasts, deliveries, fast, reads, skipped, equivocated, refused, copies, .. } = said
        else {
            return false;
        };
        self.equivocated += equivocated;
        if by == LIAR {
            self.refused = *refused;
        } else {
            self.broadcasts += broadcasts;
            self.deliveries += deliveries;
            self.fast += fast;
            self.reads += reads;
            self.skipped += skipped;
            self.copies_asked += copies;
        }
        true
    }

    /// Adds the work of the switch. A switch that made no copies fails the demonstration.
    fn copied(&mut self, switched: Switched) {
        self.ok &= switched.is_used();
        self.switch = Some(switched);
    }

    fn judge(&mut self, report: &Report) {
        self.properties = verdicts(report);
        self.counter_example.clone_from(&report.counter_example);
        // Evidence is judged only if there is some.
        let unjudged = |name: &str, verdict: &str| name == "B7" && verdict == "not_checked" && !is_caught(&self.lies);
        let good = |(name, verdict): (&&str, &&str)| *verdict == "ok" || unjudged(name, verdict);
        let all_judged = self.properties.iter().all(good) && !self.properties.is_empty();
        let caught = self.equivocated > 0 && self.evidence.iter().any(|evidence| evidence.proven);
        let written = self.lies.iter().all(|lie| lie != "kill") || self.refused > 0;
        self.ok = all_judged && written && (caught || !is_caught(&self.lies));
    }
}

impl Human for NebReport {
    fn human(&self, style: Style) -> String {
        let mut text = String::new();
        let NebReport { processes, liar, broadcasts, deliveries, fast, reads, skipped, equivocated, refused, .. } =
            self;
        let lies = self.lies.join(", ");
        if let Some(carrier) = &self.carrier {
            let _ = writeln!(text, "on {carrier}");
        }
        let _ = writeln!(text, "{processes} processes, {liar} lies ({lies}): it sent {equivocated} second values");
        if *refused > 0 {
            let _ = writeln!(text, "{refused} writes outside its own region were refused");
        }
        let _ = writeln!(
            text,
            "{broadcasts} broadcasts of correct processes, {deliveries} deliveries, {fast} of them without a READ; \
             {reads} READs, {skipped} skipped"
        );
        if let Some(switched) = &self.switch {
            let _ = writeln!(text, "{}", switched.human(style));
        }
        for evidence in &self.evidence {
            let Evidence { by, sender, index, ours, other, witness, proven } = evidence;
            let how = if *proven { "both signed by it" } else { "not signed" };
            let _ = writeln!(
                text,
                "{by}: {sender} equivocates at index {index}: got {ours}, {witness} shows {other} ({how})"
            );
        }
        text += &verdict_lines(&self.properties, style);
        if let Some(example) = &self.counter_example {
            let _ = writeln!(text, "{example}");
        }
        let _ = writeln!(text, "histories: {}", self.history.display());
        text
    }
}
