//! Landing of data in registered memory, torn and late, and the NIC's reads meanwhile.

use std::ops::Range;

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{ProcessId, Span};

use crate::event::Event;
use crate::memory::{Landing, LandingPlace, last_mask};
use crate::state::State;

impl State {
    /// Returns the value that the NIC reads in a word: the newest one that it executed there, visible to the CPU or
    /// not.
    pub(crate) fn nic_word(&self, process: ProcessId, region: u32, word: usize) -> u64 {
        let region = &self.processes[process.index()].regions[region as usize];
        let seen = region.words[word].load(Ordering::Acquire);
        let newest = region.pending.iter().rev().map(|id| self.landings.get(*id)).find(|l| l.covers(word));
        newest.map_or(seen, |landing| {
            let index = word - landing.first;
            let mask = if index + 1 == landing.data.len() { landing.last_mask } else { u64::MAX };
            landing.data[index] & mask | seen & !mask
        })
    }

    /// Reads a local span into `data`, as the NIC does.
    pub(crate) fn nic_read(&self, process: ProcessId, span: Span, data: &mut Vec<u64>) {
        let first = span.offset as usize / WORD;
        data.clear();
        let words = (span.bytes as usize).div_ceil(WORD);
        let region = &self.processes[process.index()].regions[span.region.index()];
        if region.pending.is_empty() {
            data.extend(region.words[first..first + words].iter().map(|w| w.load(Ordering::Acquire)));
        } else {
            data.extend((first..first + words).map(|word| self.nic_word(process, span.region.0, word)));
        }
    }

    /// Plans when the CPU sees `data`, which the NIC has. Returns the time at which all of it is visible.
    pub(crate) fn land(&mut self, target: LandingPlace, data: Vec<u64>) -> u64 {
        let LandingPlace { process, region, first, bytes, not_before, flow, result_of } = target;
        let words = data.len();
        if words == 0 {
            return not_before.max(self.now);
        }
        let mut at = self.now + self.model.landing.sample(&mut self.rng);
        if self.rng.chance(self.model.late_writes) {
            at += self.rng.below(self.model.late_ns + 1);
            self.counts.late_writes += 1;
        }
        let overlap = self.overlap_visible_at(process, region, first, words);
        // A torn write takes longer to land. A write that waits for an overlapping one, or for a long time for
        // another one, is therefore not torn: otherwise the queue of waiting writes would grow without bound.
        let crowded = overlap > self.now || not_before > self.now + self.model.tear_gap.most_ns;
        at = at.max(not_before).max(overlap);
        let torn = words > 1 && !crowded && self.rng.chance(self.model.torn_writes);
        let parts = if torn { 2 + self.rng.below(3) as u8 } else { 1 };
        let seed = if torn { self.rng.word() } else { 0 };
        self.counts.torn_writes += u64::from(torn);
        let life = self.processes[process.index()].life;
        let landing = self.landings.insert(Landing {
            process,
            life,
            region,
            first,
            data,
            last_mask: last_mask(bytes),
            parts,
            seed,
            visible_at: at,
            done: false,
            landed: 0,
            flow,
            result_of,
        });
        self.processes[process.index()].regions[region as usize].pending.push(landing);
        for part in 0..parts {
            if part > 0 {
                at += self.model.tear_gap.sample(&mut self.rng);
            }
            self.calendar.push(at, Event::Land { landing, part });
        }
        self.landings.get_mut(landing).visible_at = at;
        at
    }

    /// Returns the time at which earlier landings at the same location are visible. A location is written in the order
    /// in which the NIC executed, so a later landing waits.
    fn overlap_visible_at(&self, process: ProcessId, region: u32, first: usize, words: usize) -> u64 {
        let pending = &self.processes[process.index()].regions[region as usize].pending;
        let overlapping = pending
            .iter()
            .map(|id| self.landings.get(*id))
            .filter(|other| first < other.first + other.data.len() && other.first < first + words);
        overlapping.map(|other| other.visible_at).max().unwrap_or(0)
    }

    pub(crate) fn on_land(&mut self, id: u32, part: u8) {
        let landing = self.landings.get_mut(id);
        let (process, last) = (landing.process, part + 1 == landing.parts);
        let there = self.processes[process.index()].life == landing.life;
        if there && !landing.done {
            landing.landed = part + 1;
            let (first_part, torn) = (part == 0, landing.parts > 1);
            self.store_parts(id, part..part + 1);
            let owner = &mut self.processes[process.index()];
            if torn && first_part {
                owner.half_landed += 1;
            }
            if last {
                owner.half_landed -= u32::from(torn);
                self.finish_landing(id);
            }
            self.trace_landing(id, part, last);
            self.notify(process);
        }
        if last {
            let landing = self.landings.remove(id);
            self.recycle(landing.data);
        }
    }

    fn store_parts(&self, id: u32, parts: Range<u8>) {
        let landing = self.landings.get(id);
        let words = &self.processes[landing.process.index()].regions[landing.region as usize].words;
        for word in 0..landing.data.len() {
            if parts.contains(&landing.part_of(word)) {
                landing.store(word, words);
            }
        }
    }

    pub(crate) fn finish_landing(&mut self, id: u32) {
        let landing = self.landings.get_mut(id);
        landing.done = true;
        let pending = &mut self.processes[landing.process.index()].regions[landing.region as usize].pending;
        if let Some(place) = pending.iter().position(|other| *other == id) {
            pending.remove(place);
        }
    }

    /// Makes everything visible at once that the NIC has executed in a region. Returns the number of landings.
    pub(crate) fn land_everything(&mut self, process: ProcessId, region: u32) -> u64 {
        let pending = std::mem::take(&mut self.processes[process.index()].regions[region as usize].pending);
        for id in &pending {
            let landing = self.landings.get_mut(*id);
            landing.done = true;
            let missing = landing.landed..landing.parts;
            let half = landing.landed > 0 && landing.parts > 1;
            self.processes[process.index()].half_landed -= u32::from(half);
            self.store_parts(*id, missing);
        }
        pending.len() as u64
    }
}
