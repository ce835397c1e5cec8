//! Logs how histories of groups begin: the own group is founded or reset, or another group is, and what was under way to that one
//! is settled.

use stentor::runtime::{ClusterRuntime, first_state};
use stentor_fabric::ProcessId;
use stentor_multicast::{GroupId, Incarnation, MessageId, Origin, Replica, Settling};
use stentor_support::counted;
use stentor_support::live::{Unsettled, and};

use super::clocks::Said;

/// The histories of all groups, as they were logged last.
#[derive(Default)]
pub(super) struct Beginnings {
    /// The origins and the incarnation of the own group.
    own: (Vec<Origin>, Incarnation),
    /// By group: the origin that is in force here, and whether messages to the history before it are not settled.
    others: Vec<(Incarnation, bool)>,
}

impl Beginnings {
    /// Compares a member's histories with those of the last call. Returns the lines to log.
    pub(super) fn look(&mut self, replica: &Replica, plan: &ClusterRuntime) -> Vec<Said> {
        let own = self.look_at_own(replica, plan.group_name(replica.group()));
        let topology = plan.topology();
        self.others.resize(topology.group_ids().count(), (Incarnation::NONE, false));
        let others = topology.group_ids().filter(|group| *group != replica.group());
        own.into_iter().chain(others.filter_map(|group| self.look_at(group, replica, plan))).collect()
    }

    fn look_at_own(&mut self, replica: &Replica, group: &str) -> Option<Said> {
        let now = (replica.origins().to_vec(), replica.incarnation());
        if now == self.own || replica.is_joining() {
            return None;
        }
        let (origins, incarnation) = std::mem::replace(&mut self.own, now);
        let last = self.own.0.last()?;
        if origins.is_empty() {
            // This is the member's first state: `first` logs how that began.
            return None;
        }
        Some(if origins.last() == Some(last) {
            Said::Info(format!(
                "{group} goes on in incarnation {}, after {incarnation}, with the same state: another history of it was heard of, \
                 and is over",
                self.own.1
            ))
        } else {
            Said::Warn(format!(
                "an operator reset {group}: it goes on in incarnation {}, with its first {}; what was delivered elsewhere after them, and \
                 what was under way to it, is lost; start its clients again",
                self.own.1,
                counted(last.kept, "delivery", "deliveries")
            ))
        })
    }

    fn look_at(&mut self, group: GroupId, replica: &Replica, plan: &ClusterRuntime) -> Option<Said> {
        let word = replica.word(group);
        let (told, unsettled) = &mut self.others[usize::from(group.0)];
        let name_of = |group| plan.group_name(group);
        if word.in_force && word.origin != *told {
            let (before, settling) = (std::mem::replace(told, word.origin), replica.settling(group));
            *unsettled = settling.is_some();
            let rest = settling.map_or_else(
                || "nothing was under way to it here, or it is settled".to_owned(),
                |settling| waits(&settling, name_of),
            );
            // The first history that this member knows of a group replaces none.
            return (!before.is_none()).then(|| {
                Said::Warn(format!(
                    "{} began anew in incarnation {}, from another state than that of incarnation {before}, and {} knows it: {rest}; \
                     clients that multicast to {} before have to be started again",
                    name_of(group),
                    word.incarnation,
                    name_of(replica.group()),
                    name_of(group),
                ))
            });
        }
        // The question costs a look at all messages that are under way.
        if *unsettled && replica.settling(group).is_none() {
            *unsettled = false;
            return Some(Said::Info(format!(
                "what was under way to {} when it began anew is settled here",
                name_of(group)
            )));
        }
        None
    }
}

/// Describes the messages that are not settled, and the groups that they wait for.
fn waits<'a>(settling: &Settling, name: impl Fn(GroupId) -> &'a str) -> String {
    let messages = counted(settling.messages, "message", "messages");
    let groups: Vec<_> = settling.awaited.iter().map(|group| name(*group)).collect();
    match groups.as_slice() {
        [] => format!("{messages} that were under way to it are being settled"),
        _ => format!("{messages} that were under way to it wait for a majority of {}", and(&groups)),
    }
}

/// Returns the line that says how a member got its first state.
pub(super) fn first(replica: &Replica, plan: &ClusterRuntime) -> Said {
    let first = first_state(replica, plan);
    if first.is_warning { Said::Warn(first.text) } else { Said::Info(first.text) }
}

/// Returns what a member waits for since histories of other groups began anew, for the answer to an operator.
pub(super) fn unsettled(replica: &Replica, plan: &ClusterRuntime) -> Vec<Unsettled> {
    let named = |id: MessageId| {
        let process: ProcessId = plan.topology().client_process(id.client);
        format!("{}:{}", plan.name(process), id.sequence)
    };
    let groups = plan.topology().group_ids().filter(|group| *group != replica.group());
    let settling = groups.filter_map(|group| Some((group, replica.settling(group)?)));
    let told = |(group, settling): (GroupId, Settling)| Unsettled {
        group: plan.group_name(group).to_owned(),
        incarnation: replica.word(group).incarnation.to_string(),
        in_force: !settling.without_force,
        messages: settling.messages,
        awaited: settling.awaited.iter().map(|group| plan.group_name(*group).to_owned()).collect(),
        disagreed: settling.disagreed.map(named),
    };
    settling.map(told).collect()
}
