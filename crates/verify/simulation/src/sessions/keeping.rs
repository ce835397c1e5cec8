//! The session management of a client: it opens, widens, renews, takes up and ends its session, and asks for unknown
//! fates.

use std::rc::Rc;

use stentor_multicast::GroupId;
use stentor_session::{Caller, Kind, Outcome, SessionId, Ticket, Why};

use super::client::{Asked, ClientActor, Stage};
use super::ledger::passes;
use super::told::Told;

/// Time after which a client that otherwise never asks does so about a request that no group has applied, in
/// nanoseconds.
const REFUSED_NS: u64 = 400_000;

impl ClientActor {
    /// Manages the session and the unanswered requests.
    pub(super) fn look(&mut self, now_ns: u64) {
        match self.stage {
            Stage::Beginning => self.begin_session(now_ns),
            Stage::Open => self.keep_session(now_ns),
            Stage::Done => return,
        }
        if self.is_up() {
            self.say_session(now_ns);
        }
    }

    /// Opens a session, or takes up the one on the disk.
    fn begin_session(&mut self, now_ns: u64) {
        if self.caller.as_ref().is_some_and(|caller| caller.message().is_some()) {
            return;
        }
        let mut disk = self.shared.disks[usize::from(self.id.0)].borrow_mut();
        if disk.key.is_none() && disk.left == 0 {
            disk.done = true;
            self.stage = Stage::Done;
            return;
        }
        let key = disk.key.clone();
        drop(disk);
        if now_ns < self.rests_until_ns {
            return;
        }
        let to =
            key.as_ref().map_or_else(|| self.first_groups(), |key| key.pairs.iter().map(|pair| pair.group).collect());
        if !to.iter().all(|group| self.opens(*group)) || !self.is_up() {
            return;
        }
        let (word, until) = (self.word(), self.order_now(now_ns) + self.shared.scenario.ttl_ns);
        let mutant = self.shared.mutant.of_sessions();
        let config = self.config();
        if let Some(key) = key {
            // A caller whose attempt was refused has learnt the missing data from the refusal.
            let again = self.caller.take().filter(|caller| caller.id() == key.session && !caller.is_open());
            let mut caller = again.unwrap_or_else(|| Caller::resume(&key, config).with_mutant(mutant));
            if caller.take_up(word, until).is_err() {
                caller = Caller::resume(&caller.key(), config).with_mutant(mutant);
                let _ = caller.take_up(word, until);
            }
            self.caller = Some(caller);
        } else {
            let id = SessionId(u128::from(self.word()) << 64 | u128::from(self.word()));
            let mut caller = Caller::new(id, config).with_mutant(mutant);
            let _ = caller.open(word, &self.pairs(&to), until);
            self.caller = Some(caller);
        }
        self.said_ns = None;
    }

    /// Returns the groups in which a session is opened. After refusals by full tables these are all groups, so that the
    /// session need not be widened while it occupies entries.
    fn first_groups(&mut self) -> Vec<GroupId> {
        if self.full > 0 { self.shared.topology.group_ids().collect() } else { self.draw_groups() }
    }

    /// Sends the session's own command (open, take up, widen or end) that is in progress, and repeats it if it is not
    /// answered.
    fn say_session(&mut self, now_ns: u64) {
        let Some(message) = self.caller.as_ref().and_then(Caller::message) else { return };
        let again = self.shared.scenario.again_ns;
        if self.said_ns.is_none_or(|said| now_ns - said >= again) {
            let (to, payload) = (message.to.to_vec(), message.payload.to_vec());
            if self.submit(&to, &[&payload]).is_ok() {
                self.said_ns = Some(now_ns);
            }
        }
    }

    /// Handles the answers of all groups to a command of the session.
    pub(super) fn answered(&mut self, now_ns: u64, kind: Kind, refused: Option<(GroupId, Outcome)>) {
        self.take_answer(now_ns, kind, refused);
        if let (Kind::Widen, Some((group, Outcome::SessionNotOpen))) = (kind, refused) {
            self.has_ended_in(group);
        }
    }

    fn take_answer(&mut self, now_ns: u64, kind: Kind, refused: Option<(GroupId, Outcome)>) {
        let shared = Rc::clone(&self.shared);
        let mut disk = shared.disks[usize::from(self.id.0)].borrow_mut();
        let Some(caller) = &self.caller else { return };
        shared.record("agreed", now_ns, self.me, &[kind as u64, refused.is_none().into(), caller.generation().into()]);
        shared.tell(|| {
            let (client, session, generation) = (self.id.0, caller.id().0 >> 96, caller.generation());
            let how = refused.map_or("is carried out".to_owned(), |(_, outcome)| format!("is refused: {outcome:?}"));
            format!("client {client}: {kind:?} of session {session:08x}.{generation} {how}")
        });
        let mut counts = shared.counts.borrow_mut();
        let full = refused.is_some_and(|(_, outcome)| outcome == Outcome::TableFull);
        if full {
            counts.tables_full += 1;
            self.full += 1;
            let longest = shared.scenario.ttl_ns << self.full.min(4);
            self.rests_until_ns = now_ns + self.chance.between(shared.scenario.again_ns, longest);
        } else if refused.is_none() && kind != Kind::End {
            self.full = 0;
        }
        match kind {
            Kind::Open | Kind::TakeUp if caller.is_open() => {
                disk.key = Some(caller.key());
                self.stage = Stage::Open;
                self.replied.clear();
                self.sent.clear();
                self.asked.clear();
                if kind == Kind::Open {
                    counts.sessions_opened += 1;
                } else {
                    counts.sessions_taken_up += 1;
                    counts.taken_up_with_commands_under_way += u64::from(!disk.tickets.is_empty());
                }
            }
            Kind::Widen => {
                disk.key = Some(caller.key());
                counts.sessions_widened += u64::from(refused.is_none());
            }
            Kind::TakeUp if refused.is_some_and(|(_, outcome)| passes(outcome)) => counts.takings_up_refused += 1,
            Kind::TakeUp => {
                counts.sessions_gone += 1;
                let gone: Vec<Ticket> = disk.tickets.iter().map(|written| written.ticket.clone()).collect();
                disk.key = None;
                let session = caller.id();
                let group = refused.map_or(GroupId(0), |(group, _)| group);
                let mut ledger = shared.ledger.borrow_mut();
                if !caller.key().pairs.iter().any(|pair| ledger.has_ended(pair.group, session)) {
                    ledger
                        .violate("X5", format!("no group knows session {session}, although it has ended in no group"));
                }
                drop((disk, counts, ledger));
                self.caller = None;
                for ticket in gone {
                    let (name, to) = ((ticket.generation, ticket.word, ticket.request), ticket.groups().next());
                    let why = Why::SessionEnded(to.unwrap_or(group));
                    self.finished(now_ns, ticket.session, name, &Told::Unknown(why));
                }
            }
            Kind::End => {
                counts.sessions_ended += u64::from(refused.is_none());
                (disk.key, self.caller) = (None, None);
                disk.done = disk.left == 0;
                if disk.is_to_end() {
                    disk.ends_at = None;
                }
                self.stage = if disk.done { Stage::Done } else { Stage::Beginning };
            }
            _ => {}
        }
    }

    fn keep_session(&mut self, now_ns: u64) {
        let Some(caller) = &self.caller else { return };
        if !caller.is_open() && caller.message().is_none() {
            // Another process took up the session, or a late message of an earlier process did.
            self.stage = Stage::Beginning;
            return;
        }
        self.look_for_end();
        self.widen(now_ns);
        self.renew(now_ns);
        if self.is_up() {
            self.ask_for_replies(now_ns);
        }
        if self.is_up() {
            self.send_again(now_ns);
        }
        if self.is_up() {
            self.resolve(now_ns);
        }
    }

    /// Ends the session when no command is open and no further one begins in it, because all commands are done, the
    /// planned end of the session is reached, or the session makes room for others.
    fn look_for_end(&mut self) {
        let disk = self.shared.disks[usize::from(self.id.0)].borrow();
        let is_over = disk.left == 0 || disk.is_to_end() || self.makes_room();
        let is_idle = is_over && disk.tickets.is_empty() && disk.reads.is_empty();
        drop(disk);
        if is_idle && self.awaits_notes().is_some() {
            self.shared.counts.borrow_mut().notifications_awaited += 1;
            return;
        }
        if is_idle {
            let word = self.word();
            if self.caller.as_mut().is_some_and(|caller| caller.end(word).is_ok()) {
                self.said_ns = None;
            }
        }
    }

    /// Widens the session to the requested groups that can be reached.
    fn widen(&mut self, now_ns: u64) {
        let mut wanted = self.wanted.clone();
        wanted.retain(|group| self.opens(*group));
        let may = self.caller.as_ref().is_some_and(|caller| caller.is_open() && caller.message().is_none());
        // A refused command is not repeated at once.
        let waits = self.said_ns.is_some_and(|said| now_ns - said < self.shared.scenario.again_ns);
        if wanted.is_empty() || !may || waits || now_ns < self.rests_until_ns {
            return;
        }
        let (word, until) = (self.word(), self.order_now(now_ns) + self.shared.scenario.ttl_ns);
        let pairs = self.pairs(&wanted);
        if self.caller.as_mut().is_some_and(|caller| caller.widen(word, &pairs, until).is_ok()) {
            self.said_ns = None;
            self.wanted.retain(|group| !wanted.contains(group));
        }
    }

    /// Returns whether the client can multicast to a group. If it cannot, the group is asked to admit it.
    fn opens(&mut self, group: GroupId) -> bool {
        self.client.is_connected(&[group]) || self.client.next_id(&[group], &[]).is_ok()
    }

    fn renew(&mut self, now_ns: u64) {
        let order_now = self.order_now(now_ns);
        let mut due = Vec::new();
        if let Some(caller) = &mut self.caller {
            caller.due(now_ns, order_now, |group, payload| due.push((group, payload.to_vec())));
        }
        for (group, payload) in due {
            // A renewal that is not sent remains due.
            let _ = self.submit(&[group], &[&payload]);
        }
    }

    /// Asks for the fate of the first request that was delivered some time ago and is not answered.
    ///
    /// A client that otherwise never asks does so about a request that no group has applied. No table keeps a refusal,
    /// so a lost one is not sent again.
    fn ask_for_replies(&mut self, now_ns: u64) {
        let (asks, unanswered) = match self.shared.scenario.unanswered_ns {
            Some(unanswered) => (true, unanswered),
            None => (false, REFUSED_NS),
        };
        let delivered = self.client.delivered_up_to();
        self.sent.sort_by_key(|sent| sent.request);
        for at in 0..self.sent.len() {
            let sent = &mut self.sent[at];
            if sent.given_up {
                continue;
            }
            if sent.sequence > delivered {
                return;
            }
            if !asks && self.shared.ledger.borrow().is_applied(sent.token) {
                continue;
            }
            match sent.delivered_ns {
                None => sent.delivered_ns = Some(now_ns),
                Some(since) if now_ns - since >= unanswered => {
                    let request = sent.request;
                    let ticket = self.caller.as_ref().and_then(|caller| caller.ticket(request).cloned());
                    if ticket.is_some_and(|ticket| self.ask(&ticket)) {
                        self.sent[at].delivered_ns = Some(now_ns);
                        self.shared.counts.borrow_mut().questions += 1;
                    }
                    return;
                }
                Some(_) => return,
            }
        }
    }

    /// Sends unanswered requests again, and gives up those that are unanswered for too long.
    fn send_again(&mut self, now_ns: u64) {
        let (copies, patience) = (self.shared.scenario.copies_ns, self.shared.scenario.patience_ns);
        for at in 0..self.sent.len() {
            let Some(sent) = self.sent.get(at).cloned() else { return };
            let waited = now_ns - sent.at_ns;
            if patience.is_some_and(|patience| waited >= patience) && !sent.given_up {
                self.sent[at].given_up = true;
                let lost =
                    self.caller.as_mut().is_some_and(|caller| caller.lost(sent.request, Why::TimedOut).is_some());
                self.shared.counts.borrow_mut().given_up += u64::from(lost);
            }
            if copies.is_some_and(|copies| now_ns - sent.copied_ns >= copies)
                && self.caller.as_mut().is_some_and(|caller| caller.again(sent.request))
            {
                match self.send(sent.request, sent.token, &sent.to) {
                    Some(_) => {
                        self.shared.counts.borrow_mut().copies += 1;
                        self.sent[at].copied_ns = now_ns;
                    }
                    None if !self.is_up() => {}
                    None => {
                        if let Some(caller) = &mut self.caller {
                            caller.not_sent(sent.request);
                        }
                    }
                }
            }
            if !self.is_up() {
                return;
            }
        }
    }

    /// Asks for the fate of commands that were given up or that an earlier process sent, and asks again if there is no
    /// answer.
    fn resolve(&mut self, now_ns: u64) {
        let Some(caller) = &self.caller else { return };
        let (generation, word) = (caller.generation(), caller.word());
        let given_up = |token: u64| self.sent.iter().any(|sent| sent.token == token && sent.given_up);
        let disk = self.shared.disks[usize::from(self.id.0)].borrow();
        let open: Vec<(Ticket, u64)> = disk
            .tickets
            .iter()
            .filter(|written| {
                (written.ticket.generation, written.ticket.word) != (generation, word) || given_up(written.token)
            })
            .map(|written| (written.ticket.clone(), written.token))
            .collect();
        drop(disk);
        let again = self.shared.scenario.again_ns;
        for (ticket, token) in open {
            let asked = self.asked.iter().position(|asked| asked.token == token);
            if asked.is_some_and(|at| now_ns - self.asked[at].at_ns < again) {
                continue;
            }
            if !self.ask(&ticket) || !self.is_up() {
                return;
            }
            self.shared.counts.borrow_mut().resolutions += 1;
            match asked {
                Some(at) => self.asked[at].at_ns = now_ns,
                None => self.asked.push(Asked { token, at_ns: now_ns }),
            }
        }
    }

    /// Asks the groups of a ticket for the fate of its command. Returns whether the question was sent.
    fn ask(&mut self, ticket: &Ticket) -> bool {
        let mut question = Vec::new();
        let Some(caller) = &mut self.caller else { return false };
        if caller.resolve(ticket, &mut question).is_err() {
            return false;
        }
        let to: Vec<GroupId> = ticket.groups().collect();
        self.submit(&to, &[&question]).is_ok()
    }
}
