//! Reports that the members of a group exchange about their state machines: the program's version, and a digest of what
//! it has applied.
//!
//! A member sends a *report* to each other member of its group when the two connect and whenever the report has
//! changed, at most 50 times a second. Reports are lost with a connection and sent again on the next one. Reports do
//! not depend on the kind of the group's election.
//!
//! # Conclusions from reports
//! - *Version.* If all members are connected and have reported, the smallest of their versions is the group's version
//!   goal: see `version_entry.rs` of the multicast. If a member is missing, it may return with any program, so the
//!   version is not raised.
//! - *Difference.* Each report contains a mark (`chain.rs`), or the last place if nothing is applied. A receiver that
//!   has kept its values at the same place compares the two. Of two members, the one that is ahead has passed the
//!   other's place. So one of them detects a difference, and both do when nothing is applied for a moment. A member
//!   logs the difference that it detects, and names the other member in its own report.
//! - *Outvoted.* A member is outvoted if a majority of its group reports that it differs from them, and one member of
//!   this majority is not known to differ from any other of them. Its state machine is then poisoned, as after a panic:
//!   the member hands over if it leads, and restores the others' state. If no majority agrees, nobody knows which
//!   member is right, and all continue.
//!
//! # Invariants
//! - Digests are compared between programs of the same version only. Another version may compute another digest, or
//!   none.
//! - A difference ends when both members have the same mark at another place, when their connection ends, or when this
//!   member restores a state. A difference that only the digest has shown ends at a place where digests are compared.
//! - Reports of other members about a place that is not after this member's restored state do not concern its state,
//!   and are ignored.

use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};
use stentor_multicast::{Incarnation, Member};

use super::apply::{Mark, Marks};

/// Interval between checks whether a report must be sent.
const LOOK: Duration = Duration::from_millis(20);

/// A member's report about its state machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Report {
    version: u32,
    mark: Mark,
    /// For each member of the group, the place at which it was found to differ from the reporting member, or 0 if no
    /// difference is known.
    differs: Vec<u64>,
}

impl Report {
    /// Number of words before the words about the members.
    const WORDS: usize = 6;

    fn to_words(&self) -> Vec<u64> {
        let Report { version, mark: Mark { origin, index, chain, digest }, differs } = self;
        let (version, has_digest) = (u64::from(*version), u64::from(digest.is_some()));
        let words = [version, origin.to_word(), *index, *chain, has_digest, digest.unwrap_or(0)];
        [&words[..], differs].concat()
    }

    /// Parses a report. Returns `None` if `words` is not a report of a member of a group with this number of members.
    fn from_words(words: &[u64], members: usize) -> Option<Report> {
        let (words, differs) = words.split_first_chunk::<{ Report::WORDS }>()?;
        let [version, origin, index, chain, has_digest, digest] = *words;
        let (version, origin) = (u32::try_from(version).ok()?, Incarnation::from_word(origin));
        let is_one = version > 0 && has_digest <= 1 && differs.len() == members;
        let mark = Mark { origin, index, chain, digest: (has_digest == 1).then_some(digest) };
        is_one.then(|| Report { version, mark, differs: differs.to_vec() })
    }
}

/// Another member of the group.
#[derive(Debug)]
struct Other {
    process: ProcessId,
    /// The member's index in the group.
    index: usize,
    /// The last report sent to this member on the present connection.
    sent: Option<Report>,
    /// The last report received from this member on the present connection.
    heard: Option<Report>,
    /// The place at which a difference from this member was detected, and whether only the digest showed it.
    differs: Option<(u64, bool)>,
}

impl Other {
    /// Compares the member's report with this member's marks. Returns the place if a difference is detected and none
    /// was known before.
    fn compare(&mut self, version: u32, marks: &Marks) -> Option<u64> {
        let report = self.heard.as_ref()?;
        let Mark { origin, index, chain, digest } = report.mark;
        let own = marks.at(origin, index).filter(|own| own.index > 0)?;
        let digests = own.digest.zip(digest).filter(|_| report.version == version);
        let same = own.chain == chain;
        if same && digests.is_none_or(|(own, other)| own == other) {
            self.differs = self.differs.filter(|(_, by_digest)| *by_digest && digests.is_none());
            return None;
        }
        self.differs.replace((index, same)).is_none().then_some(index)
    }
}

/// The report of this member, and the reports of the other members.
#[derive(Debug)]
pub(super) struct Reports {
    version: u32,
    /// This member's index in the group.
    me: usize,
    others: Vec<Other>,
    /// Number of places in the state that was restored last.
    begun: u64,
    next: Duration,
    /// The last applied place at the previous check.
    last: u64,
}

/// The conclusions from the present reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    /// The smallest version among the programs of all members, or 0 if the version of a member is unknown.
    pub(super) goal: u32,
    /// Members that were found to differ just now, each with the place of the difference.
    pub(super) differ: Vec<(ProcessId, u64)>,
    /// The place at which a majority reports that this member differs from it.
    pub(super) outvoted_at: Option<u64>,
}

impl Reports {
    /// Creates the state of member `me` of a group. `version` is the version of its program.
    pub(super) fn new(version: u32, me: ProcessId, members: impl Iterator<Item = ProcessId>) -> Self {
        let mut reports = Reports { version, me: 0, others: Vec::new(), begun: 0, next: Duration::ZERO, last: 0 };
        for (index, process) in members.enumerate() {
            if process == me {
                reports.me = index;
            } else {
                reports.others.push(Other { process, index, sent: None, heard: None, differs: None });
            }
        }
        reports
    }

    /// Receives reports, and sends this member's report. Returns `None` if it is not time for a check.
    #[inline]
    pub(super) fn round<F: Fabric>(&mut self, now: Duration, member: &mut Member<F>, marks: &Marks) -> Option<Found> {
        while let Some((from, words, _)) = member.next_foreign() {
            self.hear(from, &words);
        }
        if now < self.next {
            return None;
        }
        self.next = now + LOOK;
        let found = self.look(marks);
        let own = self.own(marks);
        for other in &mut self.others {
            if !member.is_connected_to(other.process) {
                (other.sent, other.heard, other.differs) = (None, None, None);
            } else if other.sent.as_ref() != Some(&own) && member.send_foreign(other.process, &own.to_words(), &[]) {
                other.sent = Some(own.clone());
            }
        }
        Some(found)
    }

    /// Returns the version of another member's program, or `None` if it is unknown.
    pub(super) fn version_of(&self, process: ProcessId) -> Option<u32> {
        Some(self.other(process)?.heard.as_ref()?.version)
    }

    /// Returns the place at which a difference of another member was detected, or `None` if it is not known to differ.
    pub(super) fn differs_at(&self, process: ProcessId) -> Option<u64> {
        self.other(process)?.differs.map(|(place, _)| place)
    }

    fn other(&self, process: ProcessId) -> Option<&Other> {
        self.others.iter().find(|other| other.process == process)
    }

    fn hear(&mut self, from: ProcessId, words: &[u64]) {
        let members = self.others.len() + 1;
        if let Some(other) = self.others.iter_mut().find(|other| other.process == from) {
            other.heard = Report::from_words(words, members);
        }
    }

    /// Returns this member's report. It contains the last place if none was applied since the previous check, and
    /// otherwise the last mark, which the other members have as well once they have applied it.
    fn own(&mut self, marks: &Marks) -> Report {
        let (last, mark) = marks.last();
        let stands = std::mem::replace(&mut self.last, last.index) == last.index;
        let mark = if stands { last } else { mark.unwrap_or(last) };
        let mut differs = vec![0; self.others.len() + 1];
        for other in &self.others {
            differs[other.index] = other.differs.map_or(0, |(place, _)| place);
        }
        Report { version: self.version, mark, differs }
    }

    fn look(&mut self, marks: &Marks) -> Found {
        let begun = marks.begun();
        if std::mem::replace(&mut self.begun, begun) != begun {
            // Differences that were detected before the state was restored do not concern the restored state.
            self.others.iter_mut().for_each(|other| other.differs = None);
        }
        let mut found = Found { goal: self.version, ..Found::default() };
        for other in &mut self.others {
            found.goal = found.goal.min(other.heard.as_ref().map_or(0, |report| report.version));
            found.differ.extend(other.compare(self.version, marks).map(|place| (other.process, place)));
        }
        found.outvoted_at = self.outvoted_at();
        found
    }

    /// Returns the first place at which an agreeing majority reports that this member differs.
    fn outvoted_at(&self) -> Option<u64> {
        let heard = || self.others.iter().filter_map(|other| Some((other.index, &other.heard.as_ref()?.differs)));
        let accusers = || heard().filter(|(_, differs)| differs[self.me] > self.begun);
        let members = self.others.len() + 1;
        let majority = members / 2 + 1;
        accusers().find_map(|(one, of_one)| {
            let agree = accusers().filter(|(other, of_other)| of_one[*other] == 0 && of_other[one] == 0);
            let places: Vec<u64> = agree.map(|(_, differs)| differs[self.me]).collect();
            places.iter().copied().min().filter(|_| places.len() >= majority)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::apply::Chain;
    use super::*;

    /// The members of a group without connections: each one receives all reports at each check.
    struct Group {
        chains: Vec<Chain>,
        reports: Vec<Reports>,
    }

    impl Group {
        fn new(versions: &[u32]) -> Self {
            let members = || (0..versions.len() as u16).map(ProcessId);
            let reports = members().zip(versions).map(|(me, version)| Reports::new(*version, me, members())).collect();
            Group { chains: versions.iter().map(|_| Chain::default()).collect(), reports }
        }

        /// Applies a command at all members, with these replies and digests.
        fn apply(&mut self, index: u64, replies: &[u64], digests: &[Option<u64>]) {
            for ((chain, reply), digest) in self.chains.iter_mut().zip(replies).zip(digests) {
                chain.add(&reply.to_le_bytes());
                chain.pass(Incarnation::FIRST, index, digest.filter(|_| Chain::has_mark(index)));
                chain.publish();
            }
        }

        fn look(&mut self) -> Vec<Found> {
            let marks: Vec<_> = self.chains.iter().map(|chain| Arc::clone(chain.marks())).collect();
            let mut said = Vec::new();
            for (reports, marks) in self.reports.iter_mut().zip(&marks) {
                said.push(reports.own(marks).to_words());
            }
            for (me, reports) in self.reports.iter_mut().enumerate() {
                for (from, words) in said.iter().enumerate().filter(|(from, _)| *from != me) {
                    reports.hear(ProcessId(from as u16), words);
                }
            }
            self.reports.iter_mut().zip(&marks).map(|(reports, marks)| reports.look(marks)).collect()
        }

        /// Runs checks until the reports contain all detected differences.
        fn settle(&mut self) -> Vec<Option<u64>> {
            self.look();
            self.look();
            self.look().into_iter().map(|found| found.outvoted_at).collect()
        }
    }

    #[test]
    fn the_goal_is_the_smallest_version_or_unknown() {
        let mut group = Group::new(&[3, 2, 4]);
        assert!(group.look().iter().all(|found| found.goal == 2));
        group.reports[0].others[1].heard = None;
        let marks = Arc::clone(group.chains[0].marks());
        assert_eq!(group.reports[0].look(&marks).goal, 0);
    }

    #[test]
    fn a_differing_member_is_outvoted_until_it_restores_the_state_of_the_others() {
        let mut group = Group::new(&[1; 3]);
        group.apply(1, &[5, 5, 5], &[None; 3]);
        assert_eq!(group.settle(), [None; 3]);
        group.apply(2, &[5, 5, 6], &[None; 3]);
        assert_eq!(group.look()[0].differ, [(ProcessId(2), 2)]);
        assert_eq!(group.settle(), [None, None, Some(2)]);
        assert_eq!(group.reports[0].differs_at(ProcessId(2)), Some(2));
        assert!(group.look().iter().all(|found| found.differ.is_empty()), "each difference is reported once");
        let value = group.chains[0].value();
        group.chains[2].begin_anew((Incarnation::FIRST, 2), value);
        assert_eq!(group.look()[2].outvoted_at, None, "reports about its earlier state do not count");
        assert_eq!(group.settle(), [None; 3]);
        group.apply(3, &[7, 7, 7], &[None; 3]);
        assert_eq!(group.settle(), [None; 3]);
        assert_eq!(group.reports[0].differs_at(ProcessId(2)), None);
    }

    #[test]
    fn nobody_is_outvoted_without_an_agreeing_majority() {
        let mut group = Group::new(&[1; 3]);
        group.apply(1, &[1, 2, 3], &[None; 3]);
        assert_eq!(group.settle(), [None; 3]);
        let mut group = Group::new(&[1; 2]);
        group.apply(1, &[1, 2], &[None; 2]);
        assert_eq!(group.settle(), [None; 2]);
        assert_eq!(group.reports[0].differs_at(ProcessId(1)), Some(1));
        let mut group = Group::new(&[1; 5]);
        group.apply(1, &[1, 1, 1, 2, 3], &[None; 5]);
        assert_eq!(group.settle(), [None, None, None, Some(1), Some(1)]);
    }

    #[test]
    fn digests_count_between_programs_of_one_version() {
        let mut group = Group::new(&[1, 1, 1, 2]);
        let digests = [Some(1), Some(1), Some(2), None];
        group.apply(1, &[5; 4], &digests);
        group.settle();
        assert_eq!(group.reports[0].differs_at(ProcessId(2)), Some(1));
        assert_eq!([1, 3].map(|other| group.reports[0].differs_at(ProcessId(other))), [None; 2]);
        // A place without a digest does not end the difference.
        group.apply(65, &[5; 4], &digests);
        group.settle();
        assert_eq!(group.reports[0].differs_at(ProcessId(2)), Some(1));
        group.apply(128, &[5; 4], &[Some(1); 4]);
        group.settle();
        assert_eq!(group.reports[0].differs_at(ProcessId(2)), None);
    }

    #[test]
    fn words_of_another_group_or_format_are_rejected() {
        let report = Report { version: 1, mark: Mark::default(), differs: vec![0, 7, 0] };
        let words = report.to_words();
        assert_eq!(Report::from_words(&words, 3).as_ref(), Some(&report));
        assert_eq!(Report::from_words(&words, 4), None);
        for (at, word) in [(0, 0), (0, 1 << 40), (4, 2)] {
            let mut words = words.clone();
            words[at] = word;
            assert_eq!(Report::from_words(&words, 3), None, "{at}");
        }
        assert!((0..words.len()).all(|length| Report::from_words(&words[..length], 3).is_none()));
    }
}
