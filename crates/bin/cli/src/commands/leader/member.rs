//! The state of one member.

use serde::Serialize;
use stentor::operator::Standing;
use stentor_support::live::is_stopped;

use super::Heard;

/// One member of a group.
#[derive(Serialize)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) group: String,
    /// State of the member: `leads`, `follows`, `campaigns` or `joins`; `silent` if its process exists but does not
    /// answer; `down` if no process exists; `unknown` if the member cannot be asked from here.
    pub(super) state: &'static str,
    /// Process id on the member's host, if it is known.
    pub(super) pid: Option<i32>,
    /// Reason why the member cannot be asked.
    pub(super) why: Option<String>,
    /// Place on this host at which the member, or a process of another cluster with its name, was found. `None` if the
    /// member is where the configuration and the directory say.
    pub(super) note: Option<String>,
    /// Number of messages that another member of its group has delivered and this one has not.
    pub(super) lag: Option<u64>,
    /// The member's answer, if it has answered.
    pub(super) standing: Option<Standing>,
}

impl Member {
    pub(super) fn new(group: &str, id: &str, heard: Heard<Standing>, note: Option<String>) -> Self {
        let (state, pid, why, standing) = match heard {
            Heard::Silence(pid) => ("silent", pid, None, None),
            Heard::Nobody => ("down", None, None, None),
            Heard::Unknown(why) => ("unknown", None, Some(why), None),
            Heard::Answer(standing) => {
                let state = match &standing {
                    Standing { joining: true, .. } => "joins",
                    Standing { leads: true, .. } => "leads",
                    Standing { campaigns: true, .. } => "campaigns",
                    _ => "follows",
                };
                (state, i32::try_from(standing.pid).ok(), None, Some(standing))
            }
        };
        let (id, group, pid) = (id.to_owned(), group.to_owned(), pid.filter(|pid| *pid > 0));
        Member { id, group, state, pid, why, note, lag: None, standing }
    }

    /// Returns the member's pid if it is stopped on this host.
    pub(super) fn stopped(&self) -> Option<i32> {
        self.pid.filter(|pid| self.state == "silent" && is_stopped(*pid))
    }

    /// Returns whether the member has its group's state.
    pub(super) fn remembers(&self) -> bool {
        self.standing.as_ref().is_some_and(|standing| !standing.joining)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn follower(id: &str, leader: &str, heard_ms: Option<u64>) -> Standing {
        Standing {
            id: id.to_owned(),
            pid: 1,
            leads: false,
            campaigns: false,
            joining: false,
            incarnation: "1-00000000".to_owned(),
            ends: "1-00000000".to_owned(),
            hindrance: None,
            epoch: 7,
            leader: leader.to_owned(),
            heard_ms,
            promised: 7,
            named: false,
            delivered: 0,
            unsettled: Vec::new(),
            undelivered: 0,
            waiting: Vec::new(),
            stalled_ms: 0,
            clients: Vec::new(),
            expelled: Vec::new(),
        }
    }

    pub(in super::super) fn leader(id: &str) -> Standing {
        Standing { leads: true, named: true, ..follower(id, id, None) }
    }
}
