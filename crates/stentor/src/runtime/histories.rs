//! Messages about the histories of groups: about a reset of this member's group, and about another group that began
//! anew, until the messages in flight to that group are settled.

use stentor_multicast::{GroupId, Incarnation, Origin, Replica, Settling};

use super::beginning::HistoryNotice;
use super::cluster::ClusterRuntime;

/// The histories of all groups, as they were last reported.
#[derive(Clone, Default, Debug)]
pub struct Histories {
    /// Origins and incarnation of this member's group.
    own: (Vec<Origin>, Incarnation),
    /// For each group, the origin in force here, and whether messages to its previous history are unsettled.
    others: Vec<(Incarnation, bool)>,
}

impl Histories {
    /// Compares a member's histories with those of the last call, and returns the messages to log. A member's first
    /// state is not reported here: see [`first_state`](super::first_state).
    pub fn look(&mut self, replica: &Replica, plan: &ClusterRuntime) -> Vec<HistoryNotice> {
        let own = self.look_at_own(replica, plan.group_name(replica.group()));
        let topology = plan.topology();
        self.others.resize(topology.group_ids().count(), (Incarnation::NONE, false));
        let others = topology.group_ids().filter(|group| *group != replica.group());
        own.into_iter().chain(others.filter_map(|group| self.look_at(group, replica, plan))).collect()
    }

    fn look_at_own(&mut self, replica: &Replica, group: &str) -> Option<HistoryNotice> {
        let now = (replica.origins().to_vec(), replica.incarnation());
        if now == self.own || replica.is_joining() {
            return None;
        }
        let (origins, incarnation) = std::mem::replace(&mut self.own, now);
        let last = self.own.0.last()?;
        if origins.is_empty() {
            // This is the member's first state.
            return None;
        }
        Some(if origins.last() == Some(last) {
            HistoryNotice::info(format!(
                "{group} goes on in incarnation {}, after {incarnation}, with the same state: another history of it was heard of, \
                 and is over",
                self.own.1
            ))
        } else {
            HistoryNotice::warning(format!(
                "an operator reset {group}: it goes on in incarnation {}, with its first {}; what was delivered elsewhere after them, and \
                 what was under way to it, is lost; start its clients again",
                self.own.1,
                counted(last.kept, "delivery", "deliveries")
            ))
        })
    }

    fn look_at(&mut self, group: GroupId, replica: &Replica, plan: &ClusterRuntime) -> Option<HistoryNotice> {
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
            // The first history of a group that this member learns replaces none.
            return (!before.is_none()).then(|| {
                HistoryNotice::warning(format!(
                    "{} began anew in incarnation {}, from another state than that of incarnation {before}, and {} knows it: {rest}; \
                     clients that multicast to {} before have to be started again",
                    name_of(group),
                    word.incarnation,
                    name_of(replica.group()),
                    name_of(group),
                ))
            });
        }
        // `settling` examines all messages in flight, so it is only called if necessary.
        if *unsettled && replica.settling(group).is_none() {
            *unsettled = false;
            return Some(HistoryNotice::info(format!(
                "what was under way to {} when it began anew is settled here",
                name_of(group)
            )));
        }
        None
    }
}

/// Describes the unsettled messages, and the groups that they wait for.
fn waits<'a>(settling: &Settling, name: impl Fn(GroupId) -> &'a str) -> String {
    let messages = counted(settling.messages, "message", "messages");
    let groups: Vec<_> = settling.awaited.iter().map(|group| name(*group)).collect();
    match groups.as_slice() {
        [] => format!("{messages} that were under way to it are being settled"),
        _ => format!("{messages} that were under way to it wait for a majority of {}", groups.join(" and ")),
    }
}

fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
