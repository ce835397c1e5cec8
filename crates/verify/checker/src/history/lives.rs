//! Determines the order of a process's lives if they are in several files.
//!
//! The number of a life names it, but does not order it: producers without a persistent counter use the calendar time,
//! which may be set back between two lives. If the caller states that the files are in order, lives have the order of
//! the files. Otherwise, if all lives are on one clock, their times order them, because that clock never decreases.
//! Numbers order lives only within one file, where they may not decrease, and in files without a clock, which have no
//! other information about the order. Without the caller's statement, lives on different clocks have no order.

use std::collections::BTreeMap;

use crate::cluster::{Clock, Cluster};
use crate::ids::Process;
use crate::records::Given;
use crate::runs::Start;

/// A life of a process, as recorded in one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lived {
    pub(super) process: Process,
    /// The number of the life.
    pub(super) incarnation: u64,
    /// The line in which the life begins in its file.
    pub(super) line: u64,
    /// Time of the first event, in nanoseconds.
    pub(super) first: u64,
    /// Time of the last event, in nanoseconds.
    pub(super) last: u64,
    /// Time at which the process began to record, in nanoseconds, if the file contains it.
    pub(super) began: Option<u64>,
    /// `true` if the life has events in this file other than its crash, which another process may have recorded.
    pub(super) acted: bool,
}

impl Lived {
    fn start(&self) -> u64 {
        self.began.map_or(self.first, |began| began.min(self.first))
    }
}

/// A life with the index of the file that contains it.
#[derive(Clone, Copy, Debug)]
struct Placed {
    file: usize,
    lived: Lived,
}

/// Collects the lives of all processes, file by file.
#[derive(Debug, Default)]
pub(super) struct Lives {
    files: Vec<(String, Option<Clock>)>,
    /// Lives by process and number.
    by_process: BTreeMap<Process, BTreeMap<u64, Placed>>,
    recorded: Vec<Process>,
    starts: Vec<Start>,
    /// Processes whose records end before their lives did. `None` represents all processes.
    ended_early: Vec<Option<Process>>,
    by_process_said: bool,
}

impl Lives {
    /// Adds a file. `author` is the process that recorded the file, and the time at which that process began to record.
    /// If another file contains one of the lives, returns this life and the name of the other file.
    pub(super) fn add(
        &mut self,
        file: &str,
        clock: Option<&Clock>,
        author: Option<(Process, Option<u64>)>,
        lives: &[Lived],
    ) -> Result<(), (Lived, String)> {
        let place = self.files.len();
        self.files.push((file.to_owned(), clock.cloned()));
        self.by_process_said |= author.is_some();
        self.recorded.extend(author.map(|(process, _)| process));
        self.note_starts(clock, author, lives);
        for lived in lives {
            let known = self.by_process.entry(lived.process).or_default();
            let here = Placed { file: place, lived: *lived };
            let other = known.entry(lived.incarnation).or_insert(here);
            if other.file != place && lived.acted {
                if other.lived.acted {
                    return Err((*lived, self.files[other.file].0.clone()));
                }
                // The record of the process itself takes precedence over a crash that another process recorded.
                *other = here;
            }
            if lived.acted {
                self.recorded.push(lived.process);
            }
        }
        Ok(())
    }

    fn note_starts(&mut self, clock: Option<&Clock>, author: Option<(Process, Option<u64>)>, lives: &[Lived]) {
        let (file, clock) = (self.files.len() - 1, clock.cloned());
        let start = |lived: &Lived| Start {
            process: lived.process,
            number: Some(lived.incarnation),
            file,
            clock: clock.clone(),
            at: lived.start(),
            events: (lived.first, lived.last),
            acted: lived.acted,
        };
        self.starts.extend(lives.iter().map(start));
        // The process may have been killed before it wrote an event.
        if let Some((process, Some(at))) = author
            && lives.iter().all(|lived| lived.process != process)
        {
            self.starts.push(Start { process, number: None, file, clock, at, events: (at, at), acted: true });
        }
    }

    /// Notes that the record of a process, or of the whole run, ends before its life did.
    pub(super) fn end_early(&mut self, process: Option<Process>) {
        self.ended_early.push(process);
    }

    /// Returns the orders of lives that differ from the orders of their numbers, and the processes that have records.
    /// `in_order` is `true` if the files of each process were added in the order of its lives.
    pub(super) fn given(self, cluster: &Cluster, in_order: bool) -> Given {
        let mut given = Given {
            recorded: self.recorded.iter().copied().collect(),
            by_process: self.by_process_said,
            ended_early: self.ended_early.iter().copied().collect(),
            starts: self.starts.clone(),
            ..Given::default()
        };
        for (process, lives) in &self.by_process {
            let mut lives: Vec<Placed> = lives.values().copied().collect();
            if lives.iter().all(|placed| placed.file == lives[0].file) {
                continue;
            }
            match if in_order { self.added(&mut lives) } else { self.order(&mut lives) } {
                Ok(()) => {
                    let numbers: Vec<u64> = lives.iter().map(|placed| placed.lived.incarnation).collect();
                    if !numbers.is_sorted() {
                        given.orders.insert(*process, numbers);
                    }
                }
                Err(why) => {
                    given.unordered = Some(format!("`{}` has several lives: {why}", cluster.process_name(*process)));
                    break;
                }
            }
        }
        given
    }

    /// Sorts the lives of one process in the order in which their files were added. Fails if times on one clock show
    /// that a life ended before a preceding one began.
    fn added(&self, lives: &mut [Placed]) -> Result<(), String> {
        lives.sort_by_key(|placed| (placed.file, placed.lived.line));
        for (at, other) in lives.iter().enumerate() {
            let contradicts = |one: &&Placed| {
                let [one_clock, other_clock] = [one, other].map(|placed| self.files[placed.file].1.as_ref());
                one_clock.is_some() && one_clock == other_clock && other.lived.last < one.lived.start()
            };
            if let Some(one) = lives[..at].iter().find(contradicts) {
                let (one, other) = (&self.files[one.file].0, &self.files[other.file].0);
                return Err(format!(
                    "{one} is named before {other}, and by their times the life in {other} was over when that in {one} began"
                ));
            }
        }
        Ok(())
    }

    /// Sorts the lives of one process by the times and numbers in their files.
    fn order(&self, lives: &mut [Placed]) -> Result<(), String> {
        let clock = |placed: &Placed| self.files[placed.file].1.as_ref();
        let first = clock(&lives[0]);
        if let Some(other) = lives.iter().find(|placed| clock(placed) != first) {
            let (one, other) = (&self.files[lives[0].file].0, &self.files[other.file].0);
            return Err(format!(
                "the times of {one} and of {other} come from different clocks, so nothing says which was first: if you know, \
                 name the files in that order, with --lives-in-order"
            ));
        }
        if first.is_none() {
            lives.sort_by_key(|placed| placed.lived.incarnation);
            return Ok(());
        }
        lives.sort_by_key(|placed| (placed.lived.start(), placed.lived.last, placed.lived.incarnation));
        // The time at which a life began is known only if the file contains it. Otherwise it was at some time before
        // the first event.
        let apart = |one: &Placed, other: &Placed| {
            one.lived.last <= other.lived.first
                || one.lived.began.is_some() && other.lived.began.is_some()
                || one.lived.incarnation <= other.lived.incarnation
        };
        for (at, other) in lives.iter().enumerate() {
            if let Some(one) = lives[..at].iter().find(|one| !apart(one, other)) {
                let (one, other) = (&self.files[one.file].0, &self.files[other.file].0);
                return Err(format!(
                    "those in {one} and {other} overlap in time, and their numbers contradict their times"
                ));
            }
        }
        Ok(())
    }
}
