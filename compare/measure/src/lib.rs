//! The programs of a comparison measure alike. One process sends messages, and receivers on the same host deliver them.
//!
//! A sender keeps so many messages outstanding. Every process notes times of the host's monotonic clock in memory and writes them
//! to a file of its own in a shared folder when it has all. The sender then works out one row: messages a second, from the first
//! call to the last delivery at the last receiver, and latencies, from a call to the last receiver's delivery. One at a time means that
//! the next message is sent when all receivers have delivered the one before: they tell how far they are in files, while in a stream the
//! sender goes by what it has got itself.
//!
//! Between two processes messages go to and fro ([`ping_pong`]), and a latency is half of that. Both spin.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// How long a sender waits for the receivers' files.
const PATIENCE: Duration = Duration::from_secs(30);

/// The part of a process in a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// Sends, and prints the row.
    Send,
    /// Delivers what is sent.
    Receive,
    /// Sends the first of two messages that go to and fro, and prints the row.
    Ping,
    /// Answers it.
    Pong,
}

/// The arguments that every program of a comparison takes.
#[derive(Parser, Clone, Debug)]
pub struct Options {
    /// The part of this process
    #[arg(long, value_enum)]
    pub role: Role,
    /// This process's name: its file in the shared folder
    #[arg(long)]
    pub name: String,
    /// The names of all receivers
    #[arg(long, value_delimiter = ',', required = true)]
    pub receivers: Vec<String>,
    /// The shared folder
    #[arg(long)]
    pub folder: PathBuf,
    /// Payload, bytes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..))]
    pub bytes: u32,
    /// Messages that the sender has outstanding
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub outstanding: u64,
    /// Measured messages
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: u64,
    /// Messages before them
    #[arg(long, default_value_t = 1000)]
    pub warm_up: u64,
}

impl Options {
    /// All messages, those before the measured ones among them.
    pub fn total(&self) -> u64 {
        self.messages + self.warm_up
    }
}

/// Nanoseconds of the host's monotonic clock, the same for all its processes.
#[inline]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// When a process sent or delivered each message, ns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times(Vec<u64>);

impl Times {
    /// Room for so many.
    pub fn with_capacity(messages: u64) -> Self {
        Times(Vec::with_capacity(messages as usize))
    }

    /// Notes the next one.
    #[inline]
    pub fn push(&mut self, time: u64) {
        self.0.push(time);
    }

    /// Takes the last one back: it was not sent after all.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// As many times as there are messages, for those that are not delivered in the order in which they were sent.
    pub fn blank(messages: u64) -> Self {
        Times(vec![0; messages as usize])
    }

    /// Notes the time of a message.
    ///
    /// # Panics
    /// When there is no such message.
    pub fn set(&mut self, message: u64, time: u64) {
        self.0[message as usize] = time;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Writes them to the file of process `name`, which appears whole.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, options: &Options) -> Result<()> {
        let path = options.folder.join(&options.name);
        let part = path.with_extension("part");
        let bytes: Vec<u8> = self.0.iter().flat_map(|time| time.to_le_bytes()).collect();
        fs::write(&part, bytes).with_context(|| format!("cannot write {}", part.display()))?;
        fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a file of times: 64 bits each.
    ///
    /// # Errors
    /// When it cannot be read, or has another length.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (words, rest) = bytes.as_chunks::<8>();
        ensure!(rest.is_empty(), "{} has {} bytes, which are no whole times", path.display(), bytes.len());
        Ok(Times(words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }
}

/// Says that this process gets every message from now on.
///
/// # Errors
/// When the file that says so cannot be written.
pub fn ready(options: &Options) -> Result<()> {
    let path = options.folder.join(format!("{}.ready", options.name));
    fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until all receivers have said that they are ready.
///
/// # Errors
/// When one has not within the patience.
pub fn await_ready(options: &Options) -> Result<()> {
    options.receivers.iter().try_for_each(|name| await_file(options, name, &format!("{name}.ready")).map(drop))
}

fn await_file(options: &Options, receiver: &str, file: &str) -> Result<PathBuf> {
    let until = Instant::now() + PATIENCE;
    let path = options.folder.join(file);
    while !path.exists() {
        if Instant::now() > until {
            bail!("receiver {receiver} has not written {} within {} s", path.display(), PATIENCE.as_secs());
        }
        sleep(Duration::from_millis(1));
    }
    Ok(path)
}

/// The number of messages that this process has delivered, for a sender of one message at a time.
pub struct Progress(Option<File>);

impl Progress {
    /// Makes this process's file in the shared folder. A stream has none, because its sender does not wait for others.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn of(options: &Options) -> Result<Self> {
        if options.outstanding > 1 {
            return Ok(Progress(None));
        }
        let path = options.folder.join(format!("{}.count", options.name));
        let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Progress(Some(file)))
    }

    /// Tells how many messages were delivered.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn tell(&self, delivered: &Times) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|file| file.write_all_at(&delivered.count().to_le_bytes(), 0))
            .context("telling progress")
    }
}

/// The progress of all receivers, as the sender of one message at a time sees it.
pub struct Others(Vec<File>);

impl Others {
    /// Waits until all receivers tell it; of a stream nobody tells.
    ///
    /// # Errors
    /// When one does not within the patience.
    pub fn of(options: &Options) -> Result<Self> {
        if options.outstanding > 1 {
            return Ok(Others(Vec::new()));
        }
        let others = options.receivers.iter().filter(|name| **name != options.name);
        let open = |name: &String| Ok(File::open(await_file(options, name, &format!("{name}.count"))?)?);
        Ok(Others(others.map(open).collect::<Result<_>>()?))
    }

    /// Waits until all have delivered so many.
    ///
    /// # Errors
    /// When one has not within the patience.
    pub fn reach(&self, count: u64) -> Result<()> {
        for file in &self.0 {
            let until = Instant::now() + PATIENCE;
            let mut told = [0; 8];
            // A file that is empty yet says nothing.
            while file.read_at(&mut told, 0)? < told.len() && count > 0 || u64::from_le_bytes(told) < count {
                ensure!(Instant::now() < until, "a receiver has not delivered message {count}");
                yield_now();
            }
        }
        Ok(())
    }
}

/// The figures of one payload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Payload.
    pub bytes: u32,
    /// Messages that the sender had outstanding.
    pub outstanding: u64,
    /// Measured messages.
    pub messages: u64,
    /// From the first call to the last delivery at the last receiver. `None` of messages to and fro.
    pub msgs_per_s: Option<f64>,
    /// From a call to the last receiver's delivery, or half of the way to and fro, microseconds.
    pub p50_us: f64,
    /// The same.
    pub p99_us: f64,
    /// The same.
    pub p999_us: f64,
}

/// Waits for the files of all receivers, and works out the row.
///
/// # Errors
/// When a file does not come, or has other messages than were sent.
pub fn row(options: &Options, sent: &Times) -> Result<Row> {
    let read = |name: &String| Times::read(&await_file(options, name, name)?);
    let delivered: Vec<_> = options.receivers.iter().map(read).collect::<Result<_>>()?;
    worked_out(options, sent, &delivered)
}

/// Each word of a message. A message with another content is an error.
const CONTENT: u64 = 0x0707_0707_0707_0707;

/// A message that goes to and fro.
#[must_use]
pub fn message(options: &Options) -> Vec<u8> {
    CONTENT.to_ne_bytes().into_iter().cycle().take(options.bytes as usize).collect()
}

/// Loads every byte of a message.
///
/// # Errors
/// When it is not [`message`].
#[inline]
pub fn check(options: &Options, message: &[u8]) -> Result<()> {
    let (words, rest) = message.as_chunks::<8>();
    let sum = words.iter().map(|word| u64::from_ne_bytes(*word)).fold(0, u64::wrapping_add);
    let whole = message.len() == options.bytes as usize && rest.iter().all(|byte| *byte == CONTENT as u8);
    ensure!(whole && sum == CONTENT.wrapping_mul(words.len() as u64), "a message is not the one that was sent");
    Ok(())
}

/// Looks at which nothing may have come, before [`spin`] gives up: some ten seconds.
const LOOKS: u32 = 1 << 30;

/// Calls `look` until something has come, without a pause.
///
/// # Errors
/// That of `look`, or when nothing comes.
#[inline]
pub fn spin<T>(mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..LOOKS {
        if let Some(come) = look()? {
            return Ok(come);
        }
    }
    bail!("nothing came in {LOOKS} looks")
}

/// Sends messages to and fro between this process and another one. The first one prints the row: half of the way to and fro, less what
/// the clock costs. Both call this when they are connected to each other.
///
/// # Errors
/// Those of `send` and `receive`; when the other one does not come; when a shape is no ping-pong.
pub fn ping_pong(
    options: &Options,
    mut send: impl FnMut() -> Result<()>,
    mut receive: impl FnMut() -> Result<()>,
) -> Result<()> {
    ensure!(options.outstanding == 1, "messages go to and fro one at a time");
    if options.role == Role::Pong {
        ready(options)?;
        for _ in 0..options.total() {
            receive()?;
            send()?;
        }
        return Ok(());
    }
    await_ready(options)?;
    let mut times = Times::with_capacity(options.total() + 1);
    times.push(now());
    for _ in 0..options.total() {
        send()?;
        receive()?;
        times.push(now());
    }
    println!("{}", serde_json::to_string(&to_and_fro(options, &times, clock_cost())?)?);
    Ok(())
}

/// Measures the cost of reading the clock, ns: the smallest mean of several batches, as Stentor's benches do.
fn clock_cost() -> f64 {
    const READS: u32 = 200;
    let batch = |_| {
        let start = now();
        for _ in 0..READS {
            std::hint::black_box(now());
        }
        (now() - start) as f64 / f64::from(READS + 1)
    };
    (0..100).map(batch).fold(f64::INFINITY, f64::min)
}

fn to_and_fro(options: &Options, times: &Times, clock_ns: f64) -> Result<Row> {
    let mut ways = Histogram::<u64>::new(3).context("a histogram")?;
    for pair in times.0[options.warm_up as usize..].windows(2) {
        ways.record((pair[1] - pair[0]).max(1))?;
    }
    let us = |quantile| ((ways.value_at_quantile(quantile) as f64 - clock_ns) / 2000.0).max(0.0);
    Ok(Row {
        bytes: options.bytes,
        outstanding: options.outstanding,
        messages: options.messages,
        msgs_per_s: None,
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
    })
}

/// Works out the row and prints it.
///
/// # Errors
/// See [`row`].
pub fn finish(options: &Options, sent: &Times) -> Result<()> {
    println!("{}", serde_json::to_string(&row(options, sent)?)?);
    Ok(())
}

fn worked_out(options: &Options, sent: &Times, delivered: &[Times]) -> Result<Row> {
    let total = options.total() as usize;
    for (name, times) in options.receivers.iter().zip(delivered) {
        ensure!(times.0.len() == total, "receiver {name} delivered {} of {total} messages", times.0.len());
    }
    ensure!(sent.0.len() == total, "{} of {total} messages were sent", sent.0.len());
    let measured = options.warm_up as usize..total;
    let last = |n: usize| delivered.iter().map(|times| times.0[n]).max().unwrap_or(0);
    let mut latencies = Histogram::<u64>::new(3).context("a histogram")?;
    for n in measured.clone() {
        latencies.record(last(n).saturating_sub(sent.0[n]).max(1))?;
    }
    let end = measured.clone().map(last).max().unwrap_or(0);
    let seconds = end.saturating_sub(sent.0[measured.start]).max(1) as f64 / 1e9;
    let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Row {
        bytes: options.bytes,
        outstanding: options.outstanding,
        messages: options.messages,
        msgs_per_s: Some(options.messages as f64 / seconds),
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let line = "x --role send --name a --receivers b,c --folder . --messages 3 --warm-up 1 --bytes 8";
        Options::parse_from(line.split_whitespace())
    }

    #[test]
    fn a_row_counts_from_the_first_measured_call_to_the_last_receiver() {
        let times = |times: [u64; 4]| Times(times.map(|ms| ms * 1_000_000).to_vec());
        let sent = times([1, 10, 20, 30]);
        let delivered = [times([2, 11, 24, 33]), times([3, 12, 21, 40])];
        let row = worked_out(&options(), &sent, &delivered).unwrap();
        assert!((row.msgs_per_s.unwrap() - 100.0).abs() < 0.1, "3 messages in 30 ms: {row:?}");
        assert!((row.p50_us - 4000.0).abs() < 5.0 && (row.p999_us - 10_000.0).abs() < 10.0, "{row:?}");
    }

    #[test]
    fn half_of_the_way_to_and_fro_counts_without_the_clock_and_the_first_ways() {
        let times = Times(vec![0, 9000, 9220, 9420, 9660]);
        let row = to_and_fro(&options(), &times, 20.0).unwrap();
        assert_eq!((row.p50_us, row.p99_us, row.msgs_per_s), (0.1, 0.11, None), "ways of 220, 200 and 240 ns");
    }

    #[test]
    fn every_byte_of_a_message_counts() {
        for bytes in [8, 13, 64] {
            let options = Options { bytes, ..options() };
            let good = message(&options);
            check(&options, &good).unwrap();
            assert!(check(&options, &good[1..]).is_err());
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert!(check(&options, &bad).is_err(), "byte {at} of {bytes}");
            }
        }
    }

    #[test]
    fn a_receiver_that_misses_messages_is_named() {
        let sent = Times(vec![1; 4]);
        let error = worked_out(&options(), &sent, &[Times(vec![1; 4]), Times(vec![1; 3])]).unwrap_err().to_string();
        assert_eq!(error, "receiver c delivered 3 of 4 messages");
    }
}
