//! Puts one key through a cluster of etcd. One client uses one HTTP/2 connection to the leader.
//!
//! A put is acknowledged when a majority has it in its log and the leader has applied it. The client sleeps in `epoll`
//! meanwhile.
#![forbid(unsafe_code)]

mod wire;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use clap::Parser;
use compare_measure::{Options, Times, finish, now};
use h2::client::{self, SendRequest};
use http::Request;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

/// Maximum time for the cluster to elect a leader, and maximum time for a reply.
const PATIENCE: Duration = Duration::from_secs(30);
const PUT: &str = "etcdserverpb.KV/Put";
const STATUS: &str = "etcdserverpb.Maintenance/Status";

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
    let node = leader(&arguments.servers).await?;
    let (sent, delivered) = put_all(options, node).await?;
    delivered.write(options)?;
    finish(options, &sent)
}

/// A connection to a node.
#[derive(Clone)]
struct Node {
    requests: SendRequest<Bytes>,
    server: String,
}

impl Node {
    async fn open(server: &str) -> Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut builder = client::Builder::new();
        // The flow-control windows are large enough that no stream waits for a window update.
        builder.initial_connection_window_size(1 << 24).initial_window_size(1 << 20);
        let (requests, connection) = builder.handshake(stream).await?;
        spawn_local(async move {
            // If the connection fails, outstanding requests fail with the same error.
            let _ = connection.await;
        });
        Ok(Node { requests, server: server.to_owned() })
    }

    /// Calls a function of the API and returns the frame of its reply.
    async fn call(&self, function: &str, frame: Bytes) -> Result<Vec<u8>> {
        let request = Request::post(format!("http://{}/{function}", self.server))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let mut requests = self.requests.clone().ready().await?;
        let (response, mut stream) = requests.send_request(request, false)?;
        stream.send_data(frame, true)?;
        let mut body = response.await?.into_body();
        let mut answer = Vec::new();
        while let Some(part) = body.data().await {
            let part = part?;
            body.flow_control().release_capacity(part.len())?;
            answer.extend_from_slice(&part);
        }
        let trailers = body.trailers().await?.unwrap_or_default();
        let status = trailers.get("grpc-status").and_then(|status| status.to_str().ok());
        let message = || trailers.get("grpc-message").and_then(|text| text.to_str().ok()).unwrap_or_default();
        ensure!(status == Some("0"), "{function} at {}: {status:?} {}", self.server, message());
        Ok(answer)
    }
}

/// Waits until there is a leader, and returns it.
async fn leader(servers: &[String]) -> Result<Node> {
    let until = Instant::now() + PATIENCE;
    let mut last = None;
    while Instant::now() < until {
        for server in servers {
            match leads(server).await {
                Ok(Some(node)) => return Ok(node),
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

async fn leads(server: &str) -> Result<Option<Node>> {
    let node = Node::open(server).await?;
    let answer = node.call(STATUS, wire::framed(&[]).into()).await?;
    Ok(wire::is_leader(&answer)?.then_some(node))
}

/// Puts all messages with this number of puts outstanding. Returns the times at which each was sent and acknowledged.
async fn put_all(options: &Options, node: Node) -> Result<(Times, Times)> {
    let frame = Bytes::from(wire::put(b"compare", &vec![7; options.bytes as usize]));
    let delivered = Rc::new(RefCell::new(Times::blank(options.total())));
    let mut sent = Times::with_capacity(options.total());
    let free = Arc::new(Semaphore::new(options.outstanding as usize));
    let mut puts = JoinSet::new();
    for number in 0..options.total() {
        let place = timeout(PATIENCE, free.clone().acquire_owned()).await.context("etcd does not answer")??;
        sent.push(now());
        let (node, frame, delivered) = (node.clone(), frame.clone(), delivered.clone());
        puts.spawn_local(async move {
            node.call(PUT, frame).await?;
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
