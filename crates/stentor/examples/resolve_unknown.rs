//! A command with an unknown outcome: the process that sent it has died, and a later process finds the outcome.
//!
//! `cargo run -p stentor --example resolve_unknown` starts three nodes of an account in this process. Then it starts
//! itself again, several times in turn, as `resolve_unknown pay DIRECTORY DELAY`. Such a process writes its session and
//! the ticket of a payment to files, sends the payment, and dies without waiting for the answer. This process resumes
//! the session and resolves the ticket. Each payment is therefore made exactly once.

use std::error::Error;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use stentor::{CallError, Client, Cluster, Context, Frozen, Reply, Session, StateMachine, Ticket};

const NAMES: [&str; 3] = ["a", "b", "c"];
const PRICE: u64 = 5;

/// A balance. A command subtracts an amount from it.
#[derive(Clone, Copy)]
struct Account(u64);

impl StateMachine for Account {
    type Frozen = Account;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let Ok(amount) = command.try_into() else { return reply.extend(b"no amount") };
        self.0 = self.0.saturating_sub(u64::from_le_bytes(amount));
        reply.extend(&self.0.to_le_bytes());
    }

    fn freeze(&self) -> Account {
        *self
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }
}

impl Frozen for Account {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0.to_le_bytes())
    }
}

/// Replaces a file atomically, so that a later process never reads half of a ticket.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, bytes)?;
    std::fs::rename(&new, file)
}

/// Pays, and dies without waiting for the answer. The ticket is stored before the command is sent, because the process
/// may die at any time afterwards.
fn pay(cluster: &Cluster, directory: &Path, delay: u64) -> Result<(), Box<dyn Error>> {
    let client = cluster.client().connect()?;
    replace(&directory.join("session"), &client.session().to_bytes())?;
    let prepared = client.prepare(cluster.group("account")?, &PRICE.to_le_bytes()).wait()?;
    replace(&directory.join("ticket"), &prepared.ticket().to_bytes())?;
    let _call = prepared.send();
    std::thread::sleep(Duration::from_micros(delay));
    std::process::exit(1)
}

/// Finds the outcome of the payment. A payment that was never made is closed for good, and is made now.
fn resolve(cluster: &Cluster, directory: &Path) -> Result<String, Box<dyn Error>> {
    let session = Session::from_bytes(&std::fs::read(directory.join("session"))?)?;
    let ticket = Ticket::from_bytes(&std::fs::read(directory.join("ticket"))?)?;
    let client: Client = cluster.client().session(session).connect()?;
    let (what, answer) = match client.resolve(&ticket).wait() {
        Ok(answer) => ("it was made", answer),
        Err(CallError::NotApplied(_)) => ("it is made now", client.call(ticket.groups(), &PRICE.to_le_bytes()).wait()?),
        // The outcome is still unknown. `leave` keeps the session alive, so that a later process can ask again.
        Err(error) => {
            client.leave()?;
            return Err(error.into());
        }
    };
    let balance = u64::from_le_bytes(answer.bytes().try_into()?);
    // No ticket is open any more, so the session is no longer needed.
    client.close()?;
    Ok(format!("{what}, and {balance} is left"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let members = NAMES.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("resolve").group("account", members).build()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [_, directory, delay] = &words[..] {
        return pay(&cluster, Path::new(directory), delay.parse()?);
    }
    let nodes = NAMES.map(|name| cluster.node(name, Account(100)).spawn());
    let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
    let directory = std::env::temp_dir().join(format!("stentor-resolve-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    // The longer the process lives, the more likely the payment was made. Either outcome is correct.
    for (number, delay) in [(1, "0"), (2, "200"), (3, "20000")] {
        Command::new(std::env::current_exe()?).arg("pay").arg(&directory).arg(delay).status()?;
        println!("payment {number}: {}", resolve(&cluster, &directory)?);
    }
    std::fs::remove_dir_all(directory)?;
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
