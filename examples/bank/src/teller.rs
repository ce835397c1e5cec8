//! A client that transfers money. With a journal in a file, a transfer survives the death of its client process.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stentor::{
    Answer, CallError, Client, ClientError, ClientErrorKind, Cluster, Consistency, Group, Groups, Session, Ticket, Why,
};

use crate::journal::Entry;
use crate::transfer::verdict;
use crate::{Command, Journal, Order, Outcome, Query, Transfer, Verdict, WrongReply};

/// Time for which a teller retries after a temporary failure, such as a group without a leader or a client id in use.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Counts of a teller, including those of its earlier processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Transfers that moved money.
    pub done: u64,
    /// Transfers that were refused.
    pub refused: u64,
    /// Commands whose outcome was found out later. It was unknown at first, for example because a wait timed out or a
    /// process died.
    pub resolved: u64,
    /// Transfers whose outcome this teller cannot know, for example because its session has ended or another process
    /// has closed them. Those that are still open are in flight: see [`finish_old`](crate::finish_old).
    pub given_up: u64,
}

impl Counts {
    /// Returns the number of transfers that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.done + self.refused + self.given_up
    }
}

/// A client that transfers money.
///
/// The teller records each step in its journal before it sends the command. Its next process takes over the session,
/// asks for the outcome of the command, and ends the transfer. So each order that was begun is carried out at most
/// once. If the outcome cannot be found out, the teller counts the transfer in [`given_up`](Counts::given_up).
#[derive(Debug)]
pub struct Teller {
    client: Client,
    groups: Vec<Group>,
    journal: Journal,
    entry: Entry,
}

/// The reason for which a teller cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TellerError {
    /// The teller cannot connect, or its client has ended.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A command was not applied, or its outcome is unknown.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A reply is not a reply of the bank.
    #[error(transparent)]
    Reply(#[from] WrongReply),
    /// The journal cannot be read or written.
    #[error("the journal {place}: {error}: is it a file of a teller, in a directory that this user may write to?")]
    Journal {
        /// Path of the journal's file.
        place: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The cluster has no groups, so no account has a home.
    #[error("the cluster has no groups: add a [[group]] to its configuration")]
    NoGroups,
}

impl Teller {
    /// Connects to the groups. If the journal names a session, takes the session over and ends the transfer that was
    /// under way.
    ///
    /// # Errors
    /// Returns an error if the cluster has no groups, the groups cannot be reached, or the journal cannot be read or
    /// written.
    pub fn open(cluster: &Cluster, journal: Journal) -> Result<Teller, TellerError> {
        let entry = journal.read().map_err(|error| TellerError::Journal { place: journal.place(), error })?;
        let groups: Vec<Group> = cluster.groups().collect();
        if groups.is_empty() {
            return Err(TellerError::NoGroups);
        }
        let (client, is_the_same) = connect(cluster, &groups, entry.session.as_deref())?;
        let mut teller = Teller { client, groups, journal, entry };
        teller.entry.session = Some(teller.client.session().to_bytes());
        teller.go_on(is_the_same)?;
        Ok(teller)
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the counts of this teller.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.entry.counts
    }

    /// Transfers money. Returns `None` if it is unknown whether the transfer was carried out or began, for example
    /// because the session has ended.
    ///
    /// # Errors
    /// Returns an error if the groups do not answer, or the journal cannot be written. The next call, or the next
    /// process with this journal, ends the transfer.
    pub fn transfer(&mut self, order: Order) -> Result<Option<Outcome>, TellerError> {
        // A transfer that failed earlier is ended first.
        self.go_on(true)?;
        self.entry.number += 1;
        self.entry.transfer = Some(Transfer::new(order, self.entry.number));
        self.finish()
    }

    /// Ends the session. Afterwards no process can take the session over, so no transfer should be under way.
    ///
    /// # Errors
    /// Returns an error if the groups do not answer.
    pub fn close(self) -> Result<(), TellerError> {
        Ok(self.client.close()?)
    }

    /// Ends the transfer that an earlier call or an earlier process has begun, if there is one.
    fn go_on(&mut self, is_the_same_session: bool) -> Result<(), TellerError> {
        let Some(transfer) = self.entry.transfer else { return self.write() };
        match self.entry.ticket.take() {
            Some(bytes) if is_the_same_session => {
                let ticket = Ticket::from_bytes(&bytes)?;
                self.entry.ticket = Some(bytes);
                self.resolve(&ticket)?;
            }
            // The session has ended, so no group knows the ticket. Only a command that names the transfer may be sent
            // again.
            Some(_) if !transfer.may_be_sent_again() => self.give_up(),
            Some(_) | None => {}
        }
        self.write()?;
        self.finish().map(drop)
    }

    /// Sends the due commands one after the other until the transfer has ended.
    fn finish(&mut self) -> Result<Option<Outcome>, TellerError> {
        let since = Instant::now();
        loop {
            let Some(transfer) = &self.entry.transfer else {
                // The transfer was given up while its last command was resolved.
                self.write()?;
                return Ok(None);
            };
            let Some((groups, command)) = transfer.next(&self.groups) else { break };
            let bytes = serde_json::to_vec(&command).map_err(WrongReply::from)?;
            let prepared = match self.client.prepare(groups, &bytes).wait() {
                Ok(prepared) => prepared,
                Err(CallError::NotApplied(why)) if why.is_retryable() && since.elapsed() < PATIENCE => {
                    thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.entry.ticket = Some(prepared.ticket().to_bytes());
            self.write()?;
            match prepared.send().wait() {
                Ok(answer) => self.take(&answer)?,
                Err(CallError::Unknown(ticket, _)) => self.resolve(&ticket)?,
                Err(CallError::NotApplied(why)) if why.is_retryable() && since.elapsed() < PATIENCE => {
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let outcome = self.entry.transfer.take().and_then(|transfer| transfer.outcome());
        match outcome {
            Some(Outcome::Done) => self.entry.counts.done += 1,
            Some(Outcome::Refused(_)) => self.entry.counts.refused += 1,
            Some(Outcome::ClosedByAnother) => self.entry.counts.given_up += 1,
            // This arm is not reached. A transfer without a due command has an outcome, because there are groups.
            None => {}
        }
        self.write()?;
        Ok(outcome)
    }

    /// Finds out the outcome of the command that was sent.
    fn resolve(&mut self, ticket: &Ticket) -> Result<(), TellerError> {
        let since = Instant::now();
        loop {
            match self.client.resolve(ticket).wait() {
                Ok(answer) => {
                    self.entry.counts.resolved += 1;
                    return self.take(&answer);
                }
                // This command will never be applied, so the teller sends it again.
                Err(CallError::NotApplied(_)) => {
                    self.entry.counts.resolved += 1;
                    self.entry.ticket = None;
                    return Ok(());
                }
                Err(CallError::Unknown(_, why)) if why.is_retryable() && since.elapsed() < PATIENCE => {
                    thread::sleep(PAUSE);
                }
                Err(CallError::Unknown(..)) if self.entry.transfer.is_some_and(|it| it.may_be_sent_again()) => {
                    self.entry.ticket = None;
                    return Ok(());
                }
                Err(CallError::Unknown(
                    _,
                    Why::Forgotten | Why::SessionEnded | Why::GroupReset(_) | Why::Skipped(_),
                )) => {
                    self.give_up();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn give_up(&mut self) {
        self.entry.transfer = None;
        self.entry.ticket = None;
        self.entry.counts.given_up += 1;
    }

    fn take(&mut self, answer: &Answer) -> Result<(), TellerError> {
        let session = self.client.session().id();
        if let Some(transfer) = &mut self.entry.transfer {
            transfer.answered(session, answer.replies().map(|(_, reply)| reply))?;
        }
        self.entry.ticket = None;
        Ok(())
    }

    fn write(&self) -> Result<(), TellerError> {
        let place = || self.journal.place();
        self.journal.write(&self.entry).map_err(|error| TellerError::Journal { place: place(), error })
    }
}

/// Connects to all groups, under the given session if it still exists. Returns the client, and `true` if it has the
/// given session.
fn connect(cluster: &Cluster, groups: &[Group], session: Option<&[u8]>) -> Result<(Client, bool), TellerError> {
    let mut session = session.map(Session::from_bytes).transpose()?;
    let since = Instant::now();
    loop {
        let builder = cluster.client().groups(groups);
        let builder = match &session {
            Some(session) => builder.session(session.clone()),
            None => builder,
        };
        match builder.connect() {
            Ok(client) => return Ok((client, session.is_some())),
            Err(error) if error.is_retryable() && since.elapsed() < PATIENCE => thread::sleep(PAUSE),
            Err(error) => match error.kind() {
                ClientErrorKind::SessionGone | ClientErrorKind::GroupReset if session.is_some() => session = None,
                _ => return Err(error.into()),
            },
        }
    }
}

/// Sends one command to these groups, and returns the bank's verdict.
///
/// # Errors
/// Returns an error if the command was not applied, or its outcome is unknown. In the second case the error contains
/// the ticket.
pub fn call(client: &Client, to: impl Into<Groups>, command: Command) -> Result<Verdict, TellerError> {
    let bytes = serde_json::to_vec(&command).map_err(WrongReply::from)?;
    Ok(verdict(client.call(to, &bytes).wait()?.bytes())?)
}

/// Sends a query to one group, and returns the bank's verdict.
///
/// # Errors
/// Returns an error if the group's leader does not answer within the client's patience.
pub fn ask(client: &Client, group: Group, query: Query) -> Result<Verdict, TellerError> {
    let bytes = serde_json::to_vec(&query).map_err(WrongReply::from)?;
    Ok(verdict(client.read(group, &bytes, Consistency::Leader).wait()?.bytes())?)
}
