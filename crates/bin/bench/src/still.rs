//! Progress messages while a bench runs.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stentor_support::Output;

/// Time before the first message. The pause doubles with each message.
const FIRST: Duration = Duration::from_secs(2);

/// A thread that reports on standard error that a bench is running, until this value is dropped.
pub(super) struct Still(Option<(Sender<()>, JoinHandle<()>)>);

impl Still {
    /// Starts the thread that reports. If it cannot be started, there are no reports.
    pub(super) fn begin(output: Output) -> Self {
        let (sender, ended) = channel::<()>();
        let thread = std::thread::Builder::new().name("still".to_owned()).spawn(move || {
            let (since, mut pause) = (Instant::now(), FIRST);
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let seconds = since.elapsed().as_secs();
                output.note(&format!(
                    "waiting for the processes of the bench; {seconds} s so far, all rows come at the end"
                ));
                pause *= 2;
            }
        });
        Still(thread.ok().map(|thread| (sender, thread)))
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}
