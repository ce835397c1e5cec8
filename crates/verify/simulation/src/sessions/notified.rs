//! The notifications of a client.

use std::rc::Rc;

use stentor_fabric::ProcessId;
use stentor_session::Caller;

use super::client::{ClientActor, Stage};
use super::ledger::Ledger;
use super::note_ledger::Count;
use super::told::News;

impl ClientActor {
    /// Handles a member's report on notifications of its group.
    pub(super) fn take_news(&mut self, now_ns: u64, from: ProcessId, count: Count, news: &News) {
        let shared = Rc::clone(&self.shared);
        let mut ledger = shared.ledger.borrow_mut();
        if let Err(why) = ledger.notes.heard(count, self.process, news) {
            ledger.violate("X11", why);
        }
        let index = news.one.as_ref().map_or(0, |(position, _)| position.index);
        if let Some(token) = self.overtaken(&ledger, (from, index), news) {
            let group = news.group.0;
            let text = format!("a notification of group {group} at {index} comes before the reply to command {token}");
            ledger.violate("X11", text);
        }
        drop(ledger);
        shared.record("notified", now_ns, self.me, &[news.group.0.into(), news.missed, index]);
        let mut counts = shared.counts.borrow_mut();
        counts.notifications_heard += u64::from(news.one.is_some());
        counts.notifications_missed += news.missed;
        drop(counts);
        shared.tell(|| in_words(self.id.0, news));
        shared.workload.borrow_mut().notified(self.id, self.process, news);
    }

    /// Returns a command whose reply should have arrived before a notification. Commands that were applied before the
    /// member repeated all replies to this client are exempt, because repeated replies follow the replies of the same
    /// round.
    fn overtaken(&self, ledger: &Ledger, (from, index): (ProcessId, u64), news: &News) -> Option<u64> {
        let again = self.shared.said_again.borrow().get(&(from, self.id)).copied().unwrap_or_default();
        let is_before = |token: u64| {
            let place = ledger.place_of(token, news.group);
            place.is_some_and(|place| (again + 1..=index).contains(&place))
        };
        let has_reply = |request: u64| self.replied.contains(&(request, news.group));
        let overtaken = self.sent.iter().find(|sent| is_before(sent.token) && !has_reply(sent.request));
        overtaken.map(|sent| sent.token)
    }

    /// Describes the notifications that the session must receive and has not, or returns `None`.
    pub(super) fn unheard(&self) -> Option<String> {
        let caller = self.caller.as_ref()?;
        self.shared.ledger.borrow().notes.unheard(caller.id(), caller.generation(), self.process)
    }

    /// Describes missing notifications if the client has completed all calls. The client then ends its session only
    /// when none is missing.
    pub(super) fn awaits_notes(&self) -> Option<String> {
        let disk = self.shared.disks[usize::from(self.id.0)].borrow();
        let is_idle = disk.left == 0 && disk.tickets.is_empty() && disk.reads.is_empty();
        let is_open = self.stage == Stage::Open && self.caller.as_ref().is_some_and(Caller::is_open);
        if is_idle && is_open { self.unheard() } else { None }
    }
}

fn in_words(client: u16, News { group, missed, one }: &News) -> String {
    let lost = (*missed > 0).then(|| format!("learns that {missed} notifications of group {} are lost", group.0));
    let one = one.as_ref().map(|(position, bytes)| {
        let text = bytes[..bytes.len().min(60)].escape_ascii();
        format!("is notified by group {} at {}: \"{text}\"", group.0, position.index)
    });
    let both: Vec<String> = lost.into_iter().chain(one).collect();
    format!("client {client} {}", both.join(", and "))
}
