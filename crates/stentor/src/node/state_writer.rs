//! The serialization of a frozen value: a separate thread writes it, and the protocol's or the observers' thread reads
//! it in pieces.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use stentor_multicast::{self as multicast, Readiness};

use super::hooks::Voice;
use crate::state_machine::Frozen;

/// Size of the chunks that the writer hands over, in bytes.
const CHUNK: usize = 64 << 10;
/// Maximum number of chunks that wait for the reader. The writer blocks when it is reached.
const WAITING: usize = 16;

/// An event from the writer to the reader.
enum News {
    Bytes(Vec<u8>),
    /// The end of the bytes, or the error that prevents writing them.
    End(io::Result<()>),
}

/// The reader's end. When it is dropped, the writer fails at its next chunk.
pub(super) struct StateWriter {
    /// The node's name. Failures are logged through `voice`.
    name: String,
    voice: Voice,
    /// The function that writes the value. `None` once a start of the writing thread was attempted.
    write: Option<Box<dyn FnOnce() + Send>>,
    news: Receiver<News>,
    /// The present chunk, and the number of its bytes that were read.
    chunk: (Vec<u8>, usize),
    state: Readiness,
    all: bool,
    hint: Option<u64>,
}

impl StateWriter {
    /// Creates the reader's end. The value is written only after the first call of `readiness`, so that a value that is
    /// too large is never written. `name` and `voice` belong to the node.
    pub(super) fn begin((name, voice): (&str, &Voice), frozen: impl Frozen) -> StateWriter {
        let hint = frozen.bytes_hint();
        let (tell, news) = sync_channel(WAITING);
        let write = move || {
            let mut out = Chunks { tell, chunk: Vec::with_capacity(CHUNK) };
            let written = frozen.write(&mut out).and_then(|()| out.hand_over());
            // The send fails if the reader is dropped. The end is then not needed.
            let _ = out.tell.send(News::End(written));
        };
        StateWriter {
            name: name.to_owned(),
            voice: Arc::clone(voice),
            write: Some(Box::new(write)),
            news,
            chunk: (Vec::new(), 0),
            state: Readiness::Pending,
            all: false,
            hint,
        }
    }

    fn fail(&mut self, error: &io::Error) {
        let text = format!("the state cannot be written, so the member that needs it does not receive it: {error}");
        (self.voice)(log::Level::Error, &text);
        self.state = Readiness::Failed;
    }
}

impl multicast::Frozen for StateWriter {
    fn read(&mut self, out: &mut Vec<u8>, most: usize) {
        let (chunk, read) = &mut self.chunk;
        let left = &chunk[*read..];
        let part = &left[..left.len().min(most)];
        out.extend_from_slice(part);
        *read += part.len();
        if *read == chunk.len() && !self.all {
            self.state = Readiness::Pending;
        }
    }

    fn readiness(&mut self) -> Readiness {
        if let Some(write) = self.write.take()
            && let Err(error) = thread::Builder::new().name(format!("{} state", self.name)).spawn(write)
        {
            self.fail(&error);
        }
        if self.state == Readiness::Pending {
            match self.news.try_recv() {
                Ok(News::Bytes(bytes)) => (self.chunk, self.state) = ((bytes, 0), Readiness::Ready),
                Ok(News::End(Ok(()))) => (self.all, self.state) = (true, Readiness::Ready),
                Ok(News::End(Err(error))) => self.fail(&error),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.fail(&io::Error::other("`write` has panicked")),
            }
        }
        self.state
    }

    fn bytes_hint(&self) -> Option<u64> {
        self.hint
    }
}

/// The writer's end.
struct Chunks {
    tell: SyncSender<News>,
    chunk: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(CHUNK - self.chunk.len())];
        self.chunk.extend_from_slice(part);
        if self.chunk.len() == CHUNK {
            self.hand_over()?;
        }
        Ok(part.len())
    }

    /// Does nothing: a `write` implementation that flushes often would produce many short chunks.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Chunks {
    fn hand_over(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let full = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader of the state is dropped");
        self.tell.send(News::Bytes(full)).map_err(gone)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use stentor_multicast::Frozen as _;

    use super::*;
    use crate::node::journal::logged;

    struct Long(usize, bool);

    impl Frozen for Long {
        fn write(self, out: &mut dyn Write) -> io::Result<()> {
            let bytes: Vec<u8> = (0..self.0).map(|at| at as u8).collect();
            out.write_all(&bytes)?;
            assert!(self.1, "the test requests a panic");
            Ok(())
        }
    }

    /// Reads to the end, or until the writer fails.
    fn read(mut writer: StateWriter) -> Option<Vec<u8>> {
        let (mut bytes, since) = (Vec::new(), Instant::now());
        loop {
            assert!(since.elapsed() < Duration::from_secs(20), "it hangs");
            match writer.readiness() {
                Readiness::Pending => thread::yield_now(),
                Readiness::Failed => return None,
                Readiness::Ready => {
                    let before = bytes.len();
                    writer.read(&mut bytes, 1000);
                    assert!(bytes.len() - before <= 1000);
                    if bytes.len() == before {
                        return Some(bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn all_bytes_arrive_in_order_for_every_length() {
        for length in [0, 1, 999, CHUNK, CHUNK + 1, (WAITING + 3) * CHUNK + 5] {
            let bytes =
                read(StateWriter::begin(("a", &logged("a")), Long(length, true))).expect("the state can be written");
            assert_eq!(bytes.len(), length);
            assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        }
    }

    #[test]
    fn a_state_that_is_refused_for_its_size_is_not_written() {
        struct Huge(SyncSender<()>);
        impl Frozen for Huge {
            fn write(self, _: &mut dyn Write) -> io::Result<()> {
                self.0.send(()).map_err(io::Error::other)
            }

            fn bytes_hint(&self) -> Option<u64> {
                Some(u64::MAX)
            }
        }
        let (tell, told) = sync_channel(1);
        let writer = StateWriter::begin(("a", &logged("a")), Huge(tell));
        assert_eq!(writer.bytes_hint(), Some(u64::MAX));
        drop(writer);
        assert!(told.recv_timeout(Duration::from_secs(20)).is_err(), "it was written");
    }

    #[test]
    fn a_state_that_cannot_be_written_fails() {
        struct Broken;
        impl Frozen for Broken {
            fn write(self, out: &mut dyn Write) -> io::Result<()> {
                out.write_all(&[1; CHUNK])?;
                Err(io::Error::other("no"))
            }
        }
        assert_eq!(read(StateWriter::begin(("a", &logged("a")), Broken)), None);
        assert_eq!(read(StateWriter::begin(("a", &logged("a")), Long(CHUNK, false))), None);
    }

    #[test]
    fn a_writer_ends_when_nobody_reads() {
        let (tell, told) = sync_channel(1);
        struct Endless(SyncSender<io::ErrorKind>);
        impl Frozen for Endless {
            fn write(self, out: &mut dyn Write) -> io::Result<()> {
                loop {
                    if let Err(error) = out.write_all(&[1; CHUNK]) {
                        self.0.send(error.kind()).expect("the test waits");
                        return Err(error);
                    }
                }
            }
        }
        let mut writer = StateWriter::begin(("a", &logged("a")), Endless(tell));
        let _ = writer.readiness();
        drop(writer);
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(io::ErrorKind::BrokenPipe));
    }
}
