//! Scripts: the behaviour of simulated clients.

use std::time::Duration;

use super::random::SimRandom;
use super::seen::Seen;
use crate::{Consistency, Group, Groups, Notification, SessionId};

/// The behaviour of one client of a [`SimCluster`](super::SimCluster): a program that the simulation asks for one step
/// after the other.
///
/// A script represents a program that stores its progress durably. When its process dies, the next process resumes the
/// session, resolves the calls in flight, and continues with the same script. A closure `FnMut(&mut Turn<'_>) -> Next`
/// is a script.
///
/// A script must depend on its [`Turn`] alone. Otherwise a seed does not reproduce its run.
pub trait Script {
    /// Returns the next step of the client. It is called while fewer calls are in flight than
    /// [`SimCluster::at_once`](super::SimCluster::at_once) allows; the default is one.
    fn next(&mut self, turn: &mut Turn<'_>) -> Next;
}

impl<F: FnMut(&mut Turn<'_>) -> Next> Script for F {
    fn next(&mut self, turn: &mut Turn<'_>) -> Next {
        self(turn)
    }
}

/// The situation in which a script decides on its next step.
#[derive(Debug)]
pub struct Turn<'a> {
    pub(super) client: usize,
    pub(super) process: u64,
    pub(super) groups: &'a [Group],
    pub(super) session: SessionId,
    pub(super) time: Duration,
    pub(super) open: usize,
    pub(super) seen: &'a [Seen],
    pub(super) notifications: &'a [Notification],
    pub(super) random: &'a mut SimRandom,
}

impl Turn<'_> {
    /// Returns the number of the client, from 0.
    #[must_use]
    pub fn client(&self) -> usize {
        self.client
    }

    /// Returns the number of the client's process, from 1. If it differs from that of the previous turn, the previous
    /// process died. Notifications to the session since the previous turn may then be lost without a report, so a
    /// script that watches a value must read it again.
    #[must_use]
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Returns the groups of the cluster.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        self.groups
    }

    /// Returns the client's session. If it differs from that of the previous turn, the previous session has ended or
    /// expired.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the virtual time since the start of the run.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Returns the number of calls of this client in flight.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Returns the finished calls and reads of this client, in the order in which they finished.
    #[must_use]
    pub fn seen(&self) -> &[Seen] {
        self.seen
    }

    /// Returns the call that finished last.
    #[must_use]
    pub fn last(&self) -> Option<&Seen> {
        self.seen.last()
    }

    /// Returns the notifications that this client has received under any session, in order of arrival. As at a
    /// [`Client`](crate::Client), [`Notification::Missed`] marks the places where some were lost.
    #[must_use]
    pub fn notifications(&self) -> &[Notification] {
        self.notifications
    }

    /// Returns the source of random numbers, which depend on the seed and the client's number.
    pub fn random(&mut self) -> &mut SimRandom {
        self.random
    }
}

/// The next step of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Next {
    /// Sends a command to these groups. [`Turn::seen`] returns its fate later.
    Call(Groups, Vec<u8>),
    /// Sends a query to these groups, with this guarantee. Only ordered reads may name several groups.
    Read(Groups, Vec<u8>, Consistency),
    /// Waits for this duration of virtual time. In a run, faults occur during 3 ms of virtual time.
    Wait(Duration),
    /// Ends the script. The client waits for the calls in flight and ends its session.
    Done,
    /// Reports an error: the seed fails, with this text.
    Fail(String),
}

impl Next {
    /// Sends a command.
    pub fn call(groups: impl Into<Groups>, command: impl Into<Vec<u8>>) -> Next {
        Next::Call(groups.into(), command.into())
    }

    /// Sends an ordered read.
    pub fn read(groups: impl Into<Groups>, query: impl Into<Vec<u8>>) -> Next {
        Next::read_with(groups, query, Consistency::Ordered)
    }

    /// Sends a query with this guarantee, as [`Client::read`](crate::Client::read) does.
    pub fn read_with(at: impl Into<Groups>, query: impl Into<Vec<u8>>, how: Consistency) -> Next {
        Next::Read(at.into(), query.into(), how)
    }

    /// Reports an error.
    pub fn fail(what: impl Into<String>) -> Next {
        Next::Fail(what.into())
    }
}
