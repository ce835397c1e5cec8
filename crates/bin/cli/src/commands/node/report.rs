//! The report of a node when it ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stentor::runtime::{Counts, FabricDiagnostics, Member};
use stentor_multicast::Step;
use stentor_support::{Human, Style, bytes, counted};

use super::sink::Deliveries;

/// The document.
#[derive(Serialize, Deserialize, Debug)]
pub(in crate::commands) struct Served {
    pub(in crate::commands) id: String,
    pub(in crate::commands) deliveries: u64,
    /// Number of deliveries that are not printed because they are not commands: messages of clients' sessions, copies
    /// of commands, and others.
    #[serde(default)]
    pub(in crate::commands) of_sessions: u64,
    /// Number of deliveries that this process has not made, because it restored another member's state instead.
    #[serde(default)]
    pub(in crate::commands) skipped: u64,
    /// Remote writes, by step.
    pub(in crate::commands) writes: BTreeMap<String, u64>,
    /// Number of writes that there would be if no writes were batched, by step.
    pub(in crate::commands) items: BTreeMap<String, u64>,
    /// Number of refused inputs from peers.
    pub(in crate::commands) rejected: u64,
    pub(in crate::commands) memory: Memory,
}

/// Use and limits of memory, in bytes.
#[derive(Serialize, Deserialize, Debug)]
pub(in crate::commands) struct Memory {
    registered: u64,
    registered_limit: u64,
    most_queued: u64,
    queue_limit: u64,
    /// All memory that the process shares or has registered, with the queues and control pages of the fabric.
    shared: u64,
}

/// Returns a count for each step.
pub(in crate::commands) fn by_step(count: impl Fn(Step) -> u64) -> BTreeMap<String, u64> {
    Step::ALL.iter().map(|step| (step.name().to_owned(), count(*step))).collect()
}

impl Served {
    pub(super) fn new<F: FabricDiagnostics>(id: &str, delivered: Deliveries, member: &Member<F>) -> Self {
        let (counts, used): (&Counts, _) = (member.counts(), member.memory_use());
        Served {
            id: id.to_owned(),
            deliveries: delivered.commands,
            of_sessions: delivered.of_sessions,
            skipped: delivered.skipped,
            writes: by_step(|step| counts.writes(step)),
            items: by_step(|step| counts.items(step)),
            rejected: counts.rejected,
            memory: Memory {
                registered: used.regions,
                registered_limit: used.region_limit,
                most_queued: used.most_queued,
                queue_limit: used.queue_limit,
                shared: member.fabric().memory_bytes(),
            },
        }
    }

    /// Returns the number of remote writes of the protocol's steps, without flow control.
    pub(in crate::commands) fn protocol_writes(&self) -> u64 {
        let steps = Step::ALL.iter().take_while(|step| **step < Step::Credit);
        steps.filter_map(|step| self.writes.get(step.name())).sum()
    }

    pub(super) fn text(&self) -> String {
        let steps = self.writes.iter().filter(|(_, count)| **count > 0);
        let writes = steps.map(|(step, count)| format!("{count} {step}")).collect::<Vec<_>>().join(", ");
        let mut more = String::new();
        if self.of_sessions > 0 {
            let messages = counted(self.of_sessions, "message of clients' sessions", "messages of clients' sessions");
            more += &format!(", {messages}");
        }
        if self.skipped > 0 {
            more += &format!(" and {} that came as another member's state", self.skipped);
        }
        format!(
            "stopped after {}{more}; remote writes: {}; at most {} waited",
            counted(self.deliveries, "delivery", "deliveries"),
            if writes.is_empty() { "none" } else { &writes },
            bytes(self.memory.most_queued)
        )
    }
}

impl Human for Served {
    fn human(&self, _: Style) -> String {
        format!("{}: {}\n", self.id, self.text())
    }
}
