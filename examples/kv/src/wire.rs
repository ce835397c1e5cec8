//! What a gateway and the machines of a group say to each other.
//!
//! A *batch* is a number of items (16 bits) and the items. It is one command of the multicast, or one query. An *item* is an operation
//! (8 bits), a number of arguments (16 bits), and for each a length (32 bits) and the bytes. All numbers are little-endian. The answer has
//! one *value* for each item, in order.

/// What an item does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    /// key → value or nil.
    Get = 1,
    /// key → length.
    Strlen,
    /// key… → how many are there.
    Exists,
    /// key… → values.
    Mget,
    /// key → milliseconds until it ends; -1: it does not; -2: it is not there.
    Ttl,
    /// → how many keys there are.
    Dbsize,
    /// cursor (8 bytes), count (4 bytes) → the next cursor (integer) and keys.
    Scan,
    /// key → its version; 0: it is not there.
    Version,
    /// key, value, [`SetOptions`] → ok, nil, or the value before.
    Set = 32,
    /// key… → how many were there.
    Del,
    /// key, difference (8 bytes) → the new value.
    IncrBy,
    /// key, bytes → the new length.
    Append,
    /// (key, value)… → ok.
    Mset,
    /// (key, value)… → 1 if none was there and all are set, or 0. All keys are in one group.
    Msetnx,
    /// key, [`SetOptions`] → 1 if the end was set, or 0.
    Expire,
    /// key → 1 if the end was taken away, or 0.
    Persist,
    /// key → the value, which is taken away.
    Getdel,
    /// → ok; nothing is there any more.
    Flush,
    /// (key, version)…, a batch → nil, or the values of the batch.
    Exec,
}

impl Op {
    fn from_byte(byte: u8) -> Option<Op> {
        const ALL: [Op; 19] = [
            Op::Get,
            Op::Strlen,
            Op::Exists,
            Op::Mget,
            Op::Ttl,
            Op::Dbsize,
            Op::Scan,
            Op::Version,
            Op::Set,
            Op::Del,
            Op::IncrBy,
            Op::Append,
            Op::Mset,
            Op::Msetnx,
            Op::Expire,
            Op::Persist,
            Op::Getdel,
            Op::Flush,
            Op::Exec,
        ];
        ALL.into_iter().find(|op| *op as u8 == byte)
    }

    /// Returns whether it changes anything.
    #[must_use]
    pub fn is_write(self) -> bool {
        self as u8 >= Op::Set as u8
    }
}

/// When a key ends, and under what condition it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetOptions {
    /// Only if it is not there.
    pub nx: bool,
    /// Only if it is there.
    pub xx: bool,
    /// The answer is the value before.
    pub get: bool,
    /// The end stays as it is.
    pub keep_ttl: bool,
    /// Only if the end is later than the one that is set; never counts as the latest.
    pub gt: bool,
    /// Only if the end is earlier.
    pub lt: bool,
    /// When it ends.
    pub ends: Ends,
}

/// When a key ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ends {
    /// Never.
    #[default]
    Never,
    /// So many milliseconds after the time of the order.
    In(i64),
    /// At this time, milliseconds since 1970.
    At(i64),
}

impl SetOptions {
    /// Bytes of an argument with options.
    pub const BYTES: usize = 10;

    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let (unit, ms) = match self.ends {
            Ends::Never => (0, 0),
            Ends::In(ms) => (1, ms),
            Ends::At(ms) => (2, ms),
        };
        let mut bytes = [0; Self::BYTES];
        let flags = [self.nx, self.xx, self.get, self.keep_ttl, self.gt, self.lt];
        bytes[0] = flags.into_iter().rev().fold(0, |all, flag| all << 1 | u8::from(flag));
        bytes[1] = unit;
        bytes[2..].copy_from_slice(&ms.to_le_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](SetOptions::to_bytes) wrote.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<SetOptions> {
        let ([flags, unit], rest) = bytes.split_first_chunk()?;
        let ms = i64::from_le_bytes(rest.try_into().ok()?);
        let ends = match unit {
            0 => Ends::Never,
            1 => Ends::In(ms),
            2 => Ends::At(ms),
            _ => return None,
        };
        let has = |bit: u8| flags >> bit & 1 == 1;
        Some(SetOptions { nx: has(0), xx: has(1), get: has(2), keep_ttl: has(3), gt: has(4), lt: has(5), ends })
    }
}

/// Writes an item with these arguments.
pub fn put_item<'a>(op: Op, arguments: impl IntoIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    out.push(op as u8);
    let count_at = out.len();
    out.extend([0; 2]);
    let mut count = 0u16;
    for argument in arguments {
        out.extend((argument.len() as u32).to_le_bytes());
        out.extend(argument);
        count += 1;
    }
    out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
}

/// An item of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// What it does.
    pub op: Op,
    /// Its arguments.
    pub arguments: Arguments<'a>,
}

/// The arguments of an item, in order.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.count = self.count.checked_sub(1)?;
        let (argument, rest) = take_bytes(self.bytes)?;
        self.bytes = rest;
        Some(argument)
    }
}

impl Arguments<'_> {
    /// Returns how many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }
}

fn take_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// The items of a batch that are not read yet.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a> {
    /// How many there are.
    pub left: u16,
    bytes: &'a [u8],
}

impl<'a> Items<'a> {
    /// Reads the head of a batch.
    #[must_use]
    pub fn of_batch(batch: &'a [u8]) -> Option<Items<'a>> {
        let (count, bytes) = batch.split_first_chunk()?;
        Some(Items { left: u16::from_le_bytes(*count), bytes })
    }

    /// Returns how many bytes are not read yet.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.bytes.len()
    }

    /// Reads the next item. `None`: there is none, or the bytes are none.
    #[inline]
    pub fn next_item(&mut self) -> Option<Item<'a>> {
        self.left = self.left.checked_sub(1)?;
        let ([op, low, high], rest) = self.bytes.split_first_chunk()?;
        let count = u16::from_le_bytes([*low, *high]);
        let mut end = rest;
        for _ in 0..count {
            end = take_bytes(end)?.1;
        }
        let (bytes, after) = rest.split_at(rest.len() - end.len());
        self.bytes = after;
        Some(Item { op: Op::from_byte(*op)?, arguments: Arguments { count, bytes } })
    }
}

/// Where values are written.
pub trait Sink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Returns how many bytes there is still room for.
    fn room(&self) -> usize;
}

impl Sink for stentor::Reply {
    fn put(&mut self, bytes: &[u8]) {
        self.extend(bytes);
    }

    fn room(&self) -> usize {
        stentor::Reply::room(self)
    }
}

/// Without limit.
impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn room(&self) -> usize {
        usize::MAX >> 1
    }
}

const NIL: u8 = b'_';
const OK: u8 = b'+';
const INTEGER: u8 = b':';
const BYTES: u8 = b'$';
const ARRAY: u8 = b'*';
const ERROR: u8 = b'-';
const ELSEWHERE: u8 = b'>';
const AGAIN: u8 = b'~';

/// Bytes of the longest value, but for those that carry bytes of a key or a value.
pub const SMALL: usize = 128;

/// A value, without those that it contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// There is nothing.
    Nil,
    /// It is done.
    Ok,
    /// A number.
    Integer(i64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// So many values follow.
    Array(u32),
    /// Why it was not done.
    Error(&'a str),
    /// The item is about keys of other groups alone.
    Elsewhere,
    /// Nothing was done, because there was no room for the answer. The same holds for all items behind it.
    Again,
}

impl<'a> Value<'a> {
    /// Writes it.
    #[inline]
    pub fn write(self, out: &mut impl Sink) {
        match self {
            Value::Nil => out.put(&[NIL]),
            Value::Ok => out.put(&[OK]),
            Value::Elsewhere => out.put(&[ELSEWHERE]),
            Value::Again => out.put(&[AGAIN]),
            Value::Integer(number) => {
                let mut bytes = [INTEGER; 9];
                bytes[1..].copy_from_slice(&number.to_le_bytes());
                out.put(&bytes);
            }
            Value::Bytes(content) => put_long(BYTES, content.len() as u32, content, out),
            Value::Array(count) => put_long(ARRAY, count, &[], out),
            Value::Error(text) => put_long(ERROR, text.len() as u32, text.as_bytes(), out),
        }
    }

    /// Reads the first one. Returns it, and what follows.
    #[inline]
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<(Value<'a>, &'a [u8])> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            NIL => (Value::Nil, rest),
            OK => (Value::Ok, rest),
            ELSEWHERE => (Value::Elsewhere, rest),
            AGAIN => (Value::Again, rest),
            INTEGER => {
                let (number, rest) = rest.split_first_chunk()?;
                (Value::Integer(i64::from_le_bytes(*number)), rest)
            }
            BYTES => {
                let (content, rest) = take_bytes(rest)?;
                (Value::Bytes(content), rest)
            }
            ARRAY => {
                let (count, rest) = rest.split_first_chunk()?;
                (Value::Array(u32::from_le_bytes(*count)), rest)
            }
            ERROR => {
                let (text, rest) = take_bytes(rest)?;
                (Value::Error(std::str::from_utf8(text).ok()?), rest)
            }
            _ => return None,
        })
    }

    /// Skips the first one, and all that it contains. Returns what follows.
    #[must_use]
    pub fn skip(bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (mut left, mut rest) = (1u64, bytes);
        while left > 0 {
            let (value, after) = Value::read(rest)?;
            left -= 1;
            if let Value::Array(count) = value {
                left += u64::from(count);
            }
            rest = after;
        }
        Some(rest)
    }
}

fn put_long(kind: u8, length: u32, content: &[u8], out: &mut impl Sink) {
    let mut head = [kind; 5];
    head[1..].copy_from_slice(&length.to_le_bytes());
    out.put(&head);
    out.put(content);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn items_are_read_as_written() {
        let mut batch = 2u16.to_le_bytes().to_vec();
        put_item(Op::Set, [&b"key"[..], b"", &SetOptions::default().to_bytes()], &mut batch);
        put_item(Op::Dbsize, [], &mut batch);
        let mut items = Items::of_batch(&batch).unwrap();
        let item = items.next_item().unwrap();
        assert_eq!((item.op, item.arguments.collect::<Vec<_>>().len()), (Op::Set, 3));
        let item = items.next_item().unwrap();
        assert_eq!((item.op, item.arguments.count(), items.left), (Op::Dbsize, 0, 0));
        assert!(items.next_item().is_none());
    }

    #[test]
    fn values_are_read_as_written() {
        let all = [
            Value::Nil,
            Value::Ok,
            Value::Integer(-7),
            Value::Bytes(b"x\r\n"),
            Value::Array(2),
            Value::Bytes(b""),
            Value::Integer(i64::MAX),
            Value::Error("no"),
            Value::Elsewhere,
            Value::Again,
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|value| value.write(&mut bytes));
        let mut rest = &bytes[..];
        for value in all {
            let (read, after) = Value::read(rest).unwrap();
            assert_eq!(read, value);
            rest = after;
        }
        assert!(rest.is_empty());
        let (mut rest, mut count) = (&bytes[..], 0);
        while !rest.is_empty() {
            (rest, count) = (Value::skip(rest).unwrap(), count + 1);
        }
        assert_eq!(count, all.len() - 2, "an array goes with what it contains");
    }

    proptest! {
        #[test]
        fn options_are_read_as_written(flags in 0u8..64, unit in 0u8..3, ms in any::<i64>()) {
            let ends = [Ends::Never, Ends::In(ms), Ends::At(ms)][usize::from(unit)];
            let has = |bit: u8| flags >> bit & 1 == 1;
            let (gt, lt) = (has(4), has(5));
            let options = SetOptions { nx: has(0), xx: has(1), get: has(2), keep_ttl: has(3), gt, lt, ends };
            prop_assert_eq!(SetOptions::from_bytes(&options.to_bytes()), Some(options));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(mut items) = Items::of_batch(&bytes) {
                while let Some(item) = items.next_item() {
                    prop_assert!(item.arguments.map(<[u8]>::len).sum::<usize>() <= bytes.len());
                }
            }
            let _ = Value::skip(&bytes);
            let _ = SetOptions::from_bytes(&bytes);
        }
    }
}
