//! A replicated counter: `counter g1.1`, `counter g1.2` and `counter g1.3`, each in a terminal of its own, in a directory with a
//! `cluster.toml` (`stentor config init` writes one). `echo hello | stentor cast --to g1` counts a command. Kill any of the three with
//! `kill -9`, cast again, and start it again: it gets the state from the others.

use std::io::{self, Read, Write};

use stentor::{Cluster, Context, Frozen, Reply, StateMachine};

#[derive(Clone, Copy, Default)]
struct Counter(u64);

impl StateMachine for Counter {
    type Frozen = Counter;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        self.0 += 1;
        reply.extend(&self.0.to_le_bytes());
        println!("{} commands; {} sent {:?}", self.0, at.sender(), String::from_utf8_lossy(command));
    }

    fn freeze(&self) -> Counter {
        *self
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        self.0 = u64::from_le_bytes(bytes);
        println!("goes on after {} commands", self.0);
        Ok(())
    }
}

impl Frozen for Counter {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0.to_le_bytes())
    }
}

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("name a member of the configuration: counter g1.1")?;
    Cluster::load("cluster.toml")?.node(&name, Counter::default()).start()?.run()?;
    Ok(())
}
