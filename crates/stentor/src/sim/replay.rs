//! Replays the members' order for events that have no position in it: reads at one member, and notifications.

use std::collections::BTreeMap;

use stentor_multicast::GroupId;
use stentor_simulation::sessions::Notes;

use super::applies::too_long;
use super::clients::SimCall;
use super::failure::SimProperty;
use super::seen::Fate;
use super::sequential::{Reached, Sequential};

/// A difference between the model and the members.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) property: SimProperty,
    pub(super) witness: String,
    /// The read that reveals the difference, if a read does.
    pub(super) call: Option<u64>,
}

/// The notifications of all machines, by group and position.
pub(super) type AllNotes = BTreeMap<(GroupId, u64), Notes>;

/// Returns the first read and the first notification that differ from the model's. The model processes the positions
/// that the members passed, and no others. `speaks` is `true` if the model is the machine itself, which sends
/// notifications. Another model may omit notifications; they are compared only if it sends any.
pub(super) fn differences(model: &Sequential<'_>, notes: &AllNotes, groups: u16, speaks: bool) -> Vec<Difference> {
    let (mut reads, mut notified, mut speaks) = (None, None, speaks);
    for group in (0..groups).map(GroupId) {
        let replayed = Replay::new(model, notes, group).run();
        reads = reads.or(replayed.read);
        notified = notified.or(replayed.notified);
        speaks |= replayed.speaks;
    }
    reads.into_iter().chain(notified.filter(|_| speaks)).collect()
}

/// The replay of one group.
struct Replay<'a> {
    model: &'a Sequential<'a>,
    notes: &'a AllNotes,
    group: GroupId,
    reached: Reached,
    /// Tokens of the applied calls, by their number.
    calls: BTreeMap<u64, u64>,
    /// Tokens of the answered reads, by the index in the answer.
    reads: BTreeMap<u64, Vec<u64>>,
}

/// The result of a replay.
#[derive(Default)]
struct Replayed {
    read: Option<Difference>,
    notified: Option<Difference>,
    /// `true` if the model has sent a notification.
    speaks: bool,
}

impl<'a> Replay<'a> {
    fn new(model: &'a Sequential<'a>, notes: &'a AllNotes, group: GroupId) -> Self {
        let here = |(token, groups): (&u64, &BTreeMap<GroupId, _>)| Some((number_in(groups, group)?, *token));
        let calls = model.applied.iter().filter_map(here).collect();
        let mut reads: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (token, call) in model.calls {
            if let Some(position) = call.answered_at().filter(|position| position.applied_in.0 == group) {
                reads.entry(position.index).or_default().push(*token);
            }
        }
        Replay { model, notes, group, reached: model.begin(group), calls, reads }
    }

    fn run(mut self) -> Replayed {
        let mut replayed = Replayed::default();
        self.answer(0, &mut replayed);
        let (model, group) = (self.model, self.group);
        for (_, number) in model.passed.range((group, 0)..=(group, u64::MAX)).map(|(place, _)| *place) {
            match self.calls.get(&number) {
                Some(token) => drop(model.carry_out(group, &mut self.reached, *token)),
                None => model.pass_places(group, &mut self.reached, number),
            }
            self.compare_notes(number, &mut replayed);
            self.answer(number, &mut replayed);
        }
        if let Some((index, tokens)) = self.reads.first_key_value() {
            let witness =
                format!("call {} names the place {index} of group {}, which no member has", tokens[0], group.0);
            replayed.read.get_or_insert(Difference {
                property: SimProperty::Reads,
                witness,
                call: tokens.first().copied(),
            });
        }
        replayed
    }

    fn compare_notes(&mut self, number: u64, replayed: &mut Replayed) {
        let mut expected = Notes::new();
        self.reached.lent.notes.take(|session, bytes| expected.push((session.0, bytes.to_vec())));
        replayed.speaks |= !expected.is_empty();
        let sent = self.notes.get(&(self.group, number)).map_or(&[][..], |notes| notes);
        if sent != expected && replayed.notified.is_none() {
            let (sent, expected, group) = (in_words(sent), in_words(&expected), self.group.0);
            let witness = format!("group {group} notifies at {number} of {sent}, and the model of {expected}");
            replayed.notified = Some(Difference { property: SimProperty::Notifications, witness, call: None });
        }
    }

    /// Compares the answers of the reads that name a position with the model's answers there.
    fn answer(&mut self, number: u64, replayed: &mut Replayed) {
        for token in self.reads.remove(&number).unwrap_or_default() {
            let Some(call) = self.model.calls.get(&token) else { continue };
            let expected = self.model.carry_out(self.group, &mut self.reached, token);
            let reply = reply(call, self.model.most_reply);
            if reply != expected && replayed.read.is_none() {
                let (kind, group) = (call.kind(), self.group.0);
                let (reply, expected) = (reply.escape_ascii(), expected.escape_ascii());
                let witness = format!(
                    "the {kind} of group {group}, call {token}, is answered at {number} by \"{reply}\", and by the model there by \"{expected}\""
                );
                replayed.read = Some(Difference { property: SimProperty::Reads, witness, call: Some(token) });
            }
        }
    }
}

fn number_in(groups: &BTreeMap<GroupId, stentor_simulation::sessions::Applied>, group: GroupId) -> Option<u64> {
    groups.get(&group).map(|applied| applied.number)
}

/// Returns the answer to a read.
fn reply(call: &SimCall, most: usize) -> Vec<u8> {
    match &call.ended {
        Some((_, Fate::Applied { replies, .. })) => {
            replies.first().map_or_else(Vec::new, |(_, bytes)| bytes.clone().unwrap_or_else(|| too_long(most)))
        }
        _ => Vec::new(),
    }
}

fn in_words(notes: &[(stentor_session::SessionId, Vec<u8>)]) -> String {
    let one = |(session, bytes): &(stentor_session::SessionId, Vec<u8>)| {
        format!("session {:08x} by \"{}\"", session.0 >> 96, bytes.escape_ascii())
    };
    if notes.is_empty() { "nobody".to_owned() } else { notes.iter().map(one).collect::<Vec<_>>().join(", ") }
}
