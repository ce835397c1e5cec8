//! A client in tokio: calls are futures, and each task awaits its own.
//!
//! `cargo run -p stentor --example client_tokio` starts three nodes of a replicated counter in this process, and a
//! client with 20 tasks on one thread. All their calls are in flight concurrently. The futures do not depend on tokio
//! and work with every executor.

use std::error::Error;
use std::io::{self, Read, Write};
use std::time::Duration;

use stentor::{CallError, Client, Cluster, Consistency, Context, Frozen, Group, ReadContext, Reply, StateMachine};

const TASKS: u64 = 20;

#[derive(Clone, Copy, Default)]
struct Counter(u64);

impl StateMachine for Counter {
    type Frozen = Counter;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let Ok(bytes) = command.try_into() else { return reply.extend(b"not eight bytes") };
        self.0 = self.0.wrapping_add(u64::from_le_bytes(bytes));
        reply.extend(&self.0.to_le_bytes());
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

/// Adds a number twice. The second call waits for the answer to the first.
async fn add_twice(client: Client, group: Group, number: u64) -> Result<(), CallError> {
    for _ in 0..2 {
        client.call(group, &number.to_le_bytes()).await?;
    }
    Ok(())
}

async fn run(client: Client, group: Group) -> Result<(), Box<dyn Error>> {
    let tasks: Vec<_> = (1..=TASKS).map(|number| tokio::spawn(add_twice(client.clone(), group, number))).collect();
    for task in tasks {
        task.await??;
    }
    // A read may be abandoned at any time. An abandoned command may be applied nevertheless: keep its `ticket` to find
    // out.
    let read = client.read(group, b"", Consistency::Leader);
    let answer = tokio::time::timeout(Duration::from_secs(5), read).await??;
    println!("{TASKS} tasks are done, and the counter is {}", u64::from_le_bytes(answer.bytes().try_into()?));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let names = ["a", "b", "c"];
    let members = names.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("tokio").group("counter", members).build()?;
    let group = cluster.group("counter")?;
    let nodes = names.map(|name| cluster.node(name, Counter::default()).spawn());
    let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;

    // `connect` and `close` block. Call them outside the runtime, or on a thread for blocking calls (`spawn_blocking`).
    let client = cluster.client().connect()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(run(client.clone(), group))?;

    client.close()?;
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
