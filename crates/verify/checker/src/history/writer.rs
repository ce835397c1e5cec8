//! Writes a history while the run goes on.

use std::io::{self, Write};

use super::Encoder;
use super::encoder::cluster_line;
use crate::cluster::Cluster;
use crate::event::Event;
use crate::ids::Process;

/// Bytes that are collected before they are handed to the output.
const BATCH_BYTES: usize = 64 << 10;

/// Whose record a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Author {
    /// The process that writes it.
    pub process: Process,
    /// When it began, ns of the clock of its times: not later than its first event.
    pub began: u64,
}

/// Writes a history. Lines are collected and handed over whole, 64 KiB at a time: an output that is closed in the
/// middle of a run holds no half line, unless a single hand-over was interrupted.
#[derive(Debug)]
pub struct HistoryWriter<W: Write> {
    output: W,
    encoder: Encoder,
    buffer: Vec<u8>,
}

impl<W: Write> HistoryWriter<W> {
    /// Begins a history with the line of the cluster. Intern all labels first.
    ///
    /// # Errors
    /// What the output says.
    pub fn new(output: W, cluster: &Cluster) -> io::Result<Self> {
        Self::begin(output, cluster, None)
    }

    /// The same for the record of one process: what others did has files of their own. So a reader knows whose record it has,
    /// and when this life of the process began, also if nothing happens in it.
    ///
    /// # Errors
    /// What the output says.
    pub fn of(output: W, cluster: &Cluster, author: Author) -> io::Result<Self> {
        Self::begin(output, cluster, Some(&author))
    }

    fn begin(mut output: W, cluster: &Cluster, author: Option<&Author>) -> io::Result<Self> {
        output.write_all(&cluster_line(cluster, author))?;
        let buffer = Vec::with_capacity(BATCH_BYTES + (8 << 10));
        Ok(HistoryWriter { output, encoder: Encoder::new(cluster), buffer })
    }

    /// Adds an event. It reaches the output with a later [`flush`](HistoryWriter::flush), or with a full batch.
    ///
    /// # Errors
    /// What the output says.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.encoder.encode(event, &mut self.buffer);
        if self.buffer.len() >= BATCH_BYTES { self.hand_over() } else { Ok(()) }
    }

    /// Ends a record that cannot be written any more, with the event that says so: `unrecorded`. Lines that were not handed
    /// over are given up.
    ///
    /// # Errors
    /// What the output says: then the record ends without.
    pub fn give_up(&mut self, unrecorded: &Event) -> io::Result<()> {
        self.buffer.clear();
        self.encoder.encode(unrecorded, &mut self.buffer);
        self.flush()
    }

    /// Adds the event that vouches that the whole run had come to rest: what was not delivered by now never will be.
    ///
    /// # Errors
    /// What the output says.
    pub fn complete(&mut self) -> io::Result<()> {
        self.buffer.extend_from_slice(b"{\"e\":\"complete\"}\n");
        self.flush()
    }

    /// Hands everything over.
    ///
    /// # Errors
    /// What the output says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.output.flush()
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let written = self.output.write_all(&self.buffer);
        // After an error the lines are given up: what was written of them is not known.
        self.buffer.clear();
        written
    }
}

impl<W: Write> Drop for HistoryWriter<W> {
    fn drop(&mut self) {
        // An error has nowhere to go here; who wants to know calls `flush` first.
        let _ = self.flush();
    }
}
