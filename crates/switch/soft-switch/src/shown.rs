//! The report on a running switch: sets, registers by stage, counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stentor_switch::registers::{MOST, State, View};
use stentor_switch::resources::Report;

use crate::relay::{SoftSwitch, mode_name};
use crate::settings::Settings;

/// Report on a running switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// Name of the cluster.
    pub cluster: String,
    /// Process id.
    pub pid: u32,
    /// Address of the VRQPs.
    pub forward: String,
    /// Address of the VSQPs.
    pub backward: String,
    /// `plain` or `raw`.
    pub mode: String,
    /// Time since the start, in milliseconds.
    pub age_ms: u64,
    /// Number of sets that the switch has room for.
    pub room: usize,
    /// Sets that are not silent.
    pub sets: Vec<SetShown>,
    /// Number of passes by cause, without zeros.
    pub passes: BTreeMap<String, u64>,
    /// Number of packets received, sent, dropped for too many passes, and lost by the kernel in either direction.
    pub packets: BTreeMap<String, u64>,
    /// Number of connections to the control plane, by their outcome.
    pub connections: BTreeMap<String, u64>,
    /// Number of injected faults, by kind.
    pub injected: BTreeMap<String, u64>,
    /// Resources that a set of 32 hosts needs in a hardware switch, as text.
    pub resources: String,
    /// Registers of the requested set.
    pub registers: Option<Registers>,
}

/// A set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetShown {
    /// Number of the set.
    pub gid: u16,
    /// State of the set.
    pub state: String,
    /// Ranks that exist.
    pub ranks: Vec<u8>,
    /// Rank of the holder.
    pub holder: Option<u8>,
    /// Ranks of the session's members.
    pub members: Vec<u8>,
    /// Number of LINKs, and of holders' queries, that were executed since the set was created.
    pub epoch: u32,
    /// PSN of the holder up to which all members have acknowledged everything.
    pub acknowledged: u32,
}

/// Names of fields and their values.
pub type Cells = BTreeMap<String, String>;

/// The registers of a set, stage by stage. Arrays with a cell for each rank show only existing ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registers {
    /// Number of the set.
    pub gid: u16,
    /// One entry for each register cell: the name of its array, its rank, and its fields. The rank is `None` if the
    /// array has one cell for the whole set. Entries have the order of the pipeline's stages.
    pub stages: Vec<(String, Option<u8>, Cells)>,
}

fn bits(mask: u32) -> Vec<u8> {
    (0..MOST as u8).filter(|rank| mask >> rank & 1 == 1).collect()
}

fn named(list: &[(&str, u64)]) -> BTreeMap<String, u64> {
    list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn set(gid: u16, view: &View<'_>) -> Option<SetShown> {
    let session = view.session;
    if session.state == State::Silent {
        return None;
    }
    let held = matches!(session.state, State::Linking | State::Active | State::Poisoned);
    Some(SetShown {
        gid,
        state: format!("{:?}", session.state).to_lowercase(),
        ranks: bits(session.known),
        holder: held.then_some(session.holder),
        members: if held { bits(session.mask) } else { Vec::new() },
        epoch: session.epoch,
        acknowledged: view.progress.last.get(),
    })
}

fn cells(told: Vec<(&'static str, String)>) -> Cells {
    told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn registers(gid: u16, view: &View<'_>) -> Registers {
    let ranks = bits(view.session.known);
    let mut stages = Vec::new();
    let mut put = |name: &str, rank, told| stages.push((name.to_owned(), rank, cells(told)));
    for rank in &ranks {
        put("ranks", Some(*rank), view.ranks[usize::from(*rank)].told());
    }
    put("sessions", None, view.session.told());
    for rank in &ranks {
        put("members", Some(*rank), view.members[usize::from(*rank)].told());
    }
    for rank in &ranks {
        put("acked", Some(*rank), view.acked[usize::from(*rank)].told());
    }
    put("progress", None, view.progress.told());
    put("notices", None, view.notice.told());
    Registers { gid, stages }
}

impl SoftSwitch {
    /// Returns a report on the switch. It contains the registers of the set `registers_of` if the switch has room for
    /// that number.
    #[must_use]
    pub fn show(&self, settings: &Settings, registers_of: Option<u16>) -> Shown {
        let (arrays, tally) = (self.switch().arrays(), self.tally());
        let all = 0..arrays.sets().min(1 << 16) as u32;
        let sets = all.filter_map(|gid| set(gid as u16, &arrays.view(gid as u16)?)).collect();
        let [unsent, overflowed] = self.kernel_lost();
        let [lost, repeated, reordered, damaged, lost_in_loop] = self.injected();
        let report = Report { hosts: MOST as u32, sram_bytes: 12 << 20, loop_bits_per_s: 1e11 };
        Shown {
            cluster: settings.cluster.clone(),
            pid: std::process::id(),
            forward: settings.forward.to_string(),
            backward: settings.backward.to_string(),
            mode: mode_name(settings.mode).to_owned(),
            age_ms: self.age().as_millis() as u64,
            room: arrays.sets(),
            sets,
            passes: self.switch().counters().list().map(|(name, count)| (name.to_owned(), count)).collect(),
            packets: named(&[
                ("received", tally.received),
                ("sent", tally.sent),
                ("overlong", tally.overlong),
                ("unsent", unsent),
                ("overflowed", overflowed),
            ]),
            connections: named(&[
                ("hosts", self.admitted().hosts),
                ("strangers", self.admitted().strangers),
                ("garbled", self.admitted().garbled),
            ]),
            injected: named(&[
                ("lost", lost),
                ("repeated", repeated),
                ("reordered", reordered),
                ("damaged", damaged),
                ("lost in the loop", lost_in_loop),
            ]),
            resources: report.to_string(),
            registers: registers_of.and_then(|gid| Some(registers(gid, &arrays.view(gid)?))),
        }
    }
}
