//! The replicated value: the held locks with their holders, and the watchers of each lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Read, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stentor::{Context, Frozen, ReadContext, Reply, SessionId, StateMachine};

use crate::{Cause, Command, End, Held, LONGEST_LEASE, LONGEST_NAME, Query, Refusal, Verdict};

/// Number of ended leases that the group remembers, to return the reason to holders that renew too late.
const ENDS: usize = 64;
/// Upper bound of the encoded size of a lock in an answer, without its name, in bytes.
const HELD_BYTES: usize = 200;

/// The locks of the group. The invariants are:
///
/// - `last` is the largest token that was ever granted, and rises with each grant. It is at least the order's time of
///   that grant. So tokens rise even if the group is reset and begins with an empty value.
/// - Each held lock has one timer, whose id is the token, at the end of its lease. No other timers are set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Locks {
    last: u64,
    held: BTreeMap<String, Held>,
    /// The leases that ended last, the latest one first.
    ended: VecDeque<End>,
    watchers: BTreeMap<String, BTreeSet<[u8; 16]>>,
    /// The names of the held locks, by token. They are derived from `held`.
    #[serde(skip)]
    names: BTreeMap<u64, String>,
}

impl Locks {
    fn carry_out(&mut self, at: &Context<'_>, command: &[u8]) -> Result<Verdict, Refusal> {
        let session = at.session().ok_or(Refusal::NotUnderstood)?;
        Ok(match serde_json::from_slice(command).map_err(|_| Refusal::NotUnderstood)? {
            Command::Acquire { name, lease } => self.acquire(at, session, name, lease)?,
            Command::Renew { name, token, lease } => {
                let ends = end(at, lease)?;
                match self.of(&name, token, session) {
                    Some(held) => {
                        held.ends = held.ends.max(ends);
                        at.set_timer(held.ends, token);
                        Verdict::Granted(*held)
                    }
                    None => self.lost(token),
                }
            }
            Command::Release { name, token } => match self.of(&name, token, session) {
                Some(_) => {
                    self.free(at, &name, Cause::Released);
                    Verdict::Released
                }
                None => self.lost(token),
            },
            Command::Watch(name) => {
                let held = self.held.get(checked(&name)?).copied();
                self.watchers.entry(name).or_default().insert(session.to_bytes());
                Verdict::Lock(held)
            }
            Command::Unwatch(name) => {
                self.unwatch(&name, session);
                Verdict::Lock(self.held.get(&name).copied())
            }
        })
    }

    fn acquire(&mut self, at: &Context<'_>, session: SessionId, name: String, lease: u64) -> Result<Verdict, Refusal> {
        checked(&name)?;
        let ends = end(at, lease)?;
        if let Some(held) = self.held.get(&name) {
            let is_ours = held.holder() == session;
            return Ok(if is_ours { Verdict::Granted(*held) } else { Verdict::Taken(*held) });
        }
        self.last = at.time().max(self.last.saturating_add(1));
        let held = Held { token: self.last, ends, session: session.to_bytes() };
        at.set_timer(ends, held.token);
        self.names.insert(held.token, name.clone());
        self.held.insert(name, held);
        Ok(Verdict::Granted(held))
    }

    /// Returns the lock if this session holds it with this token.
    fn of(&mut self, name: &str, token: u64, session: SessionId) -> Option<&mut Held> {
        self.held.get_mut(name).filter(|held| held.token == token && held.holder() == session)
    }

    fn lost(&self, token: u64) -> Verdict {
        Verdict::Lost(self.ended.iter().find(|end| end.token == token).cloned())
    }

    /// Frees a lock, and notifies its watchers.
    fn free(&mut self, at: &Context<'_>, name: &str, cause: Cause) {
        let Some(held) = self.held.remove(name) else { return };
        self.names.remove(&held.token);
        at.clear_timer(held.token);
        let end = End { name: name.to_owned(), token: held.token, cause, at: at.time() };
        // The encoding of numbers and names cannot fail.
        if let Ok(bytes) = serde_json::to_vec(&end) {
            for watcher in self.watchers.get(name).into_iter().flatten() {
                at.notify(SessionId::from_bytes(*watcher), &bytes);
            }
        }
        self.ended.push_front(end);
        self.ended.truncate(ENDS);
    }

    fn unwatch(&mut self, name: &str, session: SessionId) {
        if let Some(watchers) = self.watchers.get_mut(name) {
            watchers.remove(&session.to_bytes());
            if watchers.is_empty() {
                self.watchers.remove(name);
            }
        }
    }

    fn answer(&self, query: &[u8], room: usize) -> Result<Verdict, Refusal> {
        Ok(match serde_json::from_slice(query).map_err(|_| Refusal::NotUnderstood)? {
            Query::Lock(name) => Verdict::Lock(self.held.get(&name).copied()),
            Query::Held(behind) => {
                let behind = |name: &String| behind.as_ref().is_none_or(|last| name > last);
                let held = self.held.iter().filter(|(name, _)| behind(name));
                let held = held.map(|(name, held)| (name.clone(), *held));
                // JSON may encode a byte of a name as six bytes.
                Verdict::Held(held.take((room / (HELD_BYTES + 6 * LONGEST_NAME)).max(1)).collect())
            }
        })
    }
}

/// Returns the end of a lease of this length that begins at the present position.
fn end(at: &Context<'_>, lease: u64) -> Result<u64, Refusal> {
    let length = Duration::from_nanos(lease);
    let ends = at.time().checked_add(lease).filter(|_| !length.is_zero() && length <= LONGEST_LEASE);
    ends.ok_or(Refusal::Lease)
}

fn checked(name: &str) -> Result<&str, Refusal> {
    if (1..=LONGEST_NAME).contains(&name.len()) { Ok(name) } else { Err(Refusal::Name) }
}

fn write(verdict: Result<Verdict, Refusal>, reply: &mut Reply) {
    // The encoding of numbers and names cannot fail.
    if let Ok(bytes) = serde_json::to_vec(&verdict.unwrap_or_else(Verdict::Refused)) {
        reply.extend(&bytes);
    }
}

impl StateMachine for Locks {
    type Frozen = Locks;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        write(self.carry_out(at, command), reply);
    }

    fn read(&self, _: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        write(self.answer(query, reply.room()), reply);
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        let is_its = |held: &Held| held.holder() == session;
        let names: Vec<String> =
            self.held.iter().filter(|(_, held)| is_its(held)).map(|(name, _)| name.clone()).collect();
        // The watches are removed first, so that the session is not notified of its own locks.
        for name in self.watchers.keys().cloned().collect::<Vec<_>>() {
            self.unwatch(&name, session);
        }
        for name in names {
            self.free(at, &name, Cause::SessionEnded);
        }
    }

    /// Frees the lock whose lease has run out. Does nothing if the lock was freed meanwhile, because the token is not
    /// valid then.
    fn timer(&mut self, at: &Context<'_>, token: u64) {
        if let Some(name) = self.names.get(&token).cloned() {
            self.free(at, &name, Cause::RanOut);
        }
    }

    fn freeze(&self) -> Locks {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        *self = serde_json::from_reader(from)?;
        self.names = self.held.iter().map(|(name, held)| (held.token, name.clone())).collect();
        Ok(())
    }
}

impl Frozen for Locks {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(out, &self)?)
    }
}
