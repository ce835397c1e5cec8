//! Ends the failures: time passes, each group without a leader gets one, and everything must be delivered.

use std::collections::VecDeque;

use super::channels::Parcel;
use super::entries::are_complete;
use super::member::{Context, Event, Member};
use crate::network::Wire;

/// Number of rounds of ticks within which all messages must be delivered.
const ROUNDS: usize = 40;
/// Number of steps within which the cluster must become quiet in each round.
const STEPS: usize = 10_000;

/// A cluster outside the search.
pub(super) struct Run {
    pub(super) members: Vec<Member>,
    pub(super) queues: Vec<VecDeque<Parcel>>,
    pub(super) closed: u64,
}

impl Run {
    fn step(&mut self, context: &Context, process: usize, event: Event<'_>) -> bool {
        let Some(step) = self.members[process].step(context, event) else { return false };
        for (wire, parcel) in step.sends {
            let name = context.channels.wires[wire];
            if self.members[name.receiver()].replica.is_none() {
                continue;
            }
            if let Wire::Control { from, to } = name
                && parcel.opens_stream()
            {
                let stream = context.channels.number(Wire::Stream { from, to });
                if self.closed >> stream & 1 == 1 {
                    self.closed &= !(1 << stream);
                    self.queues[stream].clear();
                }
            }
            if self.closed >> wire & 1 == 0 {
                self.queues[wire].push_back(parcel);
            }
        }
        true
    }

    /// Processes all messages that are in the channels.
    fn rest(&mut self, context: &Context) -> Result<(), String> {
        let (mut steps, mut moved) = (0, true);
        while std::mem::take(&mut moved) {
            for (wire, name) in context.channels.wires.iter().enumerate() {
                while let Some(parcel) = self.queues[wire].pop_front() {
                    if !self.step(context, name.receiver(), Event::Take(*name, &parcel)) {
                        self.queues[wire].push_front(parcel);
                        break;
                    }
                    (steps, moved) = (steps + 1, true);
                }
            }
            if steps > STEPS {
                return Err("the cluster does not come to rest".to_owned());
            }
        }
        Ok(())
    }

    /// Elects a leader for each group without one.
    fn elect(&mut self, context: &Context) {
        for group in context.channels.topology.group_ids() {
            let members: Vec<usize> = context.channels.topology.members(group).map(|process| process.index()).collect();
            let ready = || members.iter().copied().filter(|process| !self.members[*process].is_failed());
            let replica = |process: usize| self.members[process].replica.as_ref();
            let newest = ready().filter_map(replica).map(stentor_multicast::Replica::promised).max();
            let led = ready().filter_map(replica).any(|r| r.is_leader() && Some(r.ballot()) == newest);
            if let (false, Some(process)) = (led, ready().next()) {
                self.step(context, process, Event::Campaign);
            }
        }
    }
}

/// Continues until every member that is up has delivered all messages to its group.
pub(super) fn cure(context: &Context, run: &mut Run) -> Result<(), String> {
    for round in 0..ROUNDS {
        run.rest(context)?;
        let mut up = run.members.iter().filter(|member| member.replica.is_some());
        if up.all(|member| context.has_all(member)) && are_complete(context, &run.members) {
            return Ok(());
        }
        if round % 4 == 3 {
            run.elect(context);
        }
        for process in 0..run.members.len() {
            for (from, wire) in context.channels.streams_into(process as u16) {
                if let Some(head) = run.queues[wire].front().cloned() {
                    run.step(context, process, Event::Stalled(from, &head));
                }
            }
            run.step(context, process, Event::Tick);
        }
    }
    let states = run.members.iter().map(|member| {
        let replica = member.replica.as_ref();
        let role = replica.map(|r| (r.ballot(), r.promised(), r.is_leader(), r.is_candidate(), r.is_joining()));
        format!(
            "{}: delivered {:?}, (ballot, promised, leads, candidate, joining) {role:?}",
            member.process, member.log
        )
    });
    Err(format!("a member has not delivered everything: {}", states.collect::<Vec<_>>().join("; ")))
}
