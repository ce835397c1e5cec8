//! M3 validity: if a correct client multicasts a message, every correct destination delivers it; also when the client
//! crashes after a synced multicast returned.
//!
//! A client is correct for a message if it lives on in the same incarnation to the end of the history.

use super::completeness::{Outcome, look};
use super::{INCOMPLETE, no_messages};
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>) -> Verdict {
    if !view.complete {
        return Verdict::NotChecked(INCOMPLETE);
    }
    let required = |message: &crate::log::Message| {
        message.synced || message.sent.as_ref().is_some_and(|sent| view.log.client_is_correct(sent))
    };
    match look(view, |_, message| required(message)) {
        Outcome::AllThere => Verdict::Ok,
        Outcome::NoRecord { process } => view.lacks_record(process),
        Outcome::NothingRequired => Verdict::NotChecked(
            no_messages(view).unwrap_or("no message of a correct client has a majority of each group up"),
        ),
        Outcome::Missing { process, message } => {
            let why = if view.log.messages[message as usize].synced { "was synced" } else { "has a correct client" };
            let (process, text) = (view.name(process), view.text(message));
            let summary = format!("{text} {why}; {process} is correct and a destination, and did not deliver it");
            view.example(summary).multicast(message).violated()
        }
    }
}
