//! The requests of clients. This module converts the words of a request to an item for the state machines of one group
//! or several.

use crate::machine::decimal;
use crate::partition::group_of;
use crate::store::LONGEST;
use crate::wire::{Ends, Op, SetOptions, put_item};

/// The way in which the values of the groups become one reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shape {
    /// The reply is the group's value, unchanged.
    Plain,
    /// The reply is the group's value, converted from milliseconds to seconds.
    Seconds,
    /// The reply is `string` if the key exists, and `none` otherwise.
    Type,
    /// The reply is 1 if the change was made, and 0 otherwise.
    Flag,
    /// The reply is the sum of the groups' numbers, or OK if the groups replied OK.
    Sum,
    /// The reply is an array of values, one for each key. The field is the group of each key.
    Values(Vec<u16>),
    /// The reply is one step of a scan: a cursor and keys. The fields are the group, and the pattern of the requested
    /// keys.
    Scan(u16, Option<Vec<u8>>),
    /// The reply is an array with the replies to the commands of a transaction. The field is the shape of each reply.
    Exec(Vec<Shape>),
    /// The reply is OK. The groups answer with the versions of these keys, which the client begins to watch.
    Watch(Vec<Vec<u8>>),
}

/// The groups to which an item is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// One group.
    One(u16),
    /// A list of groups, sorted by number. Each of them handles its own keys.
    Several(Vec<u16>),
}

/// The operation, the groups and the reply of an item that is ready to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// The operation of the item.
    pub op: Op,
    /// The groups to which the item is sent.
    pub target: Target,
    /// The shape of the reply to the item.
    pub shape: Shape,
}

/// A parsed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The state machines answer the request. Its item has been written.
    Item(Prepared),
    /// The gateway answers the request by itself.
    Own(Own),
}

/// The requests that the gateway answers by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub enum Own {
    Ping,
    Echo,
    Hello,
    Info,
    Config,
    Client,
    Command,
    Select,
    Quit,
    Reset,
    Time,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

/// The reason for which a request is refused, as an error of the protocol.
pub type Refusal = std::borrow::Cow<'static, str>;

const SYNTAX: Refusal = Refusal::Borrowed("ERR syntax error");
const NOT_AN_INTEGER: Refusal = Refusal::Borrowed("ERR value is not an integer or out of range");

impl Own {
    /// Returns whether the gateway handles the request at once even between MULTI and EXEC. It rejects the other
    /// requests of this type between MULTI and EXEC.
    #[must_use]
    pub fn ends_a_transaction(self) -> bool {
        matches!(self, Own::Multi | Own::Exec | Own::Discard | Own::Watch | Own::Reset | Own::Quit)
    }
}

/// The requests that the gateway answers by itself, with the minimum and maximum number of their arguments.
const OWN: [(&str, Own, usize, usize); 16] = [
    ("ping", Own::Ping, 0, 1),
    ("multi", Own::Multi, 0, 0),
    ("exec", Own::Exec, 0, 0),
    ("discard", Own::Discard, 0, 0),
    ("watch", Own::Watch, 1, usize::MAX),
    ("unwatch", Own::Unwatch, 0, 0),
    ("echo", Own::Echo, 1, 1),
    ("hello", Own::Hello, 0, usize::MAX),
    ("info", Own::Info, 0, usize::MAX),
    ("config", Own::Config, 1, usize::MAX),
    ("client", Own::Client, 1, usize::MAX),
    ("command", Own::Command, 0, usize::MAX),
    ("select", Own::Select, 1, 1),
    ("quit", Own::Quit, 0, usize::MAX),
    ("reset", Own::Reset, 0, 0),
    ("time", Own::Time, 0, 0),
];

/// The requests that the state machines answer, with the minimum and maximum number of their arguments. Frequent
/// requests come first.
const ITEMS: [(&str, usize, usize); 32] = [
    ("get", 1, 1),
    ("set", 2, 7),
    ("incr", 1, 1),
    ("mget", 1, usize::MAX),
    ("mset", 2, usize::MAX),
    ("del", 1, usize::MAX),
    ("exists", 1, usize::MAX),
    ("expire", 2, 3),
    ("ttl", 1, 1),
    ("append", 2, 2),
    ("dbsize", 0, 0),
    ("decr", 1, 1),
    ("decrby", 2, 2),
    ("expireat", 2, 3),
    ("flushall", 0, 1),
    ("flushdb", 0, 1),
    ("getdel", 1, 1),
    ("getset", 2, 2),
    ("incrby", 2, 2),
    ("msetnx", 2, usize::MAX),
    ("persist", 1, 1),
    ("pexpire", 2, 3),
    ("pexpireat", 2, 3),
    ("psetex", 3, 3),
    ("pttl", 1, 1),
    ("scan", 1, 7),
    ("setex", 3, 3),
    ("setnx", 2, 2),
    ("strlen", 1, 1),
    ("touch", 1, usize::MAX),
    ("type", 1, 1),
    ("unlink", 1, usize::MAX),
];

/// Returns the names of all requests, in lower case.
pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
    let own = OWN.iter().map(|(name, ..)| *name);
    let all: Vec<_> = ITEMS.iter().map(|(name, ..)| *name).chain(own).collect();
    all.into_iter()
}

/// Parses a request for a store of `groups` groups. Overwrites `item` with the item for the state machines.
///
/// # Errors
/// Returns the reason for which the request is refused.
pub fn read(words: &[&[u8]], groups: u16, item: &mut Vec<u8>) -> Result<Wanted, Refusal> {
    item.clear();
    let mut name = [0; 16];
    let Some(name) = words.first().and_then(|word| lower(word, &mut name)) else { return Err(unknown(words)) };
    let fits = |least: usize, most: usize| (least..=most).contains(&(words.len() - 1));
    let Some((_, least, most)) = ITEMS.iter().find(|(known, ..)| *known == name) else {
        return match OWN.iter().find(|(known, ..)| *known == name) {
            Some((_, own, least, most)) if fits(*least, *most) => Ok(Wanted::Own(*own)),
            Some(_) => Err(arity(name)),
            None => Err(unknown(words)),
        };
    };
    if !fits(*least, *most) {
        return Err(arity(name));
    }
    if words[1..].iter().any(|word| word.len() > LONGEST) {
        return Err("ERR a key or value is longer than 64 KiB".into());
    }
    let mut reader = Reader { words: &words[1..], groups, item };
    reader.read(name).map(Wanted::Item)
}

fn lower<'a>(word: &[u8], name: &'a mut [u8; 16]) -> Option<&'a str> {
    let name = name.get_mut(..word.len())?;
    name.copy_from_slice(word);
    name.make_ascii_lowercase();
    std::str::from_utf8(name).ok()
}

fn unknown(words: &[&[u8]]) -> Refusal {
    let name = words.first().copied().unwrap_or_default();
    format!("ERR unknown command '{}'", name[..name.len().min(64)].escape_ascii()).into()
}

fn arity(name: &str) -> Refusal {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

struct Reader<'a, 'b> {
    words: &'a [&'a [u8]],
    groups: u16,
    item: &'b mut Vec<u8>,
}

impl<'a> Reader<'a, '_> {
    fn read(&mut self, name: &str) -> Result<Prepared, Refusal> {
        let words = self.words;
        let prepared = match name {
            "get" => self.one(Op::Get, Shape::Plain, &words[..1]),
            "strlen" => self.one(Op::Strlen, Shape::Plain, &words[..1]),
            "ttl" => self.one(Op::Ttl, Shape::Seconds, &words[..1]),
            "pttl" => self.one(Op::Ttl, Shape::Plain, &words[..1]),
            "type" => self.one(Op::Exists, Shape::Type, &words[..1]),
            "persist" => self.one(Op::Persist, Shape::Plain, &words[..1]),
            "getdel" => self.one(Op::Getdel, Shape::Plain, &words[..1]),
            "append" => self.one(Op::Append, Shape::Plain, words),
            "incr" => self.increase(1),
            "decr" => self.increase(-1),
            "incrby" => self.increase(integer(words[1])?),
            "decrby" => self.increase(integer(words[1])?.checked_neg().ok_or("ERR decrement would overflow")?),
            "set" => return self.set(),
            "setnx" => self.set_with(words[1], SetOptions { nx: true, ..SetOptions::default() }, Shape::Flag),
            "getset" => self.set_with(words[1], SetOptions { get: true, ..SetOptions::default() }, Shape::Plain),
            "setex" => return self.set_ending(1000, "setex"),
            "psetex" => return self.set_ending(1, "psetex"),
            "expire" => return self.expire(1000, false),
            "pexpire" => return self.expire(1, false),
            "expireat" => return self.expire(1000, true),
            "pexpireat" => return self.expire(1, true),
            "exists" | "touch" => self.each(Op::Exists, Shape::Sum),
            "del" | "unlink" => self.each(Op::Del, Shape::Sum),
            "mget" => {
                let of = words.iter().map(|key| group_of(key, self.groups)).collect();
                self.each(Op::Mget, Shape::Values(of))
            }
            "mset" if words.len().is_multiple_of(2) => self.pairs(Op::Mset),
            "msetnx" if words.len().is_multiple_of(2) => {
                let prepared = self.pairs(Op::Msetnx);
                if matches!(prepared.target, Target::Several(_)) {
                    return Err(
                        "CROSSPART MSETNX needs all its keys in one partition: use the same {tag} in all keys".into()
                    );
                }
                prepared
            }
            "mset" | "msetnx" => return Err(arity(name)),
            "dbsize" => self.all(Op::Dbsize),
            "flushall" | "flushdb" => self.all(Op::Flush),
            "scan" => return self.scan(),
            _ => return Err(format!("ERR unknown command '{name}'").into()),
        };
        Ok(prepared)
    }

    /// Makes an item for the group of the first word, which is a key.
    fn one(&mut self, op: Op, shape: Shape, arguments: &[&[u8]]) -> Prepared {
        put_item(op, arguments.iter().copied(), self.item);
        Prepared { op, target: Target::One(group_of(self.words[0], self.groups)), shape }
    }

    fn increase(&mut self, by: i64) -> Prepared {
        self.one(Op::IncrBy, Shape::Plain, &[self.words[0], &by.to_le_bytes()])
    }

    fn set_with(&mut self, value: &[u8], options: SetOptions, shape: Shape) -> Prepared {
        self.one(Op::Set, shape, &[self.words[0], value, &options.to_bytes()])
    }

    fn set_ending(&mut self, unit: i64, name: &str) -> Result<Prepared, Refusal> {
        let ends = Ends::In(duration(self.words[1], unit, name)?);
        Ok(self.set_with(self.words[2], SetOptions { ends, ..SetOptions::default() }, Shape::Plain))
    }

    fn set(&mut self) -> Result<Prepared, Refusal> {
        let (mut options, mut words) = (SetOptions::default(), self.words[2..].iter());
        while let Some(word) = words.next() {
            let mut name = [0; 16];
            let ends = options.ends != Ends::Never || options.keep_ttl;
            match lower(word, &mut name).unwrap_or_default() {
                "nx" if !options.xx => options.nx = true,
                "xx" if !options.nx => options.xx = true,
                "get" => options.get = true,
                "keepttl" if !ends => options.keep_ttl = true,
                unit @ ("ex" | "px" | "exat" | "pxat") if !ends => {
                    let number = words.next().ok_or(SYNTAX)?;
                    let ms = duration(number, if unit.starts_with('e') { 1000 } else { 1 }, "set")?;
                    options.ends = if unit.len() == 2 { Ends::In(ms) } else { Ends::At(ms) };
                }
                _ => return Err(SYNTAX),
            }
        }
        Ok(self.set_with(self.words[1], options, Shape::Plain))
    }

    fn expire(&mut self, unit: i64, absolute: bool) -> Result<Prepared, Refusal> {
        let number = integer(self.words[1])?;
        let ms = number.checked_mul(unit).ok_or("ERR invalid expire time in 'expire' command")?;
        let ends = if absolute { Ends::At(ms) } else { Ends::In(ms) };
        let mut options = SetOptions { ends, ..SetOptions::default() };
        let mut name = [0; 16];
        match self.words.get(2).map(|word| lower(word, &mut name).unwrap_or_default()) {
            None => {}
            Some("nx") => options.nx = true,
            Some("xx") => options.xx = true,
            Some("gt") => options.gt = true,
            Some("lt") => options.lt = true,
            Some(_) => return Err("ERR Unsupported option".into()),
        }
        Ok(self.one(Op::Expire, Shape::Plain, &[self.words[0], &options.to_bytes()]))
    }

    /// Makes an item for the groups of all words. Each word is a key.
    fn each(&mut self, op: Op, shape: Shape) -> Prepared {
        put_item(op, self.words.iter().copied(), self.item);
        self.spread(op, shape, 1)
    }

    fn pairs(&mut self, op: Op) -> Prepared {
        put_item(op, self.words.iter().copied(), self.item);
        self.spread(op, Shape::Sum, 2)
    }

    fn spread(&self, op: Op, shape: Shape, step: usize) -> Prepared {
        let mut of: Vec<u16> = self.words.iter().step_by(step).map(|key| group_of(key, self.groups)).collect();
        of.sort_unstable();
        of.dedup();
        match of[..] {
            [group] => Prepared { op, target: Target::One(group), shape: Shape::Plain },
            _ => Prepared { op, target: Target::Several(of), shape },
        }
    }

    fn all(&mut self, op: Op) -> Prepared {
        put_item(op, [], self.item);
        Prepared { op, target: Target::Several((0..self.groups).collect()), shape: Shape::Sum }
    }

    /// Makes an item for a step of a scan. The upper 16 bits of a cursor are the number of a group.
    fn scan(&mut self) -> Result<Prepared, Refusal> {
        let cursor = std::str::from_utf8(self.words[0]).ok().and_then(|text| text.parse::<u64>().ok());
        let cursor = cursor.ok_or("ERR invalid cursor")?;
        let (group, place) = ((cursor >> 48) as u16, cursor & ((1 << 48) - 1));
        if group >= self.groups {
            return Err("ERR invalid cursor".into());
        }
        let (mut pattern, mut count, mut others) = (None, 10u32, false);
        let mut words = self.words[1..].iter();
        while let Some(word) = words.next() {
            let mut name = [0; 16];
            let name = lower(word, &mut name).unwrap_or_default();
            let value = words.next().ok_or(SYNTAX)?;
            match name {
                "match" => pattern = Some(value.to_vec()),
                "count" => {
                    let most = i64::from(u32::MAX);
                    count = integer(value)?.clamp(0, most) as u32;
                    if count == 0 {
                        return Err(SYNTAX);
                    }
                }
                "type" => others = !value.eq_ignore_ascii_case(b"string"),
                _ => return Err(SYNTAX),
            }
        }
        if others {
            // All values are strings, so no key matches another type.
            pattern = Some(b"[]".to_vec());
        }
        put_item(Op::Scan, [&place.to_le_bytes()[..], &count.to_le_bytes()], self.item);
        Ok(Prepared { op: Op::Scan, target: Target::One(group), shape: Shape::Scan(group, pattern) })
    }
}

fn integer(word: &[u8]) -> Result<i64, Refusal> {
    decimal(word).ok_or(NOT_AN_INTEGER)
}

/// Parses a duration or a time, and converts it to milliseconds.
fn duration(word: &[u8], unit: i64, name: &str) -> Result<i64, Refusal> {
    let ms = integer(word)?.checked_mul(unit).filter(|ms| *ms > 0);
    ms.ok_or_else(|| format!("ERR invalid expire time in '{name}' command").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Item, Items};

    fn wanted(text: &str, groups: u16) -> Result<Wanted, Refusal> {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let mut item = Vec::new();
        let wanted = read(&words, groups, &mut item)?;
        if let Wanted::Item(prepared) = &wanted {
            let batch = [&1u16.to_le_bytes()[..], &item].concat();
            let Item { op, .. } = Items::of_batch(&batch).and_then(|mut items| items.next_item()).expect("an item");
            assert_eq!(op, prepared.op, "{text}");
        }
        Ok(wanted)
    }

    #[test]
    fn names_ignore_case_and_arguments_are_counted() {
        for good in
            ["GET k", "gEt k", "set k v px 5 NX get", "mset a 1 b 2", "scan 0 match a* count 5", "flushall async"]
        {
            assert!(matches!(wanted(good, 2), Ok(Wanted::Item(_))), "{good}");
        }
        for (bad, why) in [
            ("get", "wrong number of arguments for 'get' command"),
            ("mset a 1 b", "wrong number of arguments for 'mset' command"),
            ("lpush k v", "unknown command 'lpush'"),
            ("set k v nx xx", "syntax error"),
            ("set k v ex 1 px 1", "syntax error"),
            ("set k v ex", "syntax error"),
            ("set k v ex 0", "invalid expire time in 'set' command"),
            ("set k v ex 9223372036854775807", "invalid expire time"),
            ("incrby k 1.5", "not an integer"),
            ("decrby k -9223372036854775808", "overflow"),
            ("scan x", "invalid cursor"),
            ("scan 844424930131968", "invalid cursor"),
            ("averyveryverylongnameofarequest", "unknown command"),
        ] {
            let refusal = wanted(bad, 2).expect_err(bad);
            assert!(refusal.contains(why), "{bad}: {refusal}");
        }
    }

    #[test]
    fn names_of_requests_are_unique_and_known() {
        let known: std::collections::BTreeSet<&str> = names().collect();
        assert_eq!(known.len(), names().len());
        for (name, least, _) in ITEMS {
            // A number is valid for every argument.
            let text = (0..least).fold(name.to_owned(), |text, _| text + " 1");
            assert!(matches!(wanted(&text, 1), Ok(Wanted::Item(_))), "{text}: {:?}", wanted(&text, 1));
        }
    }

    #[test]
    fn items_go_to_the_groups_of_their_keys() {
        let target = |text: &str| match wanted(text, 4) {
            Ok(Wanted::Item(prepared)) => prepared.target,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(target("get foo"), Target::One(group_of(b"foo", 4)));
        assert_eq!(target("mget {x}a {x}b"), Target::One(group_of(b"x", 4)));
        let both = vec![group_of(b"bar", 4), group_of(b"foo", 4)];
        assert_eq!(both, [1, 2]);
        assert_eq!(target("mset foo 1 bar 2"), Target::Several(both));
        assert_eq!(target("dbsize"), Target::Several(vec![0, 1, 2, 3]));
        assert!(wanted("msetnx foo 1 bar 2", 4).expect_err("two partitions").starts_with("CROSSPART"));
    }
}
