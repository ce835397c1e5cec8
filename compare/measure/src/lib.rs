//! The measurement that all programs of a comparison share. One process sends messages, and receivers on the same host
//! deliver them.
//!
//! A sender keeps a given number of messages outstanding. Every process records times of the host's monotonic clock in
//! memory. When a receiver has delivered all messages, it writes the times of its deliveries to a separate file in a
//! shared folder. The sender then computes one row. The rate, in messages per second, is counted from the first
//! measured call to the last delivery at the last receiver. A latency is the time from a call to the last receiver's
//! delivery. If messages are sent one at a time, the sender sends the next message when all receivers have delivered
//! the one before. For this purpose the receivers report their progress in files. In a stream the sender counts only
//! its own deliveries.
//!
//! Two processes exchange messages in round trips ([`ping_pong`]). A latency is half of a round trip. Both processes
//! spin.
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

/// Maximum time for which a sender waits for a file of a receiver, or for a receiver to deliver a message.
const PATIENCE: Duration = Duration::from_secs(30);

/// The role of a process in a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// Sends messages, and prints the row.
    Send,
    /// Delivers the messages.
    Receive,
    /// Sends the first message of each round trip, and prints the row.
    Ping,
    /// Replies to each message.
    Pong,
}

/// The arguments of every program of a comparison.
#[derive(Parser, Clone, Debug)]
pub struct Options {
    /// The role of this process
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
    /// Size of the payload, in bytes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..))]
    pub bytes: u32,
    /// Number of messages that the sender keeps outstanding
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub outstanding: u64,
    /// Number of measured messages
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: u64,
    /// Number of messages before the measured ones
    #[arg(long, default_value_t = 1000)]
    pub warm_up: u64,
}

impl Options {
    /// Returns the number of all messages, including those before the measured ones.
    pub fn total(&self) -> u64 {
        self.messages + self.warm_up
    }
}

/// Returns the time of the host's monotonic clock in ns, which is the same for all processes.
#[inline]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The times at which a process sent or delivered each message, in ns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times(Vec<u64>);

impl Times {
    /// Returns an empty list with room for this number of times.
    pub fn with_capacity(messages: u64) -> Self {
        Times(Vec::with_capacity(messages as usize))
    }

    /// Records the time of the next message.
    #[inline]
    pub fn push(&mut self, time: u64) {
        self.0.push(time);
    }

    /// Removes the last time, because the message was not sent after all.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// Returns a list with the time 0 for each message. [`set`](Times::set) then records the times in any order, for
    /// messages that are not delivered in the order in which they were sent.
    pub fn blank(messages: u64) -> Self {
        Times(vec![0; messages as usize])
    }

    /// Records the time of a message.
    ///
    /// # Panics
    /// Panics if there is no such message.
    pub fn set(&mut self, message: u64, time: u64) {
        self.0[message as usize] = time;
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Writes the times to this process's file. Other processes see either no file or the complete file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, options: &Options) -> Result<()> {
        let path = options.folder.join(&options.name);
        let part = path.with_extension("part");
        let bytes: Vec<u8> = self.0.iter().flat_map(|time| time.to_le_bytes()).collect();
        fs::write(&part, bytes).with_context(|| format!("cannot write {}", part.display()))?;
        fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a file of times with 64 bits each.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or its length is not a multiple of 8 bytes.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (words, rest) = bytes.as_chunks::<8>();
        ensure!(rest.is_empty(), "{} has {} bytes, which is not a whole number of times", path.display(), bytes.len());
        Ok(Times(words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }
}

/// Reports that this process is ready: it receives every message that is sent after this report.
///
/// # Errors
/// Returns an error if the file of the report cannot be written.
pub fn ready(options: &Options) -> Result<()> {
    let path = options.folder.join(format!("{}.ready", options.name));
    fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until all receivers have reported that they are ready.
///
/// # Errors
/// Returns an error if a receiver is not ready within [`PATIENCE`].
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
    /// Creates this process's file in the shared folder. A stream needs no file, because its sender does not wait for
    /// other receivers.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn of(options: &Options) -> Result<Self> {
        if options.outstanding > 1 {
            return Ok(Progress(None));
        }
        let path = options.folder.join(format!("{}.count", options.name));
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Progress(Some(file)))
    }

    /// Reports the number of delivered messages to the sender, in this process's file. Does nothing in a stream.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn tell(&self, delivered: &Times) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|file| file.write_all_at(&delivered.count().to_le_bytes(), 0))
            .context("cannot report the progress")
    }
}

/// The progress of all receivers other than this process, for the sender of one message at a time.
pub struct Others(Vec<File>);

impl Others {
    /// Waits until all other receivers have begun to report their progress, and returns the files of their reports. In
    /// a stream, receivers report no progress, so the list is empty.
    ///
    /// # Errors
    /// Returns an error if a receiver has not begun to report within [`PATIENCE`].
    pub fn of(options: &Options) -> Result<Self> {
        if options.outstanding > 1 {
            return Ok(Others(Vec::new()));
        }
        let others = options.receivers.iter().filter(|name| **name != options.name);
        let open = |name: &String| Ok(File::open(await_file(options, name, &format!("{name}.count"))?)?);
        Ok(Others(others.map(open).collect::<Result<_>>()?))
    }

    /// Waits until all other receivers have delivered this number of messages.
    ///
    /// # Errors
    /// Returns an error if a receiver has not delivered them within [`PATIENCE`].
    pub fn reach(&self, count: u64) -> Result<()> {
        for file in &self.0 {
            let until = Instant::now() + PATIENCE;
            let mut told = [0; 8];
            // A file that is still empty counts as 0.
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
    /// Size of the payload in bytes.
    pub bytes: u32,
    /// Number of messages that the sender had outstanding.
    pub outstanding: u64,
    /// Number of measured messages.
    pub messages: u64,
    /// Rate from the first measured call to the last delivery at the last receiver. `None` for round trips.
    pub msgs_per_s: Option<f64>,
    /// Median latency from a call to the last receiver's delivery, or half of a round trip, in µs.
    pub p50_us: f64,
    /// 99th percentile of the latency whose median is `p50_us`, in µs.
    pub p99_us: f64,
    /// 99.9th percentile of the latency whose median is `p50_us`, in µs.
    pub p999_us: f64,
}

/// Waits for the files of all receivers, and computes the row.
///
/// # Errors
/// Returns an error if a file does not appear within [`PATIENCE`], or does not have one time for each sent message.
pub fn row(options: &Options, sent: &Times) -> Result<Row> {
    let read = |name: &String| Times::read(&await_file(options, name, name)?);
    let delivered: Vec<_> = options.receivers.iter().map(read).collect::<Result<_>>()?;
    worked_out(options, sent, &delivered)
}

/// The value of each word of a message in a round trip. A receiver rejects other contents.
const CONTENT: u64 = 0x0707_0707_0707_0707;

/// Returns a message for a round trip.
#[must_use]
pub fn message(options: &Options) -> Vec<u8> {
    CONTENT.to_ne_bytes().into_iter().cycle().take(options.bytes as usize).collect()
}

/// Loads every byte of a message.
///
/// # Errors
/// Returns an error if the length of the message, the sum of its 64-bit words, or a byte after the last word differs
/// from that of [`message`].
#[inline]
pub fn check(options: &Options, message: &[u8]) -> Result<()> {
    let (words, rest) = message.as_chunks::<8>();
    let sum = words.iter().map(|word| u64::from_ne_bytes(*word)).fold(0, u64::wrapping_add);
    let whole = message.len() == options.bytes as usize && rest.iter().all(|byte| *byte == CONTENT as u8);
    ensure!(whole && sum == CONTENT.wrapping_mul(words.len() as u64), "a message differs from the one that was sent");
    Ok(())
}

/// Number of polls without a message after which [`spin`] gives up. They take about 10 s.
const LOOKS: u32 = 1 << 30;

/// Calls `look` without a pause until it returns a value.
///
/// # Errors
/// Returns the error of `look`. Also returns an error if `look` returns no value in [`LOOKS`] calls.
#[inline]
pub fn spin<T>(mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..LOOKS {
        if let Some(come) = look()? {
            return Ok(come);
        }
    }
    bail!("no message arrived in {LOOKS} polls")
}

/// Exchanges messages with another process. [`Role::Ping`] sends first and prints the row. To get a latency, it
/// subtracts the cost of one clock reading from a round trip and halves the rest. Both processes call this function
/// when they are connected.
///
/// # Errors
/// Returns an error of `send` or `receive`. Also returns an error if the other process does not become ready, or if
/// `options` has more than one outstanding message.
pub fn ping_pong(
    options: &Options,
    mut send: impl FnMut() -> Result<()>,
    mut receive: impl FnMut() -> Result<()>,
) -> Result<()> {
    ensure!(options.outstanding == 1, "round trips need one outstanding message");
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

/// Returns the cost of reading the clock in ns: the smallest mean of several batches, as in Stentor's benches.
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

/// Computes the row and prints it.
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
    fn latency_is_half_a_round_trip_without_clock_and_warm_up() {
        let times = Times(vec![0, 9000, 9220, 9420, 9660]);
        let row = to_and_fro(&options(), &times, 20.0).unwrap();
        assert_eq!((row.p50_us, row.p99_us, row.msgs_per_s), (0.1, 0.11, None), "round trips of 220, 200 and 240 ns");
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
