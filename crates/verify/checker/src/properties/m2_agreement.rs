//! M2 uniform agreement: if any process delivers a message, even one that then crashes, every correct destination
//! process delivers it.

use super::completeness::{Outcome, look};
use super::{INCOMPLETE, NO_DELIVERIES};
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>) -> Verdict {
    if !view.complete {
        return Verdict::NotChecked(INCOMPLETE);
    }
    let mut delivered = vec![None; view.log.messages.len()];
    for (index, delivery) in view.log.deliveries.iter().enumerate() {
        delivered[delivery.message as usize].get_or_insert(index as u32);
    }
    match look(view, |message, _| delivered[message as usize].is_some()) {
        Outcome::AllThere => Verdict::Ok,
        Outcome::NoRecord { process } => view.lacks_record(process),
        Outcome::NothingRequired if view.log.deliveries.is_empty() => Verdict::NotChecked(NO_DELIVERIES),
        Outcome::NothingRequired => Verdict::NotChecked("no delivered message has a majority of each group up"),
        Outcome::Missing { process, message } => {
            let (process, text) = (view.name(process), view.text(message));
            let summary = format!("{text} was delivered; {process} is correct and a destination, and lacks it");
            let example = view.example(summary).multicast(message);
            delivered[message as usize].into_iter().fold(example, |example, d| example.delivery(d)).violated()
        }
    }
}
