//! `stentor bench cluster`: a running cluster, measured by a client that joins it.
//!
//! A latency counts from the call, or at a fixed rate from the due time, until the client knows that a majority of each
//! group has delivered the message. There is no bound, because this program does not control the network between the
//! processes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use stentor::runtime::{Client, ClusterFabric, ClusterRuntime, GroupId, Housekeeper, SubmitError, client_round_within};
use stentor::with_fabric;
use stentor_fabric::Backoff;
use stentor_support::Failure;
use stentor_support::args::{Network, name_of};
use stentor_support::live::{self, Interrupt, Joining};
use stentor_support::streams::complain;

use super::clock::now;
use super::environment::Environment;
use super::harness::{ITERATIONS, due_name, messages, messages_at, rounds, sizes};
use super::pause::{LONGEST, mode};
use super::report::{Report, Row};
use super::samples::Samples;
use super::schedule::Schedule;
use crate::args::{BenchCluster, BenchLength};

/// Ratio of the messages in a run with a window to those in a run with one outstanding message.
const WINDOWED: u64 = 10;
/// Largest number of messages that are sent before the fabric is polled again.
const BURST: u64 = 16;

pub(super) fn run(args: &BenchCluster) -> Result<Report, Failure> {
    let plan = live::plan(&args.config)?;
    let to = live::groups(&plan, &args.to, &args.config)?;
    let most = plan.config().limits().message_bytes as usize;
    let sizes = sizes(&args.length, |size| {
        let what = format!("{size} bytes: messages of this cluster go up to {most} (`message_bytes`)");
        (size > most).then_some((what, "choose a smaller size"))
    })?;
    with_fabric!(plan.config().fabric(), F => measure::<F>(args, &plan, &to, &sizes))
}

/// Measures the cluster on any fabric.
fn measure<F: ClusterFabric>(
    args: &BenchCluster,
    plan: &ClusterRuntime,
    to: &[GroupId],
    sizes: &[usize],
) -> Result<Report, Failure> {
    let pinning = "one client, not pinned; members where they run".to_owned();
    let mut environment = Environment::new(plan.config().fabric().name(), name_of(&args.wait), pinning);
    let mut sender = Sender::<F>::join(args, plan, to)?;
    environment.carrier = sender.client.fabric().carrier();
    let (length, groups) = (&args.length, args.to.join(","));
    let most = args.window.iter().copied().max().unwrap_or(1).into();
    let mut rows = Vec::new();
    for bytes in sizes {
        let mut row = |what: String, pace| sender.row(length, format!("cluster, to {groups}, {what}"), *bytes, pace);
        let alone = Pace { messages: messages(length, ITERATIONS), window: 1, rate: None };
        rows.push(row("one outstanding".to_owned(), alone)?);
        for window in args.window.iter().copied().filter(|window| *window > 1) {
            let messages = messages(length, ITERATIONS * WINDOWED);
            let pace = Pace { messages, window: window.into(), rate: None };
            rows.push(row(format!("{window} outstanding"), pace)?);
        }
        for rate in args.rates.rate.iter().copied() {
            let pace = Pace { messages: messages_at(&length.repeats, rate), window: most, rate: Some(rate) };
            rows.push(row(due_name(rate), pace)?);
        }
    }
    Ok(Report::of(environment, rows))
}

/// The load of a row: the number of messages in each round, and how fast they are sent.
#[derive(Clone, Copy)]
struct Pace {
    /// Messages of each round.
    messages: u64,
    window: u64,
    /// Messages per second; `None` for as many as the window allows.
    rate: Option<u32>,
}

/// The client, driven by a polling loop.
struct Sender<'a, F: ClusterFabric> {
    client: Client<F>,
    to: &'a [GroupId],
    timeout: Duration,
    backoff: Backoff,
    housekeeper: Housekeeper,
    interrupt: Interrupt,
    /// Sequence of each message that is not known to be delivered, with the time at which it was sent or due.
    outstanding: VecDeque<(u64, u64)>,
}

impl<'a, F: ClusterFabric> Sender<'a, F> {
    /// Joins the cluster with the first free client id.
    fn join(args: &BenchCluster, plan: &ClusterRuntime, to: &'a [GroupId]) -> Result<Self, Failure> {
        let (interrupt, timeout) = (Interrupt::catch()?, Duration::from_secs(args.timeout));
        let directory = live::directory(args.directory.as_ref());
        let bind = live::bind_config(&args.config, directory.clone(), args.bind, &Network::default());
        let start = |client| plan.start_client::<F>(client, &bind);
        let joining = Joining {
            directory: args.directory.as_deref(),
            to: to.to_vec(),
            wait: mode(args.wait),
            timeout,
            check: &|| interrupt.check(),
            ..Joining::to_all(plan, &args.config, &directory, &start)
        };
        let joined = joining.join(None, |text| complain(format!("{text}\n")))?;
        let (backoff, housekeeper) = (Backoff::new(mode(args.wait)), Housekeeper::default());
        let outstanding = VecDeque::new();
        Ok(Sender { client: joined.client, to, timeout, backoff, housekeeper, interrupt, outstanding })
    }

    /// Measures a row. Each round has `pace.messages` messages after its warm-up.
    fn row(&mut self, length: &BenchLength, name: String, bytes: usize, pace: Pace) -> Result<Row, Failure> {
        let (mut samples, mut rates) = (Samples::plain(), Vec::new());
        let before = length.repeats.warm_up(pace.messages);
        let rounds = rounds((length.repeats.rounds, length.duration), || {
            self.multicast(bytes, before, pace)?;
            let (latencies, ns) = self.multicast(bytes, pace.messages, pace)?;
            rates.push(pace.messages as f64 * 1e9 / ns.max(1) as f64);
            samples.round(latencies);
            Ok(())
        })?;
        let row = Row::alone(name, bytes, rounds);
        let row = match pace.rate {
            Some(rate) => row.with_due(rate.into(), &rates).with_samples(&samples),
            None if pace.window == 1 => row.with_samples(&samples).with_rate(1e6 / samples.summary().avg),
            None => row.with_rates(&rates).with_samples(&samples),
        };
        Ok(row)
    }

    /// Multicasts `total` messages and waits until all are delivered. Returns their latencies and the total time, in
    /// nanoseconds.
    fn multicast(&mut self, bytes: usize, total: u64, pace: Pace) -> Result<(Vec<u64>, u64), Failure> {
        let payload = vec![7; bytes];
        let mut latencies = Vec::with_capacity(total as usize);
        let (schedule, start) = (Schedule::new(pace.rate.unwrap_or(0).into()), now());
        let (mut sent, mut progress) = (0, Instant::now());
        while (latencies.len() as u64) < total {
            let mut burst = 0;
            while sent < total && (self.outstanding.len() as u64) < pace.window && burst < BURST {
                let Some(due) = schedule.due(sent, now()) else { break };
                match self.client.submit(self.to, &payload, pace.window == 1 || sent + 1 == total) {
                    Ok(submitted) => self.outstanding.push_back((submitted.id.sequence, due)),
                    Err(SubmitError::Busy { .. } | SubmitError::NotConnected { .. }) => break,
                    Err(error) => return Err(failed(error)),
                }
                (sent, burst) = (sent + 1, burst + 1);
            }
            let has_room = (self.outstanding.len() as u64) < pace.window;
            let longest = if has_room { schedule.longest_sleep(sent, total, now()) } else { LONGEST };
            let Sender { client, backoff, housekeeper, .. } = self;
            client_round_within(client, backoff, housekeeper, burst > 0, longest).map_err(failed)?;
            let done = self.client.delivered_up_to();
            let (at, before) = (now(), latencies.len());
            while let Some((_, due)) = self.outstanding.front().filter(|(sequence, _)| *sequence <= done) {
                latencies.push(at.saturating_sub(*due));
                self.outstanding.pop_front();
            }
            if latencies.len() > before || self.outstanding.is_empty() {
                progress = Instant::now();
            }
            self.interrupt.check()?;
            if progress.elapsed() > self.timeout {
                let what = format!("nothing was delivered for {} s", self.timeout.as_secs());
                return Err(Failure::run(
                    what,
                    "stentor bench cluster",
                    "`stentor leader show` shows which members run",
                ));
            }
        }
        Ok((latencies, now() - start))
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::run(error, "stentor bench cluster", "`stentor leader show` shows which members run; run `stentor doctor`")
}
