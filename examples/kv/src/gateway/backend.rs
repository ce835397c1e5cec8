//! The store that answers batches: the groups of a cluster, or a store in this process to measure the gateway alone.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
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
    link: Link,
}

/// The gateway's client of the cluster.
enum Link {
    Up(Box<LocalClient>),
    /// The earlier client has ended, and a thread connects the next one.
    Connecting(Receiver<LocalClient>),
}

/// Time for which a batch waits for a majority of each of its groups.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two attempts to reconnect to the cluster.
const RETRY: Duration = Duration::from_millis(200);
/// Interval at which the gateway looks whether it is connected again.
const LOOK: Duration = Duration::from_millis(20);

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
        let link = Link::Up(Box::new(connect(&cluster, bind, wait)?));
        Ok(Backend::Cluster(Box::new(Remote { cluster, bind, wait, groups, link })))
    }

    /// Returns a backend whose client has ended, and the end at which the next client would arrive.
    #[cfg(test)]
    pub(super) fn connecting(cluster: Cluster) -> (Backend, std::sync::mpsc::Sender<LocalClient>) {
        let (sender, receiver) = channel();
        let groups = cluster.groups().collect();
        let remote = Remote { cluster, bind: None, wait: None, groups, link: Link::Connecting(receiver) };
        (Backend::Cluster(Box::new(remote)), sender)
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
                let Remote { link, groups, .. } = &mut **remote;
                let Link::Up(client) = link else { return Ok(Some(Instant::now() + LOOK)) };
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

    /// Drops the client, which has ended, and lets a thread connect another one, with another session. The thread
    /// retries until it is connected or `stop` is set. Meanwhile no batch is sent.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(super) fn reconnect(&mut self, stop: &Arc<AtomicBool>) -> Result<()> {
        let Backend::Cluster(remote) = self else { return Ok(()) };
        let (sender, receiver) = channel();
        // The earlier client is dropped first: it has a client id, of which the cluster may have few.
        remote.link = Link::Connecting(receiver);
        let (cluster, bind, wait, stop) = (remote.cluster.clone(), remote.bind, remote.wait, Arc::clone(stop));
        let dial = move || {
            while !stop.load(Ordering::Relaxed) {
                match connect(&cluster, bind, wait) {
                    // If the gateway has ended meanwhile, the client is dropped.
                    Ok(client) => return drop(sender.send(client)),
                    Err(error) => eprintln!("{error:#}"),
                }
                thread::sleep(RETRY);
            }
        };
        thread::Builder::new().name("reconnect".to_owned()).spawn(dial)?;
        Ok(())
    }

    /// Returns whether the gateway is connected again since the last call. The descriptor is then a new one.
    ///
    /// # Errors
    /// Returns an error if the thread that connects has ended without a client.
    pub(super) fn has_reconnected(&mut self) -> Result<bool> {
        let Backend::Cluster(remote) = self else { return Ok(false) };
        let Link::Connecting(receiver) = &remote.link else { return Ok(false) };
        match receiver.try_recv() {
            Ok(client) => {
                remote.link = Link::Up(Box::new(client));
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => bail!("the thread that connects to the cluster has ended"),
        }
    }

    /// Returns whether the gateway has no connection to the cluster.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self, Backend::Cluster(remote) if matches!(remote.link, Link::Connecting(_)))
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Backend::Cluster(remote) => match &remote.link {
                Link::Up(client) => Some(client.as_fd()),
                Link::Connecting(_) => None,
            },
            Backend::Own(_) => None,
        }
    }
}

impl Remote {
    fn send(&mut self, to: &[u16], batch: &[u8], how: How) -> Result<Request, Refused> {
        let groups = &self.groups;
        let group = |number: &u16| groups[usize::from(*number)];
        let consistency = if how == How::Leader { Consistency::Leader } else { Consistency::Ordered };
        // This refusal is temporary: the batch waits, for as long as for a group without a majority.
        let Link::Up(client) = &mut self.link else {
            return Err(to.first().map_or(Refused::NoGroups, |first| Refused::Unavailable(group(first))));
        };
        match (to, how) {
            ([one], How::Ordered) => client.submit(group(one), batch),
            ([one], _) => client.submit_read(group(one), batch, consistency),
            (several, _) => {
                let several: Vec<Group> = several.iter().map(group).collect();
                match how {
                    How::Ordered => client.submit(&several[..], batch),
                    _ => client.submit_read(&several[..], batch, consistency),
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
