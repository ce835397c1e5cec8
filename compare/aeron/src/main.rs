//! Sends messages from one publication of Aeron to three subscriptions through shared memory. One subscription is in
//! the publisher's process.
//!
//! An idle process yields its processor and polls again, because there may be fewer processors than processes.
//!
//! Alternatively, two processes exchange messages in round trips. Each process publishes to the other on a separate
//! stream, and spins.
#![forbid(unsafe_code)]

use std::ffi::{CStr, CString};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use compare_measure::{
    Options, Others, Progress, Role, Times, await_ready, check, finish, message, now, ping_pong, ready, spin,
};
use rusteron_client::{Aeron, AeronFragmentClosureAssembler, AeronHeader, AeronSubscription, Handlers};

/// Maximum time that a process waits for the media driver, for a connection in round trips, or for a message outside
/// round trips. A sender waits for a subscription without a limit.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of fragments that one poll handles.
const FRAGMENTS: usize = 64;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    common: Options,
    /// The media driver's folder
    #[arg(long)]
    driver: String,
}

/// The times at which a subscription has received messages.
struct Got {
    delivered: Times,
    /// The length that every message must have.
    bytes: usize,
    /// The length of the last message that had a wrong length.
    wrong: Option<usize>,
}

fn got(got: &mut Got, message: &[u8], _: AeronHeader) {
    got.delivered.push(now());
    if message.len() != got.bytes {
        got.wrong = Some(message.len());
    }
}

/// A subscription with its received messages.
struct Taker {
    subscription: AeronSubscription,
    whole: AeronFragmentClosureAssembler,
    got: Got,
}

impl Taker {
    /// Waits until a poll brings at least one message. A poll handles at most [`FRAGMENTS`] fragments.
    fn take(&mut self) -> Result<()> {
        let (before, since) = (self.got.delivered.count(), Instant::now());
        loop {
            self.whole.poll(&self.subscription, &mut self.got, got, FRAGMENTS)?;
            if let Some(length) = self.got.wrong {
                anyhow::bail!("a message has {length} bytes");
            }
            if self.got.delivered.count() > before {
                return Ok(());
            }
            ensure!(
                since.elapsed() < PATIENCE,
                "no message arrived for {} s after message {before}",
                PATIENCE.as_secs()
            );
            yield_now();
        }
    }
}

fn main() -> Result<()> {
    let Arguments { common: options, driver } = Arguments::parse();
    let aeron = Aeron::connect_dir(&driver)?;
    // Each combination of payload size (< 2 MiB) and number of outstanding messages (< 2048) has its own stream.
    let stream = (options.bytes as i32) << 11 | options.outstanding as i32;
    let channel = CString::new("aeron:ipc")?;
    if matches!(options.role, Role::Ping | Role::Pong) {
        return two(&options, &aeron, &channel, stream);
    }
    let subscription =
        aeron.async_add_subscription(&channel, stream, Handlers::NONE, Handlers::NONE)?.poll_blocking(PATIENCE)?;
    let got = Got { delivered: Times::with_capacity(options.total()), bytes: options.bytes as usize, wrong: None };
    let mut taker = Taker { subscription, whole: AeronFragmentClosureAssembler::new()?, got };
    let progress = Progress::of(&options)?;
    ready(&options)?;
    if options.role == Role::Receive {
        while taker.got.delivered.count() < options.total() {
            taker.take()?;
            progress.tell(&taker.got.delivered)?;
        }
        return taker.got.delivered.write(&options);
    }
    await_ready(&options)?;
    let publication = aeron.async_add_exclusive_publication(&channel, stream)?.poll_blocking(PATIENCE)?;
    send(&options, &mut taker, |payload| match publication.offer(payload) {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => Ok(false),
        Err(error) => Err(error.into()),
    })
}

/// Sends all messages with the given number outstanding, and prints the row.
fn send(options: &Options, taker: &mut Taker, offer: impl Fn(&[u8]) -> Result<bool>) -> Result<()> {
    let payload = vec![7; options.bytes as usize];
    let others = Others::of(options)?;
    let mut sent = Times::with_capacity(options.total());
    while taker.got.delivered.count() < options.total() {
        let delivered = taker.got.delivered.count();
        others.reach(delivered)?;
        let may = (delivered + options.outstanding).min(options.total());
        while sent.count() < may {
            sent.push(now());
            if !offer(&payload)? {
                // The log is full or changes to its next term, or no subscription is connected yet.
                sent.pop();
                break;
            }
        }
        if sent.count() > delivered {
            taker.take()?;
        } else {
            yield_now();
        }
    }
    taker.got.delivered.write(options)?;
    finish(options, &sent)
}

/// The number of messages that this process has received in round trips, and the error of the last message with wrong
/// content.
struct Come {
    options: Options,
    count: u64,
    wrong: Result<()>,
}

#[inline]
fn come(come: &mut Come, message: &[u8], _: AeronHeader) {
    come.count += 1;
    if let Err(error) = check(&come.options, message) {
        come.wrong = Err(error);
    }
}

/// Runs this process's side of the round trips.
fn two(options: &Options, aeron: &Aeron, channel: &CStr, stream: i32) -> Result<()> {
    let (out, back) = if options.role == Role::Ping { (stream, stream + 1) } else { (stream + 1, stream) };
    let subscription =
        aeron.async_add_subscription(channel, back, Handlers::NONE, Handlers::NONE)?.poll_blocking(PATIENCE)?;
    let publication = aeron.async_add_exclusive_publication(channel, out)?.poll_blocking(PATIENCE)?;
    let since = Instant::now();
    while !(publication.is_connected() && subscription.is_connected()) {
        ensure!(since.elapsed() < PATIENCE, "the other process has not connected after {} s", PATIENCE.as_secs());
        yield_now();
    }
    let (mut whole, payload) = (AeronFragmentClosureAssembler::new()?, message(options));
    let mut got = Come { options: options.clone(), count: 0, wrong: Ok(()) };
    let send = || {
        spin(|| match publication.offer(&payload) {
            Ok(_) => Ok(Some(())),
            Err(error) if error.is_retryable() => Ok(None),
            Err(error) => Err(error.into()),
        })
    };
    let receive = || {
        let before = got.count;
        spin(|| {
            whole.poll(&subscription, &mut got, come, 1)?;
            Ok((got.count > before).then_some(()))
        })?;
        std::mem::replace(&mut got.wrong, Ok(()))
    };
    ping_pong(options, send, receive)
}
