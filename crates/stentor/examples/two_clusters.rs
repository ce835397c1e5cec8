//! Two clusters in one process, and a bridge between them, which sends the commands of one cluster's group to the other
//! cluster.
//!
//! `cargo run -p stentor --example two_clusters` starts two clusters of three nodes each in this process. They share
//! nothing: each has its own name, order and clients. The bridge is an observer of the first cluster and a client of
//! the second.

use std::error::Error;
use std::io::{self, Read, Write};
use std::time::Duration;

use stentor::{Cluster, Consistency, Context, Frozen, NodeHandle, Observed, ReadContext, Reply, StateMachine};

/// A text: the concatenation of all commands.
#[derive(Clone, Default)]
struct Text(Vec<u8>);

impl StateMachine for Text {
    type Frozen = Text;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], _: &mut Reply) {
        self.0.extend_from_slice(command);
    }

    fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
        reply.extend(&self.0);
    }

    fn freeze(&self) -> Text {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.0.clear();
        from.read_to_end(&mut self.0).map(drop)
    }
}

impl Frozen for Text {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0)
    }
}

/// A cluster with its nodes.
type Started = (Cluster, Vec<NodeHandle<Text>>);

/// Starts a cluster. Processes find each other by its name, so two clusters may use the same member names and
/// addresses.
fn start(name: &str) -> Result<Started, Box<dyn Error>> {
    let members = (1..=3).map(|n| (format!("text.{n}"), format!("127.0.0.{n}:7101")));
    let cluster = Cluster::builder(name).group("text", members).build()?;
    let spawn = |name| cluster.node(name, Text::default()).spawn();
    let nodes = cluster.members(cluster.group("text")?).map(spawn).collect::<Result<_, _>>()?;
    Ok((cluster, nodes))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (near, near_nodes) = start("near")?;
    let (far, far_nodes) = start("far")?;
    // A group value belongs to its cluster. Do not use it with the other one.
    let (near_group, far_group) = (near.group("text")?, far.group("text")?);

    let writer = near.client().connect()?;
    let words = ["one ", "order ", "each"];
    let mut observer = near.observe(near_group).connect()?;
    let bridge = far.client().connect()?;
    for word in words {
        writer.call(near_group, word.as_bytes()).wait()?;
    }
    let mut sent = 0;
    while sent < words.len() {
        // A bridge that may die should include `command.position` in what it sends, so that the far machine can drop
        // duplicates.
        match observer.next(Duration::from_secs(10))? {
            Some(Observed::Command(command)) => {
                bridge.call(far_group, &command.bytes).wait()?;
                sent += 1;
            }
            // The observer may start with the state, which contains the commands so far.
            Some(Observed::State(state)) => println!("the state at the beginning: {} bytes", state.bytes.len()),
            Some(_) => {}
            None => return Err("no event arrived in time".into()),
        }
    }
    for (name, client, group) in [("near", &writer, near_group), ("far", &bridge, far_group)] {
        let answer = client.read(group, b"", Consistency::Leader).wait()?;
        println!("{name}: {}", String::from_utf8_lossy(answer.bytes()));
    }

    writer.close()?;
    bridge.close()?;
    for node in near_nodes.into_iter().chain(far_nodes) {
        node.stop()?;
    }
    Ok(())
}
