//! What a simulated client does.

use std::time::Duration;

use super::random::SimRandom;
use super::seen::Seen;
use crate::{Consistency, Group, Groups, Notification, SessionId};

/// What one client of a [`SimCluster`](super::SimCluster) does: a program, of which the simulation asks one step after the other.
///
/// A script stands for a program that writes down what it does. When its process dies, the next process takes the session up, resolves what
/// was under way, and goes on with the same script. A closure `FnMut(&mut Turn<'_>) -> Next` is a script.
///
/// A script depends on its [`Turn`] alone. Otherwise a seed does not repeat its run.
pub trait Script {
    /// Decides what the client does next. It is asked while fewer calls are under way than
    /// [`SimCluster::at_once`](super::SimCluster::at_once) allows: one, if nothing else was said.
    fn next(&mut self, turn: &mut Turn<'_>) -> Next;
}

impl<F: FnMut(&mut Turn<'_>) -> Next> Script for F {
    fn next(&mut self, turn: &mut Turn<'_>) -> Next {
        self(turn)
    }
}

/// The moment at which a script decides.
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

    /// Returns the number of the client's process, from 1. Another one than at the turn before: that process died. What machines have sent to
    /// the session since then is lost without a word, so a script that watches something reads it again.
    #[must_use]
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Returns the groups of the cluster.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        self.groups
    }

    /// Returns the client's session. Another one than at the turn before: that one has ended or run out.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the virtual time since the run began.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Returns how many calls of this client are under way.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Returns the calls and reads of this client that have ended, in the order in which they ended.
    #[must_use]
    pub fn seen(&self) -> &[Seen] {
        self.seen
    }

    /// Returns the call that ended last.
    #[must_use]
    pub fn last(&self) -> Option<&Seen> {
        self.seen.last()
    }

    /// Returns the notifications that this client has got, in the order in which they came, under whatever session. As at a
    /// [`Client`](crate::Client), [`Notification::Missed`] says where some were lost.
    #[must_use]
    pub fn notifications(&self) -> &[Notification] {
        self.notifications
    }

    /// Returns the source of random numbers. They follow from the seed and the client's number.
    pub fn random(&mut self) -> &mut SimRandom {
        self.random
    }
}

/// What a client does next.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Next {
    /// Sends a command to these groups. Its fate is [seen](Turn::seen) later.
    Call(Groups, Vec<u8>),
    /// Asks a query of these groups, with this guarantee. All but ordered reads are of one group.
    Read(Groups, Vec<u8>, Consistency),
    /// Does nothing for so long, in virtual time. A run has faults for 3 ms.
    Wait(Duration),
    /// Has nothing more to do. The client waits for what is under way and ends its session.
    Done,
    /// Says that something is wrong: the seed fails, with this text.
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

    /// Asks a query with this guarantee, as [`Client::read`](crate::Client::read) does.
    pub fn read_with(at: impl Into<Groups>, query: impl Into<Vec<u8>>, how: Consistency) -> Next {
        Next::Read(at.into(), query.into(), how)
    }

    /// Says that something is wrong.
    pub fn fail(what: impl Into<String>) -> Next {
        Next::Fail(what.into())
    }
}
