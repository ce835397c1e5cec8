//! What is told of the histories of groups: that one began, that an operator reset it, and that another group's is settled.

use stentor::runtime::ClusterRuntime;
use stentor_fabric::ProcessId;
use stentor_multicast::{GroupId, Incarnation, Origin, Replica, Settling};
use stentor_support::counted;
use stentor_support::live::and;

use super::clocks::Said;

/// What was told last.
#[derive(Default)]
pub(super) struct Beginnings {
    /// Of the own group: where its history began, and its incarnation.
    own: (Vec<Origin>, Incarnation),
    /// By group: where its history began, as far as it is in force here, and whether something of the one before is not settled.
    others: Vec<(Incarnation, bool)>,
}

impl Beginnings {
    /// Looks at a member. Returns what is new.
    pub(super) fn look(&mut self, replica: &Replica, plan: &ClusterRuntime) -> Vec<Said> {
        let own = self.look_at_own(replica, name(plan, replica.group()));
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
            // Who has its state only now says that otherwise.
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
        let (word, settling) = (replica.word(group), replica.settling(group));
        let (told, unsettled) = &mut self.others[usize::from(group.0)];
        let name_of = |group| name(plan, group);
        if word.in_force && word.origin != *told {
            let before = std::mem::replace(told, word.origin);
            *unsettled = settling.is_some();
            let rest = settling.map_or_else(
                || "nothing was under way to it here, or it is settled".to_owned(),
                |settling| waits(&settling, name_of).join("; "),
            );
            // The first that is heard of replaces nothing.
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
        if *unsettled && settling.is_none() {
            *unsettled = false;
            return Some(Said::Info(format!(
                "what was under way to {} when it began anew is settled here",
                name_of(group)
            )));
        }
        None
    }
}

fn name(plan: &ClusterRuntime, group: GroupId) -> &str {
    plan.config().groups()[usize::from(group.0)].id()
}

/// What is waited for, in words.
fn waits<'a>(settling: &Settling, name: impl Fn(GroupId) -> &'a str) -> Vec<String> {
    let mut clauses = Vec::new();
    let groups: Vec<_> = settling.awaited.iter().map(|group| name(*group)).collect();
    if settling.messages > 0 {
        let messages = counted(settling.messages, "message", "messages");
        clauses.push(match groups.as_slice() {
            [] => format!("{messages} that were under way to it are being settled"),
            _ => format!("{messages} that were under way to it wait for a majority of {}", and(&groups)),
        });
    }
    clauses
}

/// How this member's state began, when it has one for the first time.
pub(super) fn first(replica: &Replica, plan: &ClusterRuntime) -> Said {
    let (group, incarnation) = (name(plan, replica.group()), replica.incarnation());
    // Whoever is taken in later has a later ballot.
    if replica.delivered() > 0 || replica.ballot().number() != 1 {
        let delivered = replica.delivered();
        return Said::Info(format!(
            "taken in by its group, which has delivered {delivered}, in incarnation {incarnation}"
        ));
    }
    if replica.was_remembered() {
        return Said::Warn(format!(
            "an operator reset {group}: it begins from nothing, in incarnation {incarnation}, and its deliveries are numbered from 1; what \
             was under way to it is lost; start its clients again"
        ));
    }
    let text = format!(
        "{group} begins from nothing: its deliveries are numbered from 1; incarnation {incarnation}: no process that was reached \
         remembers another"
    );
    // Somebody has remembered one before.
    if incarnation.number > Incarnation::FIRST.number { Said::Warn(text) } else { Said::Info(text) }
}

/// What a member still waits for, as it is told to who asks.
pub(super) fn unsettled(replica: &Replica, plan: &ClusterRuntime) -> Vec<stentor_support::live::Unsettled> {
    let client = |id: stentor_multicast::MessageId| {
        let process: ProcessId = plan.topology().client_process(id.client);
        format!("{}:{}", plan.name(process), id.sequence)
    };
    let groups = plan.topology().group_ids().filter(|group| *group != replica.group());
    let settling = groups.filter_map(|group| Some((group, replica.settling(group)?)));
    let told = |(group, settling): (GroupId, Settling)| stentor_support::live::Unsettled {
        group: name(plan, group).to_owned(),
        incarnation: replica.word(group).incarnation.to_string(),
        in_force: !settling.without_force,
        messages: settling.messages,
        awaited: settling.awaited.iter().map(|group| name(plan, *group).to_owned()).collect(),
        disagreed: settling.disagreed.map(client),
    };
    settling.map(told).collect()
}
