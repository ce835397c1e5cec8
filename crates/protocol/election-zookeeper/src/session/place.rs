//! Finds, creates and removes this process's node in the line of candidates.

use zookeeper_client::{Acls, CreateMode};

use super::{Fault, Mine, Session};
use crate::line::{Place, prefix};

impl Session<'_> {
    /// Returns this process's index in the line. Removes nodes that have this process's name but are from an earlier
    /// life. If the process is not willing to lead, removes this session's node, too. If the process is willing and has
    /// no node, creates one.
    pub(super) async fn find_own(&mut self, line: &[Place]) -> Result<Option<usize>, Fault> {
        let stands = self.worker.owner_polls(self.timeout) && self.worker.stands;
        let me = self.worker.config.me;
        let mut own = None;
        for (n, place) in line.iter().enumerate().filter(|(_, place)| place.process == me) {
            if own.is_none() && stands && self.is_mine(place).await? {
                own = Some(n);
            } else {
                self.remove(place).await?;
                return Err(Fault::Again);
            }
        }
        if own.is_none() {
            self.mine = None;
            if self.claimed.is_some() {
                self.step_down();
            }
            if stands {
                self.enter().await?;
                return Err(Fault::Again);
            }
            self.watch = None;
        }
        Ok(own)
    }

    /// Returns whether this session created a node, according to the node's owner and creation id. Asks the server once
    /// per connection.
    async fn is_mine(&mut self, place: &Place) -> Result<bool, Fault> {
        let known = self.mine.as_ref().is_some_and(|mine| mine.name == place.name);
        if known && self.verified {
            return Ok(true);
        }
        let path = format!("{}/{}", self.path, place.name);
        let stat = self.ask(&format!("cannot look at {path}"), self.client.check_stat(&path)).await?;
        let stat = stat.ok_or(Fault::Again)?;
        let same = self.mine.as_ref().is_none_or(|mine| mine.czxid == stat.czxid);
        if !same || stat.ephemeral_owner != self.client.session_id().0 {
            return Ok(false);
        }
        self.mine = Some(Mine { name: place.name.clone(), czxid: stat.czxid });
        self.verified = true;
        Ok(true)
    }

    /// Joins the end of the line.
    async fn enter(&mut self) -> Result<(), Fault> {
        let start = format!("{}/{}", self.path, prefix(self.worker.config.me));
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (stat, sequence) =
            self.ask(&format!("cannot create {start}…"), self.client.create(&start, b"", &options)).await?;
        let name = format!("{}{sequence}", prefix(self.worker.config.me));
        self.mine = Some(Mine { name, czxid: stat.czxid });
        self.verified = true;
        Ok(())
    }

    /// Removes a node of this process from the line. If the process led by that node, it stops leading.
    pub(super) async fn remove(&mut self, place: &Place) -> Result<(), Fault> {
        if self.mine.as_ref().is_some_and(|mine| mine.name == place.name) {
            self.mine = None;
            self.watch = None;
            if self.claimed.is_some() {
                self.step_down();
            }
        }
        let path = format!("{}/{}", self.path, place.name);
        match self.ask(&format!("cannot remove {path}"), self.client.delete(&path, None)).await {
            Err(Fault::Again) => Ok(()),
            other => other,
        }
    }
}
