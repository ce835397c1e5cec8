//! Timers: a state machine acts at a given time, at one position in the order, and notifies a client.
//!
//! `cargo run -p stentor --example reminders` starts three nodes in this process. A client requests two reminders, the
//! later one first. Then no client sends anything, and the reminders still arrive: the leader orders an entry that
//! advances the time.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read, Write};
use std::time::Duration;

use stentor::{Cluster, Context, Frozen, Notification, Reply, SessionId, StateMachine};

/// The reminders, by the number of their timer: the session to remind, and the text.
#[derive(Clone, Default)]
struct Reminders {
    last: u64,
    set: BTreeMap<u64, (SessionId, Vec<u8>)>,
}

impl StateMachine for Reminders {
    type Frozen = Reminders;

    /// Adds a reminder. A command is a number of milliseconds, 8 bytes, and a text.
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let (Some(session), Some((ms, text))) = (at.session(), command.split_first_chunk()) else {
            return reply.extend(b"no time");
        };
        self.last += 1;
        self.set.insert(self.last, (session, text.to_vec()));
        // This is the time of the order, not of a clock: all nodes must set the timer to the same time.
        at.set_timer(at.time().saturating_add(u64::from_le_bytes(*ms).saturating_mul(1_000_000)), self.last);
    }

    fn timer(&mut self, at: &Context<'_>, number: u64) {
        if let Some((session, text)) = self.set.remove(&number) {
            at.notify(session, &text);
        }
    }

    /// Drops the reminders of an ended session, which no client would receive. Their timers fire and find no reminder.
    fn session_ended(&mut self, _: &Context<'_>, ended: SessionId) {
        self.set.retain(|_, (session, _)| *session != ended);
    }

    fn freeze(&self) -> Reminders {
        self.clone()
    }

    /// The node stores the timers themselves, and transfers them with the state.
    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        *self = Reminders { last: u64::from_le_bytes(read(from)?), set: BTreeMap::new() };
        for _ in 0..u64::from_le_bytes(read(from)?) {
            let (number, session) = (u64::from_le_bytes(read(from)?), SessionId::from_bytes(read(from)?));
            let mut text = vec![0; u32::from_le_bytes(read(from)?) as usize];
            from.read_exact(&mut text)?;
            self.set.insert(number, (session, text));
        }
        Ok(())
    }
}

impl Frozen for Reminders {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.last.to_le_bytes())?;
        out.write_all(&(self.set.len() as u64).to_le_bytes())?;
        for (number, (session, text)) in self.set {
            out.write_all(&number.to_le_bytes())?;
            out.write_all(&session.to_bytes())?;
            out.write_all(&(text.len() as u32).to_le_bytes())?;
            out.write_all(&text)?;
        }
        Ok(())
    }
}

fn read<const N: usize>(from: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let names = ["a", "b", "c"];
    let members = names.iter().zip(7101..).map(|(name, port)| (*name, format!("127.0.0.1:{port}")));
    let cluster = Cluster::builder("reminders").group("reminders", members).build()?;
    let group = cluster.group("reminders")?;
    let nodes = names.map(|name| cluster.node(name, Reminders::default()).spawn());
    let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;

    let client = cluster.client().connect()?;
    // The receiver is created before the calls, because earlier notifications are lost.
    let mut notifications = client.notifications();
    let mut asked = 0;
    for (ms, text) in [(400_u64, "eat the cake"), (200, "bake the cake")] {
        asked = client.call(group, &[&ms.to_le_bytes(), text.as_bytes()].concat()).wait()?.position().time;
        println!("in {ms} ms: {text}");
    }
    for _ in 0..2 {
        match notifications.recv_timeout(Duration::from_secs(10)) {
            Some(Notification::Sent { bytes, position, .. }) => {
                let after = position.time.saturating_sub(asked) / 1_000_000;
                println!("now: {} ({after} ms after the last command)", String::from_utf8(bytes)?);
            }
            // A change of leaders may lose a reminder. A program that must not miss it should read its reminders now.
            other => return Err(format!("no reminder: {other:?}").into()),
        }
    }

    client.close()?;
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
