//! The replicated value: registers, leases that expire, and sessions that watch.
//!
//! [`Registers`] is the sequential service, without clocks and files. [`Served`] is the state machine around it, which
//! the members run: it sets timers, notifies sessions, and records its inputs.
//!
//! | operation | effect | reply |
//! |---|---|---|
//! | `put K TOKEN` | register K is the token | the value before |
//! | `mix K TOKEN` | register K is a hash of its value and the token | the new value |
//! | `cas K OLD TOKEN` | register K is the token if it was OLD | the value before |
//! | `lease L MS TOKEN` | the token holds lease L for MS ms if it is free | the token that holds it |
//! | `watch TOKEN` | notifies the session of every `put` and expired lease | the number of commands |
//!
//! | query | reply |
//! |---|---|
//! | `get K` | the value of register K |
//! | `who L` | the token that holds lease L, or 0 |
//! | `sum` | the number of commands, and a hash of all their tokens in their order |
//!
//! Each command has a unique token, so `sum` distinguishes every order of commands from every other, except for hash
//! collisions.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use stentor::runtime::now_ns;
use stentor::{Context, Frozen, Group, ReadContext, Reply, SessionId, StateMachine};

use super::records::{Journal, MemberRecord, Place, Told};

/// The number of registers of a group.
pub(super) const REGISTERS: u64 = 4;
/// The number of leases of a group.
pub(super) const LEASES: u64 = 2;
/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// A lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Lease {
    token: u64,
    until: u64,
}

/// The value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(super) struct Registers {
    values: [u64; REGISTERS as usize],
    leases: [Option<Lease>; LEASES as usize],
    commands: u64,
    sum: u64,
    watchers: BTreeSet<String>,
}

/// The effects of a command in addition to the change of the value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Effects {
    pub(super) reply: String,
    /// A timer to set: its time and id.
    pub(super) timer: Option<(u64, u64)>,
    /// The sessions that are notified.
    pub(super) notified: Vec<String>,
}

fn mix(value: u64, token: u64) -> u64 {
    (value.rotate_left(7) ^ token).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the words of an operation: its name and its numbers.
fn words(operation: &str) -> (&str, Vec<u64>) {
    let mut words = operation.split(' ');
    let name = words.next().unwrap_or("");
    (name, words.filter_map(|word| word.parse().ok()).collect())
}

impl Registers {
    /// Applies a command that was ordered at a time.
    pub(super) fn apply(&mut self, time: u64, session: &str, operation: &str) -> Effects {
        let (name, numbers) = words(operation);
        let mut effects = Effects::default();
        let Some(token) = numbers.last().copied() else { return effects };
        self.commands += 1;
        self.sum = mix(self.sum, token);
        let at = (numbers[0] % REGISTERS) as usize;
        effects.reply = match name {
            "put" => {
                effects.notified = self.watchers.iter().cloned().collect();
                std::mem::replace(&mut self.values[at], token).to_string()
            }
            "mix" => {
                self.values[at] = mix(self.values[at], token);
                self.values[at].to_string()
            }
            "cas" => {
                let before = self.values[at];
                if numbers.get(1) == Some(&before) {
                    self.values[at] = token;
                }
                before.to_string()
            }
            "lease" => {
                let at = (numbers[0] % LEASES) as usize;
                let until = time.saturating_add(numbers.get(1).copied().unwrap_or(0).saturating_mul(MS));
                if self.leases[at].is_none() {
                    self.leases[at] = Some(Lease { token, until });
                    effects.timer = Some((until, at as u64));
                }
                self.leases[at].map_or(0, |lease| lease.token).to_string()
            }
            "watch" => {
                self.watchers.insert(session.to_owned());
                self.commands.to_string()
            }
            _ => "unknown".to_owned(),
        };
        effects
    }

    /// Answers a query.
    pub(super) fn read(&self, query: &str) -> String {
        let (name, numbers) = words(query);
        let number = numbers.first().copied().unwrap_or(0);
        match name {
            "get" => self.values[(number % REGISTERS) as usize].to_string(),
            "who" => self.leases[(number % LEASES) as usize].map_or(0, |lease| lease.token).to_string(),
            "sum" => format!("{} {}", self.commands, self.sum),
            _ => "unknown".to_owned(),
        }
    }

    /// Ends a lease whose timer has fired. Returns the sessions that are notified.
    pub(super) fn timer(&mut self, lease: u64) -> Vec<String> {
        self.leases[(lease % LEASES) as usize] = None;
        self.watchers.iter().cloned().collect()
    }

    /// Ends the leases that have expired by `time`, as timers do.
    pub(super) fn expire(&mut self, time: u64) {
        for lease in &mut self.leases {
            *lease = lease.filter(|lease| lease.until > time);
        }
    }

    pub(super) fn session_ended(&mut self, session: &str) {
        self.watchers.remove(session);
    }
}

/// The state machine that members run.
pub(super) struct Served {
    value: Registers,
    journal: Journal,
    groups: Vec<Group>,
}

impl Served {
    pub(super) fn new(journal: Journal, groups: Vec<Group>) -> Self {
        Served { value: Registers::default(), journal, groups }
    }

    fn place(&self, at: &Context<'_>) -> Place {
        let number = |group| self.groups.iter().position(|other| *other == group).unwrap_or(usize::MAX) as u16;
        Place::of(at.position(), number)
    }

    /// Notifies sessions and records the input of the machine.
    fn told(&mut self, at: &Context<'_>, told: Told, notified: Vec<String>) {
        for session in &notified {
            let bytes = session_bytes(session).expect("the machine has made these texts");
            at.notify(SessionId::from_bytes(bytes), b"changed");
        }
        let record = MemberRecord { at: now_ns(), place: Some(self.place(at)), told, notified };
        self.write(&record);
    }

    fn write(&mut self, record: &MemberRecord) {
        if let Err(error) = self.journal.write(record) {
            // Without complete records of its members, a run cannot be judged.
            eprintln!("error: cannot record an applied command: {error}");
            std::process::abort();
        }
    }
}

/// Returns the text of a session's id.
pub(super) fn session_text(session: SessionId) -> String {
    stentor_support::hex(&session.to_bytes())
}

fn session_bytes(text: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

impl StateMachine for Served {
    type Frozen = FrozenRegisters;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let operation = String::from_utf8_lossy(command).into_owned();
        let session = at.session().map(session_text).unwrap_or_default();
        let effects = self.value.apply(at.time(), &session, &operation);
        reply.extend(effects.reply.as_bytes());
        if let Some((time, lease)) = effects.timer {
            at.set_timer(time, lease);
        }
        self.told(at, Told::Applied { session, operation, reply: effects.reply }, effects.notified);
    }

    fn read(&self, _: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        reply.extend(self.value.read(&String::from_utf8_lossy(query)).as_bytes());
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        let session = session_text(session);
        self.value.session_ended(&session);
        self.told(at, Told::Ended(session), Vec::new());
    }

    fn timer(&mut self, at: &Context<'_>, timer: u64) {
        let notified = self.value.timer(timer);
        self.told(at, Told::Timer(timer), notified);
    }

    fn freeze(&self) -> FrozenRegisters {
        FrozenRegisters(self.value.clone())
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.value = serde_json::from_reader(from)?;
        self.write(&MemberRecord { at: now_ns(), place: None, told: Told::Restored, notified: Vec::new() });
        Ok(())
    }
}

/// The value at one moment.
pub(super) struct FrozenRegisters(Registers);

impl Frozen for FrozenRegisters {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(out, &self.0).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_change_the_named_keys() {
        let mut value = Registers::default();
        let mut apply = |time, operation: &str| value.apply(time, "ab", operation).reply;
        assert_eq!(apply(1, "put 1 11"), "0");
        assert_eq!(apply(2, "cas 1 10 12"), "11");
        assert_eq!(apply(3, "cas 1 11 13"), "11");
        assert_eq!(apply(4, "put 1 14"), "13");
        assert_eq!(apply(5, "lease 0 1 15"), "15");
        assert_eq!(apply(6, "lease 0 1 16"), "15", "the lease is held");
        value.expire(MS + 4);
        assert_eq!(value.read("who 0"), "15");
        value.expire(MS + 5);
        assert_eq!(value.read("who 0"), "0");
        assert!(value.read("sum").starts_with("6 "));
    }

    #[test]
    fn checksum_distinguishes_every_order() {
        let sum = |order: &[u64]| {
            let mut value = Registers::default();
            order.iter().for_each(|token| drop(value.apply(1, "", &format!("mix 0 {token}"))));
            value.read("sum")
        };
        assert_ne!(sum(&[1, 2, 3]), sum(&[1, 3, 2]));
        assert_ne!(sum(&[1, 2]), sum(&[1, 2, 2]));
    }

    #[test]
    fn session_bytes_are_kept_as_text() {
        let bytes = [7; 16];
        assert_eq!(session_bytes(&session_text(SessionId::from_bytes(bytes))), Some(bytes));
    }
}
