//! M9 liveness, as far as a history shows it: while a majority of each destination group is up, every multicast of a
//! correct client is delivered at all correct destinations.
//!
//! The simulator checks the bound on the number of steps: it runs its liveness phase for this number of steps and then
//! declares the history complete.

use super::completeness::judge;
use super::no_correct_client;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>) -> Verdict {
    let required = |_, message: &_| view.log.has_correct_client(message) && !view.may_be_lost(message, None);
    judge(view, required, no_correct_client(view), |process, message| {
        let text = view.text(message);
        let summary = format!("the run came to rest, a majority of each group is up, and {process} lacks {text}");
        view.example(summary).multicast(message)
    })
}
