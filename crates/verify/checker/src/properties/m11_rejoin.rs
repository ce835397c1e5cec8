//! M11 rejoin: a crashed process that rejoins gets its group's state and continues the same delivery order, without a
//! gap and without a repeat.
//!
//! A process that rejoins records the delivery after which it resumes (`recover` with `from`, which is 0 if its group's
//! state contained none). Without a record it resumes after its own last delivery. A first life that resumes after
//! delivery 0 is no rejoin. The rules are:
//! - *No gap*: the numbers of its deliveries continue after the recorded one, without a hole.
//! - *No repeat*: no member of its group delivered one of its later messages under another number, so none of these
//!   messages was in the state that the process received.
//! - *The same order*: no member of its group delivered another message under one of the numbers of its later
//!   deliveries.
//! - *Its group's state*: each delivery up to `from` was made by some process of the group. This is checked in a
//!   complete history. If all times are from one clock, the recorded deliveries up to `from` must precede the rejoin.
//!
//! The first three rules follow from M1 and M5 if another process recorded a contradicting delivery. M11 also covers
//! the messages that the process received in a snapshot. M2 and M9 require that it delivers the later messages.

use crate::ids::{Group, Process};
use crate::log::Life;
use crate::report::Verdict;
use crate::view::View;

/// A life that rejoined its group.
#[derive(Clone, Copy)]
struct Return<'a> {
    process: Process,
    life: &'a Life,
    /// The number of the delivery after which the life resumes.
    after: u64,
}

/// The deliveries of a message with the least and the greatest number.
type Span = Option<(u32, u32)>;

/// The deliveries of the processes of one group.
struct Delivered<'a> {
    view: &'a View<'a>,
    /// The deliveries of each message under the least and the greatest number.
    numbers: Vec<Span>,
    /// Deliveries by number: the first delivery with the number, and the first one of another message.
    by_number: Vec<(u64, u32, Option<u32>)>,
    /// The largest number such that some member made each delivery from 1 up to it.
    dense: u64,
    /// For each index in `by_number`: the earliest time at which all deliveries up to this index had been made, in
    /// nanoseconds, and the delivery that was made at that time.
    known_at: Vec<(u64, u32)>,
}

pub(super) fn check(view: &View<'_>) -> Verdict {
    let (mut any, mut lacking) = (false, None);
    for group in view.cluster.groups() {
        let returns: Vec<Return<'_>> = returns(view, group).collect();
        if returns.is_empty() {
            continue;
        }
        any = true;
        lacking = lacking.or(view.lacks_member(group));
        let delivered = Delivered::new(view, group);
        if let Some(verdict) = returns.iter().find_map(|back| delivered.judge(back)) {
            return verdict;
        }
    }
    match lacking {
        Some(process) => view.lacks_record(process),
        None if any => Verdict::Ok,
        None => Verdict::NotChecked("no process rejoined its group"),
    }
}

fn returns<'a>(view: &View<'a>, group: Group) -> impl Iterator<Item = Return<'a>> {
    let log = view.log;
    let members = view.cluster.members(group).iter().copied();
    members.flat_map(move |process| {
        let lives = log.lives.get(process.index()).map_or(&[][..], Vec::as_slice);
        // A first life that resumes after delivery 0 is no rejoin.
        let resumes = |life: &Life| life.recovered.is_some_and(|recovered| recovered.from > 0);
        let back = move |index: &usize| *index > 0 || resumes(&lives[*index]);
        (0..lives.len()).filter(back).map(move |index| Return {
            process,
            life: &lives[index],
            after: log.resumed_after(process, index),
        })
    })
}

impl<'a> Delivered<'a> {
    fn new(view: &'a View<'a>, group: Group) -> Self {
        let deliveries = &view.log.deliveries;
        let of_group = |index: &u32| view.cluster.group_of(deliveries[*index as usize].process) == Some(group);
        let mut sorted: Vec<u32> = (0..deliveries.len() as u32).filter(of_group).collect();
        let number = |delivery: u32| deliveries[delivery as usize].deliver.number;
        let message = |delivery: u32| deliveries[delivery as usize].message;
        sorted.sort_by_key(|delivery| number(*delivery));
        let mut numbers: Vec<Span> = vec![None; view.log.messages.len()];
        let mut by_number: Vec<(u64, u32, Option<u32>)> = Vec::new();
        let mut known_at: Vec<(u64, u32)> = Vec::new();
        for delivery in sorted {
            // Deliveries are in ascending order of their numbers, so the last one seen has the greatest.
            let span = &mut numbers[message(delivery) as usize];
            *span = Some((span.map_or(delivery, |(least, _)| least), delivery));
            match by_number.last_mut() {
                Some((last, first, other)) if *last == number(delivery) => {
                    if other.is_none() && message(*first) != message(delivery) {
                        *other = Some(delivery);
                    }
                    let (t, by) = known_at.last_mut().expect("as long as the numbers");
                    if deliveries[delivery as usize].t < *t {
                        (*t, *by) = (deliveries[delivery as usize].t, delivery);
                    }
                }
                _ => {
                    by_number.push((number(delivery), delivery, None));
                    known_at.push((deliveries[delivery as usize].t, delivery));
                }
            }
        }
        let mut latest = (0, 0);
        for known in &mut known_at {
            latest = if known.0 > latest.0 { *known } else { latest };
            *known = latest;
        }
        let dense = (1..).zip(&by_number).take_while(|(place, (number, ..))| place == number).count() as u64;
        Delivered { view, numbers, by_number, dense, known_at }
    }

    fn judge(&self, back: &Return<'_>) -> Option<Verdict> {
        self.foreign_state(back).or_else(|| {
            let mut before = back.after;
            back.life.deliveries.iter().find_map(|delivery| {
                let fault = self.gap(back, before, *delivery).or_else(|| self.contradicted(back, *delivery));
                before = self.view.log.deliveries[*delivery as usize].deliver.number;
                fault
            })
        })
    }

    /// Returns a violation if the state contains a delivery that no member of the group had made before.
    fn foreign_state(&self, back: &Return<'_>) -> Option<Verdict> {
        let recovered = back.life.recovered?;
        let group = self.view.cluster.group_of(back.process)?;
        if self.view.lacks_member(group).is_some() {
            return None;
        }
        let process = self.view.name(back.process);
        if self.view.complete && self.dense < recovered.from {
            let missing = self.dense + 1;
            let summary = format!("{process} rejoined with a state that holds delivery {missing}, which nobody made");
            return Some(self.begin(back, summary).violated());
        }
        let upto = self.by_number.partition_point(|(number, ..)| *number <= recovered.from).checked_sub(1)?;
        let (t, delivery) = self.known_at[upto];
        if self.view.cluster.has_global_clock() && t > recovered.t {
            let summary = format!("{process} rejoined with a state that nobody in its group had reached");
            return Some(self.begin(back, summary).delivery(delivery).violated());
        }
        None
    }

    fn gap(&self, back: &Return<'_>, before: u64, delivery: u32) -> Option<Verdict> {
        let number = self.view.log.deliveries[delivery as usize].deliver.number;
        if before.checked_add(1) == Some(number) {
            return None;
        }
        let process = self.view.name(back.process);
        let summary = format!("{process} rejoined and made delivery {number} after delivery {before}");
        Some(self.begin(back, summary).delivery(delivery).violated())
    }

    /// Returns a violation if some member delivered the message of `delivery` under another number, or delivered
    /// another message under the number of `delivery`.
    fn contradicted(&self, back: &Return<'_>, delivery: u32) -> Option<Verdict> {
        let log = self.view.log;
        let here = &log.deliveries[delivery as usize];
        let span = self.numbers[here.message as usize];
        let spans = span.into_iter().flat_map(|(least, greatest)| [least, greatest]);
        let mut elsewhere = spans.filter(|other| log.deliveries[*other as usize].deliver.number != here.deliver.number);
        if let Some(other) = elsewhere.next() {
            let (process, text) = (self.view.name(back.process), self.view.text(here.message));
            let number = log.deliveries[other as usize].deliver.number;
            let summary = format!("{process} rejoined and delivered {text}, which is delivery {number} of its group");
            return Some(self.begin(back, summary).delivery(other).delivery(delivery).violated());
        }
        let at = self.by_number.binary_search_by_key(&here.deliver.number, |(number, ..)| *number).ok()?;
        let (_, first, other) = self.by_number[at];
        let mut others = [Some(first), other].into_iter().flatten();
        let other = others.find(|other| log.deliveries[*other as usize].message != here.message)?;
        let (process, number) = (self.view.name(back.process), here.deliver.number);
        let summary = format!("{process} rejoined and made delivery {number} of another message than its group");
        Some(self.begin(back, summary).delivery(other).delivery(delivery).violated())
    }

    /// Returns a counter-example that begins with the `recover` event of the process.
    fn begin(&self, back: &Return<'_>, summary: String) -> crate::view::Example<'_> {
        let example = self.view.example(summary);
        match back.life.recovered {
            Some(recovered) => {
                let kind = crate::event::EventKind::Recover { from: recovered.from };
                let incarnation = back.life.number;
                let event = crate::event::Event { t: recovered.t, process: back.process, incarnation, kind };
                example.event(&event, recovered.origin)
            }
            None => example,
        }
    }
}
