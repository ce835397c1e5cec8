//! M9 liveness, as far as a history shows it: while a majority of each destination group is up, everything that correct
//! clients multicast is delivered at all correct destinations.
//!
//! The bound on the number of steps is the simulator's to check: it runs its liveness phase for so many steps and then
//! declares the history complete.

use super::completeness::{Outcome, look};
use super::{INCOMPLETE, no_messages};
use crate::log::Message;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>) -> Verdict {
    if !view.complete {
        return Verdict::NotChecked(INCOMPLETE);
    }
    let required =
        |_: u32, message: &Message| message.sent.as_ref().is_some_and(|sent| view.log.client_is_correct(sent));
    match look(view, required) {
        Outcome::AllThere => Verdict::Ok,
        Outcome::NoRecord { process } => view.lacks_record(process),
        Outcome::NothingRequired => Verdict::NotChecked(
            no_messages(view).unwrap_or("no message of a correct client has a majority of each group up"),
        ),
        Outcome::Missing { process, message } => {
            let (process, text) = (view.name(process), view.text(message));
            let summary = format!("the run came to rest, a majority of each group is up, and {process} lacks {text}");
            view.example(summary).multicast(message).violated()
        }
    }
}
