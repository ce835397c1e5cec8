//! The encoding of batches and values between a gateway and the state machines of a group.
//!
//! A *batch* is one command of the multicast, or one query. It consists of the number of items (16 bits) and the items.
//! An *item* consists of an operation (8 bits), the number of arguments (16 bits), and for each argument its length (32
//! bits) and its bytes. All numbers are little-endian. The answer to a batch has one *value* for each item, in order.

/// The operation of an item. The documentation of each operation shows its arguments → its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    /// key → value or nil.
    Get = 1,
    /// key → length.
    Strlen,
    /// key… → number of these keys that exist.
    Exists,
    /// key… → values.
    Mget,
    /// key → milliseconds until the key expires; -1 if it never expires; -2 if there is no such key.
    Ttl,
    /// → number of keys.
    Dbsize,
    /// cursor (8 bytes), count (4 bytes) → the next cursor (integer; -1 at the end) and keys.
    Scan,
    /// key → the key's version; 0 if there is no such key.
    Version,
    /// key, value, [`SetOptions`] → ok, nil, or the previous value.
    Set = 32,
    /// key… → number of these keys that existed; the keys are removed.
    Del,
    /// key, difference (8 bytes) → the new number.
    IncrBy,
    /// key, bytes → the new length.
    Append,
    /// (key, value)… → ok.
    Mset,
    /// (key, value)… → 1 if no key existed and all keys are set, or 0. All keys are in one group.
    Msetnx,
    /// key, [`SetOptions`] → 1 if the time of expiry was set, or 0.
    Expire,
    /// key → 1 if the time of expiry was removed, or 0.
    Persist,
    /// key → the value; the key is removed.
    Getdel,
    /// → ok; all keys are removed.
    Flush,
    /// (key, version)…, a batch → nil if a key has another version, or the values of the batch.
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

    /// Returns whether the operation is a write.
    #[must_use]
    pub fn is_write(self) -> bool {
        self as u8 >= Op::Set as u8
    }
}

/// The options of [`Op::Set`] and [`Op::Expire`]: the time of expiry, and the conditions under which the operation has
/// an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetOptions {
    /// `true` to set the key only if it does not exist, or with [`Op::Expire`], to set the time of expiry only if the
    /// key never expires.
    pub nx: bool,
    /// `true` to set the key only if it exists, or with [`Op::Expire`], to set the time of expiry only if the key has
    /// one.
    pub xx: bool,
    /// `true` to answer with the previous value.
    pub get: bool,
    /// `true` to keep the time of expiry.
    pub keep_ttl: bool,
    /// `true` to set the time of expiry only if it is later than the present one. A key that never expires counts as
    /// the latest.
    pub gt: bool,
    /// `true` to set the time of expiry only if it is earlier than the present one.
    pub lt: bool,
    /// The time of expiry.
    pub ends: Ends,
}

/// The time at which a key expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ends {
    /// Never.
    #[default]
    Never,
    /// The time of the order at the command, plus this number of milliseconds.
    In(i64),
    /// This time, in milliseconds since 1970.
    At(i64),
}

impl SetOptions {
    /// Size of the encoded options, in bytes.
    pub const BYTES: usize = 10;

    /// Encodes the options.
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

    /// Decodes bytes that [`to_bytes`](SetOptions::to_bytes) returned. Returns `None` if they are malformed.
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
    /// The operation.
    pub op: Op,
    /// Arguments of the operation.
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
    /// Returns the number of arguments that are left.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }
}

fn take_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// The items of a batch that have not been read yet.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a> {
    /// The number of items that are left.
    pub left: u16,
    bytes: &'a [u8],
}

impl<'a> Items<'a> {
    /// Parses the number of items at the start of a batch. Returns `None` if the batch is too short.
    #[must_use]
    pub fn of_batch(batch: &'a [u8]) -> Option<Items<'a>> {
        let (count, bytes) = batch.split_first_chunk()?;
        Some(Items { left: u16::from_le_bytes(*count), bytes })
    }

    /// Returns the number of bytes that have not been read yet.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.bytes.len()
    }

    /// Reads the next item. Returns `None` if there is none or it is malformed.
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

/// The destination of values.
pub trait Sink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Returns the number of bytes that may still be appended.
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

/// A sink without a limit.
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

/// Maximum encoded size of a value that contains no bytes of keys or of stored values, in bytes.
pub const SMALL: usize = 128;

/// A value of an answer. The elements of an array are separate values after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// There is no value.
    Nil,
    /// The operation was carried out.
    Ok,
    /// A number.
    Integer(i64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// An array of this many values, which follow.
    Array(u32),
    /// The operation was not carried out, for this reason.
    Error(&'a str),
    /// The item concerns only keys of other groups.
    Elsewhere,
    /// The item was not carried out, because the reply has no room for the answer to this item or to an earlier one.
    Again,
}

impl<'a> Value<'a> {
    /// Writes the value.
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

    /// Parses the first value. Returns the value and the bytes after it, or `None` if the value is malformed.
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

    /// Skips the first value, with all its elements if it is an array. Returns the bytes after it, or `None` if a value
    /// is malformed.
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
    fn items_are_parsed_as_written() {
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
    fn values_are_parsed_as_written() {
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
        assert_eq!(count, all.len() - 2, "an array is skipped together with its elements");
    }

    proptest! {
        #[test]
        fn options_are_parsed_as_written(flags in 0u8..64, unit in 0u8..3, ms in any::<i64>()) {
            let ends = [Ends::Never, Ends::In(ms), Ends::At(ms)][usize::from(unit)];
            let has = |bit: u8| flags >> bit & 1 == 1;
            let (gt, lt) = (has(4), has(5));
            let options = SetOptions { nx: has(0), xx: has(1), get: has(2), keep_ttl: has(3), gt, lt, ends };
            prop_assert_eq!(SetOptions::from_bytes(&options.to_bytes()), Some(options));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
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
