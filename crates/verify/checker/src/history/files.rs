//! Checks history files: one file, or several files of the same run.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::lives::Lives;
use super::{Fault, HistoryError, Reader};
use crate::checker::Checker;
use crate::report::Report;

/// Facts about a run that its histories do not record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told<'a> {
    /// `true` if the run had come to rest, as a `complete` event states.
    pub complete: bool,
    /// Names of the Byzantine processes. They count as `faulty`, whatever the cluster lines contain.
    pub faulty: &'a [String],
    /// `true` if files with several lives of one process are passed in the order of those lives. If times on one clock
    /// show that a life had ended before a life of an earlier file began, no property is judged.
    pub lives_in_order: bool,
}

/// Checks the histories in these files together. The files are of one run. They may be in any order, and each may have
/// the events of any processes. A property that needs a missing file is `Incomplete`. With `complete`, the caller
/// asserts that the run had come to rest, as a `complete` event does.
///
/// # Errors
/// Returns a [`HistoryError`] if no file is given, or if a file cannot be read, is no valid history, is of another
/// cluster, or has a life of a process that another file has, too.
pub fn check_files<P: AsRef<Path>>(paths: &[P], complete: bool) -> Result<Report, HistoryError> {
    let open = |path: &P| {
        let file = path.as_ref().display().to_string();
        match File::open(path) {
            Ok(input) => Ok((file, BufReader::with_capacity(1 << 18, input))),
            Err(error) => Err(HistoryError { file, line: 0, fault: Fault::Io(error) }),
        }
    };
    check_all(paths.iter().map(open), Told { complete, ..Told::default() })
}

/// Checks histories like [`check_files`], from inputs that are open already, each with its name.
///
/// # Errors
/// Returns a [`HistoryError`] in the same cases as [`check_files`].
pub fn check_inputs<R: BufRead>(
    inputs: impl IntoIterator<Item = (String, R)>,
    complete: bool,
) -> Result<Report, HistoryError> {
    check_inputs_told(inputs, Told { complete, ..Told::default() })
}

/// Checks histories like [`check_inputs`], with facts that the histories do not record.
///
/// # Errors
/// As for [`check_inputs`]. Returns a [`HistoryError`] as well if one of [`Told::faulty`] is not a process.
pub fn check_inputs_told<R: BufRead>(
    inputs: impl IntoIterator<Item = (String, R)>,
    told: Told<'_>,
) -> Result<Report, HistoryError> {
    check_all(inputs.into_iter().map(Ok), told)
}

fn check_all<R: BufRead>(
    inputs: impl Iterator<Item = Result<(String, R), HistoryError>>,
    told: Told<'_>,
) -> Result<Report, HistoryError> {
    let mut first: Option<(String, Checker)> = None;
    let mut complete = told.complete;
    let (mut lives, mut cut_off) = (Lives::default(), Vec::new());
    for input in inputs {
        let (file, input) = input?;
        let (reader, cluster) = Reader::open(file.clone(), input)?;
        // A cut-off last line means that the producer was killed, or that its disk was full. The lines before it are
        // valid.
        let mut reader = reader.tolerate_cut_off_line();
        let (first_file, checker) = first.get_or_insert_with(|| (file.clone(), Checker::new(cluster.clone())));
        if let Some(field) = checker.cluster().difference(&cluster) {
            return Err(reader.error(Fault::ClusterDiffers { field, other: first_file.clone() }));
        }
        checker.cluster_mut().meet_clock(cluster.clock());
        checker.begin_source(file);
        while let Some(event) = reader.next_event(checker.cluster_mut())? {
            checker.event_at(&event, reader.line());
        }
        let author = reader.author().and_then(|name| checker.cluster_mut().process_or_client(name));
        let told = author.map(|author| (author, reader.began()));
        let added = lives.add(reader.file(), cluster.clock(), told, reader.lives());
        if let Err((lived, other)) = added {
            let process = checker.cluster().process_name(lived.process).to_owned();
            let fault = Fault::SameLife { process, incarnation: lived.incarnation, other };
            return Err(HistoryError { file: reader.file().to_owned(), line: lived.line, fault });
        }
        if reader.was_cut_off() {
            cut_off.push(reader.file().to_owned());
            lives.end_early(author);
        }
        reader.unrecorded().iter().for_each(|process| lives.end_early(Some(*process)));
        complete |= reader.is_complete();
    }
    let Some((file, mut checker)) = first else {
        return Err(HistoryError { file: "(no history)".to_owned(), line: 0, fault: Fault::NothingGiven });
    };
    if let Some(unknown) = told.faulty.iter().find(|name| !checker.cluster_mut().add_faulty(name)) {
        return Err(HistoryError { file, line: 1, fault: Fault::UnknownProcess(unknown.clone()) });
    }
    let given = lives.given(checker.cluster(), told.lives_in_order);
    Ok(Report { cut_off, ..checker.with_given(given).finish(complete) })
}
