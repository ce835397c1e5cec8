//! A lock service. `locks g1.1`, `locks g1.2` and `locks g1.3` run its nodes, each in its own terminal, in a directory
//! with a `cluster.toml` (`stentor config init` writes one). `locks take NAME` waits for a lock, prints that it holds
//! the lock, and holds it until its input ends. Run it twice, and kill the holder with `kill -9`: the other one
//! acquires the lock when the holder's session expires.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::time::Duration;

use stentor::{Client, Cluster, Context, Frozen, Group, Reply, SessionId, StateMachine};

/// A lock: its holder, the sessions that wait for it in order of arrival, and the fencing number of the holder.
#[derive(Clone, Default)]
struct Lock {
    number: u64,
    queue: VecDeque<SessionId>,
}

/// The locks. A command is `+` or `-` followed by the name of a lock: the session acquires the lock, or releases it.
#[derive(Clone, Default)]
struct Locks {
    /// The last fencing number. Numbers rise, so a resource that has seen one number can refuse smaller ones.
    last: u64,
    by_name: BTreeMap<Vec<u8>, Lock>,
}

impl Locks {
    fn next_number(&mut self, at: &Context<'_>) -> u64 {
        self.last = at.time().max(self.last + 1);
        self.last
    }

    /// Releases a lock, or stops waiting for it. The next waiting session becomes the holder and receives a
    /// notification.
    fn leave(&mut self, at: &Context<'_>, name: &[u8], session: SessionId) {
        let Some(lock) = self.by_name.get_mut(name) else { return };
        let had_it = lock.queue.front() == Some(&session);
        lock.queue.retain(|waits| *waits != session);
        let Some(next) = lock.queue.front().copied() else {
            self.by_name.remove(name);
            return;
        };
        if had_it {
            let number = self.next_number(at);
            self.by_name.entry(name.to_vec()).or_default().number = number;
            at.notify(next, name);
        }
    }
}

impl StateMachine for Locks {
    type Frozen = Locks;

    /// Replies with the number of the lock if the session holds it, and with nothing while it waits. Acquiring a lock
    /// again changes nothing.
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let (Some(session), Some((does, name))) = (at.session(), command.split_first()) else { return };
        if *does != b'+' {
            return self.leave(at, name, session);
        }
        if !self.by_name.contains_key(name) {
            let number = self.next_number(at);
            self.by_name.insert(name.to_vec(), Lock { number, queue: VecDeque::new() });
        }
        let lock = self.by_name.entry(name.to_vec()).or_default();
        if !lock.queue.contains(&session) {
            lock.queue.push_back(session);
        }
        if lock.queue.front() == Some(&session) {
            reply.extend(&lock.number.to_le_bytes());
        }
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        for name in self.by_name.keys().cloned().collect::<Vec<_>>() {
            self.leave(at, &name, session);
        }
    }

    fn freeze(&self) -> Locks {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        *self = Locks { last: u64::from_le_bytes(read(from)?), by_name: BTreeMap::new() };
        for _ in 0..u64::from_le_bytes(read(from)?) {
            let mut name = vec![0; u32::from_le_bytes(read(from)?) as usize];
            from.read_exact(&mut name)?;
            let mut lock = Lock { number: u64::from_le_bytes(read(from)?), queue: VecDeque::new() };
            for _ in 0..u32::from_le_bytes(read(from)?) {
                lock.queue.push_back(SessionId::from_bytes(read(from)?));
            }
            self.by_name.insert(name, lock);
        }
        Ok(())
    }
}

impl Frozen for Locks {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.last.to_le_bytes())?;
        out.write_all(&(self.by_name.len() as u64).to_le_bytes())?;
        for (name, lock) in self.by_name {
            out.write_all(&(name.len() as u32).to_le_bytes())?;
            out.write_all(&name)?;
            out.write_all(&lock.number.to_le_bytes())?;
            out.write_all(&(lock.queue.len() as u32).to_le_bytes())?;
            lock.queue.iter().try_for_each(|session| out.write_all(&session.to_bytes()))?;
        }
        Ok(())
    }
}

fn read<const N: usize>(from: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Waits for a lock. Returns its number.
fn take(client: &Client, group: Group, name: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let mut notifications = client.notifications();
    loop {
        let answer = client.call(group, format!("+{name}").as_bytes()).wait()?;
        if let Ok(number) = answer.bytes().try_into() {
            return Ok(u64::from_le_bytes(number));
        }
        // Any notification may mean that the lock is free, including the report of a missed one.
        while notifications.recv_timeout(Duration::from_secs(60)).is_none() {
            client.failure().map_or(Ok(()), Err)?;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::load("cluster.toml")?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["take", name] => {
            let group = cluster.group("g1")?;
            let client = cluster.client().groups(group).session_ttl(Duration::from_secs(4)).connect()?;
            println!("{name} is ours, number {}", take(&client, group, name)?);
            io::copy(&mut io::stdin(), &mut io::sink())?;
            client.call(group, format!("-{name}").as_bytes()).wait()?;
            client.close()?;
        }
        [node] => cluster.node(node, Locks::default()).start()?.run()?,
        _ => return Err("usage: locks NODE, or locks take NAME".into()),
    }
    Ok(())
}
