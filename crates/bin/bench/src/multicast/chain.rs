//! The bound on the latency of one message: the multicast's chain of messages between processes, without the multicast.
//!
//! The processes, the fan-out, and the ways to wait and to wake are those of the multicast. Each step consists only of
//! the message's number, sent by a [`Way`]: a plain store to a cache line per writer, reader and step, or a datagram.
//! The client's step also carries the payload, of which a cache line has only the beginning. There are no rings, no
//! checksums and no order among messages, because there is one message at a time.

use std::io;

use stentor_fabric::memory::Ordering;

use super::super::clock::now;
use super::super::way::Way;
use super::super::worker_spec::{Cluster, Task};
use crate::args::Protocol;

/// Description of the bound in shared memory.
pub(super) const WHAT: &str = "the same chain of plain stores and loads by the same processes in the same wait mode";

/// Step: a client's message to a member, with the payload.
pub(super) const BODY: usize = 0;
/// Step: a leader's timestamp to a follower.
pub(super) const ASSIGN: usize = 1;
/// Step: a leader's timestamp to another leader.
pub(super) const TIMESTAMP: usize = 2;
/// Step: an acknowledgement.
pub(super) const ACK: usize = 3;
/// Step: the report of a delivery to the client.
pub(super) const DONE: usize = 4;
/// First of the steps with which a leader forwards timestamps to a follower, one for each group. V2 uses only the step
/// of the leader's group, for all timestamps together. V1 uses the step of each other group, for its timestamp.
pub(super) const VECTOR: usize = 5;

/// Returns the number of lines that a chain needs.
pub(super) fn lines(cluster: &Cluster) -> usize {
    let processes = cluster.members() + 1;
    processes * processes * steps(cluster)
}

/// Returns the number of steps that one process can take towards another.
pub(super) fn steps(cluster: &Cluster) -> usize {
    VECTOR + usize::from(cluster.groups)
}

/// The event that ends a message for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// All destinations have delivered the message.
    Everywhere,
    /// The client knows that a majority of each group has delivered the message. The client's own samples are then
    /// latencies.
    Known,
}

impl Until {
    /// Returns the number of members of a group that must report to the client.
    pub(super) fn enough(self, replicas: usize) -> usize {
        match self {
            Until::Everywhere => replicas,
            Until::Known => replicas / 2 + 1,
        }
    }
}

/// One process of the chain. The client is the process after the members.
pub(super) struct Chain<'a, W: Way> {
    pub(super) task: Task<'a>,
    pub(super) cluster: &'a Cluster,
    pub(super) until: Until,
    pub(super) way: W,
}

impl<W: Way> Chain<'_, W> {
    /// Runs this process's part until the client ends the phase.
    pub(super) fn run(mut self) -> io::Result<()> {
        match self.task.me.checked_sub(self.cluster.members()) {
            None => self.member(),
            Some(0) => self.multicast(),
            Some(_) => Ok(()),
        }
    }

    fn replicas(&self) -> usize {
        usize::from(self.cluster.replicas)
    }

    fn client(&self) -> usize {
        self.cluster.members()
    }

    #[inline]
    fn tell(&mut self, reader: usize, step: usize, number: u64) {
        self.way.tell(reader, step, number);
    }

    /// Returns whether `writer` has taken this step of message `number` towards this process.
    #[inline]
    fn sees(&self, writer: usize, step: usize, number: u64) -> bool {
        self.way.sees(writer, step, number)
    }

    /// Runs the client: it sends one message after the other, each when the previous one is done.
    fn multicast(&mut self) -> io::Result<()> {
        let Task { area, me, command, phase } = self.task;
        let samples = area.samples(me);
        let destinations = self.cluster.destinations();
        for n in 0..self.task.total() {
            let number = self.task.base() + n + 1;
            let start = now();
            samples[n as usize].store(start, Ordering::Relaxed);
            for member in 0..destinations {
                self.way.body(member, BODY, command.bytes as usize, number);
            }
            self.way.flush();
            while !self.is_done(number) {
                self.way.pause(false)?;
                self.way.look()?;
            }
            if self.until == Until::Known {
                samples[n as usize].store(now() - start, Ordering::Relaxed);
            }
            self.way.pause(true)?;
        }
        area.end(phase);
        Ok(())
    }

    /// Returns whether enough members of each group have reported to the client.
    fn is_done(&self, number: u64) -> bool {
        let (replicas, enough) = (self.replicas(), self.until.enough(self.replicas()));
        let told = |member: &usize| self.sees(*member, DONE, number);
        (0..usize::from(self.cluster.dest))
            .all(|group| (group * replicas..(group + 1) * replicas).filter(told).count() >= enough)
    }

    /// Runs a member until the client ends the phase.
    fn member(&mut self) -> io::Result<()> {
        let Task { area, me, phase, .. } = self.task;
        let samples = area.samples(me);
        let is_destination = me < self.cluster.destinations();
        let mut n = 0;
        let mut state = State::default();
        while !area.is_over(phase) {
            self.way.look()?;
            let number = self.task.base() + n + 1;
            let worked = is_destination && self.step(number, &mut state);
            if state.delivered {
                samples[n as usize].store(now(), Ordering::Relaxed);
                self.tell(self.client(), DONE, number);
                n += 1;
                state = State::default();
            }
            self.way.flush();
            self.way.pause(worked)?;
        }
        Ok(())
    }

    fn step(&mut self, number: u64, state: &mut State) -> bool {
        let before = *state;
        let replicas = self.replicas();
        if self.task.me.is_multiple_of(replicas) {
            self.lead(number, state);
        } else {
            self.follow(number, state);
        }
        state.delivered = state.voted && self.decided(number);
        before != *state
    }

    /// Sends a step to every follower of this leader's group.
    fn tell_followers(&mut self, step: usize, number: u64) {
        for follower in self.task.me + 1..self.task.me + self.replicas() {
            self.tell(follower, step, number);
        }
    }

    fn lead(&mut self, number: u64, state: &mut State) {
        let (replicas, own) = (self.replicas(), self.task.me / self.replicas());
        let others = (0..usize::from(self.cluster.dest)).filter(|group| *group != own);
        if !state.assigned && self.sees(self.client(), BODY, number) {
            state.assigned = true;
            self.tell_followers(ASSIGN, number);
            for group in others.clone() {
                self.tell(group * replicas, TIMESTAMP, number);
            }
        }
        if !state.assigned || state.voted {
            return;
        }
        let v1 = self.cluster.variant == Protocol::V1;
        if v1 {
            for group in others.clone() {
                if state.passed & (1 << group) == 0 && self.sees(group * replicas, TIMESTAMP, number) {
                    state.passed |= 1 << group;
                    self.tell_followers(VECTOR + group, number);
                }
            }
            state.voted = others.clone().all(|group| state.passed & (1 << group) != 0);
        } else if others.clone().all(|group| self.sees(group * replicas, TIMESTAMP, number)) {
            if self.cluster.dest > 1 {
                self.tell_followers(VECTOR + own, number);
            }
            state.voted = true;
        }
        if state.voted && (v1 || replicas == 1) {
            self.acknowledge(number);
        }
    }

    fn follow(&mut self, number: u64, state: &mut State) {
        let (replicas, own) = (self.replicas(), self.task.me / self.replicas());
        let leader = own * replicas;
        if state.voted || !self.sees(self.client(), BODY, number) || !self.sees(leader, ASSIGN, number) {
            return;
        }
        let v1 = self.cluster.variant == Protocol::V1;
        let has = |group: usize| (group == own) == v1 || self.sees(leader, VECTOR + group, number);
        if self.cluster.dest == 1 || (0..usize::from(self.cluster.dest)).all(has) {
            state.voted = true;
            self.acknowledge(number);
        }
    }

    fn acknowledge(&mut self, number: u64) {
        let me = self.task.me;
        for member in (0..self.cluster.destinations()).filter(|member| *member != me) {
            self.tell(member, ACK, number);
        }
    }

    /// Returns whether a majority of every destination group has voted. A follower's vote implies its leader's.
    fn decided(&self, number: u64) -> bool {
        let replicas = self.replicas();
        (0..usize::from(self.cluster.dest)).all(|group| {
            let members = group * replicas..(group + 1) * replicas;
            let votes =
                members.clone().skip(1).filter(|member| *member == self.task.me || self.sees(*member, ACK, number));
            let votes = votes.count();
            let leader = members.start == self.task.me || votes > 0 || self.sees(members.start, ACK, number);
            votes + usize::from(leader) > replicas / 2
        })
    }
}

/// Progress of a message at a member.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct State {
    assigned: bool,
    /// Bit set of the groups whose timestamps were forwarded (V1).
    passed: u32,
    voted: bool,
    delivered: bool,
}
