//! A broadcast in mode `quorum`: it continues when a process ends.
//!
//! `cargo run -p stentor --example broadcast_quorum` runs four processes of a broadcast in this process, turned by one
//! thread. Each process sends a message. Then one of them ends, and the others continue without it. In mode `all` they
//! would wait for that process until an operator removes it.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use stentor::broadcast::FaultModel;
use stentor::{Broadcast, BroadcastConfig, Cluster, ConfigError, Heard, NotSent, WaitMode};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Time limit of the example; reached only if it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the cluster. A majority of the three receivers must confirm a message, so one of them may be down. A sender
/// waits 100 ms for a process that is a window of 8 messages behind.
fn cluster(directory: &Path) -> Result<Cluster, ConfigError> {
    let members = (1..).zip(NAMES).map(|(n, name)| (name, format!("127.0.0.{n}:7101")));
    let quorum = BroadcastConfig::quorum(FaultModel::LyingSender, 1).window(8).patience(Duration::from_millis(100));
    Cluster::builder("quorum").group("all", members).broadcast(quorum).directory(directory).build()
}

/// The processes, each with the number of messages that it has delivered.
struct Processes(Vec<(Broadcast, u64)>);

impl Processes {
    /// Turns all processes until the condition holds.
    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> Result<bool, NotSent>) -> Result<(), Box<dyn Error>> {
        let since = Instant::now();
        while !is_so(self)? {
            for (process, heard) in &mut self.0 {
                let _ = process.turn(|event| *heard += u64::from(matches!(event, Heard::Message { .. })))?;
            }
            if since.elapsed() > PATIENCE {
                return Err("the processes make no progress".into());
            }
        }
        Ok(())
    }

    /// Sends `count` messages from one process, and waits until all processes have delivered them. Whenever the window
    /// is full, the other messages wait.
    fn send(&mut self, from: usize, count: u64) -> Result<(), Box<dyn Error>> {
        let (due, mut sent) = (self.0[from].1 + count, 0);
        self.until(|processes| {
            while sent < count {
                match processes.0[from].0.send(b"hello") {
                    Ok(_) => sent += 1,
                    Err(NotSent::NotBegun | NotSent::Full) => break,
                    Err(why) => return Err(why),
                }
            }
            Ok(processes.0.iter().all(|(_, heard)| *heard == due))
        })
    }

    fn tell(&self) {
        for (process, heard) in &self.0 {
            println!("{} has delivered {heard} messages, and misses {:?}", process.name(), process.absent());
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("stentor-quorum-{}", std::process::id()));
    let cluster = cluster(&directory)?;
    // One thread turns all processes, so an idle process must not yield, and must not spin for long.
    let start = |name| Ok((cluster.broadcast(name).wait(WaitMode::BLOCK).start()?, 0));
    let mut processes = Processes(NAMES.into_iter().map(start).collect::<Result<_, Box<dyn Error>>>()?);

    for from in 0..NAMES.len() {
        processes.send(from, 1)?;
    }
    processes.tell();
    println!("d ends");
    processes.0.truncate(3);
    processes.send(0, 20)?;
    processes.tell();
    // The directory is removed with its last process.
    Ok(())
}
