//! Handling of signals, and the ways to ask a running process to end.
//!
//! SIGINT, SIGTERM and SIGHUP ask a process to end. A command that has work to finish [catches](Interrupt::catch) them
//! and polls. After the first signal it ends in order; after the second it no longer waits for its remaining work. If
//! it does not poll or end, the thread of this module ends the process: [`UNHEARD`] after the first signal,
//! [`INSISTED`] after the second, and at once after the third. A command that does not catch the signals ends at the
//! first. SIGUSR1 and SIGUSR2 are ignored with a warning. SIGXFSZ does not end the process either: a write beyond
//! `ulimit -f` fails with an error instead.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::{flag, low_level};
use stentor::runtime::Stop;

use super::thread;
use crate::Failure;
use crate::streams::{StandardInput, complain, flush_errors, remove_partial_files};
use crate::{Level, log_line};

/// Longest time until a command notices that it was asked to end.
const UNHEARD: Duration = Duration::from_secs(4);
/// Longest time that a command may take to end after it was asked twice.
const INSISTED: Duration = Duration::from_secs(1);
/// Longest time to write the final lines to standard error.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Each signal, its name, and whether it asks the process to end.
const SIGNALS: [(i32, &str, bool); 5] = [
    (SIGINT, "SIGINT", true),
    (SIGTERM, "SIGTERM", true),
    (SIGHUP, "SIGHUP", true),
    (SIGUSR1, "SIGUSR1", false),
    (SIGUSR2, "SIGUSR2", false),
];

/// Signals that have arrived, shared with the commands that poll for them.
#[derive(Debug, Default)]
struct Asked {
    /// Number of requests to end.
    times: AtomicU32,
    signal: AtomicI32,
    /// `true` once a command polls for signals itself.
    caught: AtomicBool,
    /// `true` once a command has noticed a request to end.
    heard: AtomicBool,
}

/// Signal handling of this process.
#[derive(Debug)]
struct Watch {
    asked: Arc<Asked>,
    came: [Arc<AtomicBool>; SIGNALS.len()],
    /// Write end of a socket pair. Each handler writes a byte to it.
    bell: UnixStream,
}

/// The signal handling of this process, or the error that prevented it.
static WATCH: OnceLock<std::io::Result<Watch>> = OnceLock::new();

/// Returns the signal handling of this process, if it works.
fn watch() -> Option<&'static Watch> {
    WATCH.get()?.as_ref().ok()
}

impl Watch {
    fn start() -> std::io::Result<Self> {
        let (bell, ear) = UnixStream::pair()?;
        let watch = Watch { asked: Arc::default(), came: Default::default(), bell };
        let (asked, came) = (Arc::clone(&watch.asked), watch.came.clone());
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || listen(&asked, &came, ear))?;
        Ok(watch)
    }

    fn take(&self, signal: i32) -> std::io::Result<()> {
        let at = SIGNALS.iter().position(|(known, ..)| *known == signal).expect("SIGNALS lists every handled signal");
        // The flag is registered first, so that it is set when the thread reads the byte.
        flag::register(signal, Arc::clone(&self.came[at]))?;
        low_level::pipe::register(signal, self.bell.try_clone()?).map(drop)
    }
}

/// Starts the signal handling of this process: SIGHUP is reported, and SIGUSR1 and SIGUSR2 do not end the process. If
/// one of these three was ignored when this process began, for example by `nohup`, it stays ignored.
pub fn watch_signals() {
    // If the thread cannot be started, signals keep their default actions, and `Interrupt::catch` returns the error.
    if WATCH.set(Watch::start()).is_err() {
        return;
    }
    let ignored = ignored_at_start();
    for signal in [SIGHUP, SIGUSR1, SIGUSR2].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        let _ = watch().map(|watch| watch.take(signal));
    }
}

/// Makes a write beyond the limit of file sizes fail with `EFBIG` instead of ending this process. This installs a
/// handler because other programs would inherit an ignored signal, but not a handler.
pub fn outlive_file_sizes() {
    // If this fails, the signal keeps its default action.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Returns the signals that this process ignored when it began: bit `n - 1` stands for signal `n`.
fn ignored_at_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Makes this process ignore SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2.
pub fn ignore_signals() -> Result<(), Failure> {
    let nobody = Arc::new(AtomicBool::new(false));
    for (signal, ..) in SIGNALS {
        flag::register(signal, Arc::clone(&nobody)).map_err(|error| uncaught(&error))?;
    }
    Ok(())
}

fn listen(asked: &Asked, came: &[Arc<AtomicBool>], mut ear: UnixStream) {
    let mut end: Option<Instant> = None;
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        let rung = poll(&mut [PollFd::new(&ear, PollFlags::IN)], left.as_ref());
        let times = asked.times.load(Ordering::Acquire);
        if times == 1 && asked.heard.load(Ordering::Acquire) {
            end = None;
        }
        if end.is_some_and(|end| end <= Instant::now()) {
            end_by_force("does not end, and is ended now");
        }
        if !matches!(rung, Ok(ready) if ready > 0) || ear.read(&mut [0; 16]).is_err() {
            continue;
        }
        for ((signal, name, ends), came) in SIGNALS.into_iter().zip(came) {
            if !came.swap(false, Ordering::AcqRel) {
                continue;
            }
            if !ends {
                complain(log_line(
                    Level::Warn,
                    "stentor",
                    &format!("{name} means nothing to this process, which goes on"),
                ));
                continue;
            }
            if !asked.caught.load(Ordering::Acquire) {
                end_as_usual(signal, name);
            }
            asked.signal.store(signal, Ordering::Release);
            let patience = match asked.times.fetch_add(1, Ordering::AcqRel) {
                0 => UNHEARD,
                1 => INSISTED,
                _ => end_by_force("was asked to end for the third time"),
            };
            end = Some(Instant::now() + patience);
        }
    }
}

/// Ends the process as the signal's default action does. SIGHUP is logged first, because no user has typed it.
fn end_as_usual(signal: i32, name: &str) {
    if signal == SIGHUP {
        complain(log_line(Level::Error, "stentor", &format!("ended by {name}: its terminal or connection was closed")));
        flush_errors(LAST_WORDS);
    }
    remove_partial_files();
    let _ = low_level::emulate_default_handler(signal);
}

fn end_by_force(why: &str) -> ! {
    remove_partial_files();
    complain(log_line(Level::Error, "stentor", &format!("this process {why}: its last work may be incomplete")));
    flush_errors(LAST_WORDS);
    low_level::exit(1)
}

fn uncaught(error: &std::io::Error) -> Failure {
    let otherwise = "`stentor doctor` says what this machine can do";
    Failure::system("cannot catch signals", error, "this process", otherwise)
}

/// Returns whether this process was asked to end, for code that has no [`Interrupt`].
pub fn is_asked_to_end() -> bool {
    watch().is_some_and(|watch| Interrupt(Arc::clone(&watch.asked)).came())
}

/// The requests to end that this process received by SIGINT, SIGTERM or SIGHUP.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Asked>);

impl Interrupt {
    /// Catches the signals that ask this process to end. After this call, it must poll for them: neither the first nor
    /// the second such signal ends it at once.
    pub fn catch() -> Result<Self, Failure> {
        let watch = match WATCH.get() {
            Some(Ok(watch)) => watch,
            Some(Err(error)) => return Err(uncaught(error)),
            None => return Err(uncaught(&std::io::Error::other("signal handling was not started"))),
        };
        watch.asked.caught.store(true, Ordering::Release);
        for signal in [SIGINT, SIGTERM] {
            watch.take(signal).map_err(|error| uncaught(&error))?;
        }
        Ok(Interrupt(Arc::clone(&watch.asked)))
    }

    /// Returns whether one of the signals has arrived.
    #[inline]
    pub fn came(&self) -> bool {
        let came = self.0.times.load(Ordering::Relaxed) > 0;
        if came {
            self.0.heard.store(true, Ordering::Release);
        }
        came
    }

    /// Returns whether a second signal has arrived. The command then no longer waits for its remaining work.
    pub fn insists(&self) -> bool {
        self.0.times.load(Ordering::Relaxed) > 1
    }

    /// Returns the name of the last signal.
    pub fn name(&self) -> &'static str {
        let last = self.0.signal.load(Ordering::Acquire);
        SIGNALS.iter().find(|(signal, ..)| *signal == last).map_or("no signal", |(_, name, _)| name)
    }

    /// Returns an error once one of the signals has arrived.
    pub fn check(&self) -> Result<(), Failure> {
        if !self.came() {
            return Ok(());
        }
        Err(Failure::run(format_args!("interrupted by {}", self.name()), "by a signal", "start it again"))
    }
}

/// Makes the system kill this process, even if it is stopped, when the thread of `parent` that started it ends.
///
/// # Errors
/// Returns an error if that process is not the parent any more, or if the system refuses.
pub fn follow(parent: i32) -> Result<(), Failure> {
    let place = format_args!("--follow {parent}").to_string();
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::run(std::io::Error::from(error), &place, "start the node without --follow"))?;
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        let remedy = "start the node without --follow";
        return Err(Failure::run("the process that started this one has ended", place, remedy));
    }
    Ok(())
}

/// Sets `stop` when standard input ends, which is when the process at the other end closes it or dies.
pub fn stop_at_end_of_input(stop: Arc<Stop>) -> Result<(), Failure> {
    let work = move || {
        let mut ignored = [0; 256];
        while StandardInput.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        stop.stop();
    };
    thread("that waits for the end of the input", work).map(drop)
}
