//! Encodes events as JSON lines.

use super::{Author, HOST_CLOCK};
use crate::cluster::{Clock, Cluster};
use crate::event::{Deliver, Event, EventKind, Multicast};
use crate::ids::{Ballot, Group, Incarnation, Label, MessageId, Process};

/// An encoder of the events of one cluster as JSON lines in a caller's buffer. It does not allocate, except to grow the
/// buffer.
#[derive(Clone, Debug)]
pub struct Encoder {
    processes: Vec<Box<[u8]>>,
    groups: Vec<Box<[u8]>>,
    labels: Vec<Box<[u8]>>,
}

/// Returns a quoted name, or an empty one if the index is unknown.
#[inline]
fn name_of(names: &[Box<[u8]>], index: usize) -> &[u8] {
    names.get(index).map_or(b"\"\"", |name| name)
}

impl Encoder {
    /// Creates an encoder for events whose names are in `cluster` now. Intern all labels first.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        let names = 0..cluster.process_count() as u32;
        let words = (0..).map(|label| cluster.label_word(Label(label)).to_owned());
        Encoder {
            processes: names.map(|process| quoted(cluster.process_name(Process(process)))).collect(),
            groups: cluster.groups().map(|group| quoted(cluster.group_id(group))).collect(),
            labels: words.take(cluster.label_count()).map(|word| quoted(&word)).collect(),
        }
    }

    /// Appends the line of one event, with its line feed. A process, group or label that was not in the cluster at
    /// creation gets an empty name.
    pub fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"t\":");
        number(event.t, out);
        out.extend_from_slice(b",\"p\":");
        self.process(event.process, out);
        field(b"i", event.incarnation, out);
        out.extend_from_slice(b",\"e\":\"");
        out.extend_from_slice(event.kind.name().as_bytes());
        out.push(b'"');
        match &event.kind {
            EventKind::Multicast(multicast) | EventKind::Synced(multicast) => self.multicast(multicast, out),
            EventKind::Heard { time } => field(b"time", *time, out),
            EventKind::Deliver(deliver) => self.deliver(deliver, out),
            EventKind::Crash | EventKind::Unrecorded => {}
            EventKind::Recover { from } => field(b"from", *from, out),
            EventKind::Begun(begun) => {
                self.group_field(begun.group, out);
                incarnation(b"in", begun.incarnation, out);
                field(b"kept", begun.kept, out);
                if let Some(after) = begun.after {
                    incarnation(b"after", after, out);
                }
            }
            EventKind::Epoch { group, ballot, by, leader, carried } => {
                self.group_field(*group, out);
                self.ballot(Ballot { number: *ballot, by: *by }, out);
                out.extend_from_slice(b",\"leader\":");
                self.process(*leader, out);
                optional(b"carried", *carried, out);
            }
            EventKind::Carry { m, group, ballot } => {
                self.message(*m, out);
                self.group_field(*group, out);
                self.ballot(*ballot, out);
            }
            EventKind::RemoteOp { m, kind, to } => {
                self.message(*m, out);
                self.label_field(b"kind", *kind, out);
                out.extend_from_slice(b",\"to\":");
                self.process(*to, out);
            }
            EventKind::Broadcast(broadcast) | EventKind::Bdeliver(broadcast) => {
                self.stream(broadcast.sender, out);
                field(b"k", broadcast.index, out);
                field(b"len", u64::from(broadcast.len), out);
                hash(broadcast.hash, out);
            }
            EventKind::Equivocation { sender, index, hash: ours, other, proven } => {
                self.stream(*sender, out);
                field(b"k", *index, out);
                hash(*ours, out);
                hash_field(b"other", *other, out);
                out.extend_from_slice(if *proven { b",\"proven\":true" } else { b",\"proven\":false" });
            }
            EventKind::Skip { sender, from, to } => {
                self.stream(*sender, out);
                field(b"from", *from, out);
                field(b"to", *to, out);
            }
            EventKind::Removed { sender, upto } => {
                self.stream(*sender, out);
                field(b"k", *upto, out);
            }
            EventKind::Memory { bytes, limit, what } => {
                field(b"bytes", *bytes, out);
                optional(b"limit", *limit, out);
                self.label_field(b"what", *what, out);
            }
            about_channels => self.channel(about_channels, out),
        }
        out.extend_from_slice(b"}\n");
    }

    fn channel(&self, kind: &EventKind, out: &mut Vec<u8>) {
        let Some(channel) = kind.connection() else { return };
        self.label_field(b"c", channel, out);
        match kind {
            EventKind::Send { index, len, hash: of, .. } | EventKind::Recv { index, len, hash: of, .. } => {
                field(b"k", *index, out);
                field(b"len", u64::from(*len), out);
                hash(*of, out);
            }
            EventKind::Sent { index, .. } => {
                field(b"k", *index, out);
            }
            EventKind::InFlight { count, limit, .. } => {
                field(b"n", *count, out);
                field(b"limit", *limit, out);
            }
            EventKind::Fault { what, .. } => {
                self.label_field(b"what", *what, out);
            }
            EventKind::Failed { operation, peer, cause, .. } => {
                self.label_field(b"op", *operation, out);
                out.extend_from_slice(b",\"peer\":");
                self.process(*peer, out);
                self.label_field(b"cause", *cause, out);
            }
            EventKind::Closed { lent, .. } => {
                field(b"n", *lent, out);
            }
            _ => {}
        }
    }

    fn multicast(&self, multicast: &Multicast, out: &mut Vec<u8>) {
        self.message(multicast.m, out);
        out.extend_from_slice(b",\"to\":[");
        for (index, group) in multicast.to.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(name_of(&self.groups, group.index()));
        }
        out.push(b']');
        field(b"len", u64::from(multicast.len), out);
        hash(multicast.hash, out);
    }

    fn deliver(&self, deliver: &Deliver, out: &mut Vec<u8>) {
        self.message(deliver.m, out);
        self.group_field(deliver.group, out);
        field(b"n", deliver.number, out);
        out.extend_from_slice(b",\"ts\":[");
        number(deliver.ts.time, out);
        out.push(b',');
        out.extend_from_slice(name_of(&self.groups, deliver.ts.group.index()));
        out.push(b']');
        hash(deliver.hash, out);
        optional(b"len", deliver.len, out);
        if let Some(ballot) = deliver.ballot {
            self.ballot(ballot, out);
        }
    }

    fn ballot(&self, ballot: Ballot, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"ballot\":[");
        number(ballot.number, out);
        out.push(b',');
        self.process(ballot.by, out);
        out.push(b']');
    }

    fn process(&self, process: Process, out: &mut Vec<u8>) {
        out.extend_from_slice(name_of(&self.processes, process.index()));
    }

    fn stream(&self, sender: Process, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"s\":");
        self.process(sender, out);
    }

    fn message(&self, m: MessageId, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"m\":[");
        self.process(m.client, out);
        out.extend_from_slice(b",\"");
        number(m.sequence, out);
        out.extend_from_slice(b"\"]");
    }

    fn group_field(&self, group: Group, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"g\":");
        out.extend_from_slice(name_of(&self.groups, group.index()));
    }

    fn label_field(&self, name: &[u8], label: Label, out: &mut Vec<u8>) {
        key(name, out);
        out.extend_from_slice(name_of(&self.labels, label.0 as usize));
    }
}

/// Returns the line of the cluster, with its line feed. `author` is the process that records the file, if the file is
/// the record of one process.
pub(super) fn cluster_line(cluster: &Cluster, author: Option<&Author>) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(b"{\"e\":\"cluster\"");
    field(b"version", super::VERSION, &mut out);
    out.extend_from_slice(b",\"groups\":{");
    for group in cluster.groups() {
        if group.0 > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&quoted(cluster.group_id(group)));
        out.push(b':');
        list(cluster.members(group).iter().map(|member| cluster.process_name(*member)), &mut out);
    }
    out.push(b'}');
    if let Some(clients) = cluster.client_names() {
        out.extend_from_slice(b",\"clients\":");
        list(clients.iter().map(String::as_str), &mut out);
    }
    if !cluster.faulty_names().is_empty() {
        out.extend_from_slice(b",\"faulty\":");
        list(cluster.faulty_names().iter().map(String::as_str), &mut out);
    }
    optional(b"window", cluster.window(), &mut out);
    optional(b"memory_limit", cluster.memory_limit(), &mut out);
    match cluster.clock() {
        None | Some(Clock::Hosts) => {}
        Some(Clock::Global) => out.extend_from_slice(b",\"clock\":\"global\""),
        Some(Clock::Host(name)) => {
            out.extend_from_slice(b",\"clock\":");
            out.extend_from_slice(&quoted(&format!("{HOST_CLOCK}{name}")));
        }
    }
    if let Some(Author { process, began }) = author {
        out.extend_from_slice(b",\"by\":");
        out.extend_from_slice(&quoted(cluster.process_name(*process)));
        field(b"began", *began, &mut out);
    }
    out.extend_from_slice(b"}\n");
    out
}

fn list<'a>(names: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, name) in names.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&quoted(name));
    }
    out.push(b']');
}

fn quoted(name: &str) -> Box<[u8]> {
    serde_json::Value::from(name).to_string().into_bytes().into_boxed_slice()
}

#[inline]
fn key(name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name);
    out.extend_from_slice(b"\":");
}

fn optional(name: &[u8], value: Option<impl Into<u64>>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        field(name, value.into(), out);
    }
}

fn field(name: &[u8], value: u64, out: &mut Vec<u8>) {
    key(name, out);
    number(value, out);
}

fn number(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn incarnation(name: &[u8], of: Incarnation, out: &mut Vec<u8>) {
    key(name, out);
    out.push(b'"');
    out.extend_from_slice(of.to_string().as_bytes());
    out.push(b'"');
}

fn hash(value: u64, out: &mut Vec<u8>) {
    hash_field(b"hash", value, out);
}

fn hash_field(name: &[u8], value: u64, out: &mut Vec<u8>) {
    key(name, out);
    out.push(b'"');
    out.extend((0..16).rev().map(|digit| b"0123456789abcdef"[(value >> (4 * digit) & 15) as usize]));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_all_their_digits() {
        for value in [0, 9, 10, 99, 12_345, u64::MAX] {
            let mut out = Vec::new();
            number(value, &mut out);
            assert_eq!(out, value.to_string().into_bytes());
        }
        let mut out = Vec::new();
        hash(0x00ab, &mut out);
        assert_eq!(out, b",\"hash\":\"00000000000000ab\"");
    }

    #[test]
    fn names_are_escaped() {
        let cluster = Cluster::builder().group("a\"b", ["x\n"]).build().unwrap();
        let line = String::from_utf8(cluster_line(&cluster, None)).unwrap();
        assert_eq!(line, "{\"e\":\"cluster\",\"version\":1,\"groups\":{\"a\\\"b\":[\"x\\n\"]}}\n");
    }
}
