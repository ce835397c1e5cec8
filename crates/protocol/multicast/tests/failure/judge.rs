//! The properties of all deliveries, at any time and at the end.

use std::collections::HashMap;

use stentor_multicast::{GroupId, MessageId, Timestamp, Topology};

use super::net::Log;

/// A message that was multicast.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: MessageId,
    pub(crate) to: Vec<u16>,
    /// `true` if the message must be delivered. Its client wrote the message to all members of its destinations. If
    /// another process took over the client id, the message was synced before the takeover.
    pub(crate) whole: bool,
    /// Time that the final time of the message must exceed.
    pub(crate) after: u64,
}

/// Checks integrity, prefix order, one timestamp per message, increasing timestamps (which make the order acyclic),
/// FIFO, and the order that clients requested by naming a time. `logs` are the deliveries of all lives of all members,
/// each with the member's group.
pub(crate) fn safe(logs: &[(GroupId, &Log)], sent: &HashMap<MessageId, Sent>) -> Result<(), String> {
    let mut longest: HashMap<u16, &Log> = HashMap::new();
    let mut stamps: HashMap<MessageId, Timestamp> = HashMap::new();
    for (group, log) in logs {
        let known = longest.entry(group.0).or_insert(log);
        let common = known.len().min(log.len());
        if known[..common] != log[..common] {
            return Err(format!("two members of group {} deliver in different orders: {known:?} and {log:?}", group.0));
        }
        if log.len() > known.len() {
            *known = log;
        }
    }
    for (group, log) in longest {
        let mut last = HashMap::new();
        for (at, (id, stamp)) in log.iter().enumerate() {
            let Some(message) = sent.get(id) else { return Err(format!("{id} was never multicast")) };
            if !message.to.contains(&group) {
                return Err(format!("{id} is not for group {group}"));
            }
            if at > 0 && log[at - 1].1 >= *stamp {
                return Err(format!("{id} at {stamp:?} after {:?}", log[at - 1]));
            }
            if stamp.time <= message.after {
                return Err(format!("{id} at {stamp:?} does not come after {}", message.after));
            }
            if *stamps.entry(*id).or_insert(*stamp) != *stamp {
                return Err(format!("{id} has two timestamps: {stamp:?} and {:?}", stamps[id]));
            }
            let before = last.insert((id.client, id.generation()), id.sequence).unwrap_or(0);
            if before >= id.sequence {
                return Err(format!("{id} after sequence {before} of its process"));
            }
        }
    }
    Ok(())
}

/// Checks agreement and validity: all members that are up have delivered all messages that any member delivered and all
/// messages that must be delivered ([`Sent::whole`]).
pub(crate) fn complete(
    topology: &Topology,
    up: &[(u16, GroupId, &Log)],
    logs: &[(GroupId, &Log)],
    sent: &HashMap<MessageId, Sent>,
) -> Result<(), String> {
    for message in sent.values() {
        let delivered = logs.iter().any(|(_, log)| log.iter().any(|(id, _)| *id == message.id));
        if !delivered && !message.whole {
            continue;
        }
        for (process, group, log) in up {
            if message.to.contains(&group.0) && !log.iter().any(|(id, _)| *id == message.id) {
                let groups = topology.groups();
                return Err(format!(
                    "{} (to {:?} of {groups}) is missing at process {process}",
                    message.id, message.to
                ));
            }
        }
    }
    Ok(())
}
