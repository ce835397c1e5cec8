//! Sends messages from one publisher of iceoryx2 to three subscribers through shared memory. One subscriber is in the
//! publisher's process.
//!
//! The publisher copies a payload into loaned memory. The subscribers receive it there without another copy, and check
//! only its length. An idle process yields its processor and polls again, because there may be fewer processors than
//! processes.
//!
//! Alternatively, two processes exchange messages in round trips. Each process publishes to the other on a separate
//! service, loads every byte that it receives, and spins.
#![forbid(unsafe_code)]

use std::thread::yield_now;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser as _;
use compare_measure::{
    Options, Others, Progress, Role, Times, await_ready, check, finish, message, now, ping_pong, ready, spin,
};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory as Factory;

/// Number of subscribers. The buffer of each has room for all outstanding messages.
const SUBSCRIBERS: usize = 3;
/// Maximum time without a message outside round trips, and maximum time until the publisher exists.
const PATIENCE: Duration = Duration::from_secs(30);

type Service = Factory<ipc::Service, [u8], ()>;
type Ends = Subscriber<ipc::Service, [u8], ()>;
type Source = Publisher<ipc::Service, [u8], ()>;

fn main() -> Result<()> {
    let options = Options::parse();
    // The library prints only errors.
    set_log_level(LogLevel::Error);
    let mut config = Config::default();
    // Each poll of a subscriber visits this number of slots, which is 128 by default. Between two processes, most of a
    // message's latency would be the time for these visits. The slots hold connections of publishers that have left,
    // and in this program no publisher leaves.
    config.defaults.publish_subscribe.subscriber_expired_connection_buffer = 1;
    let node = NodeBuilder::new().config(&config).create::<ipc::Service>()?;
    let name = format!("compare/{}/{}", options.bytes, options.outstanding);
    if matches!(options.role, Role::Ping | Role::Pong) {
        return two(&options, &node, &name);
    }
    let service = service(&options, &node, &name)?;
    let subscriber = service.subscriber_builder().create()?;
    let progress = Progress::of(&options)?;
    if options.role == Role::Receive {
        let since = Instant::now();
        await_publisher(&service, since)?;
        connect(&subscriber)?;
        ready(&options)?;
        return receive(&options, &subscriber, &progress);
    }
    let publisher = publisher(&options, &service)?;
    connect(&subscriber)?;
    ready(&options)?;
    await_ready(&options)?;
    send(&options, &subscriber, |payload| publish(&publisher, payload))
}

fn service(options: &Options, node: &Node<ipc::Service>, name: &str) -> Result<Service> {
    let builder = node.service_builder(&name.try_into()?).publish_subscribe::<[u8]>();
    let builder = builder.max_publishers(1).max_subscribers(SUBSCRIBERS).max_nodes(SUBSCRIBERS).history_size(0);
    let builder = builder.subscriber_max_buffer_size(options.outstanding as usize).enable_safe_overflow(false);
    Ok(builder.open_or_create()?)
}

fn publisher(options: &Options, service: &Service) -> Result<Source> {
    let builder = service.publisher_builder().initial_max_slice_len(options.bytes as usize);
    Ok(builder.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered).create()?)
}

fn await_publisher(service: &Service, since: Instant) -> Result<()> {
    while service.dynamic_config().number_of_publishers() == 0 {
        ensure!(since.elapsed() < PATIENCE, "there is no publisher after {} s", PATIENCE.as_secs());
        yield_now();
    }
    Ok(())
}

#[inline]
fn publish(publisher: &Source, payload: &[u8]) -> Result<()> {
    let sample = publisher.loan_slice_uninit(payload.len())?;
    sample.write_from_slice(payload).send()?;
    Ok(())
}

/// Runs this process's side of the round trips.
fn two(options: &Options, node: &Node<ipc::Service>, name: &str) -> Result<()> {
    let [ping, pong] = ["ping", "pong"].map(|way| service(options, node, &format!("{name}/{way}")));
    let (out, back) = if options.role == Role::Ping { (ping?, pong?) } else { (pong?, ping?) };
    let (publisher, subscriber) = (publisher(options, &out)?, back.subscriber_builder().create()?);
    await_publisher(&back, Instant::now())?;
    connect(&subscriber)?;
    let payload = message(options);
    let receive = || {
        let sample = spin(|| Ok(subscriber.receive()?))?;
        check(options, &sample)
    };
    ping_pong(options, || publish(&publisher, &payload), receive)
}

/// Connects a subscriber to the publisher by a first poll. Messages that were sent before it may be lost, even though
/// the publisher retries when a buffer is full.
fn connect(subscriber: &Ends) -> Result<()> {
    ensure!(subscriber.receive()?.is_none(), "a message arrived before all processes were ready");
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

/// Waits for a message, and receives all available ones.
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
        ensure!(since.elapsed() < PATIENCE, "no message arrived for {} s after message {before}", PATIENCE.as_secs());
        yield_now();
    }
}

/// Sends all messages with the given number outstanding, and prints the row.
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
