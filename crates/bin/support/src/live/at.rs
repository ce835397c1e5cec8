//! Where a process on a network is found by commands of its host.

use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_host::{Source, StandingSeat, StartError};

use super::{patiently, refuse_twin, unstarted};
use crate::{Failure, Level, Output};

/// What a process's place is made of.
pub struct At<'a> {
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
    /// The configuration's file, for errors.
    pub config: &'a Path,
}

impl At<'_> {
    /// Takes the place, before the process does anything that others notice. Another process in it is an error; whatever else
    /// is in the way goes to the log, and `asker` cannot ask.
    pub fn take(&self, asker: &str, output: Output) -> Result<Option<StandingSeat>, Failure> {
        let At { directory, meeting, me, name, source, config } = self;
        let process = (*name).to_owned();
        let say = move |text: &str| output.log(Level::Warn, &process, text);
        source.as_ref().map_or(Ok(()), |source| refuse_twin(source, name, *me, &say))?;
        let take = || StandingSeat::take(directory.clone(), meeting, *me, name, source.clone(), say.clone());
        match patiently(take, &say) {
            Ok(place) => Ok(Some(place)),
            Err(error @ (StartError::AlreadyRunning { .. } | StartError::ForeignLock { .. })) => {
                Err(unstarted(error.into(), config))
            }
            Err(error) => {
                say(&format!("`{asker}` cannot ask this process: {error}"));
                Ok(None)
            }
        }
    }
}
