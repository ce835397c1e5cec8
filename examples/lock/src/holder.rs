//! A client that acquires locks.

use std::time::{Duration, Instant};

use stentor::{CallError, Client, ClientError, Consistency, Group, Notification};

use crate::{Command, End, Held, Lease, Query, Refusal, Verdict};

/// Time after which a waiting client tries to acquire the lock again without a notification. A notification should
/// arrive earlier. This retry bounds the wait if it does not.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Interval at which a waiting client checks whether to go on waiting.
const LOOK: Duration = Duration::from_millis(50);

/// A client that acquires, renews and releases locks of one group.
#[derive(Clone, Debug)]
pub struct Holder {
    client: Client,
    group: Group,
    clock_bound: Duration,
}

/// The outcome of an attempt to acquire a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// This process holds the lock.
    Got(Lease),
    /// Another session holds the lock.
    Taken(Held),
}

/// The reason for which a holder cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HolderError {
    /// The client has ended. Its session keeps the locks until their leases end or the session expires. A client that
    /// resumes the session holds them.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A command was not applied, or its outcome is unknown.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The service has refused the command.
    #[error("the lock service refuses: {0}")]
    Refused(Refusal),
    /// The lease is so short that nothing is left of it after the clock error of the nodes is subtracted.
    #[error(
        "no time of a lease of {length:?} is certain if clocks may be wrong by {bound:?}: ask for more than {least:?}, or lower \
         `clock_bound_ms` in [limits] of the configuration",
        least = 2 * *bound
    )]
    Short {
        /// Requested length of the lease.
        length: Duration,
        /// Maximum error of the nodes' clocks.
        bound: Duration,
    },
    /// The token is not valid any more.
    #[error("the lock is lost: {}", .0.as_ref().map_or("the service has forgotten the reason".to_owned(), |end| format!("its lease {}", end.cause)))]
    Lost(Option<End>),
    /// The reply is not a reply of a lock service.
    #[error(
        "the lock service replied `{0}`, which does not answer the request: do nodes and clients run the same version?"
    )]
    Reply(String),
}

impl Holder {
    /// Returns a holder that uses this client. `clock_bound` is the cluster's [`Cluster::clock_bound`].
    ///
    /// [`Cluster::clock_bound`]: stentor::Cluster::clock_bound
    #[must_use]
    pub fn new(client: Client, group: Group, clock_bound: Duration) -> Holder {
        Holder { client, group, clock_bound }
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Acquires a lock if it is free. If this session holds the lock already, it receives the same token again. If the
    /// lease ends earlier than a new one would, this function renews it.
    ///
    /// # Errors
    /// Returns an error if the group does not answer, or the lease is too short.
    pub fn try_acquire(&self, name: &str, length: Duration) -> Result<Attempt, HolderError> {
        let sure = self.sure(length)?;
        let sent = Instant::now();
        let command = Command::Acquire { name: name.to_owned(), lease: length.as_nanos() as u64 };
        let (verdict, time) = self.call(&command)?;
        let held = match verdict {
            Verdict::Granted(held) => held,
            Verdict::Taken(held) => return Ok(Attempt::Taken(held)),
            other => return Err(wrong(other)),
        };
        let lease = Lease::new(name, held.token, length, sure, sent);
        // A lease with an earlier end was granted by an earlier command of this session.
        let is_new = u128::from(held.ends) >= u128::from(time) + length.as_nanos();
        if is_new { Ok(Attempt::Got(lease)) } else { self.renew(&lease).map(Attempt::Got) }
    }

    /// Waits for a lock and acquires it. While another session holds the lock, calls `waits` about 20 times a second.
    /// If `waits` returns `false`, stops waiting and returns `None`.
    ///
    /// The wait consumes the notifications of the client.
    ///
    /// # Errors
    /// Returns an error if the group does not answer, or the lease is too short.
    pub fn acquire(
        &self,
        name: &str,
        length: Duration,
        mut waits: impl FnMut(&Held) -> bool,
    ) -> Result<Option<Lease>, HolderError> {
        let mut notifications = self.client.notifications();
        let mut watches = false;
        let got = 'tries: loop {
            let held = match self.try_acquire(name, length)? {
                Attempt::Got(lease) => break Some(lease),
                Attempt::Taken(held) => held,
            };
            if !watches {
                // The lock may have become free before the service registered the watch.
                watches = true;
                if self.watch(name)?.is_none() {
                    continue;
                }
            }
            let since = Instant::now();
            // Any notification may mean that the lock is free now. A lost notification arrives as `Missed`.
            while notifications.recv_timeout(LOOK).is_none() && since.elapsed() < ASK_AGAIN {
                if notifications.is_ended() {
                    self.client.failure().map_or(Ok(()), Err)?;
                }
                if !waits(&held) {
                    break 'tries None;
                }
            }
        };
        if watches {
            self.call(&Command::Unwatch(name.to_owned()))?;
        }
        Ok(got)
    }

    /// Renews a lease for its full length.
    ///
    /// # Errors
    /// Returns [`HolderError::Lost`] if the lease has ended.
    pub fn renew(&self, lease: &Lease) -> Result<Lease, HolderError> {
        let (name, token, length) = (lease.name(), lease.token(), lease.length());
        let sure = self.sure(length)?;
        let sent = Instant::now();
        match self.call(&Command::Renew { name: name.to_owned(), token, lease: length.as_nanos() as u64 })?.0 {
            Verdict::Granted(_) => Ok(Lease::new(name, token, length, sure, sent)),
            Verdict::Lost(end) => Err(HolderError::Lost(end)),
            other => Err(wrong(other)),
        }
    }

    /// Releases a lock.
    ///
    /// # Errors
    /// Returns [`HolderError::Lost`] if the lease has ended already.
    pub fn release(&self, lease: &Lease) -> Result<(), HolderError> {
        match self.call(&Command::Release { name: lease.name().to_owned(), token: lease.token() })?.0 {
            Verdict::Released => Ok(()),
            Verdict::Lost(end) => Err(HolderError::Lost(end)),
            other => Err(wrong(other)),
        }
    }

    /// Subscribes this client to notifications that the lock has become free. Returns the present holder.
    ///
    /// # Errors
    /// Returns an error if the group does not answer.
    pub fn watch(&self, name: &str) -> Result<Option<Held>, HolderError> {
        match self.call(&Command::Watch(name.to_owned()))?.0 {
            Verdict::Lock(held) => Ok(held),
            other => Err(wrong(other)),
        }
    }

    /// Parses a notification. Returns the end of a lease, or `None` if notifications were lost. In that case the caller
    /// should read the locks again.
    ///
    /// # Errors
    /// Returns an error if the notification is not one of a lock service.
    pub fn end_of(notification: &Notification) -> Result<Option<End>, HolderError> {
        match notification {
            Notification::Sent { bytes, .. } => match serde_json::from_slice(bytes) {
                Ok(end) => Ok(Some(end)),
                Err(_) => Err(HolderError::Reply(String::from_utf8_lossy(bytes).into_owned())),
            },
            _ => Ok(None),
        }
    }

    /// Returns all locks that are held, by name.
    ///
    /// # Errors
    /// Returns an error if the group does not answer.
    pub fn held(&self) -> Result<Vec<(String, Held)>, HolderError> {
        let mut all: Vec<(String, Held)> = Vec::new();
        loop {
            let query = Query::Held(all.last().map(|(name, _)| name.clone()));
            let bytes = serde_json::to_vec(&query).map_err(|error| HolderError::Reply(error.to_string()))?;
            match read(self.client.read(self.group, &bytes, Consistency::Leader).wait()?.bytes())? {
                Verdict::Held(some) if some.is_empty() => return Ok(all),
                Verdict::Held(some) => all.extend(some),
                other => return Err(wrong(other)),
            }
        }
    }

    fn sure(&self, length: Duration) -> Result<Duration, HolderError> {
        Lease::sure_for(length, self.clock_bound).ok_or(HolderError::Short { length, bound: self.clock_bound })
    }

    /// Sends a command, and resolves its outcome if it is unknown. Returns the verdict and the command's time in the
    /// order.
    fn call(&self, command: &Command) -> Result<(Verdict, u64), HolderError> {
        let bytes = serde_json::to_vec(command).map_err(|error| HolderError::Reply(error.to_string()))?;
        let answer = match self.client.call(self.group, &bytes).wait() {
            Err(CallError::Unknown(ticket, _)) => self.client.resolve(&ticket).wait()?,
            other => other?,
        };
        Ok((read(answer.bytes())?, answer.position().time))
    }
}

fn read(bytes: &[u8]) -> Result<Verdict, HolderError> {
    serde_json::from_slice(bytes).map_err(|_| HolderError::Reply(String::from_utf8_lossy(bytes).into_owned()))
}

fn wrong(verdict: Verdict) -> HolderError {
    match verdict {
        Verdict::Refused(why) => HolderError::Refused(why),
        other => HolderError::Reply(format!("{other:?}")),
    }
}
