//! Measures the kernel's Soft-RoCE and this crate's endpoint with the same loops on the same network: a round trip of
//! 8-byte WRITEs, and the rate of WRITEs of 64 KiB in packets of 4096 bytes. Each measurement uses two processes, which
//! yield while they wait, so a guest with one processor is enough. No bound is checked.
//!
//! `tests/peer/beside.sh` runs this program in a guest (step `roce-beside-kernel` of `cargo xtask nightly`). By hand,
//! run `beside_kernel measure SHIM ROUNDS [COMMAND…]`, with devices rxe1 and rxe2 at 10.77.0.1 and 10.77.0.2. COMMAND
//! must run a program where port 4791 of the same addresses is free, for instance `ip netns exec NAME`.

mod kernel;
mod ours;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use stentor_testutil::median;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The operations of one side. Offsets are those in the memory of either side; both memories have the same size.
trait Side {
    /// Returns a line with the parameters of this side's queue pair and memory.
    fn here(&self) -> String;
    /// Connects to the side that returned this line from [`here`](Side::here).
    fn connect(&mut self, there: &str) -> Outcome<()>;
    /// Posts a WRITE from local memory to the other side's memory.
    fn write(&mut self, from: u64, to: u64, bytes: u32, signalled: bool) -> Outcome<()>;
    /// Does pending work. Returns the number of signalled WRITEs that have completed since the last call.
    fn poll(&mut self) -> Outcome<u64>;
    /// Waits for a bulk transfer, in which this side need not react quickly.
    fn rest(&mut self) -> Outcome<()>;
    /// Returns a word of local memory.
    fn load(&self, at: u64) -> u64;
    /// Stores a word in local memory.
    fn store(&self, at: u64, value: u64);
}

/// Memory of each side: 16 slots for bulk data, a source of bulk data, and some words.
const BYTES: u64 = 18 * BULK as u64;
const BULK: u32 = 64 << 10;
const SOURCE: u64 = 16 * BULK as u64;
const WORD: u64 = 17 * BULK as u64;
const OWN_WORD: u64 = WORD + 64;

const TURNS: u64 = 2000;
const WARM_UP: u64 = 200;
const MESSAGES: u64 = 800;
const OUTSTANDING: u64 = 8;
/// Time for which a side keeps answering, because the other side may not have received the last acknowledgement.
const LINGER: Duration = Duration::from_millis(100);

fn linger(side: &mut dyn Side) -> Outcome<()> {
    let since = Instant::now();
    while since.elapsed() < LINGER {
        side.poll()?;
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}

/// Waits until the other side has written `value`.
fn wait(side: &mut dyn Side, value: u64) -> Outcome<()> {
    while side.load(WORD) != value {
        side.poll()?;
        if side.load(WORD) != value {
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn tell(side: &mut dyn Side, value: u64) -> Outcome<()> {
    side.store(OWN_WORD, value);
    side.write(OWN_WORD, WORD, 8, value.is_multiple_of(32))?;
    side.poll().map(|_| ())
}

/// Returns the time of a WRITE and the WRITE that answers it, in µs.
fn round_trip(side: &mut dyn Side, first: bool) -> Outcome<f64> {
    let mut since = Instant::now();
    for turn in 1..=WARM_UP + TURNS {
        if first {
            tell(side, turn)?;
        }
        wait(side, turn)?;
        if !first {
            tell(side, turn)?;
        }
        if turn == WARM_UP {
            since = Instant::now();
        }
    }
    Ok(since.elapsed().as_secs_f64() * 1e6 / TURNS as f64)
}

/// Returns the rate of bulk data, measured until all of it is acknowledged, in MB/s.
fn bandwidth(side: &mut dyn Side, first: bool) -> Outcome<f64> {
    if !first {
        while side.load(WORD) == 0 {
            side.rest()?;
        }
        return Ok(0.0);
    }
    let (since, mut posted, mut done) = (Instant::now(), 0, 0);
    while done < MESSAGES {
        while posted < MESSAGES && posted - done < OUTSTANDING {
            side.write(SOURCE, posted % 16 * u64::from(BULK), BULK, true)?;
            posted += 1;
        }
        let more = side.poll()?;
        done += more;
        if more == 0 {
            std::thread::yield_now();
        }
    }
    let rate = MESSAGES as f64 * f64::from(BULK) / since.elapsed().as_secs_f64() / 1e6;
    tell(side, 32)?;
    Ok(rate)
}

/// Runs one of the two processes.
fn child(arguments: &[String]) -> Outcome<()> {
    let [kind, place, what, number] = arguments else { return Err("child KIND PLACE WHAT NUMBER".into()) };
    let mut side: Box<dyn Side> = match kind.as_str() {
        "kernel" => Box::new(kernel::Kernel::open(place, &format!("rxe{number}"), BYTES)?),
        _ => Box::new(ours::Ours::open(&format!("{place}.{number}"), BYTES)?),
    };
    let mut lines = std::io::stdin().lines();
    let mut line = || lines.next().unwrap_or(Err(std::io::ErrorKind::UnexpectedEof.into()));
    println!("{}", side.here());
    side.connect(&line()?)?;
    println!("ready");
    line()?;
    let play = if what == "round-trip" { round_trip } else { bandwidth };
    let figure = play(&mut *side, number == "1")?;
    println!("{figure}");
    linger(&mut *side)
}

/// A started process with its standard input and output.
struct Started {
    child: Child,
    hears: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Started {
    fn new(prefix: &[String], arguments: [&str; 4]) -> Outcome<Started> {
        let own = std::env::current_exe()?;
        let mut command = match prefix.split_first() {
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(own);
                command
            }
            None => Command::new(own),
        };
        command.arg("child").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (hears, says) =
            (child.stdin.take().expect("the stream is piped"), child.stdout.take().expect("the stream is piped"));
        Ok(Started { child, hears, says: BufReader::new(says) })
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.says.read_line(&mut line)? == 0 {
            return Err("a process has ended; its output is above".into());
        }
        Ok(line.trim().to_owned())
    }
}

/// Starts two processes and returns the figure that they measure.
fn play(prefix: &[String], kind: &str, place: &str, what: &str) -> Outcome<f64> {
    let mut both = [Started::new(prefix, [kind, place, what, "1"])?, Started::new(prefix, [kind, place, what, "2"])?];
    let told = [both[0].line()?, both[1].line()?];
    for (started, other) in both.iter_mut().zip(told.iter().rev()) {
        writeln!(started.hears, "{other}")?;
        started.line()?;
    }
    for started in both.iter_mut().rev() {
        writeln!(started.hears, "go")?;
    }
    let figure = both[0].line()?.parse()?;
    for started in &mut both {
        if !started.child.wait()?.success() {
            return Err("a process failed".into());
        }
    }
    Ok(figure)
}

fn measure(arguments: &[String]) -> Outcome<()> {
    let [shim, rounds, prefix @ ..] = arguments else { return Err("measure SHIM ROUNDS [COMMAND…]".into()) };
    let rounds: usize = rounds.parse()?;
    for (what, title) in
        [("round-trip", "8 B WRITE answered by a WRITE, us"), ("bandwidth", "WRITEs of 64 KiB, packets of 4096, MB/s")]
    {
        let (mut ours, mut kernel) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(play(prefix, "ours", "10.77.0", what)?);
            kernel.push(play(&[], "kernel", shim, what)?);
        }
        let medians = [median(ours.iter().copied()), median(kernel.iter().copied())];
        println!(
            "{title}: ours {:.1} ({:.1} to {:.1}), the kernel's rxe {:.1} ({:.1} to {:.1}), medians of {rounds} rounds in turns",
            medians[0],
            ours[0],
            ours[rounds - 1],
            medians[1],
            kernel[0],
            kernel[rounds - 1]
        );
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((what, rest)) if what == "child" => child(rest),
        Some((what, rest)) if what == "measure" => measure(rest),
        _ => Err("beside_kernel measure SHIM ROUNDS [COMMAND…]".into()),
    }
}
