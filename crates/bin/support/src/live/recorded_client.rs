//! A client that records the messages that it multicasts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor::runtime::{
    Client, ClusterRuntime, FabricDiagnostics, GroupId, Housekeeper, MessageId, Recorder, SubmitError, WaitMode,
    client_round, now_ns,
};
use stentor_fabric::Backoff;

use super::{HistoryFile, Joined};
use crate::Failure;

/// A client with its history, driven by a polling loop.
pub struct RecordedClient<F: FabricDiagnostics> {
    /// The client.
    pub client: Client<F>,
    /// The history of the client.
    pub recorder: Recorder<HistoryFile>,
    path: PathBuf,
    backoff: Backoff,
    housekeeper: Housekeeper,
    /// Place that error messages name.
    place: &'static str,
}

impl<F: FabricDiagnostics> RecordedClient<F> {
    /// Begins the history of a client that has joined.
    ///
    /// # Errors
    /// Returns an error if the history cannot be written.
    pub fn new(
        plan: &ClusterRuntime,
        joined: Joined<F>,
        path: &Path,
        wait: WaitMode,
        place: &'static str,
    ) -> Result<Self, Failure> {
        let recorder = HistoryFile::record(plan, plan.topology().client_process(joined.id), path)?;
        let (backoff, housekeeper) = (Backoff::new(wait), Housekeeper::default());
        Ok(RecordedClient { client: joined.client, recorder, path: path.to_owned(), backoff, housekeeper, place })
    }

    /// Multicasts a message, and records it unless it is `recorded` already. Returns `None` if the window is full or a
    /// group is not connected.
    ///
    /// # Errors
    /// Returns an error if the message is refused or the history cannot be written.
    pub fn submit(
        &mut self,
        to: &[GroupId],
        payload: &[u8],
        notify: bool,
        recorded: bool,
    ) -> Result<Option<MessageId>, Failure> {
        // The time must precede the first write of the message.
        let t = now_ns();
        let id = match self.client.submit(to, payload, notify) {
            Ok(submitted) => submitted.id,
            Err(SubmitError::Busy { .. } | SubmitError::NotConnected { .. }) => return Ok(None),
            Err(error) => return Err(Failure::run(error, self.place, "report this as a bug")),
        };
        let operations = self.client.take_operations();
        let written = if recorded { Ok(()) } else { self.recorder.multicast(t, id, to, payload) };
        let written = written.and_then(|()| self.recorder.operations(now_ns(), &operations));
        written.map(|()| Some(id)).map_err(|error| self.unwritten(&error))
    }

    /// Handles connection events if they are due. Sleeps for at most `longest` if there is nothing to do.
    ///
    /// # Errors
    /// Returns an error if the process cannot sleep on its fabric.
    pub fn rest(&mut self, mut worked: bool, longest: Duration) -> Result<(), Failure> {
        if self.housekeeper.is_due(worked) {
            worked |= self.client.housekeep();
            self.client.tick(self.housekeeper.now());
        }
        let slept = self.backoff.pause(self.client.fabric_mut(), worked, longest);
        self.housekeeper.note_sleep(slept.map_err(|error| self.unwaited(error))?);
        Ok(())
    }

    /// Runs one round of the usual polling loop. Returns whether the round did any work.
    ///
    /// # Errors
    /// Returns an error if the process cannot sleep on its fabric.
    pub fn round(&mut self, submitted: bool) -> Result<bool, Failure> {
        client_round(&mut self.client, &mut self.backoff, &mut self.housekeeper, submitted)
            .map_err(|error| self.unwaited(error))
    }

    fn unwaited(&self, error: impl std::fmt::Display) -> Failure {
        Failure::run(error, self.place, "`stentor doctor` says what this machine can do")
    }

    /// Writes all buffered events of the history.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.recorder.flush().map_err(|error| self.unwritten(&error))
    }

    /// Returns the failure for an error of the history.
    pub fn unwritten(&self, error: &std::io::Error) -> Failure {
        Failure::cannot_write(&self.path, error)
    }
}
