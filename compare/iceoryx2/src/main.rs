//! Messages from one publisher of iceoryx2 to three subscribers, one of them in the publisher's process, through shared memory.
//!
//! The publisher copies a payload into memory that it has on loan, and subscribers read it there. A process that has nothing to do yields
//! its processor and looks again: there are more of them than processors.
#![forbid(unsafe_code)]

use std::thread::yield_now;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser as _;
use compare_measure::{Options, Others, Progress, Role, Times, await_ready, finish, now, ready};
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

/// Subscribers, of which each has room for all that is outstanding.
const SUBSCRIBERS: usize = 3;
/// How long nothing may come.
const PATIENCE: Duration = Duration::from_secs(30);

type Ends = Subscriber<ipc::Service, [u8], ()>;

fn main() -> Result<()> {
    let options = Options::parse();
    // Else each process says that it has no file of settings.
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let name = format!("compare/{}/{}", options.bytes, options.outstanding);
    let service = node
        .service_builder(&name.as_str().try_into()?)
        .publish_subscribe::<[u8]>()
        .max_publishers(1)
        .max_subscribers(SUBSCRIBERS)
        .max_nodes(SUBSCRIBERS)
        .history_size(0)
        .subscriber_max_buffer_size(options.outstanding as usize)
        .enable_safe_overflow(false)
        .open_or_create()?;
    let subscriber = service.subscriber_builder().create()?;
    let progress = Progress::of(&options)?;
    if options.role == Role::Receive {
        let since = Instant::now();
        while service.dynamic_config().number_of_publishers() == 0 {
            ensure!(since.elapsed() < PATIENCE, "there is no publisher after {} s", PATIENCE.as_secs());
            yield_now();
        }
        connect(&subscriber)?;
        ready(&options)?;
        return receive(&options, &subscriber, &progress);
    }
    let publisher = service
        .publisher_builder()
        .initial_max_slice_len(options.bytes as usize)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create()?;
    connect(&subscriber)?;
    ready(&options)?;
    await_ready(&options)?;
    send(&options, &subscriber, |payload| {
        let sample = publisher.loan_slice_uninit(payload.len())?;
        sample.write_from_slice(payload).send()?;
        Ok(())
    })
}

/// Connects a subscriber to the publisher that is there. Messages that were sent before this may be lost: the strategy for a full
/// buffer does not help.
fn connect(subscriber: &Ends) -> Result<()> {
    ensure!(subscriber.receive()?.is_none(), "a message came before all were ready");
    Ok(())
}

fn receive(options: &Options, subscriber: &Ends, progress: &Progress) -> Result<()> {
    let mut delivered = Times::with_capacity(options.total());
    while delivered.count() < options.total() {
        take(options, subscriber, &mut delivered)?;
        progress.tell(&delivered)?;
    }
    delivered.write(options)
}

/// Waits for a message, and takes all that are there.
fn take(options: &Options, subscriber: &Ends, delivered: &mut Times) -> Result<()> {
    let (before, since) = (delivered.count(), Instant::now());
    loop {
        while let Some(sample) = subscriber.receive()? {
            ensure!(sample.len() == options.bytes as usize, "a message has {} bytes", sample.len());
            delivered.push(now());
        }
        if delivered.count() > before {
            return Ok(());
        }
        ensure!(since.elapsed() < PATIENCE, "nothing came for {} s after message {before}", PATIENCE.as_secs());
        yield_now();
    }
}

/// Sends everything with so many messages outstanding, and prints the row.
fn send(options: &Options, subscriber: &Ends, publish: impl Fn(&[u8]) -> Result<()>) -> Result<()> {
    let payload = vec![7; options.bytes as usize];
    let others = Others::of(options)?;
    let (mut sent, mut delivered) = (Times::with_capacity(options.total()), Times::with_capacity(options.total()));
    while delivered.count() < options.total() {
        others.reach(delivered.count())?;
        let may = (delivered.count() + options.outstanding).min(options.total());
        while sent.count() < may {
            sent.push(now());
            publish(&payload)?;
        }
        take(options, subscriber, &mut delivered)?;
    }
    delivered.write(options)?;
    finish(options, &sent)
}
