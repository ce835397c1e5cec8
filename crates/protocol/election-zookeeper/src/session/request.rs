//! Requests to the ensemble, each with a time limit and an error that names the request.

use std::future::Future;
use std::time::Duration;

use stentor_election::Claim;
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode, Error, MultiWriteError, MultiWriter};

use super::{Fault, Session, Watch};
use crate::line::{Register, claimed};

impl Session<'_> {
    /// Sends a request and waits for the answer. Returns [`Fault::Again`] if a node is missing, exists already, or has
    /// another version than the request names.
    pub(super) async fn ask<T>(&self, what: &str, request: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
        self.worker.status(|status| status.requests += 1);
        let limit = self.limit();
        match timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Error::NoNode | Error::NodeExists | Error::BadVersion)) => Err(Fault::Again),
            Ok(Err(error @ (Error::SessionExpired | Error::AuthFailed | Error::ClientClosed))) => {
                Err(Fault::Ended(format!("{what}: {error}")))
            }
            Ok(Err(Error::NoAuth)) => {
                Err(Fault::Failed(format!("{what}: not permitted: grant every client all rights to this node")))
            }
            Ok(Err(error)) => Err(Fault::Failed(format!("{what}: {error}"))),
            Err(_) => Err(Fault::Failed(format!("{what}: no answer within {limit:?}"))),
        }
    }

    /// Returns the time limit of a request, at most half of the session timeout. A leader resigns when it has received
    /// no answer for the session timeout. If that moment is earlier, the limit ends just after it.
    fn limit(&self) -> Duration {
        let left = self.timeout.saturating_sub(self.heard_at.elapsed());
        let usual = self.timeout / 2;
        if left.is_zero() { usual } else { usual.min(left + Duration::from_millis(1)) }
    }

    /// Returns the nodes in the line. Creates the group's node if it does not exist.
    pub(super) async fn list(&self) -> Result<Vec<String>, Fault> {
        let what = format!("cannot list {}", self.path);
        match self.ask(&what, self.client.list_children(&self.path)).await {
            Err(Fault::Again) => {
                let what = format!("cannot create {}", self.path);
                let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
                self.ask(&what, self.client.mkdir(&self.path, &persistent)).await?;
                Ok(Vec::new())
            }
            answer => answer,
        }
    }

    /// Returns the register and its version.
    pub(super) async fn register(&self) -> Result<(Register, i32), Fault> {
        let (data, stat) = self.ask(&format!("cannot read {}", self.path), self.client.get_data(&self.path)).await?;
        Ok((self.parse(&data)?, stat.version))
    }

    fn parse(&self, data: &[u8]) -> Result<Register, Fault> {
        Register::parse(data).ok_or_else(|| {
            let text = String::from_utf8_lossy(&data[..data.len().min(40)]).into_owned();
            Fault::Failed(format!("{} holds {text:?}, which is no epoch: remove it, or use another root", self.path))
        })
    }

    /// Returns the epoch in the node at `path`.
    pub(super) async fn claim_in(&self, path: &str) -> Result<u64, Fault> {
        let (data, _) = self.ask(&format!("cannot read {path}"), self.client.get_data(path)).await?;
        claimed(&data).ok_or_else(|| Fault::Failed(format!("{path} holds no epoch: does another program write there?")))
    }

    /// Watches a node instead of the present one. Sends no request if that node is already watched.
    pub(super) async fn watch(&mut self, path: String) -> Result<(), Fault> {
        if self.watch.as_ref().is_some_and(|watch| watch.path == path) {
            return Ok(());
        }
        self.watch = None;
        let what = format!("cannot watch {path}");
        let (_, _, watcher) = self.ask(&what, self.client.get_and_watch_data(&path)).await?;
        self.watch = Some(Watch { path, changed: Box::pin(watcher.changed()) });
        Ok(())
    }

    pub(super) fn exhausted(&self) -> Fault {
        Fault::Failed(format!("{}: epochs have reached {}: use another root", self.path, Claim::EPOCH_LIMIT))
    }

    /// Commits several writes in one transaction.
    pub(super) async fn commit(&self, what: &str, mut writes: MultiWriter<'_>) -> Result<(), Fault> {
        let done = writes.commit();
        let done = async {
            match done.await {
                Ok(_) => Ok(()),
                Err(MultiWriteError::RequestFailed { source } | MultiWriteError::OperationFailed { source, .. }) => {
                    Err(source)
                }
            }
        };
        self.ask(what, done).await
    }

    pub(super) fn refused(error: &Error) -> Fault {
        Fault::Failed(format!("the client refuses a request: {error}"))
    }
}
