//! Writes a history file during a run.

use std::io::{self, Write};

use super::Encoder;
use super::encoder::cluster_line;
use crate::cluster::Cluster;
use crate::event::Event;
use crate::ids::Process;

/// Number of bytes that are buffered before they are written to the output.
const BATCH_BYTES: usize = 64 << 10;

/// The process whose record a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Author {
    /// The process that writes the file.
    pub process: Process,
    /// Time at which the process began to record, in nanoseconds on the clock of the file. It is not later than the
    /// first event.
    pub began: u64,
}

/// A writer of a history. It buffers lines and writes only whole lines, 64 KiB at a time. An output that is closed
/// during a run therefore contains no partial line, unless a write failed or was interrupted.
#[derive(Debug)]
pub struct HistoryWriter<W: Write> {
    output: W,
    encoder: Encoder,
    buffer: Vec<u8>,
}

impl<W: Write> HistoryWriter<W> {
    /// Writes the line of the cluster. Intern all labels first.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn new(output: W, cluster: &Cluster) -> io::Result<Self> {
        Self::begin(output, cluster, None)
    }

    /// Writes the line of the cluster for the record of one process, in a run in which every process has its own files.
    /// The line names the process and the time at which this life began, even if the life has no event.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn of(output: W, cluster: &Cluster, author: Author) -> io::Result<Self> {
        Self::begin(output, cluster, Some(&author))
    }

    fn begin(mut output: W, cluster: &Cluster, author: Option<&Author>) -> io::Result<Self> {
        output.write_all(&cluster_line(cluster, author))?;
        let buffer = Vec::with_capacity(BATCH_BYTES + (8 << 10));
        Ok(HistoryWriter { output, encoder: Encoder::new(cluster), buffer })
    }

    /// Adds an event. It is written to the output by a later [`flush`](HistoryWriter::flush), or with a full buffer.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.encoder.encode(event, &mut self.buffer);
        if self.buffer.len() >= BATCH_BYTES { self.hand_over() } else { Ok(()) }
    }

    /// Ends a record that can no longer be written, with the event `unrecorded`. Buffered lines are dropped.
    ///
    /// # Errors
    /// Returns the error of the output. The record then ends without the event.
    pub fn give_up(&mut self, unrecorded: &Event) -> io::Result<()> {
        self.buffer.clear();
        self.encoder.encode(unrecorded, &mut self.buffer);
        self.flush()
    }

    /// Adds the event `complete`. It asserts that the whole run had come to rest: messages not delivered by now never
    /// will be.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn complete(&mut self) -> io::Result<()> {
        self.buffer.extend_from_slice(b"{\"e\":\"complete\"}\n");
        self.flush()
    }

    /// Writes all buffered lines to the output and flushes it.
    ///
    /// # Errors
    /// Returns the error of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.output.flush()
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let written = self.output.write_all(&self.buffer);
        // After an error, the lines are dropped, because the number of bytes written is unknown.
        self.buffer.clear();
        written
    }
}

impl<W: Write> Drop for HistoryWriter<W> {
    fn drop(&mut self) {
        // Errors cannot be reported here. Callers that need them call `flush` first.
        let _ = self.flush();
    }
}
