//! What the switch shows of itself: sets, registers by stage, counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stentor_switch::registers::{MOST, State, View};
use stentor_switch::resources::Report;

use crate::relay::{SoftSwitch, mode_name};
use crate::settings::Settings;

/// Everything but registers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// The cluster that it is for.
    pub cluster: String,
    /// Its process.
    pub pid: u32,
    /// Addresses of VRQPs and VSQPs.
    pub forward: String,
    /// See `forward`.
    pub backward: String,
    /// `plain` or `raw`.
    pub mode: String,
    /// Since it was started, milliseconds.
    pub age_ms: u64,
    /// Sets that there is room for.
    pub room: usize,
    /// Sets that are not silent.
    pub sets: Vec<SetShown>,
    /// Passes by what became of them, those that happened.
    pub passes: BTreeMap<String, u64>,
    /// Packets: received, sent, and what the kernel lost of both.
    pub packets: BTreeMap<String, u64>,
    /// Connections of hosts that ask for sets.
    pub connections: BTreeMap<String, u64>,
    /// What was done to packets on purpose.
    pub injected: BTreeMap<String, u64>,
    /// What a set of 32 takes in a switch, as text.
    pub resources: String,
    /// The registers of the set that was asked for.
    pub registers: Option<Registers>,
}

/// A set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetShown {
    /// Its number.
    pub gid: u16,
    /// What it is doing.
    pub state: String,
    /// Hosts that it has, by rank.
    pub ranks: Vec<u8>,
    /// The rank that holds it.
    pub holder: Option<u8>,
    /// Members of the session, by rank.
    pub members: Vec<u8>,
    /// Member lists so far.
    pub epoch: u32,
    /// Up to which PSN of the holder everything was acknowledged by all.
    pub acknowledged: u32,
}

/// Fields and what they hold.
pub type Cells = BTreeMap<String, String>;

/// The registers of a set, stage by stage; of arrays with a cell for each rank those of ranks that there are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registers {
    /// The set.
    pub gid: u16,
    /// Name of the array, rank, fields; in the order of the stages.
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
    /// How it stands; with the registers of a set, if one is named and is there.
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
