//! The judge of a session run: it compares the effects of commands with the reports to their callers.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use stentor_checker::{CounterExample, Verdict};
use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, GroupId, Timestamp};
use stentor_session::{Outcome, Position, SessionId, SessionLimits, Why};
use xxhash_rust::xxh3::xxh3_64;

use super::note_ledger::{NoteLedger, Notes};
use super::read_ledger::ReadLedger;
use super::tally::{is_query, state_in};
use super::time_ledger::{TimeLedger, Timed};
use super::told::Told;

/// The application of a call in one group.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The number of the call in the order of the group.
    pub number: u64,
    /// The final timestamp of the call.
    pub timestamp: Timestamp,
    /// The complete reply.
    pub reply: Vec<u8>,
}

/// One position in a group's order.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The final timestamp of the message at this position.
    pub timestamp: Timestamp,
    /// The destination groups of the message.
    pub groups: Vec<GroupId>,
    /// The client that multicast the message, or `None` for a time entry.
    pub client: Option<ClientId>,
    /// The sessions that had expired by this position, in the order in which the machine learnt of it. The machine
    /// learns of them before its timers fire.
    pub ran_out: Vec<SessionId>,
    /// The sessions that the message ended. The machine learns of them after its timers have fired.
    pub ended: Vec<SessionId>,
}

impl Passed {
    /// Returns all sessions that ended at this position.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.ran_out.iter().chain(&self.ended).copied()
    }
}

/// A position in one group's order: the number of a delivery.
pub(super) type Place = (GroupId, u64);

/// The applications of each call, by token and group.
pub type AppliedCalls = BTreeMap<u64, BTreeMap<GroupId, Applied>>;

/// A command and its effects.
#[derive(Clone, Debug)]
struct Command {
    session: SessionId,
    to: Vec<GroupId>,
    /// The time of the order that the caller had observed when the command began.
    heard: u64,
    applied: BTreeMap<GroupId, Applied>,
    /// `true` if the caller knows the fate, or can never learn it.
    is_known: bool,
    /// `true` if the caller reported that the command is not applied.
    never: bool,
}

/// The state of the judge of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Maximum number of requests of earlier generations whose replies a table keeps.
    window: usize,
    /// Maximum size of a reply that a table keeps, in bytes.
    reply_bytes: usize,
    /// `true` if members replicate a [`Tally`](super::tally::Tally), whose replies contain its state.
    of_tally: bool,
    commands: BTreeMap<u64, Command>,
    /// For each position: the hashes of table and value after the delivery, and the first member that had them.
    states: HashMap<Place, ([u64; 2], ProcessId)>,
    /// `true` if the values of two members differ.
    values_differ: bool,
    /// The judge of reads outside the order.
    pub(super) reads: ReadLedger,
    /// The judge of notifications.
    pub(super) notes: NoteLedger,
    /// The judge of times and versions.
    times: TimeLedger,
    /// Positions at which some member has applied a call.
    seen: HashSet<Place>,
    /// The state in each group's last reply: digest and count.
    last: HashMap<GroupId, [u64; 2]>,
    /// Sessions that ended or expired in a group.
    ended: HashSet<(GroupId, SessionId)>,
    /// The positions that members have passed and at which sessions ended. For a machine other than the tally, also the
    /// positions at which no session ended.
    passed: BTreeMap<Place, Passed>,
    /// The first violation of each property.
    violations: BTreeMap<&'static str, String>,
    /// Violations that were not fetched by [`news`](Ledger::news) yet.
    news: Vec<String>,
}

impl Ledger {
    /// The names of the properties.
    pub(super) const PROPERTIES: [&'static str; 13] =
        ["X1", "X10", "X11", "X12", "X13", "X2", "X3", "X4", "X5", "X6", "X7", "X8", "X9"];

    /// Creates the judge of a run with tables of these limits. `of_tally` is `true` for a
    /// [`Tally`](super::tally::Tally).
    pub(super) fn new(limits: SessionLimits, of_tally: bool) -> Ledger {
        let (window, reply_bytes) = (limits.window as usize, limits.reply_bytes as usize);
        Ledger { window, reply_bytes, of_tally, ..Ledger::default() }
    }

    pub(super) fn violate(&mut self, property: &'static str, what: String) {
        if let Entry::Vacant(first) = self.violations.entry(property) {
            self.news.push(format!("{property}: {what}"));
            first.insert(what);
        }
    }

    /// Returns the violations since the last call.
    pub(super) fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Records that a caller began a command, and the time of the order that it had observed.
    pub(super) fn begun(&mut self, token: u64, session: SessionId, to: &[GroupId], heard: u64) {
        let command =
            Command { session, to: to.to_vec(), heard, applied: BTreeMap::new(), is_known: false, never: false };
        self.commands.insert(token, command);
    }

    /// Records that a member applied a command. Returns whether it is the first member.
    pub(super) fn applied(&mut self, place: Place, timestamp: Timestamp, token: u64, reply: &[u8]) -> bool {
        let is_first = self.seen.insert(place);
        if is_first {
            self.applied_first(place, timestamp, token, reply);
        }
        is_first
    }

    fn applied_first(&mut self, (group, number): Place, timestamp: Timestamp, token: u64, reply: &[u8]) {
        let time = timestamp.time;
        if self.of_tally {
            self.check_query(group, token, reply);
            self.reads.applied(group, number, state_in(reply));
        }
        let Some(command) = self.commands.get_mut(&token) else {
            return self.violate("X1", format!("group {} applies command {token}, which nobody sent", group.0));
        };
        let earlier = command.applied.get(&group).map(|applied| applied.number);
        let (is_for, never, heard) = (command.to.contains(&group), command.never, command.heard);
        command.applied.entry(group).or_insert_with(|| Applied { number, timestamp, reply: reply.to_vec() });
        if let Some(earlier) = earlier {
            self.violate("X1", format!("group {} applies command {token} at {earlier} and {number}", group.0));
        }
        if !is_for {
            self.violate("X1", format!("command {token} is not for group {}, which applies it", group.0));
        }
        if time <= heard {
            let what =
                format!("group {} applies command {token} at {time}, but its caller had observed {heard}", group.0);
            self.violate("X8", what);
        }
        if never {
            self.violate("X4", format!("group {} applies command {token}, which was reported as not applied", group.0));
        }
    }

    /// Judges whether a query left the state unchanged, and a command changed it. Every member applies deliveries in
    /// order, so each position is judged after those before it.
    fn check_query(&mut self, group: GroupId, token: u64, reply: &[u8]) {
        let (told, last) = (state_in(reply), self.last.entry(group).or_default());
        let is_right = if is_query(token) { told == *last } else { told[1] == last[1] + 1 };
        *last = told;
        if !is_right {
            let kind = if is_query(token) { "query" } else { "command" };
            self.violate(
                "X9",
                format!("group {} answers {kind} {token} from another state than the last one", group.0),
            );
        }
    }

    /// Records that sessions ended at a member.
    pub(super) fn ended(&mut self, group: GroupId, sessions: impl IntoIterator<Item = SessionId>) {
        self.ended.extend(sessions.into_iter().map(|session| (group, session)));
    }

    /// Records that a member passes a position. Returns whether sessions ended there and this member is the first to
    /// pass it.
    pub(super) fn passes(&mut self, place: Place, passed: Passed) -> bool {
        let have_ended = passed.sessions().next().is_some();
        if !have_ended && self.of_tally {
            return false;
        }
        self.ended(place.0, passed.sessions());
        let entry = self.passed.entry(place);
        let is_first = matches!(entry, Entry::Vacant(_));
        let passed = entry.or_insert(passed);
        if is_first {
            passed.sessions().for_each(|session| self.notes.ended(place.0, session));
        }
        is_first && have_ended
    }

    /// Judges the times and the version at a position that a member has passed. Returns whether it is the first member
    /// there.
    pub(super) fn timed(&mut self, place: Place, me: ProcessId, at: &Timed) -> bool {
        if !self.of_tally {
            return false;
        }
        let (is_first, wrong) = self.times.passed(place, me, at);
        if let Some((property, what)) = wrong {
            self.violate(property, what);
        }
        is_first
    }

    /// Returns whether no member has applied the delivery at a position.
    pub(super) fn is_new(&self, place: Place) -> bool {
        !self.states.contains_key(&place)
    }

    /// Returns whether a group has applied a command.
    pub(super) fn is_applied(&self, token: u64) -> bool {
        self.commands.get(&token).is_some_and(|command| !command.applied.is_empty())
    }

    /// Returns the position of a command in the order of a group, if a member has applied it there.
    pub(super) fn place_of(&self, token: u64, group: GroupId) -> Option<u64> {
        Some(self.commands.get(&token)?.applied.get(&group)?.number)
    }

    /// Compares a member's table and value after a delivery with those of other members.
    pub(super) fn state(&mut self, place: Place, me: ProcessId, table: &[u8], value: &[u8]) {
        let hashes = [xxh3_64(table), xxh3_64(value)];
        let (first, other) = *self.states.entry(place).or_insert((hashes, me));
        if first != hashes {
            let (group, number) = place;
            let what = if first[1] == hashes[1] { "replies or sessions" } else { "values" };
            self.values_differ |= first[1] != hashes[1];
            let text = format!("the {what} of {other} and {me} in group {} differ after delivery {number}", group.0);
            self.violate("X6", text);
        }
    }

    /// Returns whether the values of two members differ, and not only the data kept for sessions.
    pub(super) fn do_values_differ(&self) -> bool {
        self.values_differ
    }

    /// Returns whether the caller knows the fate of a command, or can never learn it.
    pub(super) fn is_known(&self, token: u64) -> bool {
        self.commands.get(&token).is_none_or(|command| command.is_known)
    }

    /// Judges the fate that is reported to a caller. `age` is the number of generations since the command was sent.
    /// `last` is `true` if the caller does not ask again.
    pub(super) fn told(&mut self, token: u64, told: &Told, age: u32, last: bool) {
        let Some(command) = self.commands.get_mut(&token) else {
            return self.violate("X3", format!("a caller learns the fate of command {token}, which nobody sent"));
        };
        command.is_known |= last;
        match told {
            Told::Applied(replies) => {
                if command.never {
                    return self.violate("X4", format!("command {token} is reported as not applied, and as applied"));
                }
                if let Err(why) = compare(command, replies, self.reply_bytes) {
                    self.violate("X3", format!("the reply to command {token}: {why}"));
                }
            }
            Told::NotApplied => {
                command.never = true;
                if let Some(group) = command.applied.keys().next() {
                    let text =
                        format!("command {token} is reported as not applied, but group {} has applied it", group.0);
                    self.violate("X4", text);
                }
            }
            Told::Unknown(why) if last => self.check_reason(token, *why, age),
            Told::Unknown(_) => {}
        }
    }

    /// Judges whether the final reason for an unknown fate is true.
    fn check_reason(&mut self, token: u64, why: Why, age: u32) {
        let command = &self.commands[&token];
        let session = command.session;
        let ended = |group: &GroupId| self.ended.contains(&(*group, session));
        let is_true = match why {
            Why::SessionEnded(_) => command.to.iter().any(ended),
            // Only other requests of the session can have displaced the request from the table.
            Why::Forgotten(group) => {
                let begun = self.commands.values().filter(|command| command.session == session).count();
                ended(&group) || (age > 1 && (begun > self.window || age as usize > self.window))
            }
            _ => false,
        };
        if !is_true {
            self.violate("X5", format!("the fate of command {token} stays unknown: {why:?}, {age} generations ago"));
        }
    }

    /// Returns whether a session ended or expired in a group.
    pub(super) fn has_ended(&self, group: GroupId, session: SessionId) -> bool {
        self.ended.contains(&(group, session))
    }

    /// Closes the judge. Returns the number of commands to several groups that were applied in all of them. `finished`
    /// is `true` if nothing is in progress any more.
    pub(super) fn close(&mut self, finished: bool) -> u64 {
        let mut in_several = 0;
        let mut torn = None;
        for (token, command) in &self.commands {
            let whole = command.applied.len() == command.to.len();
            in_several += u64::from(whole && command.to.len() > 1);
            if !whole && !command.applied.is_empty() {
                let groups = |groups: Vec<GroupId>| groups.iter().map(|group| group.0).collect::<Vec<_>>();
                let by = groups(command.applied.keys().copied().collect());
                let to = groups(command.to.clone());
                torn.get_or_insert_with(|| format!("command {token} to groups {to:?} is applied by {by:?} only"));
            }
        }
        if let Some(torn) = torn.filter(|_| finished) {
            self.violate("X2", torn);
        }
        if let Some(why) = self.reads.close() {
            self.violate("X10", why);
        }
        in_several
    }

    /// Returns the verdicts, and a description of the violation of one property: the first violated one in the order of
    /// names.
    pub(super) fn verdicts(&self) -> (BTreeMap<&'static str, Verdict>, Option<String>) {
        let verdict = |property: &&'static str| match self.violations.get(property) {
            Some(summary) => Verdict::Violated(CounterExample { summary: summary.clone(), lines: Vec::new() }),
            None if *property == "X9" && !self.of_tally => {
                Verdict::NotChecked("only the replies of a tally contain its state")
            }
            None if matches!(*property, "X12" | "X13") && !self.of_tally => {
                Verdict::NotChecked("only a tally records when sessions end and timers fire")
            }
            None => Verdict::Ok,
        };
        let verdicts = Self::PROPERTIES.iter().map(|property| (*property, verdict(property))).collect();
        let first = self.violations.iter().next().map(|(property, what)| format!("{property}: {what}"));
        (verdicts, first)
    }

    /// Returns the applications of calls, the recorded positions, and the notifications that machines sent.
    pub(super) fn into_places(self) -> (AppliedCalls, BTreeMap<Place, Passed>, BTreeMap<Place, Notes>) {
        let applied = self.commands.into_iter().map(|(token, command)| (token, command.applied)).collect();
        (applied, self.passed, self.notes.into_notes())
    }
}

fn compare(command: &Command, replies: &[(GroupId, Position, Option<Vec<u8>>)], longest: usize) -> Result<(), String> {
    let groups: Vec<GroupId> = replies.iter().map(|(group, ..)| *group).collect();
    if groups != command.to {
        return Err(format!("it is of groups {groups:?}, and was sent to {:?}", command.to));
    }
    for (group, position, bytes) in replies {
        let Some(applied) = command.applied.get(group) else {
            return Err(format!("group {} has not applied it", group.0));
        };
        if (applied.number, applied.timestamp.time) != (position.index, position.timestamp.time) {
            return Err(format!("group {} applied it at {}, not at {}", group.0, applied.number, position.index));
        }
        let right = bytes.as_ref().map_or(applied.reply.len() > longest, |bytes| *bytes == applied.reply);
        if !right {
            let got = bytes.as_ref().map_or("nothing".to_owned(), |bytes| format!("\"{}\"", bytes.escape_ascii()));
            let replied = applied.reply.escape_ascii();
            return Err(format!("group {} replied \"{replied}\", and the caller got {got}", group.0));
        }
    }
    Ok(())
}

/// Returns whether a refused command of a session may succeed when it is repeated.
pub(super) fn passes(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::Applied | Outcome::SessionNotOpen)
}

#[cfg(test)]
mod tests {
    use stentor_multicast::Incarnation;

    use super::*;

    const SESSION: SessionId = SessionId(7);
    const LIMITS: SessionLimits = SessionLimits { sessions: 1, ended: 0, window: 0, reply_bytes: 40, ttl: 1 };

    fn at(time: u64) -> Timestamp {
        Timestamp { time, group: 0 }
    }

    fn violated(ledger: &Ledger) -> Vec<&'static str> {
        ledger.violations.keys().copied().collect()
    }

    fn reply(group: u16, index: u64, bytes: &[u8]) -> Told {
        let timestamp = Timestamp { time: 90, group };
        let position = Position { timestamp, index, incarnation: Incarnation::FIRST };
        Told::Applied(vec![(GroupId(group), position, Some(bytes.to_vec()))])
    }

    /// Returns a complete reply of the tally.
    fn whole(digest: u64, count: u64) -> Vec<u8> {
        [digest.to_le_bytes(), count.to_le_bytes()].concat()
    }

    #[test]
    fn queries_have_the_state_of_the_last_command_and_leave_it() {
        let (group, query) = (GroupId(0), 4);
        assert!(is_query(query) && !is_query(1) && !is_query(2));
        for (answer, next, is_right) in
            [(whole(7, 1), whole(8, 2), true), (whole(8, 2), whole(9, 3), false), (whole(7, 1), whole(9, 3), false)]
        {
            let mut ledger = Ledger::new(LIMITS, true);
            for (place, (token, reply)) in (1..).zip([(1, whole(7, 1)), (query, answer), (2, next)]) {
                ledger.begun(token, SESSION, &[group], 0);
                ledger.applied((group, place), at(90), token, &reply);
            }
            assert_eq!(violated(&ledger).is_empty(), is_right);
            assert!(is_right || violated(&ledger) == ["X9"]);
        }
    }

    #[test]
    fn states_times_and_versions_are_not_judged_for_another_machine_than_the_tally() {
        for (of_tally, expected) in [(true, ""), (false, "X12X13X9")] {
            let (verdicts, first) = Ledger::new(LIMITS, of_tally).verdicts();
            let unjudged = verdicts.iter().filter(|(_, verdict)| verdict.as_str() == "not_checked");
            assert_eq!((unjudged.map(|(name, _)| *name).collect::<String>(), first), (expected.to_owned(), None));
        }
    }

    #[test]
    fn each_property_is_violated_by_its_own_fault() {
        let one = [GroupId(0)];
        let mut ledger = Ledger::new(LIMITS, true);
        ledger.begun(1, SESSION, &one, 0);
        ledger.applied((one[0], 5), at(90), 1, &whole(7, 1));
        ledger.applied((one[0], 5), at(90), 1, &whole(7, 1));
        ledger.told(1, &reply(0, 5, &whole(7, 1)), 0, true);
        ledger.close(true);
        assert_eq!(violated(&ledger), [""; 0]);
        ledger.told(1, &reply(0, 5, b"no"), 0, true);
        ledger.applied((one[0], 6), at(91), 1, &whole(8, 2));
        assert_eq!(violated(&ledger), ["X1", "X3"]);

        let mut ledger = Ledger::new(LIMITS, true);
        ledger.begun(2, SESSION, &[GroupId(0), GroupId(1)], 0);
        ledger.applied((GroupId(1), 1), at(90), 2, &whole(7, 1));
        ledger.told(2, &Told::NotApplied, 0, true);
        ledger.told(2, &Told::Unknown(Why::Forgotten(GroupId(0))), 1, true);
        ledger.state((GroupId(0), 1), ProcessId(0), b"", b"a");
        ledger.state((GroupId(0), 1), ProcessId(0), b"", b"b");
        ledger.close(false);
        assert_eq!(violated(&ledger), ["X4", "X5", "X6"]);
        ledger.close(true);
        assert_eq!(violated(&ledger), ["X2", "X4", "X5", "X6"]);
    }

    #[test]
    fn a_fate_stays_unknown_only_for_a_reason_that_is_true() {
        let group = GroupId(0);
        for (why, age, ended, is_true) in [
            (Why::SessionEnded(group), 0, true, true),
            (Why::SessionEnded(group), 0, false, false),
            (Why::Forgotten(group), 2, false, false),
            (Why::Forgotten(group), 3, false, true),
            (Why::Forgotten(group), 1, false, false),
            (Why::TimedOut, 9, true, false),
        ] {
            let mut ledger = Ledger::new(SessionLimits { window: 2, ..LIMITS }, true);
            ledger.begun(1, SESSION, &[group], 0);
            ledger.ended(group, ended.then_some(SESSION));
            ledger.told(1, &Told::Unknown(why), age, true);
            assert_eq!(violated(&ledger).is_empty(), is_true, "{why:?}");
        }
    }
}
