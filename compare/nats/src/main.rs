//! Sends messages through one NATS server (core, without JetStream) to three subscribers, one of which is the
//! publisher.
//!
//! The publisher waits in `poll`, and the other subscribers in `read`. The publisher has separate connections for
//! publishing and for receiving, both of which it uses without blocking.
#![forbid(unsafe_code)]

mod connection;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use compare_measure::{Options, Others, Progress, Role, Times, await_ready, finish, now, ready};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use connection::{Connection, PATIENCE, Said};

const SUBSCRIBE: &str = "SUB compare 1\r\n";
/// Number of queued bytes at which the publisher stops adding messages.
const QUEUED: usize = 1 << 18;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    common: Options,
    /// The server's address and port
    #[arg(long)]
    server: String,
}

fn main() -> Result<()> {
    let Arguments { common, server } = Arguments::parse();
    let subscription = Connection::open(&server, SUBSCRIBE)?;
    let progress = Progress::of(&common)?;
    ready(&common)?;
    match common.role {
        Role::Receive => receive(&common, subscription, &progress),
        Role::Send => send(&common, subscription, Connection::open(&server, "")?),
        Role::Ping | Role::Pong => bail!("this program has no round trips: set --role to send or receive"),
    }
}

fn receive(options: &Options, mut subscription: Connection, progress: &Progress) -> Result<()> {
    let mut delivered = Times::with_capacity(options.total());
    while delivered.count() < options.total() {
        if let Said::Message(size) = subscription.next_said()? {
            note(options, &mut delivered, size)?;
            progress.tell(&delivered)?;
        }
    }
    delivered.write(options)
}

fn note(options: &Options, delivered: &mut Times, size: usize) -> Result<()> {
    ensure!(size == options.bytes as usize, "a message has {size} bytes, not {}", options.bytes);
    delivered.push(now());
    Ok(())
}

/// Publishes all messages with the given number outstanding, and prints the row.
fn send(options: &Options, mut subscription: Connection, mut publisher: Connection) -> Result<()> {
    await_ready(options)?;
    let others = Others::of(options)?;
    subscription.socket().set_nonblocking(true)?;
    publisher.socket().set_nonblocking(true)?;
    let head = format!("PUB compare {}\r\n", options.bytes);
    let message = [head.as_bytes(), &vec![b'7'; options.bytes as usize], b"\r\n"].concat();
    let (mut sent, mut delivered) = (Times::with_capacity(options.total()), Times::with_capacity(options.total()));
    while delivered.count() < options.total() {
        others.reach(delivered.count())?;
        let may = (delivered.count() + options.outstanding).min(options.total());
        while sent.count() < may && publisher.queued() < QUEUED {
            sent.push(now());
            publisher.queue(&message);
        }
        publisher.flush()?;
        wait(&subscription, &publisher)?;
        subscription.fill()?;
        while let Some(said) = subscription.said()? {
            if let Said::Message(size) = said {
                note(options, &mut delivered, size)?;
            }
        }
        subscription.flush()?;
        publisher.fill()?;
        while publisher.said()?.is_some() {}
    }
    delivered.write(options)?;
    finish(options, &sent)
}

/// Waits until bytes arrive, or queued bytes can be written.
fn wait(subscription: &Connection, publisher: &Connection) -> Result<()> {
    let longest = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let out = if publisher.queued() > 0 { PollFlags::OUT } else { PollFlags::empty() };
    let mut sockets =
        [PollFd::new(subscription.socket(), PollFlags::IN), PollFd::new(publisher.socket(), PollFlags::IN | out)];
    let count = poll(&mut sockets, Some(&longest))?;
    ensure!(count > 0, "no bytes arrived for {} s: a message was lost", PATIENCE.as_secs());
    Ok(())
}
