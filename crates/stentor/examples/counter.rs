//! A replicated counter. `counter g1.1`, `counter g1.2` and `counter g1.3` run its nodes, each in its own terminal, in
//! a directory with a `cluster.toml` (`stentor config init` writes one). `counter` adds 5, and prints the result. Kill
//! any node with `kill -9`, and add again.

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
    let cluster = Cluster::load("cluster.toml")?;
    match std::env::args().nth(1) {
        Some(name) => cluster.node(&name, Counter::default()).start()?.run()?,
        None => {
            let (group, client) = (cluster.group("g1")?, cluster.client());
            let client = client.groups(group).connect()?;
            let answer = client.call(group, &5_i64.to_le_bytes()).wait()?;
            println!("{} at {:?}", i64::from_le_bytes(answer.bytes().try_into()?), answer.position());
        }
    }
    Ok(())
}
