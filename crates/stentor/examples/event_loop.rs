//! A custom event loop: one thread turns nodes and serves a socket, and sleeps in `epoll_wait` when there is nothing to
//! do.
//!
//! `cargo run -p stentor --example event_loop` turns three nodes of a replicated counter in one thread of this process;
//! a real program would have one node. The loop also answers questions on a socket that is unrelated to Stentor. The
//! main thread is a client of both.

use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use stentor::{Cluster, Context, Frozen, Node, Reply, StateMachine, Turn, WaitMode};

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

type Failure = Box<dyn Error + Send + Sync>;

/// Adds a descriptor to the set, unless it is there. A closed descriptor leaves the set by itself.
fn watch(set: impl AsFd, descriptor: impl AsFd) -> io::Result<()> {
    match epoll::add(set, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Answers each question with the name of the leader. Returns whether the other end is still open. This costs a system
/// call in every round: a loop that is often busy should check less often.
fn answer(socket: &mut UnixStream, node: &Node<Counter>) -> io::Result<bool> {
    match socket.read(&mut [0; 64]) {
        Ok(0) => Ok(false),
        Ok(_) => writeln!(socket, "{}", node.status().leader.unwrap_or_default()).map(|()| true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Turns the nodes and serves the socket until its other end is closed. Returns the number of sleeps.
fn serve(mut nodes: Vec<Node<Counter>>, mut socket: UnixStream) -> Result<u64, Failure> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    socket.set_nonblocking(true)?;
    watch(&set, &socket)?;
    let (mut sleeps, mut events) = (0, Vec::with_capacity(8));
    while answer(&mut socket, &nodes[0])? {
        let mut wake_at: Option<Instant> = None;
        let mut busy = false;
        for node in &mut nodes {
            match node.turn()? {
                Turn::Busy => busy = true,
                Turn::Idle(until) => wake_at = Some(wake_at.map_or(until, |at| at.min(until))),
                Turn::Stopped => return Ok(sleeps),
            }
        }
        if busy {
            continue;
        }
        // A node gets another descriptor after a panic of its state machine, and when clients are embedded in it.
        // Therefore ask for it before each sleep.
        nodes.iter().try_for_each(|node| watch(&set, node))?;
        let longest = wake_at.map_or_else(Default::default, |at| at.saturating_duration_since(Instant::now()));
        let longest = Timespec::try_from(longest)?;
        match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&longest)) {
            // The next round checks everything, so it does not matter which descriptor is ready, or whether a signal
            // arrived.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        events.clear();
        sleeps += 1;
    }
    // Here the nodes end as if their process had died. For an orderly end, call `Stopper::stop`, and turn until
    // `Turn::Stopped`.
    Ok(sleeps)
}

fn main() -> Result<(), Box<dyn Error>> {
    let names = ["a", "b", "c"];
    let members = names.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("loop").group("counter", members).build()?;
    let group = cluster.group("counter")?;
    // In this mode `turn` never yields, and hardly spins. Both would delay the other nodes on this thread.
    let start = |name| cluster.node(name, Counter::default()).wait(WaitMode::BLOCK).start();
    let nodes = names.into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let (ours, theirs) = UnixStream::pair()?;
    let serving = thread::spawn(move || serve(nodes, theirs));

    let client = cluster.client().connect()?;
    let mut leader = String::new();
    for _ in 0..3 {
        let answer = client.call(group, &5_i64.to_le_bytes()).wait()?;
        println!("the counter is {}", i64::from_le_bytes(answer.bytes().try_into()?));
    }
    writeln!(&ours, "who leads?")?;
    BufReader::new(&ours).read_line(&mut leader)?;
    println!("the leader is {}", leader.trim());
    client.close()?;
    drop(ours);
    let sleeps = serving.join().map_err(|_| "the loop has panicked")?.map_err(|error| error.to_string())?;
    println!("the loop slept: {}", sleeps > 0);
    Ok(())
}
