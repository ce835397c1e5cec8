//! Converts values of groups into a reply of the protocol.

use super::glob::matches;
use crate::command::Shape;
use crate::resp::Writer;
use crate::wire::Value;

const STRANGE: &str =
    "ERR a node sent an answer that this gateway cannot parse: do the gateway and the nodes run the same version?";

/// The answer of one group to an item.
pub(super) type Part<'a> = (u16, &'a [u8]);

/// Writes the reply that has this shape. `groups` is the number of groups of the store.
pub(super) fn write(shape: &Shape, parts: &[Part<'_>], groups: u16, writer: &mut Writer<'_>) {
    let before = writer.out.len();
    if write_shape(shape, parts, groups, writer).is_none() {
        writer.out.truncate(before);
        writer.error(STRANGE);
    }
}

/// Writes the reply. Returns `None` if the values do not fit the shape.
fn write_shape(shape: &Shape, parts: &[Part<'_>], groups: u16, writer: &mut Writer<'_>) -> Option<()> {
    for (_, bytes) in parts {
        if let (Value::Error(text), _) = Value::read(bytes)? {
            writer.error(text);
            return Some(());
        }
    }
    let (group, bytes) = *parts.first()?;
    match shape {
        Shape::Plain => drop(write_plain(bytes, writer)?),
        Shape::Seconds => match Value::read(bytes)?.0 {
            Value::Integer(ms) if ms < 0 => writer.integer(ms),
            Value::Integer(ms) => writer.integer((ms + 500) / 1000),
            _ => return None,
        },
        Shape::Type => match Value::read(bytes)?.0 {
            Value::Integer(there) => writer.simple(if there > 0 { "string" } else { "none" }),
            _ => return None,
        },
        Shape::Flag => match Value::read(bytes)?.0 {
            Value::Ok => writer.integer(1),
            Value::Nil => writer.integer(0),
            _ => return None,
        },
        Shape::Sum => {
            let mut sum = 0;
            for (_, bytes) in parts {
                match Value::read(bytes)?.0 {
                    Value::Integer(number) => sum += number,
                    Value::Ok => sum = i64::MIN,
                    _ => return None,
                }
            }
            if sum == i64::MIN { writer.simple("OK") } else { writer.integer(sum) }
        }
        Shape::Values(of) => write_values(of, parts, writer)?,
        Shape::Scan(at, pattern) => {
            debug_assert_eq!(*at, group);
            write_scan((group, groups), bytes, pattern.as_deref(), writer)?;
        }
        Shape::Exec(shapes) => write_exec(shapes, parts, groups, writer)?,
        Shape::Watch(_) => writer.simple("OK"),
    }
    Some(())
}

/// Writes the value at the beginning of `bytes`, and its elements if it is an array. Returns the bytes after them, or
/// `None` if a value is not permitted here: an element must be bytes or nil.
fn write_plain<'a>(bytes: &'a [u8], writer: &mut Writer<'_>) -> Option<&'a [u8]> {
    let (value, mut rest) = Value::read(bytes)?;
    match value {
        Value::Nil => writer.nil(),
        Value::Ok => writer.simple("OK"),
        Value::Integer(number) => writer.integer(number),
        Value::Bytes(bytes) => writer.bulk(bytes),
        Value::Error(text) => writer.error(text),
        Value::Array(count) => {
            writer.array(count as usize);
            for _ in 0..count {
                let (value, after) = Value::read(rest)?;
                match value {
                    Value::Bytes(bytes) => writer.bulk(bytes),
                    Value::Nil => writer.nil(),
                    _ => return None,
                }
                rest = after;
            }
        }
        Value::Elsewhere | Value::Again => return None,
    }
    Some(rest)
}

/// Writes the values of several keys. `of` is the group of each key, and each value comes from the part of that group.
fn write_values(of: &[u16], parts: &[Part<'_>], writer: &mut Writer<'_>) -> Option<()> {
    let mut rests: Vec<Part<'_>> = Vec::with_capacity(parts.len());
    for (group, bytes) in parts {
        let (Value::Array(_), rest) = Value::read(bytes)? else { return None };
        rests.push((*group, rest));
    }
    writer.array(of.len());
    for group in of {
        let (_, rest) = rests.iter_mut().find(|(other, _)| other == group)?;
        let (value, after) = Value::read(rest)?;
        match value {
            Value::Bytes(bytes) => writer.bulk(bytes),
            Value::Nil => writer.nil(),
            _ => return None,
        }
        *rest = after;
    }
    Some(())
}

fn write_scan(
    (group, groups): (u16, u16),
    bytes: &[u8],
    pattern: Option<&[u8]>,
    writer: &mut Writer<'_>,
) -> Option<()> {
    let (Value::Array(count), rest) = Value::read(bytes)? else { return None };
    let (Value::Integer(place), mut rest) = Value::read(rest)? else { return None };
    let cursor = match place {
        0.. => u64::from(group) << 48 | place as u64,
        _ if group + 1 < groups => u64::from(group + 1) << 48,
        _ => 0,
    };
    let mut keys = Vec::new();
    for _ in 1..count {
        let (Value::Bytes(key), after) = Value::read(rest)? else { return None };
        if pattern.is_none_or(|pattern| matches(pattern, key)) {
            keys.push(key);
        }
        rest = after;
    }
    writer.array(2);
    writer.bulk(cursor.to_string().as_bytes());
    writer.array(keys.len());
    keys.into_iter().for_each(|key| writer.bulk(key));
    Some(())
}

/// Writes the replies of a transaction. Each group has answered each command. The answer is `Elsewhere` if the command
/// concerns only keys of other groups.
fn write_exec(shapes: &[Shape], parts: &[Part<'_>], groups: u16, writer: &mut Writer<'_>) -> Option<()> {
    let mut rests: Vec<Part<'_>> = Vec::with_capacity(parts.len());
    for (group, bytes) in parts {
        match Value::read(bytes)? {
            (Value::Nil, _) => {
                writer.nil_array();
                return Some(());
            }
            (Value::Array(_), rest) => rests.push((*group, rest)),
            _ => return None,
        }
    }
    writer.array(shapes.len());
    for shape in shapes {
        let mut own: Vec<Part<'_>> = Vec::with_capacity(rests.len());
        for (group, rest) in &mut rests {
            let after = Value::skip(rest)?;
            let value = &rest[..rest.len() - after.len()];
            if Value::read(value)?.0 != Value::Elsewhere {
                own.push((*group, value));
            }
            *rest = after;
        }
        write(shape, &own, groups, writer);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Version;

    fn written(shape: &Shape, parts: &[(u16, Vec<Value<'_>>)]) -> String {
        let bytes: Vec<(u16, Vec<u8>)> = parts
            .iter()
            .map(|(group, values)| {
                let mut bytes = Vec::new();
                values.iter().for_each(|value| value.write(&mut bytes));
                (*group, bytes)
            })
            .collect();
        let parts: Vec<Part<'_>> = bytes.iter().map(|(group, bytes)| (*group, &bytes[..])).collect();
        let mut out = Vec::new();
        write(shape, &parts, 3, &mut Writer { version: Version::Two, out: &mut out });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_of_several_groups_are_put_in_the_order_of_the_keys() {
        let parts = [
            (0, vec![Value::Array(2), Value::Bytes(b"a"), Value::Nil]),
            (2, vec![Value::Array(1), Value::Bytes(b"c")]),
        ];
        assert_eq!(written(&Shape::Values(vec![0, 2, 0]), &parts), "*3\r\n$1\r\na\r\n$1\r\nc\r\n$-1\r\n");
        assert!(written(&Shape::Values(vec![1]), &parts).starts_with("-ERR"));
        assert!(written(&Shape::Values(vec![2, 2]), &parts).starts_with("-ERR a node"));
    }

    #[test]
    fn scan_continues_in_the_next_group() {
        let scan = |group, place| {
            written(
                &Shape::Scan(group, Some(b"k*".to_vec())),
                &[(group, vec![Value::Array(3), Value::Integer(place), Value::Bytes(b"k1"), Value::Bytes(b"x")])],
            )
        };
        assert_eq!(scan(0, 7), "*2\r\n$1\r\n7\r\n*1\r\n$2\r\nk1\r\n");
        assert!(scan(0, -1).contains(&(1u64 << 48).to_string()));
        assert!(scan(2, -1).starts_with("*2\r\n$1\r\n0\r\n"));
    }

    #[test]
    fn transaction_has_a_reply_for_each_command() {
        let shapes = vec![Shape::Plain, Shape::Sum, Shape::Flag];
        let parts = [
            (0, vec![Value::Array(3), Value::Ok, Value::Integer(1), Value::Elsewhere]),
            (1, vec![Value::Array(3), Value::Elsewhere, Value::Integer(2), Value::Nil]),
        ];
        assert_eq!(written(&Shape::Exec(shapes.clone()), &parts), "*3\r\n+OK\r\n:3\r\n:0\r\n");
        assert_eq!(written(&Shape::Exec(shapes), &[(0, vec![Value::Nil])]), "*-1\r\n");
    }
}
