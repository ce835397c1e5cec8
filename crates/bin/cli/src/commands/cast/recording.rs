//! The history of a cast.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use stentor::SeesMulticast;
use stentor::runtime::{ClusterRuntime, GroupId, MessageId, Recorder, life_now, now_ns};
use stentor_fabric::ProcessId;
use stentor_multicast::RemoteOp;
use stentor_support::Failure;
use stentor_support::live::{HistoryFile, lock, unwritten};

/// The history of a client. It records each message, including those of the session, with its envelope when it is
/// multicast. Members record the same bytes when they deliver.
///
/// Invariant: nothing is multicast after an error. A message without a record would look like one without a sender.
#[derive(Clone)]
pub(super) struct Recording {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    /// The recorder, or `None` after an error.
    recorder: Option<Recorder<HistoryFile>>,
    /// The error, until it is taken.
    error: Option<io::Error>,
}

impl Recording {
    pub(super) fn begin(plan: &ClusterRuntime, me: ProcessId, path: &Path) -> Result<Self, Failure> {
        let recorder = HistoryFile::record(plan, me, path)?.in_life(life_now());
        let state = State { recorder: Some(recorder), error: None };
        Ok(Recording { path: path.to_owned(), state: Arc::new(Mutex::new(state)) })
    }

    /// Returns a hook that the client calls before each multicast. The hook records first the latest order time that
    /// the session has learned, if it is new, and then the message. So both are in the history even if the process is
    /// killed right after the multicast.
    pub(super) fn of_multicasts(&self) -> SeesMulticast {
        let state = Arc::clone(&self.state);
        let mut recorded = 0;
        Box::new(move |id: MessageId, to: &[GroupId], payload: &[u8], not_before: u64| {
            lock(&state).record(|recorder| {
                if not_before > recorded {
                    recorder.heard(now_ns(), not_before)?;
                    recorded = not_before;
                }
                recorder.multicast(now_ns(), id, to, payload)?;
                recorder.flush()
            })
        })
    }

    pub(super) fn operations(&self, operations: &[RemoteOp]) {
        lock(&self.state).record(|recorder| recorder.operations(now_ns(), operations));
    }

    pub(super) fn flush(&self) {
        lock(&self.state).record(Recorder::flush);
    }

    /// Returns the failure that ended the history. Returns it only once.
    pub(super) fn take_failure(&self) -> Option<Failure> {
        lock(&self.state).error.take().map(|error| unwritten(&self.path, &error))
    }
}

impl State {
    /// Writes an event to the history with `write`. Returns whether the event was recorded.
    fn record(&mut self, write: impl FnOnce(&mut Recorder<HistoryFile>) -> io::Result<()>) -> bool {
        let Some(recorder) = &mut self.recorder else { return false };
        let Err(error) = write(recorder) else { return true };
        // If the final event finds no room either, the history ends without it.
        let _ = recorder.give_up(now_ns());
        (self.recorder, self.error) = (None, Some(error));
        false
    }
}
