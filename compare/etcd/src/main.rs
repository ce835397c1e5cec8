//! Measures puts of one key into an etcd cluster. One client of the crate `etcd-client` uses one connection to the
//! leader.
//!
//! A put is acknowledged when a majority has it in its log and the leader has applied it. The client sleeps in `epoll`
//! meanwhile.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use compare_measure::{Options, Times, finish, now};
use etcd_client::{Client, KvClient};
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

/// Maximum time for the cluster to elect a leader, and maximum time without a reply.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    common: Options,
    /// Addresses and ports of all nodes
    #[arg(long, value_delimiter = ',', required = true)]
    servers: Vec<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run(&arguments))
}

async fn run(arguments: &Arguments) -> Result<()> {
    let options = &arguments.common;
    let client = leader(&arguments.servers).await?;
    let (sent, delivered) = put_all(options, client).await?;
    delivered.write(options)?;
    finish(options, &sent)
}

/// Waits until a node leads, and returns a client that is connected to it.
async fn leader(servers: &[String]) -> Result<KvClient> {
    let until = Instant::now() + PATIENCE;
    let mut last = None;
    while Instant::now() < until {
        for server in servers {
            match leads(server).await {
                Ok(Some(client)) => return Ok(client),
                Ok(None) => {}
                Err(error) => last = Some(error),
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    let what = format!("no node of etcd leads within {} s", PATIENCE.as_secs());
    match last {
        Some(error) => Err(error).context(what),
        None => bail!(what),
    }
}

/// Connects to a node, and returns the connection if the node leads.
async fn leads(server: &str) -> Result<Option<KvClient>> {
    let mut client = Client::connect([server], None).await?;
    let status = client.status().await?;
    let own = status.header().context("the status of etcd lacks its header")?.member_id();
    Ok((status.leader() == own).then(|| client.kv_client()))
}

/// Sends all puts, with the given number outstanding. Returns the times at which they were sent, and the times at which
/// they were acknowledged.
async fn put_all(options: &Options, client: KvClient) -> Result<(Times, Times)> {
    let value = vec![7; options.bytes as usize];
    let delivered = Rc::new(RefCell::new(Times::blank(options.total())));
    let mut sent = Times::with_capacity(options.total());
    let free = Arc::new(Semaphore::new(options.outstanding as usize));
    let mut puts = JoinSet::new();
    for number in 0..options.total() {
        let place = timeout(PATIENCE, free.clone().acquire_owned()).await.context("etcd does not answer")??;
        sent.push(now());
        let (mut client, value, delivered) = (client.clone(), value.clone(), delivered.clone());
        puts.spawn_local(async move {
            client.put("compare", value, None).await?;
            delivered.borrow_mut().set(number, now());
            drop(place);
            anyhow::Ok(())
        });
        while let Some(done) = puts.try_join_next() {
            done??;
        }
    }
    while let Some(done) = timeout(PATIENCE, puts.join_next()).await.context("etcd does not answer")? {
        done??;
    }
    Ok((sent, delivered.take()))
}
