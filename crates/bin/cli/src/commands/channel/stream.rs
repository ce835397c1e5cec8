//! Reading and writing files in threads: while a pipe keeps them waiting, packets are still taken from the network.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};

use sha2::{Digest, Sha256};
use stentor_support::Failure;
use stentor_support::live::thread;
use stentor_support::streams::{Partial, StandardOutput};

use super::words::{DATA, MESSAGE_BYTES, Whole};

/// Messages that wait between a thread and the polling loop: memory is bounded by them.
const AHEAD: usize = 2;

/// What is read.
pub(super) enum Filled {
    /// A message with data.
    Data(Vec<u8>),
    /// There is no more.
    End(Whole),
    /// It cannot be read.
    Failed(io::Error),
}

/// A file or pipe that is read ahead.
pub(super) struct Source {
    filled: Receiver<Filled>,
    used: Sender<Vec<u8>>,
}

impl Source {
    pub(super) fn new(mut from: Box<dyn Read + Send>) -> Result<Self, Failure> {
        let (fill, filled) = sync_channel(AHEAD);
        let (used, empty) = channel::<Vec<u8>>();
        let work = move || {
            let (mut hash, mut bytes) = (Sha256::new(), 0);
            loop {
                let mut message = empty.try_recv().unwrap_or_default();
                message.resize(MESSAGE_BYTES, 0);
                message[0] = DATA;
                let next = match from.read(&mut message[1..]) {
                    Ok(0) => Filled::End(Whole { bytes, sha256: hash.clone().finalize().into() }),
                    Ok(count) => {
                        message.truncate(1 + count);
                        hash.update(&message[1..]);
                        bytes += count as u64;
                        Filled::Data(message)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Filled::Failed(error),
                };
                let over = !matches!(next, Filled::Data(_));
                // Whoever does not listen any more has failed.
                if fill.send(next).is_err() || over {
                    return;
                }
            }
        };
        thread("that reads the input", work)?;
        Ok(Source { filled, used })
    }

    /// What was read next, if it was.
    pub(super) fn next(&mut self) -> Option<Filled> {
        match self.filled.try_recv() {
            Ok(filled) => Some(filled),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Filled::Failed(io::Error::other("its reader is gone"))),
        }
    }

    /// A message's memory can be used again.
    pub(super) fn used(&mut self, message: Vec<u8>) {
        let _ = self.used.send(message);
    }
}

/// A file or pipe that is written behind.
pub(super) struct Sink {
    give: Option<SyncSender<Vec<u8>>>,
    written: Receiver<io::Result<Whole>>,
    /// A file that was made for this.
    made: Option<Partial>,
}

impl Sink {
    /// Makes a file, or writes to standard output. `name`: which it is.
    pub(super) fn new(path: Option<&Path>, name: &str) -> Result<Self, Failure> {
        let (made, to): (_, Box<dyn Write + Send>) = match path {
            Some(path) => {
                let failed = |error| Failure::cannot_create("file", Path::new(name), &error);
                let (partial, file) = Partial::create(path).map_err(failed)?;
                (Some(partial), Box::new(file))
            }
            None => (None, Box::new(StandardOutput)),
        };
        let (give, given) = sync_channel(AHEAD);
        let (write, written) = channel();
        // The polling loop may be gone.
        let work = move || drop(write.send(write_all(&given, to)));
        thread("that writes the output", work)?;
        Ok(Sink { give: Some(give), written, made })
    }

    /// Takes a message with data, or gives it back: too many wait.
    pub(super) fn give(&mut self, message: Vec<u8>) -> Result<(), Vec<u8>> {
        let Some(give) = &self.give else { return Err(message) };
        match give.try_send(message) {
            // Why is what it says last.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(message)) => Err(message),
        }
    }

    /// Nothing more will be given.
    pub(super) fn finish(&mut self) {
        self.give = None;
    }

    /// What was written, once all of it is; or why it cannot be.
    pub(super) fn written(&mut self) -> Option<io::Result<Whole>> {
        self.written.try_recv().ok()
    }

    /// All of it is there, and is what was sent.
    ///
    /// # Errors
    /// When the file cannot be given its name.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        self.made.take().map_or(Ok(()), Partial::keep)
    }
}

fn write_all(given: &Receiver<Vec<u8>>, mut to: impl Write) -> io::Result<Whole> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    for message in given {
        to.write_all(&message[1..])?;
        hash.update(&message[1..]);
        bytes += message.len() as u64 - 1;
        // A person may be waiting for it.
        to.flush()?;
    }
    Ok(Whole { bytes, sha256: hash.finalize().into() })
}
