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

/// The history of a client, which records each message as it is multicast: with its envelope, and those of the session as well. Members
/// record the same bytes when they deliver.
///
/// Invariant: after an error nothing more is multicast. A message without a record would look like one that nobody sent.
#[derive(Clone)]
pub(super) struct Recording {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    /// `None` after an error.
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

    /// Returns what records each message before it is multicast, and before the message what the session has newly heard of. A process
    /// that is killed after that has recorded both.
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

    /// Returns why the history ended, once.
    pub(super) fn take_failure(&self) -> Option<Failure> {
        lock(&self.state).error.take().map(|error| unwritten(&self.path, &error))
    }
}

impl State {
    /// Returns whether it is recorded.
    fn record(&mut self, write: impl FnOnce(&mut Recorder<HistoryFile>) -> io::Result<()>) -> bool {
        let Some(recorder) = &mut self.recorder else { return false };
        let Err(error) = write(recorder) else { return true };
        // If the last word finds no room, either, the history is short without saying so.
        let _ = recorder.give_up(now_ns());
        (self.recorder, self.error) = (None, Some(error));
        false
    }
}
