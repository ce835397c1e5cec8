//! Properties of every run, checked while it runs.

use std::collections::{BTreeMap, BTreeSet};

use stentor_multicast::{GroupId, Incarnation};
use stentor_session::{Call, Fate, Finished, Notified, Outcome, Reply, ReplyRecord, Service, SessionId, Why};

/// Identifier of a request: session, generation, number.
pub(crate) type Name = (SessionId, u32, u64);

/// The notifications to a session in one generation, by one group in one incarnation, which has known the session since
/// the given time.
pub(crate) type Notifications = (SessionId, u32, u16, Incarnation, u64);

/// The state machine of one group in one incarnation. It remembers what it applied.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Machine {
    pub(crate) group: u16,
    /// Number of times that each request of each process was applied.
    pub(crate) applied: BTreeMap<(Name, u64), u32>,
    pub(crate) ended: BTreeSet<SessionId>,
    /// Last generation of each session in the table above the machine.
    pub(crate) generations: BTreeMap<SessionId, u32>,
    /// A request that was applied with the command of another one, or as a query instead of a command or the reverse.
    pub(crate) foreign: Option<Name>,
}

/// Returns whether a request is a query instead of a command.
pub(crate) fn is_query(request: u64) -> bool {
    request.is_multiple_of(2)
}

/// Returns the command of a request of the process that this word identifies.
pub(crate) fn command(by: u64, (session, generation, request): Name) -> Vec<u8> {
    let mut bytes = by.to_le_bytes().to_vec();
    bytes.extend(session.0.to_le_bytes());
    bytes.extend(generation.to_le_bytes());
    bytes.extend(request.to_le_bytes());
    bytes
}

/// Returns the reply of a group to a request.
fn reply(group: u16, by: u64, name: Name) -> Vec<u8> {
    let mut bytes = group.to_le_bytes().to_vec();
    bytes.extend(command(by, name));
    bytes
}

impl Service for Machine {
    fn apply(&mut self, call: Call<'_>, out: &mut Reply<'_>) {
        let name = (call.session, call.generation, call.request);
        let by = call.command.first_chunk().map_or(0, |by| u64::from_le_bytes(*by));
        *self.applied.entry((name, by)).or_default() += 1;
        let is_whole = call.command.get(8..) == Some(&command(0, name)[8..]);
        if !is_whole || call.is_query != is_query(call.request) {
            self.foreign = Some(name);
        }
        out.extend(&self.group.to_le_bytes());
        out.extend(call.command);
    }

    fn ended(&mut self, session: SessionId) {
        self.ended.insert(session);
    }
}

/// Reports that callers received, and events with which the reports must agree.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Audit {
    /// Requests that were reported as applied in no group.
    pub(crate) never: BTreeSet<(Name, u64)>,
    /// Requests that were reported as applied, and the groups.
    pub(crate) done: BTreeMap<(Name, u64), Vec<u16>>,
    /// Largest generation that a delivered `TakeUp` names, for each session.
    pub(crate) generations: BTreeMap<SessionId, u32>,
    pub(crate) resets: BTreeSet<u16>,
    pub(crate) skips: BTreeSet<Name>,
    /// Time since which a session is open in a group.
    pub(crate) since: BTreeMap<(SessionId, u16), u64>,
    /// Number of notifications that were sent.
    pub(crate) sent: BTreeMap<Notifications, u64>,
    /// Number of notifications, for each process, that were received or are known to be lost.
    pub(crate) heard: BTreeMap<(usize, Notifications), u64>,
    pub(crate) fault: Option<String>,
}

impl Audit {
    pub(crate) fn fail(&mut self, text: String) {
        self.fault.get_or_insert(text);
    }

    /// Records that the fate of a request was reported to a caller of this session and generation.
    pub(crate) fn hear(&mut self, hearer: (SessionId, u32), finished: &Finished<'_>, machines: &[&Machine]) {
        let ((session, own), by) = (hearer, finished.word);
        let name = (session, finished.generation, finished.request);
        match finished.fate {
            Fate::Applied(replies) => {
                for from in replies.iter() {
                    if from.bytes != Some(&reply(from.group.0, by, name)[..]) {
                        self.fail(format!("{name:?}: a reply of another request, from {:?}", from.group));
                    }
                }
                let groups = replies.iter().map(|reply| reply.group.0).collect();
                self.done.insert((name, by), groups);
            }
            Fate::NotApplied(_) => drop(self.never.insert((name, by))),
            Fate::Unknown(why) => self.hear_unknown(name, own, why, machines),
        }
    }

    /// Records that a process received information about notifications. Each notification holds its number.
    pub(crate) fn hear_notified(
        &mut self,
        process: usize,
        (session, generation): (SessionId, u32),
        news: Notified,
        record: &ReplyRecord<'_>,
    ) {
        let name = (session, generation, news.group.0, record.position.incarnation, record.end);
        let heard = self.heard.entry((process, name)).or_default();
        *heard += news.missed + u64::from(news.is_one);
        let heard = *heard;
        if news.is_one && record.bytes != heard.to_le_bytes() {
            self.fail(format!("{name:?}: after {heard} notifications another one: {:?}", record.bytes));
        }
        if self.sent.get(&name).is_none_or(|sent| *sent < heard) {
            self.fail(format!("{name:?}: {heard} notifications were not sent"));
        }
    }

    /// Checks that a process that received the number of all notifications knows of each.
    pub(crate) fn has_heard_all(&mut self, process: usize, name: Notifications) {
        let (sent, heard) = (self.sent.get(&name), self.heard.get(&(process, name)));
        if sent != heard {
            self.fail(format!("{name:?}: {sent:?} notifications were sent, and {heard:?} are known"));
        }
    }

    /// Checks that a fate is reported as unknown only for a true reason.
    fn hear_unknown(&mut self, name: Name, own: u32, why: Why, machines: &[&Machine]) {
        let (session, generation, _) = name;
        let is_true = match why {
            Why::Superseded => self.generations.get(&session).is_some_and(|last| *last > generation),
            Why::SessionEnded(GroupId(group)) => {
                let machine = machines[group as usize];
                machine.ended.contains(&session) || machine.generations.get(&session) != Some(&own)
            }
            Why::GroupReset(_) => !self.resets.is_empty(),
            Why::Skipped(_) => self.skips.contains(&name),
            Why::TimedOut | Why::Forgotten(_) => true,
            Why::ClientEnded | Why::Halted(_) => false,
            _ => false,
        };
        if !is_true {
            self.fail(format!("{name:?}: unknown without its reason: {why:?}"));
        }
    }

    /// Checks that all groups of a delivered command did the same.
    pub(crate) fn alike(&mut self, name: Name, applied: &[bool]) {
        if applied.windows(2).any(|pair| pair[0] != pair[1]) {
            self.fail(format!("{name:?}: applied in one group of a message and not in another: {applied:?}"));
        }
    }

    /// Checks the properties that hold at any time in every group: no request is applied twice or after it was reported
    /// as never applied, and requests that were reported as applied are applied.
    pub(crate) fn check(&mut self, machines: &[&Machine]) {
        let mut faults = Vec::new();
        for machine in machines {
            let twice = machine.applied.iter().filter(|(_, count)| **count > 1);
            faults.extend(twice.map(|(name, count)| format!("{name:?}: applied {count} times in {}", machine.group)));
            let denied = machine.applied.keys().filter(|name| self.never.contains(name));
            faults.extend(denied.map(|name| format!("{name:?}: applied in {}, but reported as never", machine.group)));
            faults.extend(machine.foreign.map(|name| format!("{name:?}: another command was applied")));
            let done = self.done.iter().filter(|(_, groups)| groups.contains(&machine.group));
            let mut missing = done.filter(|(name, _)| !machine.applied.contains_key(name));
            if !self.resets.contains(&machine.group) {
                faults.extend(missing.next().map(|(name, _)| format!("{name:?}: reported, not applied")));
            }
        }
        faults.into_iter().for_each(|fault| self.fail(fault));
    }
}

/// Returns the name of an outcome in the counts.
pub(crate) fn label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Applied => "applied",
        Outcome::Overflow => "overflow",
        Outcome::Skipped => "skipped",
        Outcome::Refused(reason) => match reason {
            stentor_session::Reason::TooLate => "too late",
            stentor_session::Reason::Superseded => "superseded",
            stentor_session::Reason::GenerationAhead => "generation ahead",
            stentor_session::Reason::OutsideWindow => "outside window",
            stentor_session::Reason::Taken => "taken",
            _ => "time to live",
        },
        Outcome::Closed => "closed",
        Outcome::Forgotten => "forgotten",
        Outcome::SessionNotOpen => "session not open",
        Outcome::TableFull => "table full",
        Outcome::WrongPairs => "wrong pairs",
        _ => "halted",
    }
}
