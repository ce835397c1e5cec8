//! Monitoring a node: the output of `status` while a leader stops and restarts.
//!
//! `cargo run -p stentor --example node_status` starts three nodes in this process and prints each change that one of
//! them sees. The leader is stopped, and hands over first. Then it is started again, and receives the state from the
//! others.

use std::error::Error;
use std::io::{self, Read};
use std::thread;
use std::time::{Duration, Instant};

use stentor::{Cluster, Context, NodeHandle, Reply, StateMachine, Stateless, Status};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Time limit of the example; reached only if it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine without a value, because this example is about its node.
struct Nothing;

impl StateMachine for Nothing {
    type Frozen = Stateless;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], _: &mut Reply) {}

    fn freeze(&self) -> Stateless {
        Stateless
    }

    fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the part of the status that is printed. The numbers of commands change too often for that.
fn summary(status: &Status) -> String {
    let does = match &status.leader {
        _ if status.joining => "joins".to_owned(),
        _ if status.leads => "leads".to_owned(),
        Some(leader) => format!("follows {leader}"),
        None => "knows no leader".to_owned(),
    };
    let connected: Vec<&str> = status.others.iter().filter(|other| other.connected).map(|other| &*other.name).collect();
    format!("{} {does}, connected to [{}]", status.name, connected.join(", "))
}

/// Prints the changes at a node until the condition holds.
fn watch(node: &NodeHandle<Nothing>, last: &mut String, done: impl Fn(&Status) -> bool) -> Result<(), Box<dyn Error>> {
    let since = Instant::now();
    loop {
        let status = node.status()?;
        let now = summary(&status);
        if now != *last {
            println!("{now}");
            *last = now;
        }
        if done(&status) {
            return Ok(());
        }
        if since.elapsed() > PATIENCE {
            return Err("the condition did not hold in time".into());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let members = NAMES.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("status").group("group", members).build()?;
    let nodes = NAMES.map(|name| cluster.node(name, Nothing).spawn());
    let mut nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;

    // Wait until there is a leader and all members are connected.
    let is_whole = |status: &Status| !status.joining && status.others.iter().all(|other| other.connected);
    watch(&nodes[0], &mut String::new(), |status| is_whole(status) && status.leader.is_some())?;
    let leader = nodes[0].status()?.leader.ok_or("no member leads")?;
    let stopped = nodes.remove(NAMES.iter().position(|name| *name == leader).ok_or("the leader is none of the three")?);

    let mut last = String::new();
    watch(&nodes[0], &mut last, is_whole)?;
    println!("{leader} is stopped");
    stopped.stop()?;
    let is_led = |status: &Status| status.leader.as_ref().is_some_and(|now| *now != leader);
    watch(&nodes[0], &mut last, |status| is_led(status) && !is_whole(status))?;
    println!("{leader} is started again");
    nodes.push(cluster.node(&leader, Nothing).spawn()?);
    watch(&nodes[0], &mut last, is_whole)?;
    // From now on another node may be stopped, because a majority has the state without it.
    watch(&nodes[2], &mut String::new(), |status| !status.joining)?;

    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
