//! The order of a process's lives, where several files have them.
//!
//! The number of a life names it and does not order it: a producer that is not told how often its process lived takes the
//! calendar, which may be set back between two lives. What orders them is the clock of their times, where all of them come
//! from one: it never goes back. Numbers order lives only within one file, where they may not go back, and in files that name
//! no clock: their producer has nothing else to say it with. Lives on different clocks have the order in which somebody who
//! knows gives their files, if nobody knows, none.

use std::collections::BTreeMap;

use crate::cluster::{Clock, Cluster};
use crate::ids::Process;
use crate::records::Given;
use crate::runs::Start;

/// A life of a process, as one file has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lived {
    pub(super) process: Process,
    /// Its number.
    pub(super) incarnation: u64,
    /// The line where it begins in its file.
    pub(super) line: u64,
    /// Time of its first event, ns.
    pub(super) first: u64,
    /// Time of its last event, ns.
    pub(super) last: u64,
    /// When its process began to record, ns: the file says so.
    pub(super) began: Option<u64>,
    /// Whether it did anything in this file. Otherwise only its crash is here, which another process recorded.
    pub(super) acted: bool,
}

impl Lived {
    fn start(&self) -> u64 {
        self.began.map_or(self.first, |began| began.min(self.first))
    }
}

/// A life and the file that has it.
#[derive(Clone, Copy, Debug)]
struct Placed {
    file: usize,
    lived: Lived,
}

/// Collects the lives of all processes, file by file.
#[derive(Debug, Default)]
pub(super) struct Lives {
    files: Vec<(String, Option<Clock>)>,
    /// By process and number.
    by_process: BTreeMap<Process, BTreeMap<u64, Placed>>,
    recorded: Vec<Process>,
    starts: Vec<Start>,
    /// Whose records end before they did; `None`: that of everybody.
    ended_early: Vec<Option<Process>>,
    by_process_said: bool,
}

impl Lives {
    /// Takes in a file. `author`: whose record it is, and when that began. On an error, another file has one of its lives: the life, and the name of the other file.
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
                // What the process itself says of a life counts, not when somebody else saw its end.
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
        // It may have been killed before it wrote an event.
        if let Some((process, Some(at))) = author
            && lives.iter().all(|lived| lived.process != process)
        {
            self.starts.push(Start { process, number: None, file, clock, at, events: (at, at), acted: true });
        }
    }

    /// The record of a process ends before it did, or that of the whole run.
    pub(super) fn end_early(&mut self, process: Option<Process>) {
        self.ended_early.push(process);
    }

    /// The orders of lives that are not those of their numbers, and who has a record. `in_order`: the files of a process were added in the order of its lives.
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

    /// Sorts the lives of one process as their files were added. Fails if times on one clock say that a life was over before
    /// one that stands before it began.
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

    /// Sorts the lives of one process by what their files say.
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
        // When a life began is known of those that say so; of the others, only that it was before their first event.
        let apart = |one: &Placed, other: &Placed| {
            one.lived.last <= other.lived.first
                || one.lived.began.is_some() && other.lived.began.is_some()
                || one.lived.incarnation <= other.lived.incarnation
        };
        for (at, other) in lives.iter().enumerate() {
            if let Some(one) = lives[..at].iter().find(|one| !apart(one, other)) {
                let (one, other) = (&self.files[one.file].0, &self.files[other.file].0);
                return Err(format!("those in {one} and {other} overlap in time, and their numbers say another order"));
            }
        }
        Ok(())
    }
}
