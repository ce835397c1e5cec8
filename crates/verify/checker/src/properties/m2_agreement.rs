//! M2 uniform agreement: if any process delivers a message, even one that crashes afterwards, every correct destination
//! process delivers it.

use super::NO_DELIVERIES;
use super::completeness::judge;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>) -> Verdict {
    let mut delivered = vec![None; view.log.messages.len()];
    for (index, delivery) in view.log.deliveries.iter().enumerate() {
        delivered[delivery.message as usize].get_or_insert(index as u32);
    }
    let none = view.log.deliveries.is_empty();
    let nothing = if none { NO_DELIVERIES } else { "no delivered message has a majority of each group up" };
    judge(
        view,
        |message, _| delivered[message as usize].is_some(),
        nothing,
        |process, message| {
            let text = view.text(message);
            let summary = format!("{text} was delivered; {process} is correct and a destination, and lacks it");
            let example = view.example(summary).multicast(message);
            delivered[message as usize].into_iter().fold(example, |example, d| example.delivery(d))
        },
    )
}
