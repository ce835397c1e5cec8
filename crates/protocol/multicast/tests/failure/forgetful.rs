//! Groups whose members lose their memory, one after the other, while messages of old campaigns are in flight. Each
//! connection is stalled with probability 1/2, drawn again from time to time. No two members deliver in different
//! orders, and synced messages are delivered.
//!
//! These runs find the error that a ballot also admits processes that asked for admission after the ballot's campaign
//! began (group of three, seed 7264). In 20 000 runs of each group they do not find the error that a promise of an
//! earlier life counts. `amnesia` tests that error, step by step. `STENTOR_FORGETFUL_RUNS` sets the number of runs of
//! each group.

use std::collections::{HashMap, HashSet};

use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, GroupId, Header, MessageId, Mutant, Variant};

use super::cluster::Cluster;
use super::judge::{complete, safe};
use super::net::{Parcel, Wire};
use super::walk::Random;

/// One simulation run.
struct Walk {
    cluster: Cluster,
    random: Random,
    /// Connections that are stalled.
    still: HashSet<(u16, u16)>,
    /// The members that have reported, in any life, that they hold a message in a ballot, by message and ballot.
    said: HashMap<(MessageId, Ballot), u64>,
    words: HashMap<MessageId, Vec<u64>>,
}

impl Walk {
    fn new(size: usize, seed: u64) -> Self {
        let cluster = Cluster::new(&[size], 2, (Variant::V2, 4, Mutant::None));
        let (still, said, words) = (HashSet::new(), HashMap::new(), HashMap::new());
        Walk { cluster, random: Random::new(seed), still, said, words }
    }

    fn any(&mut self) -> u16 {
        self.random.below(self.cluster.members.len() as u64) as u16
    }

    fn rearrange(&mut self) {
        let members = self.cluster.members.len() as u16;
        self.still.clear();
        for a in 0..members {
            for b in 0..a {
                if self.random.one_in(2) {
                    self.still.extend([(a, b), (b, a)]);
                }
            }
            for client in 0..2 {
                if self.random.one_in(2) {
                    self.still.insert((members + client, a));
                }
            }
        }
    }

    fn moves(&self, wire: Wire) -> bool {
        let members = self.cluster.members.len() as u16;
        let (Wire::Stream { from, to } | Wire::Control { from, to }) = wire else {
            let Wire::Body { client, to } = wire else { unreachable!("the others were matched") };
            return !self.still.contains(&(members + client, to));
        };
        !self.still.contains(&(from, to))
    }

    fn step(&mut self) -> Result<(), String> {
        let member = self.any();
        match self.random.below(100) {
            0..=4 => self.rearrange(),
            5..=8 => self.cluster.campaign(member, None)?,
            9..=11 if self.may_forget(member) => {
                self.cluster.crash(member);
                self.cluster.restart(member)?;
            }
            12..=16 => self.submit(),
            17..=19 => self.cluster.tick(member)?,
            _ => {
                let filled: Vec<Wire> =
                    self.cluster.net.filled().into_iter().filter(|wire| self.moves(*wire)).collect();
                if !filled.is_empty() {
                    let wire = filled[self.random.below(filled.len() as u64) as usize];
                    self.cluster.take(wire, None)?;
                    self.hear(wire.receiver())?;
                }
            }
        }
        Ok(())
    }

    fn may_forget(&self, member: u16) -> bool {
        let failed = self.cluster.failed(GroupId(0));
        let counts = self.cluster.members[usize::from(member)].replica.as_ref().is_some_and(|r| !r.is_joining());
        failed + usize::from(counts) <= (self.cluster.members.len() - 1) / 2
    }

    /// Makes a client multicast. One time in four the client dies right after that.
    fn submit(&mut self) {
        let client = self.random.below(2) as u16;
        let before: HashSet<MessageId> = self.cluster.sent.keys().copied().collect();
        let dies = self.random.one_in(4).then_some(self.cluster.members.len());
        if self.cluster.submit(client, &[0], dies) {
            let id =
                self.cluster.sent.keys().copied().find(|id| !before.contains(id)).expect("the new message has an id");
            let queues = self.cluster.net.queues.iter().filter(|(wire, _)| matches!(wire, Wire::Body { .. }));
            let words = queues.flat_map(|(_, queue)| queue).find_map(|parcel| match parcel {
                Parcel::Body(of, words) if *of == id.client && words[0] == id.sequence => Some(words.clone()),
                _ => None,
            });
            self.words.insert(id, words.unwrap_or_default());
        }
    }

    /// Records a member's report after a step: the client may receive the report, whatever happens to the member.
    fn hear(&mut self, member: u16) -> Result<(), String> {
        let Some(replica) = &self.cluster.members[usize::from(member)].replica else { return Ok(()) };
        let Some(ballot) = replica.counts_in() else { return Ok(()) };
        for (id, words) in self.words.iter().filter(|(_, words)| !words.is_empty()) {
            let topology = &self.cluster.topology;
            let header = Header::decode(words, words.len() * 8, topology).map_err(|error| error.to_string())?;
            if replica.admit(id.client, &header) == Ok(None) {
                let bit = topology.member_bit(GroupId(0), ProcessId(member)).expect("a member");
                *self.said.entry((*id, ballot)).or_default() |= bit;
            }
        }
        safe(&self.cluster.logs(), &self.cluster.sent)
    }

    /// Runs all connections while no member loses its memory. Every message that is synced with all earlier ones must
    /// be delivered.
    fn finish(&mut self) -> Result<u64, String> {
        let majority = self.cluster.members.len() as u32 / 2 + 1;
        let held: HashSet<MessageId> =
            self.said.iter().filter(|(_, by)| by.count_ones() >= majority).map(|((id, _), _)| *id).collect();
        let mut synced = 0;
        for (id, sent) in &mut self.cluster.sent {
            let before = (1..=id.sequence).all(|sequence| held.contains(&MessageId { client: id.client, sequence }));
            sent.whole = before;
            synced += u64::from(before);
        }
        self.still.clear();
        let members = self.cluster.members.len() as u16;
        for round in 0..60 {
            while let Some(wire) = self.next()? {
                self.hear(wire.receiver())?;
            }
            if round % 6 == 3 {
                let replica = |member: u16| self.cluster.members[usize::from(member)].replica.as_ref();
                let newest = (0..members).filter_map(|m| replica(m).map(stentor_multicast::Replica::promised)).max();
                let leads = |m: u16| replica(m).is_some_and(|r| r.is_leader() && Some(r.ballot()) == newest);
                let ready = (0..members).find(|member| replica(*member).is_some_and(|r| !r.is_joining()));
                if let Some(member) = ready.filter(|_| !(0..members).any(leads)) {
                    self.cluster.campaign(member, None)?;
                }
            }
            for member in 0..members {
                self.cluster.tick(member)?;
            }
        }
        let up = self.cluster.members.iter().enumerate();
        let up: Vec<_> = up.map(|(process, member)| (process as u16, member.group, &member.log)).collect();
        complete(&self.cluster.topology, &up, &self.cluster.logs(), &self.cluster.sent)?;
        Ok(synced)
    }

    fn next(&mut self) -> Result<Option<Wire>, String> {
        for wire in self.cluster.net.filled() {
            if self.cluster.take(wire, None)? {
                return Ok(Some(wire));
            }
        }
        Ok(None)
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn synced_messages_survive_members_that_forget_one_after_the_other() {
    let wanted = std::env::var("STENTOR_FORGETFUL_RUNS").ok().and_then(|runs| runs.parse().ok());
    for (size, runs) in [(3, 8000), (4, 1000), (5, 2000)] {
        let runs = wanted.unwrap_or(runs);
        let mut synced = 0;
        for seed in 0..runs {
            let mut walk = Walk::new(size, seed);
            let steps = 150 + walk.random.below(350);
            let done = (0..steps).try_for_each(|_| walk.step()).and_then(|()| walk.finish());
            synced += done.unwrap_or_else(|flaw| panic!("group of {size}, seed {seed}: {flaw}"));
        }
        eprintln!("forgetful, {size}: {runs} runs, {synced} messages synced");
        assert!(synced > runs, "group of {size}: {synced} messages were synced");
    }
}
