//! The fields of a JSON line, borrowed from the buffer.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A name: a string, or a number that is converted to its digits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Name<'a>(pub(super) Cow<'a, str>);

/// The field `to`: the groups of a multicast, the process of a remote operation, or the last index of a skip (read as a
/// name of digits).
#[derive(Debug)]
pub(super) enum To<'a> {
    Many(Vec<Name<'a>>),
    One(Name<'a>),
}

/// A number written as 16 hex digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hex(pub(super) u64);

/// A number of 64 bits. It is written as a string of its digits, because most JSON parsers round numbers above 2^53. A
/// JSON number is accepted, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digits(pub(super) u64);

/// An object whose fields are kept in the order of the document.
#[derive(Debug)]
pub(super) struct Ordered(pub(super) Vec<(String, Vec<String>)>);

/// All fields of all events. Unknown fields are ignored.
#[derive(Deserialize, Debug)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) e: Option<Name<'a>>,
    pub(super) t: Option<u64>,
    #[serde(borrow)]
    pub(super) p: Option<Name<'a>>,
    pub(super) i: Option<u64>,
    #[serde(borrow)]
    pub(super) m: Option<(Name<'a>, Digits)>,
    #[serde(borrow)]
    pub(super) to: Option<To<'a>>,
    pub(super) len: Option<u64>,
    pub(super) hash: Option<Hex>,
    #[serde(borrow)]
    pub(super) g: Option<Name<'a>>,
    pub(super) n: Option<u64>,
    #[serde(borrow)]
    pub(super) ts: Option<(u64, Name<'a>)>,
    pub(super) from: Option<u64>,
    pub(super) time: Option<u64>,
    #[serde(borrow)]
    pub(super) ballot: Option<(u64, Name<'a>)>,
    #[serde(borrow)]
    pub(super) leader: Option<Name<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Name<'a>>,
    #[serde(borrow)]
    pub(super) what: Option<Name<'a>>,
    pub(super) carried: Option<u32>,
    #[serde(borrow)]
    pub(super) r#in: Option<Name<'a>>,
    #[serde(borrow)]
    pub(super) after: Option<Name<'a>>,
    pub(super) kept: Option<u64>,
    pub(super) bytes: Option<u64>,
    #[serde(borrow)]
    pub(super) s: Option<Name<'a>>,
    pub(super) k: Option<u64>,
    pub(super) other: Option<Hex>,
    pub(super) proven: Option<bool>,
    pub(super) limit: Option<u64>,
    #[serde(borrow)]
    pub(super) c: Option<Name<'a>>,
    #[serde(borrow)]
    pub(super) op: Option<Name<'a>>,
    #[serde(borrow)]
    pub(super) peer: Option<Name<'a>>,
    #[serde(borrow)]
    pub(super) cause: Option<Name<'a>>,
}

/// The first line of a file.
#[derive(Deserialize, Debug)]
pub(super) struct ClusterLine<'a> {
    pub(super) e: Option<String>,
    pub(super) version: Option<u64>,
    pub(super) groups: Option<Ordered>,
    pub(super) clients: Option<Vec<String>>,
    pub(super) faulty: Option<Vec<String>>,
    pub(super) window: Option<u64>,
    pub(super) memory_limit: Option<u64>,
    pub(super) clock: Option<String>,
    #[serde(borrow)]
    pub(super) by: Option<Name<'a>>,
    pub(super) began: Option<u64>,
}

/// Implements `Deserialize` for a type by its visitor.
macro_rules! visited {
    ([$($lifetimes:tt)*] $type:ty, $how:ident, $visitor:ident) => {
        impl<$($lifetimes)*> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.$how($visitor)
            }
        }
    };
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name (a string or a whole number)")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(number.to_string())))
    }
}

visited!(['de: 'a, 'a] Name<'a>, deserialize_any, NameVisitor);

struct ToVisitor;

impl<'de> Visitor<'de> for ToVisitor {
    type Value = To<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of groups, or a process")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<To<'de>, E> {
        NameVisitor.visit_borrowed_str(name).map(To::One)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<To<'de>, E> {
        NameVisitor.visit_str(name).map(To::One)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<To<'de>, E> {
        NameVisitor.visit_u64(number).map(To::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<To<'de>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(names)).map(To::Many)
    }
}

visited!(['de: 'a, 'a] To<'a>, deserialize_any, ToVisitor);

struct HexVisitor;

impl Visitor<'_> for HexVisitor {
    type Value = Hex;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("16 hex digits")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Hex, E> {
        let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let value = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        value.map(Hex).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

visited!(['de] Hex, deserialize_str, HexVisitor);

struct DigitsVisitor;

impl Visitor<'_> for DigitsVisitor {
    type Value = Digits;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number below 2^64, or a string of its digits")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Digits, E> {
        Ok(Digits(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Digits, E> {
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let value = digits.then(|| text.parse().ok()).flatten();
        value.map(Digits).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

visited!(['de] Digits, deserialize_any, DigitsVisitor);

struct OrderedVisitor;

impl<'de> Visitor<'de> for OrderedVisitor {
    type Value = Ordered;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of groups, each a list of processes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
        let mut groups = Vec::new();
        while let Some((id, members)) = map.next_entry::<String, Vec<Name<'de>>>()? {
            groups.push((id, members.into_iter().map(|name| name.0.into_owned()).collect()));
        }
        Ok(Ordered(groups))
    }
}

visited!(['de] Ordered, deserialize_map, OrderedVisitor);
