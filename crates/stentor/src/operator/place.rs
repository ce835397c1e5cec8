//! The place at which commands of a host find a process on a network fabric.

use std::path::PathBuf;

use stentor_fabric::ProcessId;
use stentor_host::{Source, StandingSeat, StartError as SeatError};

use crate::runtime::{InUse, StartError, patiently, refuse_twin};

/// The parameters of a process's place.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The directory of control sockets.
    pub directory: PathBuf,
    /// The subdirectory of the cluster in that directory.
    pub meeting: String,
    /// The process.
    pub me: ProcessId,
    /// The name of the process.
    pub name: &'a str,
    /// The source of the process's configuration.
    pub source: Option<Source>,
}

impl Place<'_> {
    /// Creates the place. Call this before the process does anything that other processes notice. Reports an obstacle
    /// that is not an error to `say`, and returns `None`: the command `asker` then cannot reach this process.
    ///
    /// # Errors
    /// Returns [`StartError::Fabric`] if another process has the place, or if the same member runs elsewhere on this
    /// host.
    pub fn take(
        &self,
        asker: &str,
        say: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Option<StandingSeat>, StartError> {
        let Place { directory, meeting, me, name, source } = self;
        source.as_ref().map_or(Ok(()), |source| refuse_twin(source, name, *me, &say))?;
        let take = || StandingSeat::take(directory.clone(), meeting, *me, name, source.clone(), say.clone());
        match patiently(take, InUse::in_use, &say) {
            Ok(place) => Ok(Some(place)),
            Err(error @ (SeatError::AlreadyRunning { .. } | SeatError::ForeignLock { .. })) => Err(error.into()),
            Err(error) => {
                say(&format!("`{asker}` cannot ask this process: {error}"));
                Ok(None)
            }
        }
    }
}
