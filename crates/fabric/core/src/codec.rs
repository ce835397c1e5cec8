//! Encoding of control messages: fields follow each other without padding, and numbers have one of two byte orders.
//!
//! [`fields!`](crate::fields) and [`variants!`](crate::variants) declare the fields of a struct, or of each variant of
//! an enum, in the order of the encoding. Decoding is strict: it rejects a value that a field cannot have, and a
//! message with missing or trailing bytes.

use std::net::Ipv6Addr;

use crate::{Access, ProcessId, Purpose, QpKind, Service};

/// A byte order of numbers.
pub trait ByteOrder {
    /// `true` if the most significant byte comes first.
    const IS_BIG: bool;
}

/// Most significant byte first.
#[derive(Clone, Copy, Debug)]
pub struct BigEndian;

/// Least significant byte first.
#[derive(Clone, Copy, Debug)]
pub struct LittleEndian;

impl ByteOrder for BigEndian {
    const IS_BIG: bool = true;
}

impl ByteOrder for LittleEndian {
    const IS_BIG: bool = false;
}

/// A value with an encoding: a field of a message, or a whole message.
pub trait Field: Sized {
    /// Appends the encoding of this field to `to`.
    fn put<O: ByteOrder>(&self, to: &mut Vec<u8>);

    /// Decodes a field from the front of `from`, and removes its bytes from `from`. Returns `None` if the bytes are not
    /// valid.
    fn take<O: ByteOrder>(from: &mut &[u8]) -> Option<Self>;

    /// Encodes a field that is a whole message.
    #[must_use]
    fn to_message<O: ByteOrder>(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        self.put::<O>(&mut bytes);
        bytes
    }

    /// Decodes a whole message. Returns `None` if `bytes` is not exactly one message.
    #[must_use]
    fn of_message<O: ByteOrder>(mut bytes: &[u8]) -> Option<Self> {
        Self::take::<O>(&mut bytes).filter(|_| bytes.is_empty())
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Field for $number {
            fn put<O: ByteOrder>(&self, to: &mut Vec<u8>) {
                to.extend(if O::IS_BIG { self.to_be_bytes() } else { self.to_le_bytes() });
            }

            fn take<O: ByteOrder>(from: &mut &[u8]) -> Option<Self> {
                let bytes = take_array(from)?;
                Some(if O::IS_BIG { Self::from_be_bytes(bytes) } else { Self::from_le_bytes(bytes) })
            }
        })*
    };
}

numbers!(u8, u16, u32, u64);

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*first)
}

/// Decodes a field that must have the value `known`. Returns `None` if it has another value.
#[doc(hidden)]
pub fn take_known<O: ByteOrder, F: Field + PartialEq>(from: &mut &[u8], known: &F) -> Option<()> {
    (F::take::<O>(from)? == *known).then_some(())
}

impl<const N: usize> Field for [u8; N] {
    fn put<O: ByteOrder>(&self, to: &mut Vec<u8>) {
        to.extend(self);
    }

    fn take<O: ByteOrder>(from: &mut &[u8]) -> Option<Self> {
        take_array(from)
    }
}

/// Encodes text as a length of 16 bits and that number of bytes. A longer text is cut. Decoding rejects control
/// characters, because text of a peer is printed on terminals.
impl Field for String {
    fn put<O: ByteOrder>(&self, to: &mut Vec<u8>) {
        let mut length = self.len().min(u16::MAX.into());
        while !self.is_char_boundary(length) {
            length -= 1;
        }
        (length as u16).put::<O>(to);
        to.extend(&self.as_bytes()[..length]);
    }

    fn take<O: ByteOrder>(from: &mut &[u8]) -> Option<Self> {
        let length = usize::from(u16::take::<O>(from)?);
        let (text, rest) = from.split_at_checked(length)?;
        *from = rest;
        let text = std::str::from_utf8(text).ok()?;
        (!text.contains(char::is_control)).then(|| text.to_owned())
    }
}

/// Implements [`Field`] for a type, with the encoding of another type.
macro_rules! lies_as {
    ($($field:ty: $as:ty, |$value:ident| $put:expr, $take:expr;)*) => {
        $(impl Field for $field {
            fn put<O: ByteOrder>(&self, to: &mut Vec<u8>) {
                let $value = self;
                $put.put::<O>(to);
            }

            fn take<O: ByteOrder>(from: &mut &[u8]) -> Option<Self> {
                <$as>::take::<O>(from).and_then($take)
            }
        })*
    };
}

lies_as! {
    ProcessId: u16, |id| id.0, |id| Some(ProcessId(id));
    Purpose: u16, |purpose| purpose.0, |purpose| Some(Purpose(purpose));
    Service: u16, |service| service.0, |service| Some(Service(service));
    Ipv6Addr: [u8; 16], |address| address.octets(), |octets| Some(Ipv6Addr::from(octets));
    bool: u8, |is| u8::from(*is), |byte| (byte < 2).then_some(byte == 1);
}

crate::variants! { Access { 0 => Read, 1 => Write, 2 => Atomic } }
crate::variants! { QpKind { 0 => Reliable, 1 => Unreliable } }

/// Implements [`Field`](crate::codec::Field) for a struct. Its encoding is an optional constant, then the fields in the
/// given order.
#[macro_export]
macro_rules! fields {
    ($name:ident $(= $magic:expr =>)? { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Field for $name {
            fn put<O: $crate::codec::ByteOrder>(&self, to: &mut Vec<u8>) {
                $($crate::codec::Field::put::<O>(&$magic, to);)?
                $($crate::codec::Field::put::<O>(&self.$field, to);)*
            }

            fn take<O: $crate::codec::ByteOrder>(from: &mut &[u8]) -> Option<Self> {
                $($crate::codec::take_known::<O, _>(from, &$magic)?;)?
                Some($name { $($field: $crate::codec::Field::take::<O>(from)?),* })
            }
        }
    };
}

/// Implements [`Field`](crate::codec::Field) for an enum. Its encoding is the number of the variant in one byte, then
/// the fields of the variant.
#[macro_export]
macro_rules! variants {
    ($name:ident { $($code:literal => $variant:ident $(($inner:ident))? $({ $($field:ident),* })?),* $(,)? }) => {
        impl $crate::codec::Field for $name {
            fn put<O: $crate::codec::ByteOrder>(&self, to: &mut Vec<u8>) {
                match self {
                    $($name::$variant $(($inner))? $({ $($field),* })? => {
                        to.push($code);
                        $($crate::codec::Field::put::<O>($inner, to);)?
                        $($($crate::codec::Field::put::<O>($field, to);)*)?
                    })*
                }
            }

            fn take<O: $crate::codec::ByteOrder>(from: &mut &[u8]) -> Option<Self> {
                Some(match <u8 as $crate::codec::Field>::take::<O>(from)? {
                    $($code => {
                        $(let $inner = $crate::codec::Field::take::<O>(from)?;)?
                        $($(let $field = $crate::codec::Field::take::<O>(from)?;)*)?
                        $name::$variant $(($inner))? $({ $($field),* })?
                    })*
                    _ => return None,
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_too_long_is_cut_between_characters() {
        let text = "ä".repeat(40_000);
        let mut bytes = Vec::new();
        text.put::<BigEndian>(&mut bytes);
        7_u8.put::<BigEndian>(&mut bytes);
        let mut rest = bytes.as_slice();
        assert_eq!(String::take::<BigEndian>(&mut rest).as_deref(), Some(&text[..65_534]));
        assert_eq!(rest, [7], "the next field follows");
    }
}
