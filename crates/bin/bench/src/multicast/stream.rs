//! The bound of the multicast's rate: the same records between the same processes, with as many messages outstanding,
//! without the multicast.
//!
//! Every client has as many messages outstanding as in the subject. Each step of a message is a record as long as the
//! multicast's, with a checksum computed at both ends, and records that are ready at the same time leave together.
//! Messages are not ordered, nothing is stored for absent members, and processes wait only for the inputs of their
//! steps.

use std::io;

use stentor_fabric::memory::{Ordering, WORD};

use super::super::clock::now;
use super::super::lane::Lane;
use super::super::rings::RingSpec;
use super::super::shared_area::NS;
use super::super::worker_spec::{Cluster, Task};
use super::chain::{ACK, ASSIGN, BODY, DONE, TIMESTAMP, Until, VECTOR};
use crate::args::Protocol;

/// Payload of a record other than a body, in bytes. With its header it fills a line.
const CONTROL_BYTES: usize = 40;
/// Length of a body besides its payload, in bytes: its destinations and its number.
const AROUND_BODY: usize = 2 * WORD;

/// Largest size of the bodies in flight from one client to one member, in bytes.
const RING_BYTES: usize = 64 << 20;

/// Returns the rings that the steps need.
pub(super) fn rings(cluster: &Cluster) -> Vec<RingSpec> {
    let (replicas, dest) = (usize::from(cluster.replicas), usize::from(cluster.dest));
    let (members, clients) = (cluster.members(), usize::from(cluster.clients));
    let window = cluster.setting.window.max(1) as usize;
    let mut rings = Vec::new();
    // Rings for messages of a megabyte have fewer slots than a large window. 64 MiB in flight from one client to one
    // member are always enough.
    let bodies = window.min((RING_BYTES / (cluster.setting.bytes as usize + AROUND_BODY)).max(4));
    let mut ring = |writer: usize, reader: usize, step: usize| {
        let (bytes, slots) = match step {
            BODY => (cluster.setting.bytes as usize + AROUND_BODY, bodies),
            _ => (CONTROL_BYTES, window * clients),
        };
        if writer != reader {
            rings.push(RingSpec { writer, readers: vec![reader], step, bytes, slots, counted: true });
        }
    };
    let destinations = 0..cluster.destinations();
    for client in members..members + clients {
        destinations.clone().for_each(|member| ring(client, member, BODY));
    }
    for member in destinations.clone() {
        (members..members + clients).for_each(|client| ring(member, client, DONE));
        destinations.clone().for_each(|other| ring(member, other, ACK));
        if member % replicas == 0 {
            (0..dest).for_each(|group| ring(member, group * replicas, TIMESTAMP));
            for follower in member + 1..member + replicas {
                ring(member, follower, ASSIGN);
                (0..dest).for_each(|group| ring(member, follower, VECTOR + group));
            }
        }
    }
    rings
}

/// One process of the stream.
pub(super) struct Stream<'a, L: Lane> {
    pub(super) task: Task<'a>,
    pub(super) cluster: &'a Cluster,
    pub(super) until: Until,
    pub(super) lane: L,
}

impl<L: Lane> Stream<'_, L> {
    /// Runs this process's part until all clients are done.
    pub(super) fn run(mut self) -> io::Result<()> {
        match self.task.me.checked_sub(self.cluster.members()) {
            None if self.task.me < self.cluster.destinations() => self.member(),
            None => self.idle(),
            Some(client) => self.multicast(client),
        }
    }

    fn clients(&self) -> usize {
        usize::from(self.cluster.clients)
    }

    fn replicas(&self) -> usize {
        usize::from(self.cluster.replicas)
    }

    /// Returns the index of a message's samples.
    fn sample(&self, client: usize, n: u64) -> usize {
        (n as usize - 1) * self.clients() + client
    }

    /// Runs a member of a group that receives no messages.
    fn idle(&mut self) -> io::Result<()> {
        while !self.task.area.is_over(self.task.phase) {
            self.lane.pause(false)?;
        }
        Ok(())
    }

    /// Runs a client, which keeps the window full.
    fn multicast(&mut self, client: usize) -> io::Result<()> {
        let Task { area, me, command, phase } = self.task;
        let (total, window, samples) = (self.task.total(), command.window, area.samples(me));
        let bytes = command.bytes as usize + AROUND_BODY;
        let destinations = self.cluster.destinations();
        let (mut sent, mut done, start) = (0, 0, now());
        while done < total {
            let first = sent;
            while sent < total && sent - done < window {
                sent += 1;
                samples[self.sample(client, sent)].store(now(), Ordering::Relaxed);
                (0..destinations).try_for_each(|member| self.lane.put(member, BODY, client, sent, bytes))?;
            }
            self.lane.flush();
            let worked = self.lane.look()? | (sent > first);
            done = self.done(client);
            self.lane.pause(worked)?;
        }
        area.results(me)[NS].store(now() - start, Ordering::Relaxed);
        // The first client ends the phase, after the others.
        let done = |client: usize| &area.results(self.cluster.members() + client)[super::DONE];
        done(client).store(phase, Ordering::Release);
        if client == 0 {
            while !(0..self.clients()).all(|client| done(client).load(Ordering::Acquire) == phase) {
                let worked = self.lane.look()?;
                self.lane.pause(worked)?;
            }
            area.end(phase);
        }
        Ok(())
    }

    /// Returns the newest message for which enough members of each group have reported to the client.
    fn done(&self, client: usize) -> u64 {
        let (replicas, enough) = (self.replicas(), self.until.enough(self.replicas()));
        let of_group = |group: usize| {
            let told = |member| self.lane.newest(member, DONE, client);
            newest_of(enough, &(group * replicas..(group + 1) * replicas).map(told))
        };
        (0..usize::from(self.cluster.dest)).map(of_group).min().unwrap_or(0)
    }

    /// Runs a member until the clients are done.
    fn member(&mut self) -> io::Result<()> {
        let Task { area, me, phase, .. } = self.task;
        let samples = area.samples(me);
        let mut states = vec![State::default(); self.clients()];
        let quarter = (u64::from(self.cluster.setting.window) / 4).max(1);
        while !area.is_over(phase) {
            let mut worked = self.lane.look()?;
            for (client, state) in states.iter_mut().enumerate() {
                let before = *state;
                if me.is_multiple_of(self.replicas()) {
                    self.lead(client, state)?;
                } else {
                    self.follow(client, state)?;
                }
                let decided = self.decided(client, state.voted);
                if decided > state.delivered {
                    let at = now();
                    for n in state.delivered + 1..=decided {
                        samples[self.sample(client, n)].store(at, Ordering::Relaxed);
                    }
                    state.delivered = decided;
                }
                worked |= *state != before;
            }
            for (client, state) in states.iter_mut().enumerate() {
                // Deliveries are reported when there is nothing else to do, or before the client has to wait.
                if state.delivered > state.told && (!worked || state.delivered - state.told >= quarter) {
                    self.lane.put(self.cluster.members() + client, DONE, client, state.delivered, CONTROL_BYTES)?;
                    (state.told, worked) = (state.delivered, true);
                }
            }
            self.lane.flush();
            self.lane.pause(worked)?;
        }
        Ok(())
    }

    /// Sends a record of message `n` to every follower of this leader's group.
    fn tell_followers(&mut self, step: usize, client: usize, n: u64) -> io::Result<()> {
        let me = self.task.me;
        (me + 1..me + self.replicas()).try_for_each(|follower| self.lane.put(follower, step, client, n, CONTROL_BYTES))
    }

    fn lead(&mut self, client: usize, state: &mut State) -> io::Result<()> {
        let (replicas, dest) = (self.replicas(), usize::from(self.cluster.dest));
        let own = self.task.me / replicas;
        let others = (0..dest).filter(|group| *group != own);
        let bodies = self.lane.newest(self.cluster.members() + client, BODY, client);
        for n in state.assigned + 1..=bodies {
            self.tell_followers(ASSIGN, client, n)?;
            others
                .clone()
                .try_for_each(|group| self.lane.put(group * replicas, TIMESTAMP, client, n, CONTROL_BYTES))?;
        }
        state.assigned = bodies;
        let v1 = self.cluster.variant == Protocol::V1;
        let stamped = others.clone().map(|group| (group, self.lane.newest(group * replicas, TIMESTAMP, client)));
        let all = stamped.clone().map(|(_, n)| n).min().unwrap_or(bodies).min(bodies);
        if v1 {
            for (group, newest) in stamped.collect::<Vec<_>>() {
                for n in state.passed[group] + 1..=newest {
                    self.tell_followers(VECTOR + group, client, n)?;
                }
                state.passed[group] = newest;
            }
        }
        for n in state.voted + 1..=all {
            if !v1 && dest > 1 {
                self.tell_followers(VECTOR + own, client, n)?;
            }
            if v1 || replicas == 1 {
                self.acknowledge(client, n)?;
            }
        }
        state.voted = all;
        Ok(())
    }

    fn follow(&mut self, client: usize, state: &mut State) -> io::Result<()> {
        let (replicas, dest) = (self.replicas(), usize::from(self.cluster.dest));
        let own = self.task.me / replicas;
        let leader = own * replicas;
        let v1 = self.cluster.variant == Protocol::V1;
        let body = self.lane.newest(self.cluster.members() + client, BODY, client);
        let assigned = self.lane.newest(leader, ASSIGN, client);
        let vectors = (0..dest).filter(|group| dest > 1 && (*group == own) != v1);
        let vectors = vectors.map(|group| self.lane.newest(leader, VECTOR + group, client));
        let all = vectors.min().unwrap_or(assigned).min(assigned).min(body);
        for n in state.voted + 1..=all {
            self.acknowledge(client, n)?;
        }
        state.voted = all;
        Ok(())
    }

    fn acknowledge(&mut self, client: usize, n: u64) -> io::Result<()> {
        let others = (0..self.cluster.destinations()).filter(|member| *member != self.task.me);
        others.into_iter().try_for_each(|member| self.lane.put(member, ACK, client, n, CONTROL_BYTES))
    }

    /// Returns the newest message for which a majority of every destination group has voted. A follower's vote implies
    /// its leader's.
    fn decided(&self, client: usize, own: u64) -> u64 {
        let replicas = self.replicas();
        let vote = |member| if member == self.task.me { own } else { self.lane.newest(member, ACK, client) };
        let of_group = |group: usize| {
            let members = group * replicas..(group + 1) * replicas;
            let followers = members.clone().skip(1).map(vote);
            let leader = vote(members.start).max(followers.clone().max().unwrap_or(0));
            newest_of(replicas / 2 + 1, &followers.chain([leader]))
        };
        (0..usize::from(self.cluster.dest)).map(of_group).min().unwrap_or(0)
    }
}

/// Returns the newest message that at least `enough` processes have. Groups are small enough for counting.
fn newest_of(enough: usize, all: &(impl Iterator<Item = u64> + Clone)) -> u64 {
    all.clone().filter(|n| all.clone().filter(|other| other >= n).count() >= enough).max().unwrap_or(0)
}

/// Progress of a client's messages at a member.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct State {
    assigned: u64,
    /// Last message whose timestamp was forwarded, by group (V1).
    passed: [u64; 16],
    voted: u64,
    delivered: u64,
    /// Last message whose delivery was reported to the client.
    told: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majority_suffices_for_known_and_all_are_needed_for_everywhere() {
        let told = [7, 3, 5];
        assert_eq!(newest_of(Until::Known.enough(3), &told.into_iter()), 5);
        assert_eq!(newest_of(Until::Everywhere.enough(3), &told.into_iter()), 3);
        assert_eq!([1, 2, 4, 5].map(|replicas| Until::Known.enough(replicas)), [1, 2, 3, 3]);
    }
}
