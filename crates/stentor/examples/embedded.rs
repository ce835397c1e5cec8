//! A server that is its own client: three nodes of a replicated counter in this process, each with an embedded client.
//! The node turns the client, which needs neither its own thread nor, on `roce`, its own address.
//!
//! `cargo run -p stentor --example embedded` prints the answer to each client.

use std::io::{self, Read, Write};

use stentor::{Cluster, Context, Frozen, Reply, StateMachine};

#[derive(Clone, Copy, Default)]
struct Counter(i64);

impl StateMachine for Counter {
    type Frozen = Counter;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let Ok(bytes) = command.try_into() else { return reply.extend(b"not eight bytes") };
        self.0 = self.0.wrapping_add(i64::from_le_bytes(bytes));
        reply.extend(&self.0.to_le_bytes());
    }

    fn freeze(&self) -> Counter {
        *self
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        self.0 = i64::from_le_bytes(bytes);
        Ok(())
    }
}

impl Frozen for Counter {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0.to_le_bytes())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names = ["a", "b", "c"];
    let members = names.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("embedded").group("counters", members).build()?;
    let group = cluster.group("counters")?;
    let nodes = names.map(|name| cluster.node(name, Counter::default()).spawn());
    let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (node, name) in nodes.iter().zip(names) {
        let client = node.client().connect()?;
        // This works on any thread but those of the node, where waiting returns the error `WouldDeadlock`.
        let answer = client.call(group, &5_i64.to_le_bytes()).wait()?;
        println!("{name}: {}", i64::from_le_bytes(answer.bytes().try_into()?));
        client.close()?;
    }
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
