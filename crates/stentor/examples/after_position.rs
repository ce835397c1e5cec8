//! Reads after a position: any member may answer, and the answer contains the client's own write.
//!
//! `cargo run -p stentor --example after_position` starts three nodes of a replicated counter in this process. A client
//! adds 1 repeatedly. After each answer, four other clients read the counter with the consistency `After` and the
//! answer's position. Each client asks a random member, so the members share the load. A member that has not applied
//! the write yet waits until it has. A `Local` read would not wait.

use std::error::Error;
use std::io::{self, Read, Write};

use stentor::{Client, Cluster, Consistency, Context, Frozen, ReadContext, Reply, StateMachine};

const ROUNDS: u64 = 100;
const READERS: usize = 4;

/// A counter. Every command adds 1.
#[derive(Clone, Copy, Default)]
struct Counter(u64);

impl StateMachine for Counter {
    type Frozen = Counter;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], _: &mut Reply) {
        self.0 += 1;
    }

    fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
        reply.extend(&self.0.to_le_bytes());
    }

    fn freeze(&self) -> Counter {
        *self
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }
}

impl Frozen for Counter {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0.to_le_bytes())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let names = ["a", "b", "c"];
    let members = names.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("after").group("counter", members).build()?;
    let group = cluster.group("counter")?;
    let nodes = names.map(|name| cluster.node(name, Counter::default()).spawn());
    let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;

    let writer = cluster.client().connect()?;
    let readers = (0..READERS).map(|_| cluster.client().connect()).collect::<Result<Vec<_>, _>>()?;
    let mut missed = 0;
    for written in 1..=ROUNDS {
        let position = writer.call(group, b"").wait()?.position();
        // The readers know nothing but the position. They all read concurrently.
        let ask = |reader: &Client| reader.read(group, b"", Consistency::After(position));
        let asked: Vec<_> = readers.iter().map(ask).collect();
        for read in asked {
            missed += u64::from(u64::from_le_bytes(read.wait()?.bytes().try_into()?) < written);
        }
    }
    println!("{missed} of {} reads missed the write", ROUNDS * READERS as u64);

    for client in readers.into_iter().chain([writer]) {
        client.close()?;
    }
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
