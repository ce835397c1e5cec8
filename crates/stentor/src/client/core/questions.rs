//! Questions to groups about commands whose outcome is unknown.

use std::time::Duration;

use stentor_multicast::GroupId;

use super::{Core, Name, Sent, UNANSWERED, multicast};
use crate::Group;
use crate::client::asked::Asked;
use crate::client::fates::refusal;
use crate::client::{Refused, Ticket};
use crate::runtime::FabricDiagnostics;

impl<F: FabricDiagnostics> Core<F> {
    /// Asks the groups for the outcome of a command.
    pub(in crate::client) fn resolve(&mut self, ticket: &Ticket) -> Result<(), Refused> {
        let to: Vec<GroupId> = ticket.0.groups().collect();
        if let Some(group) = self.halts.find(&to, self.housekeeper.now()) {
            return Err(Refused::Halted(Group(group)));
        }
        self.ask(&ticket.0, &to)
    }

    fn ask(&mut self, ticket: &stentor_session::Ticket, to: &[GroupId]) -> Result<(), Refused> {
        let was_asked = self.caller.is_asked(ticket);
        self.caller.resolve(ticket, &mut self.question).map_err(|error| self.refused(error, to))?;
        match multicast(&mut self.client, &mut self.watch, to, &[&self.question], 0) {
            Ok(sent) => {
                self.note_question(ticket, sent.id.sequence);
                Ok(())
            }
            Err(error) => {
                if !was_asked {
                    self.caller.forget(ticket);
                }
                Err(refusal(&error))
            }
        }
    }

    /// Records that a question was sent, if it is about a request of an earlier generation.
    fn note_question(&mut self, ticket: &stentor_session::Ticket, sequence: u64) {
        if self.caller.is_asked(ticket) {
            let name = Name::of(ticket);
            self.questions.retain(|(asked, _)| *asked != name);
            self.questions.push((name, Asked::new(sequence, self.housekeeper.now())));
        }
    }

    /// Forgets a question for whose answer no caller waits any more.
    pub(in crate::client) fn forget(&mut self, ticket: &stentor_session::Ticket) {
        self.caller.forget(ticket);
    }

    /// Repeats the questions about requests of earlier generations, at most one per call. An answer can be lost with a
    /// connection.
    pub(super) fn ask_again(&mut self, now: Duration) {
        let Core { client, caller, questions, .. } = self;
        let ticket_of = |name: &Name| caller.asked().find(|ticket| Name::of(ticket) == *name);
        questions.retain(|(name, _)| ticket_of(name).is_some());
        for (name, asked) in questions {
            let Some(ticket) = ticket_of(name) else { continue };
            let to: Vec<GroupId> = ticket.groups().collect();
            if asked.is_due(now, |sent| client.is_delivered(sent, &to)) {
                let ticket = ticket.clone();
                // A question that cannot be sent becomes due again.
                let _ = self.ask(&ticket, &to);
                return;
            }
        }
    }

    /// Asks for the outcome of a request that is delivered and not answered, at most one per call. The scan does not
    /// stop at a request that is not delivered: a prepared command may be sent, and delivered, long after later ones.
    pub(super) fn ask_for_replies(&mut self, now: Duration) {
        let first = self.caller.responded();
        let begun = self.window() as u64 - u64::from(self.caller.room());
        for request in first..first + begun {
            let at = request as usize % self.sent.len();
            let Some(ticket) = self.caller.ticket(request) else { continue };
            if !self.is_delivered(self.sent[at], ticket) {
                continue;
            }
            let since = *self.sent[at].delivered.get_or_insert(now);
            if now.saturating_sub(since) >= UNANSWERED {
                let (ticket, to): (_, Vec<GroupId>) = (ticket.clone(), ticket.groups().collect());
                if self.ask(&ticket, &to).is_ok() {
                    self.sent[at].delivered = Some(now);
                    return;
                }
            }
        }
    }

    /// Returns whether a majority of each destination group has delivered a request. A group that is down delays only
    /// requests that go to it.
    fn is_delivered(&self, sent: Sent, ticket: &stentor_session::Ticket) -> bool {
        let mut to = ticket.groups();
        sent.delivered.is_some() || to.all(|group| self.client.is_delivered(sent.sequence, &[group]))
    }
}
