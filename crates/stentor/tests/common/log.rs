//! A state machine whose replies reveal whether a command was applied twice.

use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use stentor::{Context, Frozen, Reply, StateMachine};

#[allow(unused_imports, reason = "some tests that share this file do not wait")]
pub(crate) use crate::until::until;

/// Appends each command to a log. Replies with the number of times that this command is among the last 4096, and with
/// its index in the log.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Log(pub(crate) Vec<Vec<u8>>);

impl StateMachine for Log {
    type Frozen = Log;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
        if command.starts_with(b"slow") {
            thread::sleep(Duration::from_millis(20));
        }
        self.0.push(command.to_vec());
        let times = self.0.iter().rev().take(4096).filter(|known| *known == command).count() as u64;
        reply.extend(&times.to_le_bytes());
        reply.extend(&(self.0.len() as u64).to_le_bytes());
        if command.starts_with(b"long") {
            reply.extend(&[7; 100_000]);
        }
    }

    fn freeze(&self) -> Log {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let (mut bytes, mut log) = (Vec::new(), Vec::new());
        from.read_to_end(&mut bytes)?;
        let mut rest = &bytes[..];
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (command, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
            log.push(command.to_vec());
            rest = behind;
        }
        self.0 = log;
        Ok(())
    }
}

impl Frozen for Log {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        self.0.iter().try_for_each(|command| {
            out.write_all(&(command.len() as u32).to_le_bytes())?;
            out.write_all(command)
        })
    }
}

/// Decodes a reply: the number of times that the command was applied, and its index in the group's log.
pub(crate) fn numbers(reply: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(reply[at..at + 8].try_into().expect("a word"));
    (word(0), word(8))
}
