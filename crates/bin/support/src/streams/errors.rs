//! Writing standard error, without waiting for its reader.
//!
//! A thread writes what is queued. The queue is bounded: what finds no room is dropped and counted, and the count is written
//! where the lines would have stood.

use std::collections::VecDeque;
use std::io::stderr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fd::AsFd;

use super::output::write_to;
use crate::live::lock;

/// Bytes that wait for the reader, at most.
const MOST_BYTES: usize = 256 << 10;
/// How long a process that ends waits for a reader that takes nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// What waits to be written.
#[derive(Debug, Default)]
struct Queue {
    texts: VecDeque<String>,
    bytes: usize,
    /// Lines that found no room since the last that did.
    lost: u64,
    /// The thread is at a text that is not in the queue any more.
    writing: bool,
    /// Texts that were written, or given up.
    done: u64,
}

impl Queue {
    /// Takes lines, or counts them as lost.
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

/// The queue and its thread.
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

    /// Writes until this process ends.
    fn serve(&self, stream: impl AsFd) {
        let mut queue = self.queue();
        loop {
            let Some(text) = queue.next() else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.writing = true;
            drop(queue);
            // Whoever is gone, or has no room on the disk, does not get it.
            let _ = write_to(&stream, text.as_bytes(), &|| false);
            queue = self.queue();
            queue.writing = false;
            queue.done += 1;
            self.changed.notify_all();
        }
    }

    /// Waits until everything is written, or nothing was for a while. Whether everything is.
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

/// That of this process; `None` where the system refused a thread.
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

/// Writes lines to standard error, soon. Never waits for a reader.
pub fn complain(text: String) {
    match errors() {
        Some(errors) => errors.push(text),
        None => {
            let _ = write_to(stderr(), text.as_bytes(), &|| true);
        }
    }
}

/// Waits until standard error has what was written, but not long for a reader that takes nothing.
pub fn flush_errors(patience: Duration) {
    if let Some(errors) = errors() {
        errors.flush(patience);
    }
}

/// The same before this process ends.
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
    fn lines_that_find_no_room_are_counted_where_they_would_stand() {
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
    fn reader_that_reads_nothing_keeps_nobody_waiting() {
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
        // Now somebody reads. Every line comes, or is counted where it would stand.
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

    /// Counts the lines that came, and those of which a line says that they were lost.
    fn accounted_for(text: &str) -> usize {
        let whole = text.lines().filter(|said| said.len() == 1023).count();
        let lost = text.lines().filter_map(|said| said.strip_suffix(" lost here: nobody read standard error"));
        let counts = lost.filter_map(|said| said.strip_prefix("stentor: ")?.split(' ').next());
        whole + counts.map(|count| count.parse::<usize>().unwrap()).sum::<usize>()
    }
}
