//! Decides whether one serial order of a run's calls explains their replies. The members' own order is tried first;
//! only if it does not explain the replies, the checker searches for another.

use std::collections::BTreeMap;

use stentor_checker as checker;
use stentor_checker::calls::{Call, History, Kind, Outcome, Position, Verdict, decide, verify};
use stentor_multicast::{GroupId, Timestamp};
use stentor_session::SessionId;
use stentor_simulation::sessions::AppliedCalls;

use super::applies::too_long;
use super::clients::SimCall;
use super::seen::Fate;
use super::sequential::{Sequential, operation};
use crate::Consistency;

/// The verdict on the calls of a run.
pub(super) enum Decided {
    Kept,
    /// The contradiction, and the first call, in the members' order, whose reply differs from the model's.
    Violated(String, Option<u64>),
    /// The search was too expensive and was stopped.
    TooHard,
}

/// Decides whether one serial order of a run's calls explains their replies. `finished` is `true` if no call is in
/// flight.
pub(super) fn decided(model: &Sequential<'_>, finished: bool) -> Decided {
    let history = match history(model, finished) {
        Ok(history) => history,
        Err(why) => return Decided::Violated(why, None),
    };
    // The members' order is the one that explains the replies, unless a guarantee is violated.
    let calls = history.calls();
    let mut order: Vec<usize> =
        (1..calls.len()).filter(|token| took_effect(&calls[*token], *token, model.applied)).collect();
    order.sort_by_key(|token| place_in_order(model, *token as u64, &calls[*token]));
    if verify(&history, model, &order).is_ok() {
        return Decided::Kept;
    }
    match decide(&history, model) {
        Verdict::Kept(_) => Decided::Kept,
        Verdict::Violated(example) => match first_difference(model, &history, &order) {
            Some((token, text)) => Decided::Violated(format!("{text}\n  {example}"), Some(token)),
            None => Decided::Violated(example.to_string(), None),
        },
        Verdict::TooHard => Decided::TooHard,
    }
}

/// Returns the first call of an order whose reply differs from the model's.
fn first_difference(model: &Sequential<'_>, history: &History, order: &[usize]) -> Option<(u64, String)> {
    let mut before: BTreeMap<GroupId, Vec<u64>> = BTreeMap::new();
    for index in order {
        let (token, call) = (*index as u64, &history.calls()[*index]);
        for group in call.groups.iter() {
            let calls = before.entry(GroupId(group.0)).or_default();
            let expected = model.reply(GroupId(group.0), calls, token);
            if call.kind == Kind::Command {
                calls.push(token);
            }
            if let Some(reply) = call.reply(group).filter(|reply| **reply != expected) {
                let (reply, expected) = (reply.escape_ascii(), expected.escape_ascii());
                return Some((
                    token,
                    format!("group {} answers call {token} by \"{reply}\", and the model by \"{expected}\"", group.0),
                ));
            }
        }
    }
    None
}

/// Returns the place of a call in the members' order. An unordered read is placed after the calls that its answer
/// contains: those of its group up to its index. A read at the leader is also placed after all calls up to the time
/// that it follows, but before the next position of its group.
fn place_in_order(model: &Sequential<'_>, token: u64, call: &Call) -> (u64, u16, bool, Option<u64>) {
    let Some(position) = model.calls.get(&token).and_then(SimCall::answered_at) else {
        let applied = model.applied.get(&token).and_then(|groups| groups.values().next());
        let timestamp = applied.map(|applied| applied.timestamp).unwrap_or_default();
        return (timestamp.time, timestamp.group, false, None);
    };
    let (time, group) = place_of_read(model, &position, call.kind == Kind::Leader);
    (time, group, true, call.answered())
}

/// Returns the place of an unordered read.
fn place_of_read(model: &Sequential<'_>, position: &crate::Position, is_led: bool) -> (u64, u16) {
    let last = model.timestamp_at(position.applied_in.0, position.index);
    let next = model.timestamp_at(position.applied_in.0, position.index + 1).time.checked_sub(1).unwrap_or(u64::MAX);
    let latest = position.latest().min(next);
    if is_led && latest > last.time { (latest, u16::MAX) } else { (last.time, last.group) }
}

/// Returns whether a call has a place in the members' order.
fn took_effect(call: &Call, token: usize, applied: &AppliedCalls) -> bool {
    if !call.kind.is_multicast() && call.kind.is_read() {
        return call.answered().is_some();
    }
    let is_applied = applied.get(&(token as u64)).is_some_and(|groups| !groups.is_empty());
    match call.outcome {
        Outcome::Answered { .. } => is_applied,
        Outcome::Unknown => is_applied && call.kind == Kind::Command,
        Outcome::NotApplied => false,
    }
}

/// Returns the history of the calls. Tokens count from 1. A placeholder precedes the calls, so that the number of a
/// call in the history equals its token.
fn history(model: &Sequential<'_>, finished: bool) -> Result<History, String> {
    let mut sessions: BTreeMap<SessionId, u64> = BTreeMap::new();
    let mut history = History::new();
    let nothing = Call {
        session: 0,
        generation: 0,
        submitted: 0,
        groups: [checker::Group(0)].into_iter().collect(),
        operation: Vec::new(),
        kind: Kind::Command,
        outcome: Outcome::NotApplied,
        observed: Vec::new(),
    };
    history.push(nothing).map_err(|error| error.to_string())?;
    for (token, call) in model.calls {
        let next = sessions.len() as u64;
        let session = *sessions.entry(call.session).or_insert(next);
        let is_applied = model.applied.get(token).is_some_and(|groups| !groups.is_empty());
        let outcome = match &call.ended {
            // The caller cannot know that no member will apply the call, but here it is known.
            Some((_, Fate::Unknown)) if finished && !is_applied => Outcome::NotApplied,
            ended => outcome(model, call, ended.as_ref()),
        };
        let added = history.push(Call {
            session,
            generation: call.generation.into(),
            submitted: call.submitted,
            groups: call.groups.ids().iter().map(|group| checker::Group(group.0)).collect(),
            operation: operation(*token, call),
            kind: kind(model, call),
            outcome,
            observed: Vec::new(),
        });
        let number = added.map_err(|error| format!("call {token}: {error}"))?;
        debug_assert_eq!(number as u64, *token, "tokens are consecutive");
    }
    Ok(history)
}

/// Returns the kind of a call. If a read follows a position in the order of the group that it reads, a member waits for
/// the index in the position. The read then follows the time at that index.
fn kind(model: &Sequential<'_>, call: &SimCall) -> Kind {
    let at = |timestamp: Timestamp| Position { time: timestamp.time, group: checker::Group(timestamp.group) };
    match call.how {
        None => Kind::Command,
        Some(Consistency::Ordered) => Kind::Ordered,
        Some(Consistency::Leader) => Kind::Leader,
        Some(Consistency::Local) => Kind::Local,
        Some(Consistency::After(after)) => match call.groups.ids() {
            [group] if after.is_counted_in(*group) => Kind::After(at(model.timestamp_at(*group, after.index))),
            _ => Kind::After(at(Timestamp { time: after.time, group: after.group.0.0 })),
        },
    }
}

fn outcome(model: &Sequential<'_>, call: &SimCall, ended: Option<&(u64, Fate)>) -> Outcome {
    let most_reply = model.most_reply;
    match ended {
        Some((at, Fate::Applied { position, replies })) => {
            let bytes = |bytes: &Option<Vec<u8>>| bytes.clone().unwrap_or_else(|| too_long(most_reply));
            let replies = replies.iter().map(|(group, reply)| (checker::Group(group.0.0), bytes(reply))).collect();
            let (time, group) = match call.how {
                Some(Consistency::Leader) => place_of_read(model, position, true),
                _ => (position.time, position.group.0.0),
            };
            let position = Position { time, group: checker::Group(group) };
            Outcome::Answered { at: *at, replies, position: Some(position) }
        }
        Some((_, Fate::NotApplied)) => Outcome::NotApplied,
        Some((_, Fate::Unknown)) | None => Outcome::Unknown,
    }
}
