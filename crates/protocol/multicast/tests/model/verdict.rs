//! The properties of the multicast (M1 to M9 in `docs/guarantees.md`), judged on the deliveries of every member so far.
//!
//! Members that do not fail deliver every message in the end. A message that a member has not delivered yet will follow
//! everything that the member has delivered: such pending pairs count as ordered. That detects a gap (M5) as soon as it
//! opens.

use stentor_multicast::Timestamp;

use super::scenario::Scenario;

/// The properties, as bits of [`Flaws`].
pub(crate) const INTEGRITY: (Flaws, &str) = (1, "M1 integrity: once, at destinations, after the multicast, numbered");
pub(crate) const ACYCLIC: (Flaws, &str) = (2, "M4 acyclic order over all members");
pub(crate) const PREFIX: (Flaws, &str) = (4, "M5 no two members in opposite orders, no holes");
pub(crate) const FIFO: (Flaws, &str) = (8, "M6 FIFO per client");
pub(crate) const REAL_TIME: (Flaws, &str) =
    (16, "real-time order: delivered anywhere before the multicast comes first at all common destinations");
pub(crate) const TIMESTAMPS: (Flaws, &str) = (32, "one final timestamp per message, rising at every member");
pub(crate) const ACCEPTED: (Flaws, &str) = (64, "no input is rejected");
pub(crate) const COMPLETE: (Flaws, &str) = (128, "M3 M9 everything is delivered everywhere at the end");

/// Property that the protocol guarantees for two groups, but not for three: see
/// `exhaustive::real_time_order_does_not_reach_over_three_groups`.
pub(crate) const REAL_TIME_PATH: (Flaws, &str) = (512, "real-time order over other messages in between");
pub(crate) const GENUINE: (Flaws, &str) = (256, "M7 nothing is sent to anybody but destinations");

pub(crate) const SESSION: (Flaws, &str) =
    (1024, "order of a session: a message that names a delivered one follows it in the order");

pub(crate) const READ: (Flaws, &str) =
    (2048, "a read at a leader returns what is delivered in its group, and what it must follow");

pub(crate) const REQUESTED: (Flaws, &str) = (4096, "a time entry's time is later than the requested one");

pub(crate) const VERSION: (Flaws, &str) =
    (8192, "a version entry has one place in its group, and precedes all messages of a leader that knows its goal");

/// All properties.
pub(crate) const ALL: [(Flaws, &str); 14] = [
    INTEGRITY,
    ACYCLIC,
    PREFIX,
    FIFO,
    REAL_TIME,
    REAL_TIME_PATH,
    TIMESTAMPS,
    ACCEPTED,
    COMPLETE,
    GENUINE,
    SESSION,
    READ,
    REQUESTED,
    VERSION,
];

/// The violated properties, as bits.
pub(crate) type Flaws = u16;

/// One delivery: the message's index, its final timestamp.
pub(crate) type Entry = (u8, Timestamp);

/// Returns the names of violated properties.
pub(crate) fn names(flaws: Flaws) -> Vec<&'static str> {
    ALL.iter().filter(|(bit, _)| flaws & bit != 0).map(|(_, name)| *name).collect()
}

/// Judges the properties of all deliveries so far. `destined` has the messages for each member's group.
/// `submitted` has the messages multicast so far. `earlier` has, for each message, the messages that were delivered
/// anywhere when it was multicast.
pub(crate) fn judge(
    scenario: &Scenario,
    destined: &[u32],
    logs: &[&[Entry]],
    submitted: u32,
    earlier: &[u32],
) -> Flaws {
    let mut flaws = 0;
    let mut before = [0_u32; 32];
    for (log, destined) in logs.iter().zip(destined) {
        let mut delivered = 0_u32;
        for &(message, _) in *log {
            let bit = 1 << message;
            if delivered & bit != 0 || destined & submitted & bit == 0 {
                flaws |= INTEGRITY.0;
            }
            delivered |= bit;
            before[usize::from(message)] |= destined & !delivered;
            if older_of_client(scenario, message) & destined & !delivered != 0 {
                flaws |= FIFO.0;
            }
        }
        if !log.is_sorted_by(|a, b| a.1 < b.1) {
            flaws |= TIMESTAMPS.0;
        }
    }
    flaws
        | order(&before, scenario.messages.len(), earlier)
        | agreed_timestamps(logs)
        | session_order(scenario, before, submitted)
}

fn older_of_client(scenario: &Scenario, message: u8) -> u32 {
    let client = scenario.messages[usize::from(message)].client;
    let older = scenario.messages[..usize::from(message)].iter().enumerate();
    older.filter(|(_, m)| m.client == client).map(|(index, _)| 1 << index).sum()
}

fn order(before: &[u32; 32], messages: usize, earlier: &[u32]) -> Flaws {
    let mut flaws = 0;
    for a in 0..messages {
        if (0..messages).any(|b| before[a] >> b & 1 == 1 && before[b] >> a & 1 == 1) {
            flaws |= PREFIX.0;
        }
    }
    if has_cycle(*before, messages) {
        flaws |= ACYCLIC.0;
    }
    let mut with_time = *before;
    for (b, earlier) in earlier.iter().enumerate() {
        (0..messages).filter(|a| earlier >> a & 1 == 1).for_each(|a| with_time[a] |= 1 << b);
        if before[b] & earlier != 0 {
            flaws |= REAL_TIME.0;
        }
    }
    if has_cycle(with_time, messages) {
        flaws |= REAL_TIME_PATH.0;
    }
    flaws
}

/// Judges the order over all members together with the order that messages request by naming an earlier one.
fn session_order(scenario: &Scenario, mut before: [u32; 32], submitted: u32) -> Flaws {
    for (index, message) in scenario.messages.iter().enumerate().filter(|(index, _)| submitted >> index & 1 == 1) {
        message.after.into_iter().for_each(|earlier| before[earlier] |= 1 << index);
    }
    let any = scenario.messages.iter().any(|message| message.after.is_some());
    if any && has_cycle(before, scenario.messages.len()) { SESSION.0 } else { 0 }
}

/// Returns whether the order has a cycle: removes messages that nothing precedes; the messages that remain are on a
/// cycle or follow one.
fn has_cycle(before: [u32; 32], messages: usize) -> bool {
    let mut left = (1_u64 << messages) as u32 - 1;
    loop {
        let mut preceded = 0;
        (0..messages).filter(|a| left >> a & 1 == 1).for_each(|a| preceded |= before[a]);
        if left & !preceded == 0 {
            return left != 0;
        }
        left &= preceded;
    }
}

fn agreed_timestamps(logs: &[&[Entry]]) -> Flaws {
    let mut known = [None; 32];
    for &(message, timestamp) in logs.iter().flat_map(|log| log.iter()) {
        if *known[usize::from(message)].get_or_insert(timestamp) != timestamp {
            return TIMESTAMPS.0;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaws(logs: &[&[u8]], earlier: &[u32]) -> Flaws {
        let scenario = Scenario::new(&[1, 1], &[(0, &[0, 1]), (1, &[0, 1]), (2, &[0, 1])]);
        let entries: Vec<Vec<Entry>> = logs
            .iter()
            .map(|log| log.iter().map(|m| (*m, Timestamp { time: u64::from(*m), group: 0 })).collect())
            .collect();
        let logs: Vec<&[Entry]> = entries.iter().map(Vec::as_slice).collect();
        judge(&scenario, &[7, 7], &logs, 7, earlier) & !TIMESTAMPS.0
    }

    #[test]
    fn equal_prefixes_are_sound() {
        assert_eq!(flaws(&[&[0, 1, 2], &[0, 1]], &[0, 1, 3]), 0);
    }

    #[test]
    fn a_hole_is_seen_before_it_is_filled() {
        assert_eq!(flaws(&[&[0], &[1]], &[0; 3]), PREFIX.0 | ACYCLIC.0 | REAL_TIME_PATH.0);
    }

    #[test]
    fn a_repeat_is_a_breach_of_integrity() {
        assert_eq!(flaws(&[&[0, 0], &[]], &[0; 3]), INTEGRITY.0);
    }

    #[test]
    fn cycle_over_three_members_is_found_without_two_opposite_orders() {
        let scenario = Scenario::new(&[1, 1, 1], &[(0, &[0, 2]), (1, &[0, 1]), (2, &[1, 2])]);
        let stamp = |time| Timestamp { time, group: 0 };
        let logs: [&[Entry]; 3] = [&[(0, stamp(1)), (1, stamp(2))], &[(1, stamp(2)), (2, stamp(3))], &[(2, stamp(3))]];
        let destined = scenario.destined(&scenario.topology());
        assert_eq!(judge(&scenario, &destined, &logs, 7, &[0; 3]), ACYCLIC.0 | REAL_TIME_PATH.0);
    }

    #[test]
    fn real_time_order_and_fifo() {
        // Message 0 was delivered somewhere when message 1 was multicast.
        assert_eq!(flaws(&[&[1, 0, 2], &[1, 0]], &[0, 1, 0]), REAL_TIME.0 | REAL_TIME_PATH.0);
        let scenario = Scenario::new(&[1], &[(0, &[0]), (0, &[0])]);
        let stamp = Timestamp { time: 1, group: 0 };
        assert_eq!(judge(&scenario, &[3], &[&[(1, stamp)]], 3, &[0; 2]), FIFO.0);
    }
}
