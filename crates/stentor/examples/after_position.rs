//! Reads after a position: any member answers, and the answer contains one's own write.
//!
//! `cargo run -p stentor --example after_position` starts three nodes of a replicated counter in this process. A client adds 1 again and
//! again. After each answer another client reads the counter in two ways. A `Local` read may miss the write. A read `After` its position
//! never does, and no leader has to answer it. The members share the work of such reads.

use std::error::Error;
use std::io::{self, Read, Write};

use stentor::{Cluster, Consistency, Context, Frozen, ReadContext, Reply, StateMachine};

const ROUNDS: u64 = 200;

/// Every command adds 1.
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

    let (writer, reader) = (cluster.client().connect()?, cluster.client().connect()?);
    let (mut missed_local, mut missed_after) = (0, 0);
    for written in 1..=ROUNDS {
        // The position names the place of the write in the order. The reader needs nothing else.
        let position = writer.call(group, b"").wait()?.position();
        for (how, missed) in
            [(Consistency::Local, &mut missed_local), (Consistency::After(position), &mut missed_after)]
        {
            let answer = reader.read(group, b"", how).wait()?;
            *missed += u64::from(u64::from_le_bytes(answer.bytes().try_into()?) < written);
        }
    }
    println!("after: {missed_after} of {ROUNDS} reads missed the write");
    println!("local: {missed_local} of {ROUNDS} reads missed the write");

    writer.close()?;
    reader.close()?;
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
