//! What signals do, in one place, and how a running process is asked to end.
//!
//! SIGINT, SIGTERM and SIGHUP ask to end. A command that has something to finish [catches](Interrupt::catch) them and looks:
//! at the first it ends in order, at the second it leaves out what it would wait for. Whatever keeps it from looking, the
//! thread here ends the process: [`UNHEARD`] after the first, [`INSISTED`] after the second, at once after the third. A
//! command that does not catch them ends at the first. SIGUSR1 and SIGUSR2 mean nothing and end nobody. SIGXFSZ ends nobody
//! either: a file that reaches `ulimit -f` is an error of whoever writes it.

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

/// How long a command may take until it looks whether it was asked to end.
const UNHEARD: Duration = Duration::from_secs(4);
/// How long it may take to end when it was asked twice.
const INSISTED: Duration = Duration::from_secs(1);
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Each signal, its name, and whether it asks to end.
const SIGNALS: [(i32, &str, bool); 5] = [
    (SIGINT, "SIGINT", true),
    (SIGTERM, "SIGTERM", true),
    (SIGHUP, "SIGHUP", true),
    (SIGUSR1, "SIGUSR1", false),
    (SIGUSR2, "SIGUSR2", false),
];

/// What came.
#[derive(Debug, Default)]
struct Asked {
    /// How often this process was asked to end, and by which signal last.
    times: AtomicU32,
    signal: AtomicI32,
    /// A command looks by itself.
    caught: AtomicBool,
    /// It looked after it was asked.
    heard: AtomicBool,
}

/// What of signals this process has in hand.
#[derive(Debug)]
struct Watch {
    asked: Arc<Asked>,
    came: [Arc<AtomicBool>; SIGNALS.len()],
    /// A byte for each signal.
    bell: UnixStream,
}

/// Or why nobody waits for signals.
static WATCH: OnceLock<std::io::Result<Watch>> = OnceLock::new();

/// What of signals this process has in hand, if it has.
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
        let at = SIGNALS.iter().position(|(known, ..)| *known == signal).expect("one of them");
        // In this order: whoever hears the bell finds the flag.
        flag::register(signal, Arc::clone(&self.came[at]))?;
        low_level::pipe::register(signal, self.bell.try_clone()?).map(drop)
    }
}

/// From here on hang-ups are told, and the signals that mean nothing end nobody. What was ignored when this process began,
/// as by `nohup`, stays ignored.
pub fn watch_signals() {
    // Without the thread signals do what the system does, and whoever wants to catch them is told why.
    if WATCH.set(Watch::start()).is_err() {
        return;
    }
    let ignored = ignored_at_start();
    for signal in [SIGHUP, SIGUSR1, SIGUSR2].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        let _ = watch().map(|watch| watch.take(signal));
    }
}

/// From here on a write beyond the limit of file sizes fails with `EFBIG` instead of ending this process. A handler is not
/// inherited by other programs, as ignoring the signal would be.
pub fn outlive_file_sizes() {
    // Where this is not possible, the system does what it did.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// A bit for each signal, from 1.
fn ignored_at_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// From here on no signal that can be caught ends this process.
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

/// As if nobody had caught it, with a word about what nobody in front of a terminal has typed.
fn end_as_usual(signal: i32, name: &str) {
    if signal == SIGHUP {
        complain(log_line(Level::Error, "stentor", &format!("ended by {name}: whoever held its terminal hung up")));
        flush_errors(LAST_WORDS);
    }
    remove_partial_files();
    let _ = low_level::emulate_default_handler(signal);
}

fn end_by_force(why: &str) -> ! {
    remove_partial_files();
    complain(log_line(Level::Error, "stentor", &format!("this process {why}: what it had in hand is not finished")));
    flush_errors(LAST_WORDS);
    low_level::exit(1)
}

fn uncaught(error: &std::io::Error) -> Failure {
    let otherwise = "`stentor doctor` says what this machine can do";
    Failure::system("cannot catch signals", error, "this process", otherwise)
}

/// Whether this process was asked to end, for who has no [`Interrupt`].
pub fn is_asked_to_end() -> bool {
    watch().is_some_and(|watch| Interrupt(Arc::clone(&watch.asked)).came())
}

/// Whether SIGINT, SIGTERM or SIGHUP came, and how often.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Asked>);

impl Interrupt {
    /// From here on the signals do not end the process; it has to look.
    pub fn catch() -> Result<Self, Failure> {
        let watch = match WATCH.get() {
            Some(Ok(watch)) => watch,
            Some(Err(error)) => return Err(uncaught(error)),
            None => return Err(uncaught(&std::io::Error::other("nobody waits for them"))),
        };
        watch.asked.caught.store(true, Ordering::Release);
        for signal in [SIGINT, SIGTERM] {
            watch.take(signal).map_err(|error| uncaught(&error))?;
        }
        Ok(Interrupt(Arc::clone(&watch.asked)))
    }

    /// Whether one of them came.
    #[inline]
    pub fn came(&self) -> bool {
        let came = self.0.times.load(Ordering::Relaxed) > 0;
        if came {
            self.0.heard.store(true, Ordering::Release);
        }
        came
    }

    /// Whether a second one came: nothing is to be waited for any more.
    pub fn insists(&self) -> bool {
        self.0.times.load(Ordering::Relaxed) > 1
    }

    /// The last one.
    pub fn name(&self) -> &'static str {
        let last = self.0.signal.load(Ordering::Acquire);
        SIGNALS.iter().find(|(signal, ..)| *signal == last).map_or("no signal", |(_, name, _)| name)
    }

    /// Fails once one of them came.
    pub fn check(&self) -> Result<(), Failure> {
        if !self.came() {
            return Ok(());
        }
        Err(Failure::run(format_args!("interrupted by {}", self.name()), "by a signal", "start it again"))
    }
}

/// Makes the system kill this process, even a stopped one, when the thread of `parent` that started it ends.
///
/// # Errors
/// When that process is not the parent any more, or the system refuses.
pub fn follow(parent: i32) -> Result<(), Failure> {
    let place = format_args!("--follow {parent}").to_string();
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::run(std::io::Error::from(error), &place, "start the node without --follow"))?;
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        let remedy = "start the node without --follow";
        return Err(Failure::run("the process that started this one is gone", place, remedy));
    }
    Ok(())
}

/// Stops when standard input ends: when whoever holds the other end closes it, or is gone by whatever cause.
pub fn stop_at_end_of_input(stop: Arc<Stop>) -> Result<(), Failure> {
    let work = move || {
        let mut ignored = [0; 256];
        while StandardInput.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        stop.stop();
    };
    thread("that waits for the end of the input", work).map(drop)
}
