//! The state machine of a group, which carries out the operations on the group's keys.
//!
//! # Invariants
//! - The items of a batch are carried out in order. If the reply has no room left for the answer to an item, neither
//!   this item nor any item after it is carried out. The answer to each of them is [`Value::Again`], and the gateway
//!   sends them again. An item whose answer does not fit even into an empty reply is answered with an error, and the
//!   items after it are carried out.
//! - In a command to several groups, each group handles its own keys. Such a command as a whole depends on no
//!   condition, so all its groups carry it out.

use std::io::{self, Read};

use stentor::{Context, ReadContext, Reply, StateMachine};

use crate::partition::Partition;
use crate::store::{Entry, FrozenStore, LONGEST, SCAN_END, Store};
use crate::wire::{Arguments, Ends, Item, Items, Op, SMALL, SetOptions, Sink, Value};

const MS: u64 = 1_000_000;
/// Id of the only timer, which fires when the next key expires.
const TIMER: u64 = 0;
/// Maximum number of keys that one scan returns.
const SCANNED: u32 = 1000;
/// Room for the longest value, followed by [`Value::Again`] for each later item of the batch, in bytes.
const ROOMY: usize = LONGEST + 2 * SMALL + BEHIND as usize;
/// Room that a scan leaves for [`Value::Again`] for each later item of the batch, in bytes.
const BEHIND: u16 = 1024;

const NOT_AN_INTEGER: Value<'_> = Value::Error("ERR value is not an integer or out of range");
const OVERFLOW: Value<'_> = Value::Error("ERR increment or decrement would overflow");
const MALFORMED: Value<'_> =
    Value::Error("ERR a node cannot parse the request: do the gateway and the nodes run the same version?");
const TOO_LONG: Value<'_> = Value::Error("ERR the answer is longer than `reply_bytes` allows: ask for fewer keys");
const VALUE_TOO_LONG: Value<'_> = Value::Error("ERR string exceeds maximum allowed size (64 KiB)");

/// The state machine of one group.
#[derive(Debug)]
pub struct Machine {
    store: Store,
    /// The time for which the timer is set.
    timer: Option<u64>,
}

/// The time and the index of a position in the order.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Time of the position, in nanoseconds.
    pub time: u64,
    /// Index of the position.
    pub index: u64,
}

impl Machine {
    /// Returns a machine without keys.
    #[must_use]
    pub fn new(partition: Partition) -> Self {
        Machine { store: Store::new(partition), timer: None }
    }

    /// Carries out a batch at this position.
    pub fn carry_out(&mut self, at: Place, batch: &[u8], out: &mut impl Sink) {
        self.store.expire(at.time);
        let Some(mut items) = Items::of_batch(batch) else { return MALFORMED.write(out) };
        let mut room = Room { total: out.room(), is_full: false };
        while items.left > 0 {
            let Some(item) = items.next_item() else { return MALFORMED.write(out) };
            if room.refuses(self.longest(&item, out.room()), items.left.into(), out) {
                continue;
            }
            if item.op == Op::Exec {
                self.exec(at, item.arguments, out);
            } else {
                self.item(at, &item, out);
            }
        }
    }

    /// Answers a batch of queries at this time.
    pub fn answer(&self, time: u64, batch: &[u8], out: &mut impl Sink) {
        let Some(mut items) = Items::of_batch(batch) else { return MALFORMED.write(out) };
        let mut room = Room { total: out.room(), is_full: false };
        while items.left > 0 {
            let Some(item) = items.next_item() else { return MALFORMED.write(out) };
            if !room.refuses(self.longest(&item, out.room()), items.left.into(), out) {
                self.query(time, &item, out);
            }
        }
    }

    /// Returns the maximum length of the answer to an item. If `room` suffices for the longest value, assumes this
    /// length and does not look up the key.
    fn longest(&self, item: &Item<'_>, room: usize) -> usize {
        let length = |key: &[u8]| self.store.get(key, 0).map_or(0, |entry| entry.value.len()) + 5;
        let mut arguments = item.arguments;
        let gives = match item.op {
            Op::Get | Op::Getdel => true,
            Op::Set => arguments.last().and_then(SetOptions::from_bytes).is_some_and(|set| set.get),
            _ => false,
        };
        SMALL
            + match item.op {
                _ if gives && room > ROOMY => LONGEST + 5,
                _ if gives => arguments.next().map_or(0, length),
                Op::Mget => arguments.map(length).sum(),
                Op::Scan => LONGEST + SMALL + usize::from(BEHIND),
                // A transaction is never refused for the length of its answer: another group might carry it out, and it
                // would not be atomic.
                Op::Exec => return 0,
                _ => 0,
            }
    }

    /// Carries out a transaction: checks the versions of the watched keys, then carries out all commands.
    fn exec(&mut self, at: Place, arguments: Arguments<'_>, out: &mut impl Sink) {
        let (mut arguments, mut unchanged) = (arguments, true);
        while arguments.count() >= 3 {
            let (Some(key), Some(version)) = (arguments.next(), arguments.next()) else { return MALFORMED.write(out) };
            let now = self.store.get(key, at.time).map_or(0, |entry| entry.version);
            unchanged &= number(version) == Some(now as i64);
        }
        let Some(mut items) = arguments.next().and_then(Items::of_batch) else { return MALFORMED.write(out) };
        if !unchanged {
            return Value::Nil.write(out);
        }
        Value::Array(u32::from(items.left)).write(out);
        while items.left > 0 {
            let Some(item) = items.next_item() else { return MALFORMED.write(out) };
            self.item(at, &item, out);
        }
    }

    fn has_none_of(&self, item: &Item<'_>) -> bool {
        let step = if matches!(item.op, Op::Mset | Op::Msetnx) { 2 } else { 1 };
        let single = !matches!(item.op, Op::Mset | Op::Msetnx | Op::Del | Op::Exists | Op::Mget);
        let keys = item.arguments.step_by(step).take(if single { 1 } else { usize::MAX });
        item.arguments.count() > 0 && keys.into_iter().all(|key| !self.store.partition.has(key))
    }

    /// Carries out one command: an item of a batch that is not a transaction, or an item of a transaction.
    fn item(&mut self, at: Place, item: &Item<'_>, out: &mut impl Sink) {
        if !item.op.is_write() {
            return self.query(at.time, item, out);
        }
        if item.op != Op::Flush && self.has_none_of(item) {
            return Value::Elsewhere.write(out);
        }
        let mut arguments = item.arguments;
        let key = arguments.next().unwrap_or_default();
        match item.op {
            Op::Set => self.set(at, key, arguments, out),
            Op::Del => {
                let keys = item.arguments;
                Value::Integer(keys.filter(|key| self.store.remove(key).is_some()).count() as i64).write(out);
            }
            Op::IncrBy => self.increase(at, key, arguments, out),
            Op::Append => self.append(at, key, arguments, out),
            Op::Mset => {
                self.set_all(at, item.arguments);
                Value::Ok.write(out);
            }
            Op::Msetnx => {
                let mut keys = item.arguments.step_by(2);
                let free = keys.all(|key| self.store.get(key, at.time).is_none());
                if free {
                    self.set_all(at, item.arguments);
                }
                Value::Integer(free.into()).write(out);
            }
            Op::Expire => self.end_at(at, key, arguments, out),
            Op::Persist => {
                let ended = self.store.get(key, at.time).is_some_and(|entry| entry.ends != 0);
                if ended {
                    self.store.change(key, at.index, |entry| entry.ends = 0);
                }
                Value::Integer(ended.into()).write(out);
            }
            Op::Getdel => match self.store.remove(key) {
                Some(entry) => Value::Bytes(&entry.value).write(out),
                None => Value::Nil.write(out),
            },
            Op::Flush => {
                self.store.clear();
                Value::Ok.write(out);
            }
            _ => MALFORMED.write(out),
        }
    }

    fn set(&mut self, at: Place, key: &[u8], mut arguments: Arguments<'_>, out: &mut impl Sink) {
        let value = arguments.next().unwrap_or_default();
        let Some(options) = arguments.next().and_then(SetOptions::from_bytes) else { return MALFORMED.write(out) };
        let known = self.store.get(key, at.time);
        let refused = (options.nx && known.is_some()) || (options.xx && known.is_none());
        match known {
            Some(entry) if options.get => Value::Bytes(&entry.value).write(out),
            _ if options.get || refused => Value::Nil.write(out),
            _ => Value::Ok.write(out),
        }
        if refused {
            return;
        }
        let ends = match options.ends {
            Ends::Never if options.keep_ttl => known.map_or(0, |entry| entry.ends),
            ends => end_of(ends, at.time),
        };
        if ends != 0 && ends <= at.time {
            self.store.remove(key);
            return;
        }
        self.store.set(key, Entry { value: value.to_vec(), version: at.index, ends });
    }

    fn set_all(&mut self, at: Place, mut pairs: Arguments<'_>) {
        while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
            if self.store.partition.has(key) {
                self.store.set(key, Entry { value: value.to_vec(), version: at.index, ends: 0 });
            }
        }
    }

    fn increase(&mut self, at: Place, key: &[u8], mut arguments: Arguments<'_>, out: &mut impl Sink) {
        let Some(by) = arguments.next().and_then(number) else { return MALFORMED.write(out) };
        let before = match self.store.get(key, at.time) {
            None => Some(0),
            Some(entry) => decimal(&entry.value),
        };
        let Some(before) = before else { return NOT_AN_INTEGER.write(out) };
        let Some(after) = before.checked_add(by) else { return OVERFLOW.write(out) };
        let value = after.to_string().into_bytes();
        let set = |entry: &mut Entry| entry.value.clone_from(&value);
        if self.store.change(key, at.index, set).is_none() {
            self.store.set(key, Entry { value, version: at.index, ends: 0 });
        }
        Value::Integer(after).write(out);
    }

    fn append(&mut self, at: Place, key: &[u8], mut arguments: Arguments<'_>, out: &mut impl Sink) {
        let more = arguments.next().unwrap_or_default();
        let length = self.store.get(key, at.time).map_or(0, |entry| entry.value.len()) + more.len();
        if length > LONGEST {
            return VALUE_TOO_LONG.write(out);
        }
        if self.store.change(key, at.index, |entry| entry.value.extend_from_slice(more)).is_none() {
            self.store.set(key, Entry { value: more.to_vec(), version: at.index, ends: 0 });
        }
        Value::Integer(length as i64).write(out);
    }

    fn end_at(&mut self, at: Place, key: &[u8], mut arguments: Arguments<'_>, out: &mut impl Sink) {
        let Some(options) = arguments.next().and_then(SetOptions::from_bytes) else { return MALFORMED.write(out) };
        let Some(entry) = self.store.get(key, at.time) else { return Value::Integer(0).write(out) };
        if (options.nx && entry.ends != 0) || (options.xx && entry.ends == 0) {
            return Value::Integer(0).write(out);
        }
        let ends = end_of(options.ends, at.time);
        let before = if entry.ends == 0 { u64::MAX } else { entry.ends };
        if (options.gt && ends <= before) || (options.lt && ends >= before) {
            return Value::Integer(0).write(out);
        }
        if ends <= at.time {
            self.store.remove(key);
        } else {
            self.store.change(key, at.index, |entry| entry.ends = ends);
        }
        Value::Integer(1).write(out);
    }

    /// Answers a read-only item.
    fn query(&self, time: u64, item: &Item<'_>, out: &mut impl Sink) {
        if !matches!(item.op, Op::Dbsize | Op::Scan) && self.has_none_of(item) {
            return Value::Elsewhere.write(out);
        }
        let (has, mut arguments) = (|key: &&[u8]| self.store.partition.has(key), item.arguments);
        let found = |key: &[u8]| self.store.get(key, time);
        let of_value = |entry: Option<&Entry>, out: &mut _| match entry {
            Some(entry) => Value::Bytes(&entry.value).write(out),
            None => Value::Nil.write(out),
        };
        match item.op {
            Op::Get => of_value(found(arguments.next().unwrap_or_default()), out),
            Op::Mget => {
                Value::Array(arguments.filter(has).count() as u32).write(out);
                arguments.filter(has).for_each(|key| of_value(found(key), out));
            }
            Op::Strlen => {
                let entry = found(arguments.next().unwrap_or_default());
                Value::Integer(entry.map_or(0, |entry| entry.value.len() as i64)).write(out);
            }
            Op::Exists => {
                Value::Integer(arguments.filter(has).filter(|key| found(key).is_some()).count() as i64).write(out);
            }
            Op::Ttl => {
                let ms = match found(arguments.next().unwrap_or_default()) {
                    None => -2,
                    Some(entry) if entry.ends == 0 => -1,
                    Some(entry) => (entry.ends - time).div_ceil(MS) as i64,
                };
                Value::Integer(ms).write(out);
            }
            Op::Version => {
                let entry = found(arguments.next().unwrap_or_default());
                Value::Integer(entry.map_or(0, |entry| entry.version as i64)).write(out);
            }
            Op::Dbsize => Value::Integer(self.store.keys() as i64).write(out),
            Op::Scan => self.scan(time, arguments, out),
            _ => MALFORMED.write(out),
        }
    }

    fn scan(&self, time: u64, mut arguments: Arguments<'_>, out: &mut impl Sink) {
        let cursor = arguments.next().and_then(number);
        let count = arguments.next().and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let (Some(cursor), Some(count)) = (cursor, count) else { return MALFORMED.write(out) };
        let (mut keys, mut room) = (Vec::new(), out.room().saturating_sub(SMALL + usize::from(BEHIND)));
        let next = self.store.scan(cursor as u64, count.clamp(1, SCANNED), time, |key| {
            // The first key is always returned. Otherwise the scan would not advance.
            let fits = keys.is_empty() || key.len() + 5 <= room;
            if fits {
                room = room.saturating_sub(key.len() + 5);
                keys.push(key);
            }
            fits
        });
        Value::Array(keys.len() as u32 + 1).write(out);
        Value::Integer(if next == SCAN_END { -1 } else { next as i64 }).write(out);
        keys.into_iter().for_each(|key| Value::Bytes(key).write(out));
    }

    /// Sets the timer to the time at which the next key expires. Clears it if no key expires.
    fn wind(&mut self, at: &Context<'_>) {
        let next = self.store.next_end();
        if next == self.timer {
            return;
        }
        match next {
            Some(time) => at.set_timer(time, TIMER),
            None => at.clear_timer(TIMER),
        }
        self.timer = next;
    }
}

/// The room for the answers to a batch.
struct Room {
    total: usize,
    is_full: bool,
}

impl Room {
    /// Refuses an item if the reply has no room for its answer of `needs` bytes, followed by one byte
    /// ([`Value::Again`]) for each of the `behind` later items. Writes [`Value::Again`] if the item has to be sent
    /// again. In that case all later items have to be sent again too. If even an empty reply has no room for the
    /// answer, writes an error. Returns whether the item was refused.
    fn refuses(&mut self, needs: usize, behind: usize, out: &mut impl Sink) -> bool {
        if !self.is_full && needs + behind <= out.room() {
            return false;
        }
        self.is_full |= needs + behind <= self.total || out.room() < SMALL + behind;
        if self.is_full { Value::Again } else { TOO_LONG }.write(out);
        true
    }
}

fn number(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_le_bytes)
}

/// Parses a decimal number in its canonical form: without plus sign, leading zeros and blanks.
#[must_use]
pub fn decimal(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain =
        digits == "0" && digits.len() == text.len() || digits.starts_with(|first: char| ('1'..='9').contains(&first));
    if plain { text.parse().ok() } else { None }
}

/// Returns the time of the order at which a key expires, or 0 if it never does.
fn end_of(ends: Ends, time: u64) -> u64 {
    let ns = |ms: i64| u64::try_from(ms).unwrap_or(0).saturating_mul(MS);
    match ends {
        Ends::Never => 0,
        Ends::In(ms) if ms <= 0 => time,
        Ends::In(ms) => time.saturating_add(ns(ms)),
        Ends::At(ms) => ns(ms).max(1),
    }
}

impl StateMachine for Machine {
    type Frozen = FrozenStore;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        self.carry_out(Place { time: at.time(), index: at.position().index }, command, reply);
        self.wind(at);
    }

    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        self.answer(at.time(), query, reply);
    }

    fn timer(&mut self, at: &Context<'_>, _: u64) {
        self.timer = None;
        self.store.expire(at.time());
        self.wind(at);
    }

    fn freeze(&self) -> FrozenStore {
        self.store.freeze()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.store.restore(from)?;
        // The group's timers are restored together with the keys, so the timer is set for this time already.
        self.timer = self.store.next_end();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_item;

    const ALL: Partition = Partition { index: 0, of: 1 };

    /// A reply of limited length. The second field is the limit in bytes.
    struct Limited(Vec<u8>, usize);

    impl Sink for Limited {
        fn put(&mut self, bytes: &[u8]) {
            assert!(self.0.len() + bytes.len() <= self.1, "the answer is longer than its limit");
            self.0.extend_from_slice(bytes);
        }

        fn room(&self) -> usize {
            self.1 - self.0.len()
        }
    }

    fn batch(items: &[(Op, &[&[u8]])]) -> Vec<u8> {
        let mut batch = (items.len() as u16).to_le_bytes().to_vec();
        items.iter().for_each(|(op, arguments)| put_item(*op, arguments.iter().copied(), &mut batch));
        batch
    }

    fn carried_out(machine: &mut Machine, limit: usize, items: &[(Op, &[&[u8]])]) -> Vec<String> {
        let mut out = Limited(Vec::new(), limit);
        machine.carry_out(Place { time: 1, index: 1 }, &batch(items), &mut out);
        let (mut rest, mut all) = (&out.0[..], Vec::new());
        while let Some((value, after)) = Value::read(rest) {
            all.push(match value {
                Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
                other => format!("{other:?}"),
            });
            rest = after;
        }
        all
    }

    fn set<'a>(machine: &mut Machine, key: &'a [u8], length: usize) -> &'a [u8] {
        let (value, options) = (vec![b'v'; length], SetOptions::default().to_bytes());
        assert_eq!(carried_out(machine, 1 << 20, &[(Op::Set, &[key, &value, &options])]), ["Ok"]);
        key
    }

    #[test]
    fn no_item_is_carried_out_after_one_without_room() {
        let mut machine = Machine::new(ALL);
        let long = set(&mut machine, b"long", 600);
        let options = SetOptions::default().to_bytes();
        let items: [(Op, &[&[u8]]); 4] = [
            (Op::Get, &[long]),
            (Op::Get, &[long]),
            (Op::Set, &[b"small", b"1", &options]),
            (Op::IncrBy, &[b"n", &1i64.to_le_bytes()]),
        ];
        assert_eq!(carried_out(&mut machine, 1000, &items), ["600 bytes", "Again", "Again", "Again"]);
        assert!(machine.store.get(b"small", 1).is_none() && machine.store.get(b"n", 1).is_none());
        assert_eq!(carried_out(&mut machine, 1000, &items[1..]), ["600 bytes", "Ok", "Integer(1)"]);
    }

    #[test]
    fn answer_that_never_has_room_is_refused_alone() {
        let mut machine = Machine::new(ALL);
        let long = set(&mut machine, b"long", 600);
        let answers = carried_out(&mut machine, 1000, &[(Op::Mget, &[long, long]), (Op::Strlen, &[long])]);
        assert!(answers[0].starts_with("Error(\"ERR the answer is longer"), "{answers:?}");
        assert_eq!(answers[1], "Integer(600)");
        // If the room suffices for the longest value, the machine does not look up the key, and the answer is the same.
        assert_eq!(carried_out(&mut machine, 1 << 20, &[(Op::Get, &[long])]), ["600 bytes"]);
    }

    #[test]
    fn only_canonical_numbers_are_parsed() {
        for (text, number) in
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(decimal(text.as_bytes()), Some(number));
        }
        for bad in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "0x1", "9223372036854775808"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn unknown_items_are_answered_with_an_error() {
        for bad in [&b""[..], b"\x01\x00", b"\x01\x00\xff\x00\x00"] {
            let mut out = Vec::new();
            Machine::new(ALL).carry_out(Place { time: 1, index: 1 }, bad, &mut out);
            assert!(matches!(Value::read(&out), Some((Value::Error(_), _))), "{bad:?}");
        }
    }
}
