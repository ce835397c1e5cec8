//! A broadcast that tolerates lying processes: `broadcast NAME` runs one process of the `[neb]` section of the
//! `cluster.toml` in the working directory. It broadcasts each line of its input, and prints the messages that it
//! delivers. Run one for each process of the group, each in its own terminal.

use std::error::Error;
use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use stentor::{Cluster, Heard, NotSent};

/// Longest sleep between two checks of the input.
const LOOK: Duration = Duration::from_millis(5);

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("name a process of the broadcast")?;
    let mut process = Cluster::load("cluster.toml")?.broadcast(&name).start()?;
    let (lines, mut waiting) = (lines(), None);
    // After the end of its input, the process continues until it is killed or removed, because the others rely on it.
    while process.turn_or_sleep(LOOK, hear)? {
        waiting = waiting.or_else(|| lines.try_recv().ok());
        let Some(line) = &waiting else { continue };
        match process.send(line.as_bytes()) {
            Ok(_) => waiting = None,
            // Try again after the next turn.
            Err(NotSent::NotBegun | NotSent::Full) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

fn hear(heard: Heard<'_>) {
    match heard {
        Heard::Message { sender, sequence, bytes } => {
            println!("{sender} {sequence}: {}", String::from_utf8_lossy(bytes));
        }
        Heard::Equivocation(lie) => {
            println!("{} sent two messages with number {}, reports {}", lie.sender(), lie.sequence(), lie.witness());
        }
        other => println!("{other:?}"),
    }
}

/// Returns the lines of the input, which a thread reads.
fn lines() -> Receiver<String> {
    let (give, take) = sync_channel(16);
    thread::spawn(move || io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| give.send(line)));
    take
}
