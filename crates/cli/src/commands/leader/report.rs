//! How the members stand.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::Heard;

use crate::live::Standing;
use crate::output::Human;
use crate::style::{Style, columns};

/// One member.
#[derive(Serialize)]
struct Member {
    id: String,
    group: String,
    /// `leads`, `follows`, `campaigns`, `joins`, `silent`: there, and does not answer; `down`, or `unknown`: not on this
    /// host, or down.
    state: &'static str,
    /// What it says, if it runs.
    standing: Option<Standing>,
}

/// The document of `leader show`.
#[derive(Serialize)]
pub(super) struct Shown {
    members: Vec<Member>,
    /// Members may be on other hosts.
    #[serde(skip)]
    spread: bool,
    /// A leader that is silent for longer is replaced, ms.
    #[serde(skip)]
    timeout_ms: u64,
}

impl Shown {
    pub(super) fn new(spread: bool, timeout: Duration) -> Self {
        Shown { members: Vec::new(), spread, timeout_ms: timeout.as_millis() as u64 }
    }

    pub(super) fn add(&mut self, group: &str, id: &str, heard: Heard<Standing>) {
        let state = match &heard {
            Heard::Silence => "silent",
            Heard::Nobody if self.spread => "unknown",
            Heard::Nobody => "down",
            Heard::Answer(standing) if standing.joining => "joins",
            Heard::Answer(standing) if standing.leads => "leads",
            Heard::Answer(standing) if standing.campaigns => "campaigns",
            Heard::Answer(_) => "follows",
        };
        let standing = heard.answer();
        self.members.push(Member { id: id.to_owned(), group: group.to_owned(), state, standing });
    }

    /// The leader that a member here follows, if it cannot be asked because it may be on another host; and how long ago
    /// its last sign of life came here, ms.
    fn leader_elsewhere<'a>(&self, member: &'a Member) -> Option<(&'a str, Option<u64>)> {
        let standing = member.standing.as_ref().filter(|_| member.state == "follows")?;
        let elsewhere = self.members.iter().any(|other| other.id == standing.leader && other.state == "unknown");
        elsewhere.then_some((&standing.leader, standing.heard_ms))
    }

    /// Every group has a leader, or has one on another host, whom a member here follows and has heard lately.
    pub(super) fn ok(&self) -> bool {
        let leads = |member: &Member| {
            let heard = |(_, ms): (&str, Option<u64>)| ms.is_none_or(|ms| ms <= self.timeout_ms);
            member.state == "leads" || self.leader_elsewhere(member).is_some_and(heard)
        };
        let led = |group: &str| self.members.iter().any(|other| other.group == group && leads(other));
        self.members.iter().all(|member| led(&member.group))
    }

    /// What is known of leaders that cannot be asked: who was heard last, for each of them.
    fn elsewhere(&self) -> BTreeMap<(&str, &str), Option<u64>> {
        let mut heard: BTreeMap<(&str, &str), Option<u64>> = BTreeMap::new();
        for member in &self.members {
            if let Some((leader, ms)) = self.leader_elsewhere(member) {
                let known = heard.entry((&member.group, leader)).or_insert(ms);
                *known = known.iter().copied().chain(ms).min();
            }
        }
        heard
    }
}

impl Human for Shown {
    fn human(&self, _: Style) -> String {
        let head = ["group", "member", "pid", "state", "epoch", "of", "delivered", "undelivered"];
        let mut table = vec![head.map(str::to_owned).to_vec()];
        for Member { id, group, state, standing } in &self.members {
            let tell = |what: &dyn Fn(&Standing) -> String| standing.as_ref().map_or_else(|| "-".to_owned(), what);
            table.push(vec![
                group.clone(),
                id.clone(),
                tell(&|standing| standing.pid.to_string()),
                (*state).to_owned(),
                tell(&|standing| standing.epoch.to_string()),
                tell(&|standing| standing.leader.clone()),
                tell(&|standing| standing.delivered.to_string()),
                tell(&|standing| standing.undelivered.to_string()),
            ]);
        }
        let mut text = columns(&table);
        if self.members.iter().any(|member| member.state == "unknown") {
            text += "unknown: not on this host, or not running; each host tells of its own\n";
        }
        if self.members.iter().any(|member| member.state == "silent") {
            text += "silent: its process is there and does not answer; it is stopped, or its host is very busy\n";
        }
        for ((group, leader), heard) in self.elsewhere() {
            text += &match heard {
                Some(ms) if ms > self.timeout_ms => format!(
                    "{group}: `{leader}` was heard {ms} ms ago, and is replaced after {} ms: it has stopped, or nothing comes from its host\n",
                    self.timeout_ms
                ),
                Some(ms) => format!("{group}: `{leader}` was heard {ms} ms ago; it may have stopped since\n"),
                None => format!("{group}: when `{leader}` was heard last is not known here\n"),
            };
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
    /// From the question until the other leads.
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
    use super::*;

    fn follower(id: &str, leader: &str, heard_ms: Option<u64>) -> Standing {
        Standing {
            id: id.to_owned(),
            pid: 1,
            leads: false,
            campaigns: false,
            joining: false,
            epoch: 7,
            leader: leader.to_owned(),
            heard_ms,
            promised: 7,
            named: false,
            delivered: 0,
            undelivered: 0,
            waiting: Vec::new(),
        }
    }

    fn shown(heard: [Option<u64>; 2]) -> Shown {
        let mut shown = Shown::new(true, Duration::from_millis(2000));
        shown.add("g1", "g1.1", Heard::Nobody);
        shown.add("g1", "g1.2", Heard::Answer(follower("g1.2", "g1.1", heard[0])));
        shown.add("g1", "g1.3", Heard::Answer(follower("g1.3", "g1.1", heard[1])));
        shown
    }

    #[test]
    fn a_leader_on_another_host_counts_as_long_as_somebody_here_heard_it_lately() {
        let text = |shown: &Shown| shown.human(Style::of(&std::fs::File::open("/dev/null").unwrap()));
        let lately = shown([Some(2500), Some(1999)]);
        assert!(lately.ok() && text(&lately).contains("`g1.1` was heard 1999 ms ago; it may have stopped"));
        let silent = shown([Some(2001), Some(2500)]);
        assert!(!silent.ok() && text(&silent).contains("heard 2001 ms ago, and is replaced after 2000 ms"));
        let deaf = shown([None, None]);
        assert!(deaf.ok() && text(&deaf).contains("is not known here"), "an election by servers does not listen");
        // On one host whoever does not answer is down, whatever was heard.
        let mut here = Shown::new(false, Duration::from_millis(2000));
        here.add("g1", "g1.1", Heard::Nobody);
        here.add("g1", "g1.2", Heard::Answer(follower("g1.2", "g1.1", Some(1))));
        assert!(!here.ok() && !text(&here).contains("heard"));
    }
}
