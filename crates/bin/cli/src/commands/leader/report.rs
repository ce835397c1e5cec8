//! The reports of `stentor leader`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use stentor::operator::{Standing, Unsettled};
use stentor_support::live::and;
use stentor_support::{Human, Style, counted, table};

use super::judge::{Judged, judge};
use super::member::Member;

/// The document of `leader show`.
#[derive(Serialize)]
pub(super) struct Shown {
    /// `true` if every group works.
    pub(super) ok: bool,
    groups: Vec<Judged>,
    members: Vec<Member>,
}

impl Shown {
    /// Creates the report. `members` must contain all members of some groups. A leader that is silent for longer than
    /// `timeout` is replaced.
    pub(super) fn new(mut members: Vec<Member>, timeout: Duration) -> Self {
        let mut furthest: BTreeMap<String, u64> = BTreeMap::new();
        let delivered = |member: &Member| member.standing.as_ref().map(|standing| standing.delivered);
        for member in &members {
            let known = furthest.entry(member.group.clone()).or_default();
            *known = (*known).max(delivered(member).unwrap_or(0));
        }
        for member in &mut members {
            member.lag = delivered(member).map(|delivered| furthest[&member.group] - delivered);
        }
        let names: Vec<_> = furthest.into_keys().collect();
        let timeout_ms = timeout.as_millis() as u64;
        let groups: Vec<_> = names.iter().map(|name| judge(name, &of(&members, name), timeout_ms)).collect();
        Shown { ok: groups.iter().all(|group| group.ok), groups, members }
    }

    /// Returns whether a member did not answer in time or cannot be asked. A second query would not help.
    pub(super) fn is_incomplete(&self) -> bool {
        self.members.iter().any(|member| ["silent", "unknown"].contains(&member.state))
    }

    /// Returns for each client the largest number of its undelivered messages at a member, and that member.
    fn clients(&self) -> BTreeMap<&str, (u64, &str)> {
        let mut most: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
        for member in &self.members {
            for lag in member.standing.iter().flat_map(|standing| &standing.clients) {
                let known = most.entry(&lag.client).or_default();
                *known = (*known).max((lag.undelivered, &member.id));
            }
        }
        most
    }

    /// Describes what a group still has to settle because other groups were reset. There is one line for each of those
    /// groups. It comes from a member of this group that knows a disagreement or, if none does, from the member that
    /// waits for the most messages.
    fn unsettled(&self, group: &str) -> String {
        let members = self.members.iter().filter(|member| member.group == group);
        let told = members.flat_map(|member| member.standing.iter().flat_map(|standing| &standing.unsettled));
        let mut most: BTreeMap<&str, &Unsettled> = BTreeMap::new();
        for unsettled in told {
            let known = most.entry(&unsettled.group).or_insert(unsettled);
            let how = |of: &Unsettled| (of.disagreed.is_some(), of.messages, !of.in_force);
            if how(unsettled) > how(known) {
                *known = unsettled;
            }
        }
        most.values().map(|unsettled| told_unsettled(group, unsettled)).collect()
    }

    /// Returns each member that others have stopped waiting for, with the names of these others.
    fn expelled(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut expelled: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for member in &self.members {
            for name in member.standing.iter().flat_map(|standing| &standing.expelled) {
                expelled.entry(name).or_default().push(&member.id);
            }
        }
        expelled
    }
}

fn told_unsettled(group: &str, unsettled: &Unsettled) -> String {
    let Unsettled { group: other, incarnation, in_force, messages, awaited, disagreed } = unsettled;
    let mut text = format!("{group} settles what was under way to {other} before its incarnation {incarnation}: ");
    if !in_force {
        text += &format!("a majority of {group} has to learn of it; ");
    }
    let awaited: Vec<_> = awaited.iter().map(String::as_str).collect();
    text += &match (messages, awaited.as_slice()) {
        (0, _) => "nothing else is waited for".to_owned(),
        (_, []) => format!("{} left", counted(*messages, "message is", "messages are")),
        _ => format!("{} for a majority of {}", counted(*messages, "message waits", "messages wait"), and(&awaited)),
    };
    if let Some(message) = disagreed {
        text += &format!(
            "; of {message} another group has other times, so it is decided nowhere: `stentor group reset --group {group}` says what is \
             lost and lets the others go on"
        );
    }
    text + "\n"
}

fn not_waited_by(members: &[&str]) -> String {
    let wait = if members.len() == 1 { "does not wait" } else { "do not wait" };
    format!("{} {wait}", and(members))
}

fn of<'a>(members: &'a [Member], group: &str) -> Vec<&'a Member> {
    members.iter().filter(|member| member.group == group).collect()
}

impl Human for Shown {
    fn human(&self, _: Style) -> String {
        let head = ["group", "member", "pid", "state", "incarnation", "epoch", "of", "delivered", "lag", "undelivered"];
        let row = |Member { id, group, state, pid, lag, standing, .. }: &Member| {
            let tell = |what: &dyn Fn(&Standing) -> String| standing.as_ref().map_or_else(|| "-".to_owned(), what);
            // A member that waits for its group's state does not know a leader yet.
            let member = standing.as_ref().filter(|standing| !standing.joining);
            let of_member = |what: &dyn Fn(&Standing) -> String| member.map_or_else(|| "-".to_owned(), what);
            vec![
                group.clone(),
                id.clone(),
                pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                (*state).to_owned(),
                of_member(&|standing| standing.incarnation.clone()),
                of_member(&|standing| standing.epoch.to_string()),
                of_member(&|standing| standing.leader.clone()),
                tell(&|standing| standing.delivered.to_string()),
                lag.map_or_else(|| "-".to_owned(), |lag| lag.to_string()),
                tell(&|standing| standing.undelivered.to_string()),
            ]
        };
        let mut text = table(&head, self.members.iter().map(row));
        for group in &self.groups {
            text += &group.text(&of(&self.members, &group.group));
        }
        // If every group has a majority that works, stalled messages wait for no member of these groups.
        let stuck = self.groups.iter().any(|group| group.stands_still);
        if stuck && self.groups.len() > 1 && self.groups.iter().all(|group| group.ok || group.stands_still) {
            text += "where messages do not move although all groups work, one of their groups began from nothing and does not know them: \
                     end the client that sent them\n";
        }
        for group in &self.groups {
            text += &self.unsettled(&group.group);
        }
        for (member, by) in self.expelled() {
            text += &format!("{member} stands still: {} for it any more\n", not_waited_by(&by));
        }
        for (client, (undelivered, at)) in self.clients() {
            text += &format!("client {client}: {undelivered} undelivered at {at}\n");
        }
        let silent = || self.members.iter().filter(|member| member.state == "silent");
        let stopped: Vec<_> = silent().filter_map(Member::stopped).map(|pid| pid.to_string()).collect();
        if !stopped.is_empty() {
            text += &format!("stopped, by a signal: `kill -CONT {}` lets them go on\n", stopped.join(" "));
        }
        if silent().any(|member| member.stopped().is_none()) {
            text += "silent: a process listens in the member's place and does not answer: it is stopped, its host is very busy, or on a network \
                     another program has its address\n";
        }
        for Member { id, why, note, .. } in &self.members {
            text += &why.as_ref().map_or_else(String::new, |why| format!("{id} cannot be asked from here: {why}\n"));
            text += &note.as_ref().map_or_else(String::new, |note| format!("{id}: {note}\n"));
        }
        text
    }
}

/// The document of `leader move`.
#[derive(Serialize)]
pub(super) struct Moved {
    pub(super) group: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) epoch: u64,
    /// Time from the request until the new leader leads.
    pub(super) seconds: f64,
}

impl Human for Moved {
    fn human(&self, _: Style) -> String {
        let Moved { group, from, to, epoch, seconds } = self;
        if from == to {
            return format!("{group}: {to} leads already, in epoch {epoch}\n");
        }
        format!("{group}: {to} leads in epoch {epoch}, {:.1} ms after {from} was asked\n", seconds * 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use stentor::operator::Lag;

    use super::super::Heard;
    use super::super::member::tests::{follower, leader};
    use super::*;

    #[test]
    fn remedy_for_stalled_messages_in_working_groups_is_to_end_the_client() {
        let text = |second: Heard<Standing>| {
            let stuck = Standing { undelivered: 2, stalled_ms: 12_000, ..leader("g1.1") };
            let members =
                vec![Member::new("g1", "g1.1", Heard::Answer(stuck), None), Member::new("g2", "g2.1", second, None)];
            let shown = Shown::new(members, Duration::from_millis(2000));
            assert!(!shown.ok);
            shown.human(Style::PLAIN)
        };
        let told = |text: &str| text.contains("end the client that sent them");
        assert!(told(&text(Heard::Answer(leader("g2.1")))));
        assert!(!told(&text(Heard::Nobody)), "they wait for that group");
    }

    #[test]
    fn lag_is_reported_per_member_and_client() {
        let lag = |client: &str, undelivered| Lag { client: client.to_owned(), undelivered };
        let behind = Standing {
            delivered: 7,
            undelivered: 5,
            clients: vec![lag("c0", 4), lag("c1", 1)],
            ..follower("g1.2", "g1.1", Some(1))
        };
        let ahead = Standing { delivered: 12, undelivered: 1, clients: vec![lag("c1", 2)], ..leader("g1.1") };
        let members = vec![
            Member::new("g1", "g1.1", Heard::Answer(ahead), None),
            Member::new("g1", "g1.2", Heard::Answer(behind), None),
            Member::new("g1", "g1.3", Heard::Unknown("no route".to_owned()), None),
        ];
        let shown = Shown::new(members, Duration::from_millis(2000));
        assert!(shown.ok && shown.is_incomplete());
        let lags: Vec<_> = shown.members.iter().map(|member| member.lag).collect();
        assert_eq!(lags, [Some(0), Some(5), None]);
        let text = shown.human(Style::PLAIN);
        for part in [
            "client c0: 4 undelivered at g1.2",
            "client c1: 2 undelivered at g1.1",
            "g1.3 cannot be asked from here: no route",
            "g1 works: g1.1 leads, 2 of its 3 members stand by it; the state of g1.3 is not known here",
        ] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    }
}
