//! The store that answers batches: the groups of a cluster, or a store in this process to measure the gateway alone.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use stentor::{Cluster, Consistency, Group, LocalClient, Outcome, Refused, Request, Turn, WaitMode};

use crate::machine::{Machine, Place};
use crate::partition::Partition;

/// The way in which the store answers a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// The batch has a position in the order.
    Ordered,
    /// The batch is read-only and has a position in the order.
    Query,
    /// The batch is read-only, and the leader answers it.
    Leader,
}

/// The identity of a batch in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Name {
    Cluster(Request),
    Own(u64),
}

/// The outcome of a batch.
#[derive(Debug)]
pub(super) enum Answered<'a> {
    /// The reply of each group, with the group's number.
    Replies(Vec<(u16, &'a [u8])>),
    /// No group has applied the batch, and none ever will.
    NotApplied(Refused),
    /// The outcome is unknown, or the reply was lost. The field describes the reason.
    Unknown(String),
}

/// A cluster, or a store in this process.
pub(super) enum Backend {
    Cluster(Box<Remote>),
    Own(Box<OwnStore>),
}

pub(super) struct Remote {
    cluster: Cluster,
    bind: Option<IpAddr>,
    wait: Option<WaitMode>,
    groups: Vec<Group>,
    client: LocalClient,
}

/// Time for which a batch waits for a majority of each of its groups.
const PATIENCE: Duration = Duration::from_secs(10);

fn connect(cluster: &Cluster, bind: Option<IpAddr>, wait: Option<WaitMode>) -> Result<LocalClient> {
    let mut client = cluster.client().patience(PATIENCE);
    if let Some(address) = bind {
        client = client.bind(address);
    }
    if let Some(wait) = wait {
        client = client.wait(wait);
    }
    Ok(client.connect_local()?)
}

/// The identity of a batch, and the reply of each group with the group's number.
type OwnAnswer = (u64, Vec<(u16, Vec<u8>)>);

pub(super) struct OwnStore {
    machines: Vec<Machine>,
    answers: Vec<OwnAnswer>,
    batches: u64,
}

impl Backend {
    pub(super) fn connect(cluster: Cluster, bind: Option<IpAddr>, wait: Option<WaitMode>) -> Result<Backend> {
        let groups = cluster.groups().collect();
        let client = connect(&cluster, bind, wait)?;
        Ok(Backend::Cluster(Box::new(Remote { cluster, bind, wait, groups, client })))
    }

    pub(super) fn own(groups: u16) -> Backend {
        let machines = (0..groups).map(|index| Machine::new(Partition { index, of: groups })).collect();
        Backend::Own(Box::new(OwnStore { machines, answers: Vec::new(), batches: 0 }))
    }

    /// Sends a batch to groups.
    ///
    /// # Errors
    /// Returns the reason for which the batch was not sent. No group ever applies it.
    pub(super) fn send(&mut self, to: &[u16], batch: &[u8], how: How) -> Result<Name, Refused> {
        match self {
            Backend::Cluster(remote) => remote.send(to, batch, how).map(Name::Cluster),
            Backend::Own(own) => Ok(Name::Own(own.answer(to, batch, how))),
        }
    }

    /// Does one round of work. Calls `each` for the outcome of each batch that has ended. Returns the time until which
    /// the gateway may sleep, or `None` if it may not sleep.
    ///
    /// # Errors
    /// Returns the reason for which the cluster's client has ended. In that case the outcomes of all batches in flight
    /// are unknown.
    pub(super) fn turn(&mut self, mut each: impl FnMut(Name, Answered<'_>)) -> Result<Option<Instant>> {
        match self {
            Backend::Cluster(remote) => {
                let Remote { client, groups, .. } = &mut **remote;
                let turn = client.turn(|request, outcome| each(Name::Cluster(request), answered(groups, &outcome)))?;
                Ok(match turn {
                    Turn::Idle(until) => Some(until),
                    Turn::Busy | Turn::Stopped => None,
                })
            }
            Backend::Own(own) => {
                for (name, replies) in own.answers.drain(..) {
                    let replies = replies.iter().map(|(group, bytes)| (*group, &bytes[..])).collect();
                    each(Name::Own(name), Answered::Replies(replies));
                }
                Ok(Some(Instant::now() + Duration::from_secs(1)))
            }
        }
    }

    /// Reconnects with another session.
    pub(super) fn reconnect(&mut self) -> Result<()> {
        if let Backend::Cluster(remote) = self {
            remote.client = connect(&remote.cluster, remote.bind, remote.wait)?;
        }
        Ok(())
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Backend::Cluster(remote) => Some(remote.client.as_fd()),
            Backend::Own(_) => None,
        }
    }
}

impl Remote {
    fn send(&mut self, to: &[u16], batch: &[u8], how: How) -> Result<Request, Refused> {
        let group = |number: &u16| self.groups[usize::from(*number)];
        let consistency = if how == How::Leader { Consistency::Leader } else { Consistency::Ordered };
        match (to, how) {
            ([one], How::Ordered) => self.client.submit(group(one), batch),
            ([one], _) => self.client.submit_read(group(one), batch, consistency),
            (several, _) => {
                let several: Vec<Group> = several.iter().map(group).collect();
                match how {
                    How::Ordered => self.client.submit(&several[..], batch),
                    _ => self.client.submit_read(&several[..], batch, consistency),
                }
            }
        }
    }
}

fn answered<'a>(groups: &[Group], outcome: &Outcome<'a>) -> Answered<'a> {
    // The handles of groups are sorted in the order of the configuration.
    let number = |group: Group| groups.binary_search(&group).unwrap_or_default() as u16;
    match outcome {
        Outcome::Applied(replies) => {
            Answered::Replies(replies.iter().map(|(group, bytes)| (number(group), bytes)).collect())
        }
        Outcome::NotApplied(refused) => Answered::NotApplied(*refused),
        Outcome::ReplyTooLong(_) => {
            Answered::Unknown("the command was applied, but the reply is longer than `reply_bytes` and is lost".into())
        }
        Outcome::Unknown(why) => Answered::Unknown(format!("the command is applied once or never: {why}")),
        _ => Answered::Unknown("the command is applied once or never".into()),
    }
}

impl OwnStore {
    fn answer(&mut self, to: &[u16], batch: &[u8], how: How) -> u64 {
        self.batches += 1;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let replies = to.iter().map(|group| {
            let (machine, mut bytes) = (&mut self.machines[usize::from(*group)], Vec::new());
            match how {
                How::Ordered => machine.carry_out(Place { time, index: self.batches }, batch, &mut bytes),
                _ => machine.answer(time, batch, &mut bytes),
            }
            (*group, bytes)
        });
        let replies = replies.collect();
        self.answers.push((self.batches, replies));
        self.batches
    }
}
