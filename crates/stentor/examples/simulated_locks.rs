//! A lock service under simulation: 200 seeds with all faults. In your own project this is a `#[test]`.
//!
//! Run it with `cargo run --example simulated_locks --features sim`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::time::Duration;

use stentor::sim::{Next, SimCluster, SimError, Turn};
use stentor::{Consistency, Context, Frozen, ReadContext, Reply, SessionId, StateMachine};

/// The holders of the locks, and the number of the last holder.
#[derive(Clone, Default)]
struct Locks {
    fence: u64,
    holders: BTreeMap<u8, (SessionId, u64)>,
}

impl StateMachine for Locks {
    type Frozen = Locks;

    /// Acquires the lock with this name. Replies with the holder's number if the caller holds it.
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let (Some(session), [name]) = (at.session(), command) else { return };
        let fence = &mut self.fence;
        let (holder, number) = *self.holders.entry(*name).or_insert_with(|| {
            *fence += 1;
            (session, *fence)
        });
        if holder == session {
            reply.extend(&number.to_le_bytes());
        }
    }

    /// Replies with the last number of any holder.
    fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
        reply.extend(&self.fence.to_le_bytes());
    }

    fn session_ended(&mut self, _: &Context<'_>, session: SessionId) {
        self.holders.retain(|_, (holder, _)| *holder != session);
    }

    fn freeze(&self) -> Locks {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let (mut word, mut rest) = ([0; 8], Vec::new());
        from.read_exact(&mut word)?;
        from.read_to_end(&mut rest)?;
        *self = Locks { fence: u64::from_le_bytes(word), ..Locks::default() };
        for lock in rest.chunks_exact(25) {
            let session = SessionId::from_bytes(lock[1..17].try_into().map_err(io::Error::other)?);
            let number = u64::from_le_bytes(lock[17..].try_into().map_err(io::Error::other)?);
            self.holders.insert(lock[0], (session, number));
        }
        Ok(())
    }
}

impl Frozen for Locks {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.fence.to_le_bytes())?;
        for (name, (session, number)) in &self.holders {
            out.write_all(&[*name])?;
            out.write_all(&session.to_bytes())?;
            out.write_all(&number.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Returns a script that requests the lock repeatedly, and reads the last number at the leader. It reports an error if
/// a new session of this client gets a number that has not risen, or if the last number is smaller than one that this
/// client received.
fn locker() -> impl FnMut(&mut Turn<'_>) -> Next {
    let (mut judged, mut held): (usize, Option<(SessionId, u64)>) = (0, None);
    move |turn| {
        let seen = &turn.seen()[judged..];
        judged += seen.len();
        for call in seen {
            let Some(number) = call.reply().and_then(|reply| reply.try_into().ok()).map(u64::from_le_bytes) else {
                continue;
            };
            if call.is_read() {
                match held {
                    Some((_, got)) if got > number => {
                        return Next::fail(format!("{number} is the last number, and {got} was given"));
                    }
                    _ => continue,
                }
            }
            match held.replace((call.session(), number)) {
                Some((session, earlier)) if session != call.session() && earlier >= number => {
                    return Next::fail(format!("the lock has number {number}, after {earlier}"));
                }
                _ => {}
            }
        }
        let group = turn.groups()[0];
        match turn.random().below(10) {
            0..=1 => Next::Wait(Duration::from_micros(100)),
            2..=3 => Next::read_with(group, "", Consistency::Leader),
            _ => Next::call(group, [b'a']),
        }
    }
}

fn main() -> Result<(), SimError> {
    let report = SimCluster::new(Locks::default, |_client| locker()).clients(3).run(0..200)?;
    println!("{report}");
    Ok(())
}
