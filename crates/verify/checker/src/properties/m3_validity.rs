//! M3 validity: if a correct client multicasts a message, every correct destination delivers it. This also holds if the
//! client crashes after a synced multicast returned.
//!
//! A client is correct for a message if it stays up in the same life to the end of the history.

use super::completeness::judge;
use super::no_correct_client;
use crate::log::Message;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>) -> Verdict {
    let has_to = |message: &Message| message.synced || view.log.has_correct_client(message);
    let required = |_: u32, message: &Message| has_to(message) && !view.may_be_lost(message, None);
    judge(view, required, no_correct_client(view), |process, message| {
        let why = if view.log.messages[message as usize].synced { "was synced" } else { "has a correct client" };
        let text = view.text(message);
        let summary = format!("{text} {why}; {process} is correct and a destination, and did not deliver it");
        view.example(summary).multicast(message)
    })
}
