//! A client with its session, as the library's client manages it. It may crash at any of its writes.

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::SimFabric;
use stentor_multicast::{Client, ClientId, GroupId, Incarnation, NodeError, SubmitError, Wants};
use stentor_session::{
    Caller, CallerConfig, CallerError, Envelope, Event, Fate, Notified, Pair, ReplyRecord, SessionId, Ticket, Why,
};

use super::client_reads::{ClientReads, Scripted};
use super::disk::Written;
use super::note_ledger::Count;
use super::served::TOKEN_BYTES;
use super::shared::Shared;
use super::told::{News, Told};
use super::workload::{Begun, Next, Turn};
use crate::chance::Chance;
use crate::clocks::EPOCH_NS;

/// Time between a client's checks of its connections and its session, in nanoseconds.
pub(super) const TICK_NS: u64 = 20_000;
/// Maximum clock error of a client's host, in nanoseconds.
const SKEW_NS: u64 = 40_000;

pub(super) const COMMAND: Wants = Wants { notify: true, sync: false, enveloped: true, not_before: 0 };

/// A request of this process.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) request: u64,
    pub(super) token: u64,
    pub(super) to: Vec<GroupId>,
    pub(super) sequence: u64,
    /// Time at which the request was sent, in nanoseconds.
    pub(super) at_ns: u64,
    /// Time at which the last message with the request was sent, in nanoseconds.
    pub(super) copied_ns: u64,
    /// Time at which the request became known to be delivered, or at which the client last asked about it, in
    /// nanoseconds.
    pub(super) delivered_ns: Option<u64>,
    pub(super) given_up: bool,
}

/// A question about a command, while its answer is outstanding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) token: u64,
    pub(super) at_ns: u64,
}

/// The stage of a client's session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The client opens a session, or takes one up.
    Beginning,
    /// Commands can begin.
    Open,
    /// All commands are done.
    Done,
}

pub(super) struct ClientActor {
    pub(super) client: Client<SimFabric>,
    pub(super) id: ClientId,
    pub(super) me: ProcessId,
    /// The number of the process, from 1.
    pub(super) process: u64,
    pub(super) caller: Option<Caller>,
    pub(super) stage: Stage,
    pub(super) chance: Chance,
    /// The error of the client's wall clock plus [`SKEW_NS`], in nanoseconds.
    skew_ns: u64,
    /// The largest time of the order in any reply.
    pub(super) order_time: u64,
    /// For each group, the origin of its history, as reported in replies.
    origins: Vec<Incarnation>,
    pub(super) sent: Vec<Sent>,
    pub(super) asked: Vec<Asked>,
    /// Time at which the session's own command was last sent, in nanoseconds.
    pub(super) said_ns: Option<u64>,
    pub(super) wanted: Vec<GroupId>,
    /// The destinations of the next command.
    next_to: Option<Vec<GroupId>>,
    not_before_ns: u64,
    next_look_ns: u64,
    /// Number of refusals by a full table since the session was last opened, taken up or widened.
    pub(super) full: u32,
    /// Time until which the client does not ask a table for room again, in nanoseconds.
    pub(super) rests_until_ns: u64,
    superseded: bool,
    pub(super) reads: Option<ClientReads>,
    /// The reads that the workload requests.
    pub(super) scripted: Scripted,
    /// Requests of the current generation to which groups have replied.
    pub(super) replied: HashSet<(u64, GroupId)>,
    pub(super) shared: Rc<Shared>,
}

impl ClientActor {
    pub(super) fn new(shared: &Rc<Shared>, id: ClientId, incarnation: u64) -> Result<Self, NodeError> {
        let me = shared.topology.client_process(id);
        let base = &shared.scenario.base;
        let (fabric, topology) = (shared.world.fabric(me), shared.topology.clone());
        let mut client = Client::new(fabric, topology, id, base.limits, shared.salt, incarnation)?;
        client.set_expel_after(base.expel_ns.map_or(Duration::MAX, Duration::from_nanos));
        let mut chance = Chance::of_process(shared.salt, me, incarnation);
        let done = shared.disks[usize::from(id.0)].borrow().done;
        Ok(ClientActor {
            client,
            id,
            me,
            process: incarnation,
            caller: None,
            stage: if done { Stage::Done } else { Stage::Beginning },
            skew_ns: chance.between(0, 2 * SKEW_NS),
            chance,
            order_time: 0,
            origins: vec![Incarnation::NONE; shared.topology.groups()],
            sent: Vec::new(),
            asked: Vec::new(),
            said_ns: None,
            wanted: Vec::new(),
            next_to: None,
            not_before_ns: 0,
            next_look_ns: 0,
            full: 0,
            rests_until_ns: 0,
            superseded: false,
            reads: ClientReads::new(shared, me, incarnation),
            scripted: Scripted::new(shared, me, incarnation),
            replied: HashSet::new(),
            shared: Rc::clone(shared),
        })
    }

    pub(super) fn step(&mut self, now_ns: u64) -> bool {
        let mut worked = self.client.housekeep();
        worked |= self.client.step();
        self.client.tick(Duration::from_nanos(now_ns));
        worked |= self.take_replies(now_ns);
        if self.client.is_superseded() && !std::mem::replace(&mut self.superseded, true) && self.is_up() {
            self.shared.nemesis.borrow_mut().superseded(now_ns, self.me);
        }
        if now_ns >= self.next_look_ns && self.is_up() && !self.superseded {
            self.next_look_ns = now_ns + TICK_NS;
            self.look(now_ns);
        }
        if self.is_up() && !self.superseded && self.stage != Stage::Done {
            self.read(now_ns);
            self.look_for_scripted(now_ns);
        }
        while self.is_up() && !self.superseded && self.submit_next(now_ns) {
            worked = true;
        }
        self.shared.world.wake_at(self.me, now_ns + TICK_NS);
        worked
    }

    /// Returns whether the process is up. It may have crashed at a post of this step, and its later actions never
    /// happened.
    pub(super) fn is_up(&self) -> bool {
        self.shared.world.is_up(self.me)
    }

    /// Returns the client's estimate of the time of the order.
    pub(super) fn order_now(&self, now_ns: u64) -> u64 {
        self.order_time.max(EPOCH_NS - SKEW_NS + self.skew_ns + now_ns)
    }

    pub(super) fn config(&self) -> CallerConfig {
        let scenario = &self.shared.scenario;
        CallerConfig { window: scenario.sessions.window, ttl: scenario.ttl_ns, renewal_timeout: scenario.again_ns }
    }

    pub(super) fn word(&mut self) -> u64 {
        self.chance.between(1, u64::MAX - 1)
    }

    pub(super) fn pairs(&self, to: &[GroupId]) -> Vec<Pair> {
        let origin = |group: GroupId| match self.origins[usize::from(group.0)] {
            told if !told.is_none() => told,
            _ => self.client.incarnation(group),
        };
        to.iter().map(|group| Pair { group: *group, incarnation: origin(*group) }).collect()
    }

    /// Multicasts a message, and records for the judge that its destinations owe it.
    pub(super) fn submit(&mut self, to: &[GroupId], parts: &[&[u8]]) -> Result<u64, SubmitError> {
        let forgets = self.shared.mutant.forgets_what_it_heard();
        let wants = Wants { not_before: if forgets { 0 } else { self.order_time }, ..COMMAND };
        let submitted = self.client.submit_parts(to, parts, wants)?;
        let mut progress = self.shared.progress.borrow_mut();
        progress.multicast(submitted.id, to);
        drop(progress);
        self.shared.messages.set(self.shared.messages.get() + 1);
        if self.client.submitted() == 1 {
            self.shared.nemesis.borrow_mut().begun(self.shared.world.now_ns());
        }
        Ok(submitted.id.sequence)
    }

    // -------------------------------------------------------------------------------------------------------- replies

    fn take_replies(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        while self.is_up()
            && let Some(reply) = self.client.next_reply()
        {
            any = true;
            let Ok(record) = ReplyRecord::parse(reply.bytes) else {
                self.shared.ledger.borrow_mut().violate("X3", "a reply is not a valid record".to_owned());
                continue;
            };
            self.order_time = self.order_time.max(record.applied);
            if record.is_read() {
                let (from, bytes) = (reply.member, reply.bytes.to_vec());
                if let Ok(record) = ReplyRecord::parse(&bytes) {
                    self.take_read(now_ns, from, &record);
                    self.take_scripted(now_ns, from, &record);
                }
                continue;
            }
            self.origins[usize::from(reply.group.0)] = record.position.incarnation;
            let Some(caller) = &mut self.caller else { continue };
            let session = caller.id();
            if record.session == session && record.generation == caller.generation() {
                self.replied.insert((record.request, reply.group));
            }
            match caller.on_reply(reply.group, &record) {
                Some(Event::Finished(finished)) => {
                    let name = (finished.generation, finished.word, finished.request);
                    let told = told(finished.fate);
                    self.finished(now_ns, session, name, &told);
                    if let Told::Unknown(Why::SessionEnded(group)) = told {
                        self.has_ended_in(group);
                    }
                }
                Some(Event::Answered { kind, refused }) => self.answered(now_ns, kind, refused),
                Some(Event::Renewed { .. }) => self.shared.counts.borrow_mut().renewals += 1,
                Some(Event::Dropped { group, .. }) => {
                    self.shared.counts.borrow_mut().groups_dropped += 1;
                    self.has_ended_in(group);
                }
                Some(Event::Notified(Notified { group, missed, is_one })) => {
                    let count = Count { session, group, generation: record.generation, since: record.end };
                    let one = is_one.then(|| (record.position, record.bytes.to_vec()));
                    let from = reply.member;
                    self.take_news(now_ns, from, count, &News { group, missed, one });
                }
                Some(_) | None => {}
            }
        }
        any
    }

    /// Handles the end of the session in a group. The replies that the group kept are lost with the session, even if
    /// the session is widened to the group again. The outstanding requests to the group are therefore given up, so only
    /// a question can reveal their fate.
    pub(super) fn has_ended_in(&mut self, group: GroupId) {
        let Some(caller) = &mut self.caller else { return };
        for sent in self.sent.iter_mut().filter(|sent| sent.to.contains(&group) && !sent.given_up) {
            sent.given_up = true;
            caller.lost(sent.request, Why::TimedOut);
        }
    }

    /// Handles the known fate of a request.
    pub(super) fn finished(&mut self, now_ns: u64, session: SessionId, name: (u32, u64, u64), told: &Told) {
        if let Told::Applied(replies) = told {
            replies.iter().for_each(|(group, position, _)| self.note_place(*group, *position));
        }
        let shared = Rc::clone(&self.shared);
        let mut disk = shared.disks[usize::from(self.id.0)].borrow_mut();
        let caller = self.caller.as_ref();
        let generation = caller.map_or(0, Caller::generation);
        // A request may be reported again after it is removed. The second report is ignored.
        let Some(at) = disk.position(session, name) else { return };
        let token = disk.tickets[at].token;
        let is_own = name.0 == generation && caller.is_some_and(|caller| caller.word() == name.1);
        let is_settled = !is_own || caller.is_some_and(|caller| caller.ticket(name.2).is_none());
        let last = match told {
            Told::Applied(_) | Told::NotApplied => true,
            // The process that superseded this one asks for the fate.
            Told::Unknown(Why::Superseded) => false,
            Told::Unknown(_) => is_settled,
        };
        shared.ledger.borrow_mut().told(token, told, generation.saturating_sub(name.0), last);
        let numbers = [token, u64::from(last), matches!(told, Told::Applied(_)).into()];
        shared.record("told", now_ns, self.me, &numbers);
        let mut counts = shared.counts.borrow_mut();
        match told {
            Told::Applied(replies) => {
                counts.applied += 1;
                counts.replies_too_long += u64::from(replies.iter().any(|(_, _, bytes)| bytes.is_none()));
            }
            Told::NotApplied => counts.not_applied += 1,
            Told::Unknown(_) => counts.unresolvable += u64::from(last),
        }
        if last {
            shared.tell(|| format!("client {} {}", self.id.0, in_words(told, token)));
            shared.workload.borrow_mut().told(token, told, shared.next_stamp());
            disk.tickets.remove(at);
            self.sent.retain(|sent| sent.token != token);
            self.asked.retain(|asked| asked.token != token);
        } else if let Some(sent) = self.sent.iter_mut().find(|sent| sent.token == token) {
            sent.given_up = true;
        }
    }

    // ------------------------------------------------------------------------------------------------------- commands

    /// Sends the next command if it is due and there is room.
    fn submit_next(&mut self, now_ns: u64) -> bool {
        let disk = self.shared.disks[usize::from(self.id.0)].borrow();
        let rests = disk.left == 0 || disk.is_to_end() || self.makes_room();
        drop(disk);
        if self.stage != Stage::Open || rests {
            return false;
        }
        if now_ns < self.not_before_ns {
            self.shared.world.wake_at(self.me, self.not_before_ns);
            return false;
        }
        if self.next_to.is_none() && self.scripted.next.is_none() {
            self.ask_next(now_ns);
        }
        if let Some(read) = self.scripted.next.take() {
            return self.submit_read(now_ns, read);
        }
        let Some(to) = self.next_to.take() else { return false };
        // Most commands that would have to wait for room do not begin.
        if self.client.next_id(&to, &[]).is_err() && self.chance.between(0, 15) > 0 {
            self.next_to = Some(to);
            return false;
        }
        let is_query = self.shared.workload.borrow().is_query(self.id, self.shared.coming_token());
        let begun = self.caller.as_mut().map(|caller| match is_query {
            true => caller.begin_query(&to),
            false => caller.begin(&to),
        });
        let request = match begun {
            Some(Ok(request)) => request,
            Some(Err(CallerError::SessionNotOpen(group))) => {
                let group = GroupId(group);
                if !self.wanted.contains(&group) {
                    self.wanted.push(group);
                }
                self.next_to = Some(to);
                return false;
            }
            _ => {
                self.next_to = Some(to);
                return false;
            }
        };
        if !self.begun(now_ns, request, to) {
            return false;
        }
        self.pause(now_ns);
        true
    }

    /// Delays the next command by a random time.
    pub(super) fn pause(&mut self, now_ns: u64) {
        let pause = self.shared.scenario.base.pause_ns;
        self.not_before_ns = now_ns + self.chance.between(0, pause);
    }

    /// Asks the workload for the next action.
    fn ask_next(&mut self, now_ns: u64) {
        let shared = Rc::clone(&self.shared);
        let Some(session) = self.caller.as_ref().map(Caller::id) else { return };
        let (process, groups) = (self.process, shared.topology.groups());
        let mut turn = Turn { client: self.id, process, session, now_ns, groups, chance: &mut self.chance };
        let next = shared.workload.borrow_mut().next(&mut turn);
        match next {
            Next::Call(to) => self.next_to = Some(to),
            Next::Read(group, guarantee) => self.scripted.next = Some((group, guarantee)),
            Next::Later => {}
            Next::Wait(ns) => {
                self.not_before_ns = now_ns.saturating_add(ns);
                shared.world.wake_at(self.me, self.not_before_ns);
            }
            Next::Done => shared.disks[usize::from(self.id.0)].borrow_mut().left = 0,
        }
    }

    /// Writes a ticket of a begun command to the disk, and sends the command. Returns whether it was sent.
    fn begun(&mut self, now_ns: u64, request: u64, to: Vec<GroupId>) -> bool {
        let shared = Rc::clone(&self.shared);
        let Some(caller) = &self.caller else { return false };
        let Some(ticket) = caller.ticket(request).cloned() else { return false };
        let token = shared.next_token();
        shared.ledger.borrow_mut().begun(token, caller.id(), &to, self.order_time);
        shared.counts.borrow_mut().commands += 1;
        let mut disk = shared.disks[usize::from(self.id.0)].borrow_mut();
        disk.left -= 1;
        disk.tickets.push(Written { ticket: Ticket::from_bytes(&ticket.to_bytes()).unwrap_or_default(), token });
        drop(disk);
        let (session, generation) = (caller.id(), caller.generation());
        let stamp = shared.next_stamp();
        let begun = Begun { token, client: self.id, session, generation, to: &to, stamp };
        shared.workload.borrow_mut().begun(&begun);
        shared.tell(|| {
            format!("client {} begins call {token} under session {:08x}.{generation}", self.id.0, session.0 >> 96)
        });
        let name = (ticket.generation, ticket.word, ticket.request);
        if let Some(sequence) = self.send(request, token, &to) {
            let sent = Sent {
                request,
                token,
                to,
                sequence,
                at_ns: now_ns,
                copied_ns: now_ns,
                delivered_ns: None,
                given_up: false,
            };
            self.sent.push(sent);
            return true;
        }
        // The command is not sent, and never will be.
        if self.is_up() && self.caller.as_mut().is_some_and(|caller| caller.not_sent(request).is_some()) {
            self.finished(now_ns, session, name, &Told::NotApplied);
            let mut counts = shared.counts.borrow_mut();
            counts.not_sent += 1;
            counts.not_applied -= 1;
            drop(counts);
            shared.disks[usize::from(self.id.0)].borrow_mut().left += 1;
        }
        false
    }

    /// Sends a message that carries a request. Returns its sequence number, or `None` if there was no room.
    pub(super) fn send(&mut self, request: u64, token: u64, to: &[GroupId]) -> Option<u64> {
        let mut envelope = [0; Envelope::BYTES];
        if !self.caller.as_ref()?.envelope(request, &mut envelope) {
            return None;
        }
        let mut command = Vec::with_capacity(TOKEN_BYTES);
        command.extend(token.to_le_bytes());
        self.shared.workload.borrow().command(token, &mut command);
        self.submit(to, &[&envelope, &command]).ok()
    }

    /// Draws some groups.
    pub(super) fn draw_groups(&mut self) -> Vec<GroupId> {
        let (groups, client) = (self.shared.topology.groups(), self.id);
        let session = SessionId(0);
        Turn { client, process: 0, session, now_ns: 0, groups, chance: &mut self.chance }.draw_groups()
    }

    /// Returns whether the client ends its session because groups have no room for it. Otherwise clients could wait for
    /// each other's table entries forever.
    pub(super) fn makes_room(&self) -> bool {
        self.stage == Stage::Open && self.full > 1
    }

    /// Describes the state of the client.
    pub(super) fn stand(&self) -> String {
        let disk = self.shared.disks[usize::from(self.id.0)].borrow();
        let caller = self.caller.as_ref();
        let asks = caller.and_then(Caller::message).map(|message| message.to.len());
        let open = caller.is_some_and(Caller::is_open);
        let tickets: Vec<String> = disk
            .tickets
            .iter()
            .map(|written| format!("{} of generation {}", written.ticket.request, written.ticket.generation))
            .collect();
        format!(
            "client {} is {:?}, open: {open}, in generation {}, {} commands to go, asks {asks:?} groups, wants {:?}, {} messages \
             outstanding; open: {}; missing notifications: {}",
            self.id.0,
            self.stage,
            caller.map_or(0, Caller::generation),
            disk.left,
            self.wanted,
            self.client.outstanding(),
            tickets.join(", "),
            self.unheard().unwrap_or_else(|| "none".to_owned())
        )
    }
}

fn told(fate: Fate<'_>) -> Told {
    match fate {
        Fate::Applied(replies) => {
            let owned = replies.iter().map(|reply| (reply.group, reply.position, reply.bytes.map(<[u8]>::to_vec)));
            Told::Applied(owned.collect())
        }
        Fate::NotApplied(_) => Told::NotApplied,
        Fate::Unknown(why) => Told::Unknown(why),
    }
}

/// Describes the outcome of a call.
pub(super) fn in_words(told: &Told, token: u64) -> String {
    match told {
        Told::Applied(replies) => {
            let replies = replies.iter().map(|(group, position, bytes)| {
                let reply = bytes.as_ref().map_or("a reply that is too long".to_owned(), |bytes| {
                    format!("\"{}\"", bytes[..bytes.len().min(60)].escape_ascii())
                });
                format!("{reply} by group {} at {}", group.0, position.index)
            });
            format!("has the answer to call {token}: {}", replies.collect::<Vec<_>>().join(", "))
        }
        Told::NotApplied => format!("learns that call {token} is not applied"),
        Told::Unknown(why) => format!("learns that the fate of call {token} is unknown: {why:?}"),
    }
}
