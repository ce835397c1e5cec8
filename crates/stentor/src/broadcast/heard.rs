//! The events that a process of a broadcast receives.

use stentor_neb::{Config, Evidence, Notice, Refused, Value};

/// An event about one sender. After [`Equivocation`](Heard::Equivocation) and [`Misbehaved`](Heard::Misbehaved),
/// messages of the sender from that sequence number on are withheld. They may still be delivered if an operator removes
/// the sender. No message of the sender follows [`Removed`](Heard::Removed).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Heard<'a> {
    /// A message. For this sender and sequence, every correct process receives either the same bytes or nothing.
    Message {
        /// The name of the process that sent the message. It may be this process.
        sender: &'a str,
        /// The sequence number of the message at its sender, from 0. Numbers have no gaps except for skipped messages.
        sequence: u64,
        /// The content of the message.
        bytes: &'a [u8],
    },
    /// A message is skipped. Either it arrived too late to be checked, because this process was more than a window
    /// behind. Or an operator has removed the sender, and no process that remains holds the message any more.
    Skipped {
        /// The name of the sender.
        sender: &'a str,
        /// The sequence number of the message.
        sequence: u64,
    },
    /// Two different messages were presented under one sequence number: either their sender has equivocated, or the
    /// witness that presented one of them has lied.
    Equivocation(Equivocation<'a>),
    /// A sender violated the protocol in another way.
    Misbehaved {
        /// The name of the sender.
        sender: &'a str,
        /// The violation.
        how: Refused,
    },
    /// An operator removed a process.
    Removed {
        /// The name of the removed process.
        sender: &'a str,
        /// The sequence number of the removed process's first message that no process delivers.
        sequence: u64,
    },
}

/// The evidence of an equivocation.
#[derive(Clone, Copy, Debug)]
pub struct Equivocation<'a> {
    names: &'a [String],
    config: &'a Config,
    evidence: &'a Evidence,
}

impl<'a> Equivocation<'a> {
    /// Returns the name of the sender of the two messages.
    #[must_use]
    pub fn sender(&self) -> &'a str {
        name(self.names, self.evidence.sender)
    }

    /// Returns the sequence number of the two messages.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.evidence.index
    }

    /// Returns the name of the witness: the process that presented another message than this process received.
    #[must_use]
    pub fn witness(&self) -> &'a str {
        name(self.names, self.evidence.witness)
    }

    /// Returns whether both messages are signed by the sender, which proves that the sender has equivocated. Without
    /// signatures the witness may have lied, unless the fault model excludes that.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.evidence.proven
    }

    /// Returns the message that this process received, and the one that the witness presented.
    #[must_use]
    pub fn messages(&self) -> [&'a [u8]; 2] {
        [&self.evidence.ours, &self.evidence.other].map(|words| {
            let (bytes, config) = (size_of_val(words.as_slice()), self.config);
            Value::new(words, bytes, config.signed, config.payload_bytes).map_or(&[][..], |value| value.payload())
        })
    }

    /// Returns the evidence in the form in which the broadcast stores it, with all words and signatures, for programs
    /// that archive or verify it.
    #[must_use]
    pub fn evidence(&self) -> &'a Evidence {
        self.evidence
    }
}

fn name(names: &[String], process: stentor_fabric::ProcessId) -> &str {
    names.get(process.index()).map_or("?", String::as_str)
}

impl<'a> Heard<'a> {
    #[inline]
    pub(super) fn from(notice: Notice<'a>, names: &'a [String], config: &'a Config) -> Heard<'a> {
        match notice {
            Notice::Deliver(sender, value) => {
                Heard::Message { sender: name(names, sender), sequence: value.index(), bytes: value.payload() }
            }
            Notice::Skip(sender, sequence) => Heard::Skipped { sender: name(names, sender), sequence },
            Notice::Equivocation(evidence) => Heard::Equivocation(Equivocation { names, config, evidence }),
            Notice::Refused(sender, how) => Heard::Misbehaved { sender: name(names, sender), how },
            Notice::Removed(sender, sequence) => Heard::Removed { sender: name(names, sender), sequence },
        }
    }
}
