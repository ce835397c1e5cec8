//! Where a process on a network is found by commands of its host.

use std::path::PathBuf;

use stentor_fabric::ProcessId;
use stentor_host::{Source, StandingSeat, StartError as SeatError};

use crate::runtime::{InUse, StartError, patiently, refuse_twin};

/// What a process's place is made of.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The directory of control sockets.
    pub directory: PathBuf,
    /// The directory in it.
    pub meeting: String,
    /// The process.
    pub me: ProcessId,
    /// Its name.
    pub name: &'a str,
    /// What it was started from.
    pub source: Option<Source>,
}

impl Place<'_> {
    /// Takes the place, before the process does anything that others notice. Whatever is in the way, other than another process in the
    /// place, goes to `say`: `asker` cannot ask the process then, and the result is `None`.
    ///
    /// # Errors
    /// [`StartError::Fabric`] if there is another process in the place, or one of the same member elsewhere on this host.
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
