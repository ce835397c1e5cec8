//! The unsettled messages of a member, after the history of another group began anew.

use stentor_fabric::ProcessId;
use stentor_multicast::{GroupId, MessageId, Replica, Settling};

use super::question::Unsettled;
use crate::runtime::ClusterRuntime;

/// Returns the unsettled messages of a member for each group whose history began anew, for the answer to an operator.
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
