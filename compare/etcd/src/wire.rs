//! The messages of etcd's API that the client needs, as protocol buffers in gRPC's frames.

use anyhow::{Result, bail, ensure};

/// Size of a frame's header: a flag for compression, and the length of the message.
const FRAME: usize = 5;

/// Field numbers in `rpc.proto`.
const KEY: u64 = 1;
const VALUE: u64 = 2;
const HEADER: u64 = 1;
const MEMBER_ID: u64 = 2;
const LEADER: u64 = 4;

/// Returns a frame with a `PutRequest`.
pub fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(key.len() + value.len() + 16);
    for (field, bytes) in [(KEY, key), (VALUE, value)] {
        varint(&mut message, field << 3 | 2);
        varint(&mut message, bytes.len() as u64);
        message.extend_from_slice(bytes);
    }
    framed(&message)
}

/// Returns a frame with this message.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u32).to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// Returns whether the node that sent this `StatusResponse` is the leader.
///
/// # Errors
/// If the frame is not such a message.
pub fn is_leader(frame: &[u8]) -> Result<bool> {
    ensure!(frame.len() >= FRAME && frame[0] == 0, "{frame:?} is no answer");
    let (mut own, mut leader) = (0, 0);
    for field in Fields(&frame[FRAME..]) {
        match field? {
            (HEADER, Value::Bytes(header)) => {
                for field in Fields(header) {
                    if let (MEMBER_ID, Value::Number(id)) = field? {
                        own = id;
                    }
                }
            }
            (LEADER, Value::Number(id)) => leader = id,
            _ => {}
        }
    }
    Ok(own != 0 && own == leader)
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// An iterator over the fields of a message and their numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.0.split_first() else { bail!("a message ends in a number") };
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        bail!("a number has more than ten bytes")
    }

    fn field(&mut self) -> Result<(u64, Value<'a>)> {
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            2 => {
                let length = self.number()? as usize;
                ensure!(length <= self.0.len(), "a message ends in a field");
                let (bytes, rest) = self.0.split_at(length);
                self.0 = rest;
                Value::Bytes(bytes)
            }
            other => bail!("a field of kind {other}"),
        };
        Ok((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

fn varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_has_its_lengths_before_it() {
        let frame = put(b"k", &[7; 200]);
        assert_eq!(frame[..11], [0, 0, 0, 0, 206, 0x0a, 1, b'k', 0x12, 0xc8, 1]);
        assert_eq!(frame.len(), 5 + 206);
    }

    #[test]
    fn a_leader_is_known_by_its_own_number() {
        // The header has the ids of the cluster and of the member. A version and the leader's id follow.
        let status = |own: u8, leader: u8| framed(&[0x0a, 4, 0x08, 9, 0x10, own, 0x12, 1, b'3', 0x20, leader]);
        assert!(is_leader(&status(3, 3)).unwrap());
        assert!(!is_leader(&status(3, 4)).unwrap() && !is_leader(&status(0, 0)).unwrap());
        assert!(is_leader(&[]).is_err() && is_leader(&framed(&[0x0a, 9, 1])).is_err());
    }
}
