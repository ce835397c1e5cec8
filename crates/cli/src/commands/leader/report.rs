//! How the members stand.

use serde::Serialize;

use crate::live::Standing;
use crate::output::Human;
use crate::style::{Style, columns};

/// One member.
#[derive(Serialize)]
struct Member {
    id: String,
    group: String,
    /// `leads`, `follows`, `campaigns`, `joins`, `down`, or `unknown`: not on this host, or down.
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
}

impl Shown {
    pub(super) fn new(spread: bool) -> Self {
        Shown { members: Vec::new(), spread }
    }

    pub(super) fn add(&mut self, group: &str, id: &str, standing: Option<Standing>) {
        let state = match &standing {
            None if self.spread => "unknown",
            None => "down",
            Some(standing) if standing.joining => "joins",
            Some(standing) if standing.leads => "leads",
            Some(standing) if standing.campaigns => "campaigns",
            Some(_) => "follows",
        };
        self.members.push(Member { id: id.to_owned(), group: group.to_owned(), state, standing });
    }

    /// Every group has a leader, or may have one on another host, whom its members here follow.
    pub(super) fn ok(&self) -> bool {
        let leads = |member: &Member| {
            let elsewhere = |id: &str| self.members.iter().any(|other| other.id == id && other.state == "unknown");
            let follows = member.state == "follows";
            let leader = member.standing.as_ref().map(|standing| standing.leader.as_str());
            member.state == "leads" || follows && leader.is_some_and(elsewhere)
        };
        let led = |group: &str| self.members.iter().any(|other| other.group == group && leads(other));
        self.members.iter().all(|member| led(&member.group))
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
