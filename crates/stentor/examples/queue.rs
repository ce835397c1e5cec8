//! A replicated queue: every item is popped once, whichever client pops it.
//!
//! `cargo run -p stentor --example queue` starts three nodes in this process, pushes items and pops them. The length of
//! a reply is limited, by default to 1024 bytes. A pop therefore checks whether the item fits before it removes the
//! item from the queue.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, Read, Write};

use stentor::{Client, Cluster, Context, Frozen, Group, Reply, StateMachine};

/// A queue. The command `+ITEM` pushes an item, and `-` pops one.
#[derive(Clone, Default)]
struct Queue(VecDeque<Vec<u8>>);

impl Queue {
    /// Replies `=ITEM` or `empty`. If the item does not fit, replies `long` and keeps the item.
    fn pop(&mut self, reply: &mut Reply) {
        // A reply that is too long never reaches the client, which gets the error `ReplyTooLong`. An item already
        // removed would be lost.
        if self.0.front().is_some_and(|item| item.len() + 1 > reply.room()) {
            return reply.extend(b"long");
        }
        match self.0.pop_front() {
            Some(item) => {
                reply.extend(b"=");
                reply.extend(&item);
            }
            None => reply.extend(b"empty"),
        }
    }
}

impl StateMachine for Queue {
    type Frozen = Queue;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
        match command.split_first() {
            Some((b'+', item)) => self.0.push_back(item.to_vec()),
            Some((b'-', [])) => self.pop(reply),
            _ => reply.extend(b"neither + nor -"),
        }
    }

    fn freeze(&self) -> Queue {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.0.clear();
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        for _ in 0..u64::from_le_bytes(length) {
            from.read_exact(&mut length)?;
            let mut item = Vec::new();
            from.take(u64::from_le_bytes(length)).read_to_end(&mut item)?;
            self.0.push_back(item);
        }
        Ok(())
    }
}

impl Frozen for Queue {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&(self.0.len() as u64).to_le_bytes())?;
        for item in self.0 {
            out.write_all(&(item.len() as u64).to_le_bytes())?;
            out.write_all(&item)?;
        }
        Ok(())
    }
}

fn pop(client: &Client, group: Group) -> Result<String, Box<dyn Error>> {
    let answer = client.call(group, b"-").wait()?;
    Ok(String::from_utf8(answer.bytes().to_vec())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let names = ["a", "b", "c"];
    let members = names.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("queue").group("queue", members).build()?;
    let group = cluster.group("queue")?;
    let nodes = names.map(|name| cluster.node(name, Queue::default()).spawn());
    let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;

    let clients = [cluster.client().connect()?, cluster.client().connect()?];
    for item in ["one", "two", "three", &"x".repeat(2000)] {
        clients[0].call(group, format!("+{item}").as_bytes()).wait()?;
    }
    for (turn, client) in [0, 1, 0, 1].map(|at| (at, &clients[at])) {
        println!("client {turn}: {}", pop(client, group)?);
    }
    // The last item did not fit, so it is still in the queue.
    println!("left: {}", nodes[0].inspect(|queue| queue.0.len())?);

    for client in clients {
        client.close()?;
    }
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
