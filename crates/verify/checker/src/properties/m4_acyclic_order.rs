//! M4 uniform acyclic order: the union of all delivery orders, over all processes including crashed ones, has no cycle.
//!
//! Timestamps are not used, because they are a claim of the protocol.

use super::NO_DELIVERIES;
use crate::order::Paths;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>) -> Verdict {
    if view.log.deliveries.is_empty() {
        return Verdict::NotChecked(NO_DELIVERIES);
    }
    if view.order.is_acyclic() {
        return Verdict::Ok;
    }
    let cycle = Paths::new(view.chains, view.log).smallest_cycle(view.order);
    let cycle = cycle.expect("an order that cannot be sorted has a cycle");
    let message = |delivery: u32| view.log.deliveries[delivery as usize].message;
    let mut texts: Vec<String> = cycle.iter().map(|step| view.text(message(step.earlier))).collect();
    texts.push(texts[0].clone());
    let example = view.example(format!("the delivery order has a cycle: {}", texts.join(" → ")));
    cycle.iter().fold(example, |example, step| example.delivery(step.earlier).delivery(step.later)).violated()
}
