//! Writes standard error without blocking the caller on its reader.
//!
//! A thread writes the queued texts. The queue is bounded: lines that do not fit are dropped and counted, and the count
//! is written in their place.

use std::collections::VecDeque;
use std::io::stderr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fd::AsFd;

use super::output::write_to;
use crate::live::lock;

/// Capacity of the queue, in bytes.
const MOST_BYTES: usize = 256 << 10;
/// Longest time for which an ending process waits while the reader makes no progress.
const PATIENCE: Duration = Duration::from_secs(2);

/// Texts that wait to be written.
#[derive(Debug, Default)]
struct Queue {
    texts: VecDeque<String>,
    bytes: usize,
    /// Lines that were dropped since the last text that fitted.
    lost: u64,
    /// `true` while the thread writes a text that it has removed from the queue.
    writing: bool,
    /// Number of texts that were written, or dropped because they could not be written.
    done: u64,
}

impl Queue {
    /// Queues lines, or counts them as lost if they do not fit.
    fn push(&mut self, text: String) {
        if self.bytes + text.len() > MOST_BYTES {
            self.lost += text.lines().count() as u64;
            return;
        }
        self.tell_lost();
        self.add(text);
    }

    fn add(&mut self, text: String) {
        self.bytes += text.len();
        self.texts.push_back(text);
    }

    fn tell_lost(&mut self) {
        if self.lost > 0 {
            let lines = if self.lost == 1 { "line was" } else { "lines were" };
            self.add(format!("stentor: {} {lines} lost here: nobody read standard error\n", self.lost));
            self.lost = 0;
        }
    }

    fn next(&mut self) -> Option<String> {
        if self.texts.is_empty() {
            self.tell_lost();
        }
        let text = self.texts.pop_front()?;
        self.bytes -= text.len();
        Some(text)
    }

    fn is_idle(&self) -> bool {
        self.texts.is_empty() && self.lost == 0 && !self.writing
    }
}

/// The queue and the condition variable of its thread.
#[derive(Debug, Default)]
struct Errors {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Errors {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn push(&self, text: String) {
        self.queue().push(text);
        self.changed.notify_all();
    }

    /// Writes queued texts until this process ends.
    fn serve(&self, stream: impl AsFd) {
        let mut queue = self.queue();
        loop {
            let Some(text) = queue.next() else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.writing = true;
            drop(queue);
            // The text is lost if the reader has closed the stream or the disk is full.
            let _ = write_to(&stream, text.as_bytes(), &|| false);
            queue = self.queue();
            queue.writing = false;
            queue.done += 1;
            self.changed.notify_all();
        }
    }

    /// Waits until all texts are written, or until no text was written for `patience`. Returns whether all were
    /// written.
    fn flush(&self, patience: Duration) -> bool {
        let mut queue = self.queue();
        let (mut done, mut since) = (queue.done, Instant::now());
        while !queue.is_idle() {
            if queue.done != done {
                (done, since) = (queue.done, Instant::now());
            }
            let Some(left) = patience.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) else { return false };
            queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Returns the queue of this process, or `None` if the system refused a thread.
fn errors() -> Option<&'static Arc<Errors>> {
    static ERRORS: OnceLock<Option<Arc<Errors>>> = OnceLock::new();
    let start = || {
        let errors = Arc::new(Errors::default());
        let served = Arc::clone(&errors);
        let thread = std::thread::Builder::new().name("errors".to_owned());
        thread.spawn(move || served.serve(stderr())).ok().map(|_| errors)
    };
    ERRORS.get_or_init(start).as_ref()
}

/// Queues lines for standard error. Never blocks on a reader.
pub fn complain(text: String) {
    match errors() {
        Some(errors) => errors.push(text),
        None => {
            let _ = write_to(stderr(), text.as_bytes(), &|| true);
        }
    }
}

/// Waits until the queued lines are written. Gives up if the reader makes no progress for `patience`.
pub fn flush_errors(patience: Duration) {
    if let Some(errors) = errors() {
        errors.flush(patience);
    }
}

/// Writes the queued lines before this process ends.
pub fn finish() {
    flush_errors(PATIENCE);
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::sync::mpsc;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn dropped_lines_are_counted_in_their_place() {
        let mut queue = Queue::default();
        let line = format!("{}\n", "x".repeat(1023));
        for _ in 0..MOST_BYTES / 1024 + 3 {
            queue.push(line.clone());
        }
        assert_eq!(queue.lost, 3);
        queue.next().unwrap();
        queue.next().unwrap();
        queue.push("later\n".to_owned());
        let rest: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        let [.., lost, later] = rest.as_slice() else { panic!("{rest:?}") };
        assert_eq!(lost, "stentor: 3 lines were lost here: nobody read standard error\n");
        assert_eq!(later, "later\n");
        assert!(queue.is_idle());
    }

    #[test]
    fn stalled_reader_blocks_no_writer() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let errors = Arc::new(Errors::default());
        let served = Arc::clone(&errors);
        std::thread::spawn(move || served.serve(writer));
        let line = format!("{}\n", "x".repeat(1023));
        let since = Instant::now();
        for _ in 0..1000 {
            errors.push(line.clone());
        }
        assert!(!errors.flush(Duration::from_millis(50)));
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        // From here, a thread reads the pipe. Each line either arrives or is counted in a report of lost lines.
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut reader, mut text) = (File::from(reader), String::new());
            let mut bytes = [0; 4096];
            while accounted_for(&text) < 1000 {
                let count = reader.read(&mut bytes).unwrap();
                text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
            }
            tell.send(text).unwrap();
        });
        assert!(errors.flush(Duration::from_secs(20)));
        let text = told.recv_timeout(Duration::from_secs(20)).expect("all lines are accounted for");
        assert_eq!(accounted_for(&text), 1000);
        assert!(text.contains("lost here"), "a thousand lines do not fit");
    }

    /// Counts the lines that arrived and those that are reported as lost.
    fn accounted_for(text: &str) -> usize {
        let whole = text.lines().filter(|said| said.len() == 1023).count();
        let lost = text.lines().filter_map(|said| said.strip_suffix(" lost here: nobody read standard error"));
        let counts = lost.filter_map(|said| said.strip_prefix("stentor: ")?.split(' ').next());
        whole + counts.map(|count| count.parse::<usize>().unwrap()).sum::<usize>()
    }
}
