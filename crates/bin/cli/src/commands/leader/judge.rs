//! Judges whether a group works, from its leader, the number of members that follow it, and the progress of messages.

use std::fmt::Write as _;

use serde::Serialize;
use stentor::operator::Standing;
use stentor_multicast::Incarnation;

use super::member::Member;

/// Time without progress of messages that is tolerated in addition to the election timeout, in milliseconds.
const STILL_MS: u64 = 2000;

/// The verdict on a group.
#[derive(Serialize)]
pub(super) struct Judged {
    pub(super) group: String,
    /// `true` if a majority of the group works and the group's messages make progress.
    pub(super) ok: bool,
    /// Reason why the group does not work.
    pub(super) reason: Option<String>,
    /// `true` if a majority works but the group's messages make no progress.
    #[serde(skip)]
    pub(super) stands_still: bool,
    /// The leader, if there is one.
    leader: Option<String>,
    /// Incarnation of the newest state of the group, if a member that answers has a state.
    pub(super) incarnation: Option<String>,
    /// Members that have the group's state and follow the leader, and the leader.
    working: Vec<String>,
    size: usize,
    /// Number of members that must work.
    majority: usize,
}

/// Judges one group. `members` must contain all of its members. `timeout_ms` is the election timeout: a leader that is
/// silent for longer is replaced.
pub(super) fn judge(group: &str, members: &[&Member], timeout_ms: u64) -> Judged {
    let (size, majority) = (members.len(), members.len() / 2 + 1);
    let standings = members.iter().filter_map(|member| member.standing.as_ref());
    let newest = |standing: &&Standing| (number(&standing.incarnation), standing.epoch, standing.leads);
    let last = standings.filter(|standing| !standing.joining).max_by_key(newest);
    let stands = |member: &&&Member| {
        member.standing.as_ref().zip(last).is_some_and(|(standing, last)| stands_by(standing, last, timeout_ms))
    };
    let mut working: Vec<_> = members.iter().filter(stands).map(|member| member.id.clone()).collect();
    let leader = last.map(|last| last.leader.clone());
    let leading = members.iter().find(|member| Some(&member.id) == leader.as_ref());
    // If the leader cannot be asked from here, its followers know whether it is alive.
    let lives_elsewhere = leading.is_some_and(|member| member.state == "unknown") && !working.is_empty();
    if lives_elsewhere {
        working.extend(leader.clone());
    }
    let is_led = lives_elsewhere || leading.is_some_and(|member| member.state == "leads");
    let reason = if !is_led {
        Some(leaderless(group, members, leader.as_deref()))
    } else if working.len() < majority {
        let what = format!("{group} has no majority: {} of its {size} members work, {majority} have to", working.len());
        Some(format!("{what}; {}{}", others(members, &working), forgotten(group, members)))
    } else {
        still(group, members, &working, majority, timeout_ms)
    };
    let stands_still = is_led && working.len() >= majority && reason.is_some();
    let leader = leader.filter(|_| is_led);
    let incarnation = last.map(|last| last.incarnation.clone());
    let (group, ok) = (group.to_owned(), reason.is_none());
    Judged { group, ok, reason, stands_still, leader, incarnation, working, size, majority }
}

/// Returns the number of an incarnation, for comparisons. Compared as text, `10-…` would be older than `9-…`.
pub(super) fn number(incarnation: &str) -> u32 {
    incarnation.parse::<Incarnation>().map_or(0, |incarnation| incarnation.number)
}

/// Returns whether a member has its group's newest state and either receives the heartbeats of its leader or leads.
fn stands_by(standing: &Standing, last: &Standing, timeout_ms: u64) -> bool {
    let theirs = (&last.incarnation, last.epoch, &last.leader);
    let same = !standing.joining && (&standing.incarnation, standing.epoch, &standing.leader) == theirs;
    let hears = standing.heard_ms.is_none_or(|ms| ms <= timeout_ms);
    same && if standing.id == standing.leader { standing.leads } else { hears }
}

fn leaderless(group: &str, members: &[&Member], leader: Option<&str>) -> String {
    let joins: Vec<_> = members.iter().filter(|member| member.state == "joins").collect();
    let remember: Vec<_> = members.iter().filter(|member| member.remembers()).collect();
    let (size, majority) = (members.len(), members.len() / 2 + 1);
    let there = joins.len() + remember.len();
    let mut text = format!("nobody leads {group}");
    if size - joins.len() < majority {
        if remember.is_empty() {
            let _ = write!(text, ", and {} of its {size} members have no memory of it: it has not begun", joins.len());
        } else {
            let _ = write!(text, ": {} of its {size} members have no memory of it", joins.len());
        }
        let silent: Vec<_> = members.iter().filter(|member| ["silent", "unknown"].contains(&member.state)).collect();
        let hindered = joins.iter().any(|member| member.standing.iter().any(|standing| standing.hindrance.is_some()));
        if hindered && remember.is_empty() {
            let _ = write!(text, "; `stentor group reset --group {group}` says what is lost, and begins the group");
        }
        if !silent.is_empty() {
            let _ = write!(text, "; {} may remember it: wait for the answer", ids(&silent));
        } else if there < size {
            text += "; it begins when all its members are there";
        } else if !remember.is_empty() {
            let _ = write!(text, ": stop {} and start it anew, then {group} begins from nothing", ids(&remember));
            text += "; clients and members of other groups, which remember it, have to be started anew, too; or ";
            let _ = write!(text, "`stentor group reset --group {group}` goes on with the state that is left");
        }
    } else if there < majority {
        text = format!("{group} has no majority: {there} of its {size} members answer, {majority} have to");
    }
    if let Some(leader) = leader.filter(|_| size - joins.len() >= majority) {
        let _ = write!(text, "; {leader} led it last");
    }
    let rest = others(members, &[]);
    let rest = if rest.is_empty() { rest } else { format!("; {rest}") };
    format!("{text}{rest}{}", forgotten(group, members))
}

/// Returns a clause for a group in which the memory of a majority has been lost, because the processes have ended. The
/// clause is empty for other groups.
fn forgotten(group: &str, members: &[&Member]) -> String {
    let down: Vec<_> = members.iter().filter(|member| member.state == "down").collect();
    let remember: Vec<_> = members.iter().filter(|member| member.remembers()).collect();
    if members.len() - down.len() > members.len() / 2 || remember.is_empty() {
        return String::new();
    }
    let (down, remember) = (ids(&down), ids(&remember));
    format!(
        "; a majority's memory ended with its processes: start {down}, then `stentor group reset --group {group}` goes on with \
         the state that is left; or stop {remember} and start it anew, and {group} begins from nothing, when its clients and \
         members of other groups, which remember it, are started anew, too"
    )
}

fn ids(members: &[&&Member]) -> String {
    members.iter().map(|member| member.id.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the state of each member that does not work.
fn others(members: &[&Member], working: &[String]) -> String {
    let rest = members.iter().filter(|member| !working.contains(&member.id));
    let rest = rest.filter(|member| !["leads", "follows"].contains(&member.state) || !working.is_empty());
    rest.map(|member| how(member)).collect::<Vec<_>>().join(", ")
}

/// Describes the state of a member that does not work.
fn how(member: &Member) -> String {
    match member.state {
        "silent" if member.stopped().is_some() => format!("{} does not answer (stopped)", member.id),
        "silent" => format!("{} does not answer", member.id),
        "down" => format!("{} is down", member.id),
        "joins" => {
            let why = member.standing.as_ref().and_then(|standing| standing.hindrance.as_ref());
            let why = why.map_or(String::new(), |why| format!(" ({why})"));
            format!("{} waits for the group's state{why}", member.id)
        }
        "campaigns" => format!("{} wants to lead", member.id),
        "unknown" => format!("the state of {} is not known here", member.id),
        _ => format!("{} receives no heartbeats of the leader, or has an older state", member.id),
    }
}

/// Returns why messages make no progress, or `None` if they do.
fn still(group: &str, members: &[&Member], working: &[String], majority: usize, timeout_ms: u64) -> Option<String> {
    let works = members.iter().filter(|member| working.contains(&member.id));
    let stuck: Vec<_> = works
        .filter_map(|member| member.standing.as_ref())
        .filter(|standing| standing.undelivered > 0 && standing.stalled_ms > timeout_ms + STILL_MS)
        .collect();
    if working.len() - stuck.len() >= majority {
        return None;
    }
    let longest = stuck.iter().map(|standing| standing.stalled_ms).max()?;
    let most = stuck.iter().map(|standing| standing.undelivered).max()?;
    let messages = if most == 1 { "1 message has" } else { "messages have" };
    let count = if most == 1 { String::new() } else { format!("{most} ") };
    let names: Vec<_> = stuck.iter().map(|standing| standing.id.as_str()).collect();
    let waiting =
        stuck.iter().find_map(|standing| standing.waiting.first()).map_or(String::new(), |id| format!(" ({id})"));
    let at = names.join(", ");
    Some(format!("{group} makes no progress: {count}{messages} not moved for {} s at {at}{waiting}", longest / 1000))
}

impl Judged {
    /// Returns one line of text.
    pub(super) fn text(&self, members: &[&Member]) -> String {
        let Judged { group, reason, leader, working, size, .. } = self;
        if let Some(reason) = reason {
            return format!("{reason}\n");
        }
        let leader = leader.as_deref().unwrap_or("somebody");
        let rest = others(members, working);
        let rest = if rest.is_empty() { rest } else { format!("; {rest}") };
        format!("{group} works: {leader} leads, {} of its {size} members stand by it{rest}\n", working.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Heard;
    use super::super::member::tests::{follower, leader};
    use super::*;

    fn member(id: &str, heard: Heard<Standing>) -> Member {
        Member::new("g1", id, heard, None)
    }

    fn judged(members: &[Member]) -> Judged {
        judge("g1", &members.iter().collect::<Vec<_>>(), 2000)
    }

    fn answer(standing: Standing) -> Heard<Standing> {
        Heard::Answer(standing)
    }

    #[test]
    fn group_works_with_any_majority() {
        let follows = || answer(follower("g1.2", "g1.1", Some(3)));
        for missing in [Heard::Silence(None), Heard::Nobody, Heard::Unknown("no route".to_owned())] {
            let members = [member("g1.1", answer(leader("g1.1"))), member("g1.2", follows()), member("g1.3", missing)];
            let judged = judged(&members);
            assert!(judged.ok, "{:?}", judged.reason);
            let text = judged.text(&members.iter().collect::<Vec<_>>());
            assert!(text.starts_with("g1 works: g1.1 leads, 2 of its 3") && text.contains("g1.3"), "{text}");
        }
    }

    #[test]
    fn group_without_a_majority_does_not_work() {
        let members = [
            member("g1.1", answer(leader("g1.1"))),
            member("g1.2", Heard::Nobody),
            member("g1.3", Heard::Silence(None)),
        ];
        let reason = judged(&members).reason.unwrap();
        let expected = "g1 has no majority: 1 of its 3 members work, 2 have to; g1.2 is down, g1.3 does not answer";
        assert_eq!(reason, expected);
        let ended =
            [member("g1.1", answer(leader("g1.1"))), member("g1.2", Heard::Nobody), member("g1.3", Heard::Nobody)];
        let reason = judged(&ended).reason.unwrap();
        let remedy = "start g1.2, g1.3, then `stentor group reset --group g1` goes on with the state that is left; or stop \
                      g1.1 and start it anew, and g1 begins from nothing";
        assert!(reason.contains(remedy), "{reason}");
        // The remedy is the same if the remaining member is a follower.
        let follows = answer(follower("g1.3", "g1.1", Some(1)));
        let left = [member("g1.1", Heard::Nobody), member("g1.2", Heard::Nobody), member("g1.3", follows)];
        let reason = judged(&left).reason.unwrap();
        assert!(
            reason.starts_with("g1 has no majority: 1 of its 3 members answer, 2 have to; g1.1 led it last"),
            "{reason}"
        );
        assert!(
            reason.contains("start g1.1, g1.2, then `stentor group reset")
                && reason.contains("stop g1.3 and start it anew"),
            "{reason}"
        );
        // A follower that has not heard the leader for a long time is not counted as following it.
        let deaf = [
            member("g1.1", answer(leader("g1.1"))),
            member("g1.2", answer(follower("g1.2", "g1.1", Some(2001)))),
            member("g1.3", Heard::Nobody),
        ];
        assert!(judged(&deaf).reason.unwrap().contains("g1.2 receives no heartbeats of the leader"));
    }

    #[test]
    fn lost_memory_of_a_majority_is_reported_with_the_remedy() {
        let joins = |id: &str| answer(Standing { joining: true, ..follower(id, "g1.1", None) });
        let mut old = leader("g1.1");
        old.leads = false;
        let members = [member("g1.1", answer(old)), member("g1.2", joins("g1.2")), member("g1.3", joins("g1.3"))];
        let reason = judged(&members).reason.unwrap();
        assert!(reason.contains("2 of its 3 members have no memory of it: stop g1.1 and start it anew"), "{reason}");
        let led =
            [member("g1.1", answer(leader("g1.1"))), member("g1.2", joins("g1.2")), member("g1.3", joins("g1.3"))];
        let reason = judged(&led).reason.unwrap();
        assert!(reason.contains("no majority") && reason.contains("g1.2 waits for the group's state"), "{reason}");
        let all = ["g1.1", "g1.2", "g1.3"].map(|id| member(id, joins(id)));
        assert!(judged(&all).reason.unwrap().contains("3 of its 3 members have no memory of it: it has not begun"));
        let silent =
            [member("g1.1", Heard::Silence(None)), member("g1.2", joins("g1.2")), member("g1.3", joins("g1.3"))];
        let reason = judged(&silent).reason.unwrap();
        assert!(reason.contains("g1.1 may remember it: wait for the answer"), "{reason}");
        assert!(!reason.contains("it begins when"), "{reason}");
    }

    #[test]
    fn stalled_messages_are_no_progress_but_a_lagging_member_is() {
        let stuck = |standing: Standing, ms| answer(Standing { undelivered: 5, stalled_ms: ms, ..standing });
        let members = |ms: [u64; 3]| {
            [
                member("g1.1", stuck(leader("g1.1"), ms[0])),
                member("g1.2", stuck(follower("g1.2", "g1.1", Some(1)), ms[1])),
                member("g1.3", stuck(follower("g1.3", "g1.1", Some(1)), ms[2])),
            ]
        };
        let reason = judged(&members([7000, 8000, 5])).reason.unwrap();
        assert!(
            reason.starts_with("g1 makes no progress: 5 messages have not moved for 8 s at g1.1, g1.2"),
            "{reason}"
        );
        assert!(judged(&members([5, 8000, 5])).ok && judged(&members([4000, 4000, 4000])).ok);
    }

    #[test]
    fn leader_on_another_host_counts_while_a_local_member_hears_it() {
        let shown = |heard: [Option<u64>; 2], leader: Heard<Standing>| {
            let follows = |id, ms| answer(follower(id, "g1.1", ms));
            judged(&[
                member("g1.1", leader),
                member("g1.2", follows("g1.2", heard[0])),
                member("g1.3", follows("g1.3", heard[1])),
            ])
        };
        let unknown = || Heard::Unknown("no route".to_owned());
        assert!(shown([Some(2500), Some(1999)], unknown()).ok);
        assert!(!shown([Some(2001), Some(2500)], unknown()).ok);
        assert!(shown([None, None], unknown()).ok, "an election by servers does not listen");
        assert!(!shown([Some(1), Some(1)], Heard::Nobody).ok, "a member that is down does not lead");
    }
}
