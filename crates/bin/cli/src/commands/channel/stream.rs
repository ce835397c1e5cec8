//! Reading and writing files in threads. While a pipe blocks them, packets are still received from the network.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};

use sha2::{Digest, Sha256};
use stentor_support::Failure;
use stentor_support::live::thread;
use stentor_support::streams::{Partial, StandardOutput};

use super::words::{DATA, MESSAGE_BYTES, Whole};

/// Maximum number of messages that wait between a thread and the polling loop. It bounds the memory.
const AHEAD: usize = 2;

/// Result of a read.
pub(super) enum Filled {
    /// A message with data.
    Data(Vec<u8>),
    /// The end of the input.
    End(Whole),
    /// An error of the input.
    Failed(io::Error),
}

/// A file or pipe that a thread reads ahead.
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
                // If the send fails, the receiver was dropped, because the transfer has failed.
                if fill.send(next).is_err() || over {
                    return;
                }
            }
        };
        thread("that reads the input", work)?;
        Ok(Source { filled, used })
    }

    /// Returns the next result, if there is one.
    pub(super) fn next(&mut self) -> Option<Filled> {
        match self.filled.try_recv() {
            Ok(filled) => Some(filled),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Filled::Failed(io::Error::other("its thread has ended"))),
        }
    }

    /// Returns the memory of a message for reuse.
    pub(super) fn used(&mut self, message: Vec<u8>) {
        let _ = self.used.send(message);
    }
}

/// A file or pipe that a thread writes, from a short queue of messages.
pub(super) struct Sink {
    give: Option<SyncSender<Vec<u8>>>,
    written: Receiver<io::Result<Whole>>,
    /// A file that was created for this transfer.
    made: Option<Partial>,
}

impl Sink {
    /// Creates a file, or uses standard output. `name` describes it in errors.
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
        // The send fails if the polling loop has ended.
        let work = move || drop(write.send(write_all(&given, to)));
        thread("that writes the output", work)?;
        Ok(Sink { give: Some(give), written, made })
    }

    /// Queues a message with data, or returns it if too many are queued.
    pub(super) fn give(&mut self, message: Vec<u8>) -> Result<(), Vec<u8>> {
        let Some(give) = &self.give else { return Err(message) };
        match give.try_send(message) {
            // If the thread has ended, its result contains the reason.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(message)) => Err(message),
        }
    }

    /// Ends the output.
    pub(super) fn finish(&mut self) {
        self.give = None;
    }

    /// Returns the size and hash of what was written, once all of it is written, or an error.
    pub(super) fn written(&mut self) -> Option<io::Result<Whole>> {
        self.written.try_recv().ok()
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// Returns an error if the file cannot be renamed.
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
        // A reader of the output may be waiting for the data.
        to.flush()?;
    }
    Ok(Whole { bytes, sha256: hash.finalize().into() })
}
