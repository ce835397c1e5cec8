//! Registered memory: what the CPU sees, and what the NIC already has but the CPU does not see yet.

use std::ops::Range;
use std::rc::Rc;

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, ProcessId, RegionSpec, Span, Word};

use crate::event::{Event, Slab};
use crate::rng::scatter;
use crate::state::State;

pub(crate) struct Region {
    pub(crate) spec: RegionSpec,
    pub(crate) words: Rc<[Word]>,
    /// Landings that are not wholly visible, in the order in which the NIC executed them.
    pub(crate) pending: Vec<u32>,
    /// The key in use, if access is granted.
    pub(crate) key: Option<u32>,
}

impl Region {
    pub(crate) fn new(spec: RegionSpec) -> Self {
        let words: Rc<[Word]> = (0..spec.bytes as usize / WORD).map(|_| Word::new(0)).collect();
        Region { spec, words, pending: Vec::new(), key: None }
    }
}

/// A granted access. Its number is the remote key; numbers are never used twice.
pub(crate) struct Key {
    pub(crate) owner: ProcessId,
    pub(crate) incarnation: u32,
    pub(crate) region: u32,
    pub(crate) access: Access,
    pub(crate) valid: bool,
}

/// Data that the NIC has and the CPU will see, in `parts` steps.
pub(crate) struct Landing {
    pub(crate) process: ProcessId,
    pub(crate) incarnation: u32,
    pub(crate) region: u32,
    pub(crate) first: usize,
    pub(crate) data: Vec<u64>,
    /// The bits of the last word that are written.
    pub(crate) last_mask: u64,
    pub(crate) parts: u8,
    pub(crate) seed: u64,
    pub(crate) visible_at: u64,
    /// All of it is visible already.
    pub(crate) done: bool,
    /// Parts that are visible.
    pub(crate) landed: u8,
    pub(crate) flow: u64,
}

impl Landing {
    fn part_of(&self, word: usize) -> u8 {
        if self.parts == 1 { 0 } else { (scatter(self.seed, word as u64) % u64::from(self.parts)) as u8 }
    }

    fn store(&self, word: usize, to: &[Word]) {
        let to = &to[self.first + word];
        let new = self.data[word];
        let keep = if word + 1 == self.data.len() { !self.last_mask } else { 0 };
        let old = if keep == 0 { 0 } else { to.load(Ordering::Relaxed) & keep };
        to.store(old | new & !keep, Ordering::Release);
    }

    fn covers(&self, word: usize) -> bool {
        (self.first..self.first + self.data.len()).contains(&word)
    }
}

/// Where data is to land.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) process: ProcessId,
    pub(crate) region: u32,
    pub(crate) first: usize,
    pub(crate) bytes: u32,
    /// Not visible before this, ns.
    pub(crate) not_before: u64,
    pub(crate) flow: u64,
}

fn last_mask(bytes: u32) -> u64 {
    match bytes as usize % WORD {
        0 => u64::MAX,
        rest => (1 << (rest * 8)) - 1,
    }
}

impl State {
    /// What the NIC reads in a word: the newest thing it executed there, seen by the CPU or not.
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

    /// The NIC has `data`; plans when the CPU sees it, and returns when it sees all of it.
    pub(crate) fn land(&mut self, target: Target, data: Vec<u64>) -> u64 {
        let Target { process, region, first, bytes, not_before, flow } = target;
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
        // Tearing takes time: where landings queue up already it would make the queue longer and longer.
        let crowded = overlap > self.now || not_before > self.now + self.model.tear_gap.most_ns;
        at = at.max(not_before).max(overlap);
        let torn = words > 1 && !crowded && self.rng.chance(self.model.torn_writes);
        let parts = if torn { 2 + self.rng.below(3) as u8 } else { 1 };
        let seed = if torn { self.rng.word() } else { 0 };
        self.counts.torn_writes += u64::from(torn);
        let incarnation = self.processes[process.index()].incarnation;
        let landing = self.landings.insert(Landing {
            process,
            incarnation,
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

    /// One location is written in the order in which the NIC executed: an overlapping landing waits for the earlier.
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
        let there = self.processes[process.index()].incarnation == landing.incarnation;
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

    fn finish_landing(&mut self, id: u32) {
        let landing = self.landings.get_mut(id);
        landing.done = true;
        let pending = &mut self.processes[landing.process.index()].regions[landing.region as usize].pending;
        if let Some(place) = pending.iter().position(|other| *other == id) {
            pending.remove(place);
        }
    }

    /// Makes everything that the NIC has executed in a region visible at once.
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

/// The words of inline data; the last one is padded with zeros.
pub(crate) fn pack(bytes: &[u8], words: &mut Vec<u64>) {
    words.clear();
    let chunks = bytes.chunks_exact(WORD);
    let rest = chunks.remainder();
    words.extend(chunks.map(|chunk| {
        let mut word = [0; WORD];
        word.copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    }));
    if !rest.is_empty() {
        let mut word = [0; WORD];
        word[..rest.len()].copy_from_slice(rest);
        words.push(u64::from_ne_bytes(word));
    }
}

/// The last word's mask depends on where the first bytes of a word lie.
const _: () = assert!(cfg!(target_endian = "little"), "the simulator is written for little-endian machines");

pub(crate) type Landings = Slab<Landing>;
