//! The records of the processes of a run.

use std::collections::BTreeMap;
use std::time::SystemTime;

use stentor::runtime::now_ns;
use stentor_support::Failure;

use super::{CallKind, ChaosPlant, ClientRecord, How, MemberRecord, Scene, Told};
use crate::commands::chaos::service::callers::journal;
use crate::commands::chaos::service::records::{Place, read};

/// The records of a member in one of its lives.
#[derive(Clone, Debug)]
pub(in crate::commands::chaos::service) struct MemberLife {
    pub(super) name: String,
    pub(super) group: u16,
    pub(super) records: Vec<MemberRecord>,
}

/// The records of a client in one of its lives.
#[derive(Clone, Debug)]
pub(in crate::commands::chaos::service) struct ClientLife {
    pub(super) client: u64,
    pub(super) life: u32,
    pub(super) session: String,
    pub(super) records: Vec<ClientRecord>,
}

/// A call, with its outcome if the client has learned it.
#[derive(Clone, Debug)]
pub(in crate::commands::chaos::service) struct Called {
    pub(super) session: String,
    pub(super) life: u32,
    pub(super) call: u64,
    pub(super) at: u64,
    pub(super) to: Vec<u16>,
    pub(super) kind: CallKind,
    pub(super) operation: String,
    pub(super) after: Option<Place>,
    /// Time at which the outcome was recorded, and the outcome.
    pub(super) end: Option<(u64, How)>,
    pub(super) later: bool,
}

/// All records of a run.
#[derive(Clone, Debug, Default)]
pub(in crate::commands::chaos::service) struct Evidence {
    pub(super) groups: u16,
    pub(super) members: Vec<MemberLife>,
    pub(super) clients: Vec<ClientLife>,
    pub(super) calls: Vec<Called>,
    /// Bound of the clocks, in nanoseconds.
    pub(super) bound: u64,
    /// Wall clock of this host minus its monotonic clock, in nanoseconds.
    pub(super) wall: i128,
    pub(super) complete: bool,
}

impl Evidence {
    pub(super) fn read(scene: &Scene, lives: &[u32], complete: bool) -> Result<Self, Failure> {
        let config = scene.plan.config();
        let mut evidence = Evidence {
            groups: config.groups().len() as u16,
            bound: config.clock_bound().as_nanos() as u64,
            wall: wall_less_monotonic(),
            complete,
            ..Evidence::default()
        };
        for (group, of) in (0..).zip(config.groups()) {
            for member in of.members() {
                let name = member.id();
                for path in (1..).map(|life| scene.history(name, life)).take_while(|path| path.exists()) {
                    let records = read(&path)?;
                    evidence.members.push(MemberLife { name: name.to_owned(), group, records });
                }
            }
        }
        for (client, lives) in (0..).zip(lives) {
            for life in 1..=*lives {
                let records: Vec<ClientRecord> = read(&journal(scene, client, life))?;
                let session = records.iter().find_map(|record| match record {
                    ClientRecord::Session { session, .. } => Some(session.clone()),
                    _ => None,
                });
                // A client without a session has made no calls.
                let Some(session) = session else { continue };
                evidence.clients.push(ClientLife { client, life, session, records });
            }
        }
        evidence.gather();
        Ok(evidence)
    }

    /// Collects the calls from the records of the clients.
    pub(super) fn gather(&mut self) {
        self.calls = calls(&self.clients);
    }

    /// Injects an error, with which a test shows that the judge detects it.
    pub(super) fn spoil(&mut self, plant: ChaosPlant) {
        let answered =
            |called: &&mut Called, kind| called.kind == kind && matches!(called.end, Some((_, How::Answered { .. })));
        match plant {
            ChaosPlant::Reply => {
                let read = self.calls.iter_mut().rfind(|called| answered(called, CallKind::Leader));
                if let Some((_, How::Answered { replies, .. })) = read.and_then(|called| called.end.as_mut()) {
                    replies[0].1 += "1";
                }
            }
            ChaosPlant::Lost => {
                let command = self.calls.iter_mut().find(|called| answered(called, CallKind::Command));
                let Some(suffix) = command.map(|called| format!(" {}", called.call)) else { return };
                let is_it =
                    |told: &Told| matches!(told, Told::Applied { operation, .. } if operation.ends_with(&suffix));
                self.members.iter_mut().for_each(|member| member.records.retain(|record| !is_it(&record.told)));
            }
            ChaosPlant::Doubled => {
                for member in &mut self.members {
                    let is_command = |record: &&MemberRecord| matches!(record.told, Told::Applied { .. });
                    let Some(first) = member.records.iter().find(is_command).cloned() else { continue };
                    for record in member.records.iter_mut().skip(9) {
                        if matches!(record.told, Told::Applied { .. }) {
                            record.told = first.told;
                            break;
                        }
                    }
                }
            }
            ChaosPlant::Hang | ChaosPlant::History => {}
        }
    }
}

/// Returns the calls of all clients, each with its outcome if the process that made the call, or a later process of the
/// client, has learned it.
fn calls(clients: &[ClientLife]) -> Vec<Called> {
    let mut calls: BTreeMap<u64, Called> = BTreeMap::new();
    for ClientLife { life, session, records, .. } in clients {
        for record in records {
            match record {
                ClientRecord::Begin { at, call, to, kind, operation, after } => {
                    let called = Called {
                        session: session.clone(),
                        life: *life,
                        call: *call,
                        at: *at,
                        to: to.clone(),
                        kind: *kind,
                        operation: operation.clone(),
                        after: *after,
                        end: None,
                        later: false,
                    };
                    calls.insert(*call, called);
                }
                ClientRecord::End { at, call, how } => {
                    if let Some(called) = calls.get_mut(call) {
                        (called.end, called.later) = (Some((*at, how.clone())), called.life != *life);
                    }
                }
                _ => {}
            }
        }
    }
    calls.into_values().collect()
}

fn wall_less_monotonic() -> i128 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    wall.as_nanos() as i128 - i128::from(now_ns())
}
