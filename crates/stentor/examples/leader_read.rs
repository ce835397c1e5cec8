//! Reads at the leader. Each read reflects every command that the group had answered to any client before, and takes no
//! position in the order.
//!
//! `cargo run -p stentor --example leader_read` starts three nodes of a replicated value in this process. One client
//! changes the value, and another one reads it after each change. Then the example repeats this with ordered reads,
//! which have the same guarantee and take one position each.

use std::error::Error;
use std::io::{self, Read, Write};

use stentor::{Client, Cluster, Consistency, Context, Frozen, Group, ReadContext, Reply, StateMachine};

const ROUNDS: u64 = 50;

/// A value. A command replaces it, and a query reads it.
#[derive(Clone, Default)]
struct Value(Vec<u8>);

impl StateMachine for Value {
    type Frozen = Value;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], _: &mut Reply) {
        self.0 = command.to_vec();
    }

    fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
        reply.extend(&self.0);
    }

    fn freeze(&self) -> Value {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.0.clear();
        from.read_to_end(&mut self.0).map(drop)
    }
}

impl Frozen for Value {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0)
    }
}

/// Writes and reads alternately. Returns the number of reads that saw the last write, and the number of positions that
/// all writes and reads took.
fn rounds(writer: &Client, reader: &Client, group: Group, how: Consistency) -> Result<(u64, u64), Box<dyn Error>> {
    let (mut fresh, mut first, mut last) = (0, None, 0);
    for round in 0..ROUNDS {
        let value = round.to_le_bytes();
        let position = writer.call(group, &value).wait()?.position();
        // The reader knows nothing of the write. The guarantee alone makes it visible.
        let answer = reader.read(group, b"", how).wait()?;
        fresh += u64::from(answer.bytes() == value);
        first = first.or(Some(position.index));
        last = answer.position().index;
    }
    Ok((fresh, last + 1 - first.unwrap_or(last)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let names = ["a", "b", "c"];
    let members = names.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("leader-read").group("value", members).build()?;
    let group = cluster.group("value")?;
    let nodes = names.map(|name| cluster.node(name, Value::default()).spawn());
    let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;

    let (writer, reader) = (cluster.client().connect()?, cluster.client().connect()?);
    for (name, how) in [("leader", Consistency::Leader), ("ordered", Consistency::Ordered)] {
        let (fresh, places) = rounds(&writer, &reader, group, how)?;
        println!(
            "{name}: {fresh} of {ROUNDS} reads saw the last write; {ROUNDS} writes and the reads took {places} places"
        );
    }

    writer.close()?;
    reader.close()?;
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
