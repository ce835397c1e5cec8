//! Runs a switch until it is asked to stop.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::config::KeySource;
use stentor::operator::Control;
use stentor::runtime::Stop;
use stentor_fabric::{Backoff, Idle, WaitMode};
use stentor_fabric_roce::driver::Pcap;
use stentor_host::StandingSeat;
use stentor_soft_switch::{Faults, KeyPlace, Settings, Shown, SoftSwitch, StartError};
use stentor_support::live::{self, Interrupt, stop_at_end_of_input, unstarted};
use stentor_support::{Failure, Human, Level, Output, Style, Verdict};

use super::{Answer, ME, Question, load, meeting_name};
use crate::args::SwitchRun;

/// Longest sleep of an idle switch.
const LONGEST: Duration = Duration::from_millis(20);
/// Shortest interval at which questions and signals are checked.
const LOOK: Duration = Duration::from_millis(1);

/// Name of the switch in its log.
const NAME: &str = "switch";

pub(super) fn run(args: &SwitchRun, output: Output) -> Result<Verdict, Failure> {
    let path = args.config.as_deref().unwrap_or(Path::new("switch.toml"));
    let mut settings = load(path)?;
    let chances = args.network.bad.chances();
    if chances.is_any() {
        settings.faults = Faults { links: chances, seed: args.network.seed, ..settings.faults };
    }
    let say = |text: &str| output.log(Level::Info, NAME, text);
    let mut switch = live::patiently(|| SoftSwitch::open(&settings), say).map_err(|error| unopened(&error, path))?;
    let directory = live::directory(args.directory.as_ref());
    let warn = move |text: &str| output.log(Level::Warn, NAME, text);
    let place = StandingSeat::take(directory, &meeting_name(&settings), ME, "switch", None, warn)
        .map_err(|error| unstarted(error.into(), path))?;
    // The switch checks for questions between two sleeps, so it needs no waker.
    let control: Control<Question> = Control::listen(&place.beside(), || {}).map_err(|error| {
        let what = format_args!("cannot listen for `stentor switch show`: {error}");
        Failure::run(what, place.beside().path().display(), "raise the limits of open files and threads")
    })?;
    if let Some((at, key)) = &settings.control {
        let directory = path.parent().unwrap_or(Path::new("."));
        let key = key_source(key).read(directory).map_err(|error| unstarted(error.into(), path))?;
        live::patiently(|| switch.listen(&settings, *at, &key), say).map_err(|error| unopened(&error, path))?;
    }
    if let Some(file) = &args.network.pcap {
        switch.capture(Pcap::create(file).map_err(|error| Failure::cannot_create("capture", file, &error))?);
    }
    let interrupt = Interrupt::catch()?;
    output.log(Level::Info, NAME, &announce(&settings, &switch));
    let stop = Arc::new(Stop::default());
    if args.until_eof {
        stop_at_end_of_input(Arc::clone(&stop))?;
    }
    let told = || interrupt.came() || stop.is_stopped();
    let ended = serve(&mut switch, &settings, &control, &told, args.wait.into());
    let finished = switch.pcap_mut().map_or(Ok(()), Pcap::finish);
    ended?;
    if let (Some(file), Err(error)) = (&args.network.pcap, finished) {
        return Err(Failure::cannot_create("capture", file, &error));
    }
    output.conclude(&Served(switch.show(&settings, None)), Verdict::Good)
}

fn announce(settings: &Settings, switch: &SoftSwitch) -> String {
    let Settings { forward, backward, sets, .. } = settings;
    let bits = switch.switch().arrays().bits();
    let asked = switch.listens_at().map_or_else(String::new, |at| format!("; hosts ask for sets at TCP {at}"));
    format!(
        "from senders at {forward}, from receivers at {backward}, UDP 4791; room for {sets} sets, {} of registers{asked}",
        stentor_support::bytes(bits / 8)
    )
}

fn serve(
    switch: &mut SoftSwitch,
    settings: &Settings,
    control: &Control<Question>,
    told: &dyn Fn() -> bool,
    wait: WaitMode,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let remedy = "`stentor doctor` says what this machine can do";
        Failure::run(format_args!("the switch's sockets failed: {error}"), "switch", remedy)
    };
    let mut backoff = Backoff::new(wait);
    let mut looked = Instant::now();
    loop {
        let worked = switch.round().map_err(failed)?;
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            if told() {
                return Ok(());
            }
            if let Some(asked) = control.next() {
                let shown = switch.show(settings, asked.question.registers_of);
                asked.answer(Answer::Shown(Box::new(shown)));
            }
        }
        match backoff.after(worked) {
            Idle::Poll | Idle::Arm => {}
            Idle::Sleep => switch.wait(LONGEST, &[]).map_err(failed)?,
        }
    }
}

fn key_source(key: &KeyPlace) -> KeySource {
    match key {
        KeyPlace::Env(name) => KeySource::Env(name.clone()),
        KeyPlace::File(path) => KeySource::File(path.clone()),
    }
}

fn unopened(error: &StartError, path: &Path) -> Failure {
    let remedy = match error {
        StartError::Port(_) => {
            "give the switch two addresses of this host that no other process has, or mode = \"plain\""
        }
        StartError::Session(_) => "stop the program there (`ss -ltnp` names it), or give `control` another port",
        StartError::Set { .. } => "correct the set, or raise `sets`",
    };
    Failure::usage(error, path.display(), remedy)
}

/// The counters of a switch, printed when it ends.
#[derive(Serialize)]
#[serde(transparent)]
struct Served(Shown);

impl Human for Served {
    fn human(&self, style: Style) -> String {
        let mut text = String::new();
        for (what, list) in [("packets", &self.0.packets), ("passes", &self.0.passes), ("injected", &self.0.injected)] {
            let _ = writeln!(text, "{}: {}", style.strong(what), super::show::words(list));
        }
        text
    }
}
