//! What a process of a broadcast hears.

use stentor_neb::{Config, Evidence, Notice, Refused, Value};

/// What a process hears of one sender. After anything but a message and [`Skipped`](Heard::Skipped) nothing more is heard of that sender.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Heard<'a> {
    /// A message: every correct process hears the same bytes under this sender and sequence, or none.
    Message {
        /// The name of the process that sent it, which may be this one.
        sender: &'a str,
        /// Its number among the sender's messages, from 0, without gaps but for those that are skipped.
        sequence: u64,
        /// What was sent.
        bytes: &'a [u8],
    },
    /// A message came too late to be checked here: this process was more than a window behind.
    Skipped {
        /// The sender.
        sender: &'a str,
        /// The number of the message.
        sequence: u64,
    },
    /// Two messages were shown under one number: the sender has lied, or the witness has.
    Equivocation(Equivocation<'a>),
    /// A sender broke the protocol in another way.
    Misbehaved {
        /// The sender.
        sender: &'a str,
        /// What it did.
        how: Refused,
    },
    /// An operator removed a process.
    Removed {
        /// The process.
        sender: &'a str,
        /// The number of its first message that nobody hears.
        sequence: u64,
    },
}

/// Evidence of a lie.
#[derive(Clone, Copy, Debug)]
pub struct Equivocation<'a> {
    names: &'a [String],
    config: &'a Config,
    evidence: &'a Evidence,
}

impl<'a> Equivocation<'a> {
    /// Returns the name of the sender whose number it is.
    #[must_use]
    pub fn sender(&self) -> &'a str {
        name(self.names, self.evidence.sender)
    }

    /// Returns the number of the message.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.evidence.index
    }

    /// Returns the name of the process that showed another message than this process got.
    #[must_use]
    pub fn witness(&self) -> &'a str {
        name(self.names, self.evidence.witness)
    }

    /// Returns whether both messages are signed by the sender, so that nobody else can be the liar. Without signatures the witness may be,
    /// unless the fault model excludes that.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.evidence.proven
    }

    /// Returns the message that this process got, and the one that the witness showed.
    #[must_use]
    pub fn messages(&self) -> [&'a [u8]; 2] {
        [&self.evidence.ours, &self.evidence.other].map(|words| {
            let (bytes, config) = (size_of_val(words.as_slice()), self.config);
            Value::new(words, bytes, config.signed, config.payload_bytes).map_or(&[][..], |value| value.payload())
        })
    }

    /// Returns the same as the broadcast keeps it, for programs that store or check it: all words, with the signatures.
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
