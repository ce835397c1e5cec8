//! The first candidate in line: claims leadership, keeps it, hands it over.

use std::time::Duration;

use stentor_election::Claim;
use stentor_fabric::ProcessId;

use super::{Fault, Session};
use crate::line::{Place, Register};

impl Session<'_> {
    /// Acts as the first candidate in line.
    pub(super) async fn lead(&mut self, line: &[Place]) -> Result<Duration, Fault> {
        let me = self.worker.config.me;
        let (register, version) = self.register().await?;
        let preferred = register.preferred.filter(|process| *process != me);
        if self.claimed.is_none() && preferred.is_some_and(|process| line.iter().any(|place| place.process == process))
        {
            // This candidate gives way to the preferred one and joins the end of the line. That wakes only the next
            // candidate.
            self.remove(&line[0]).await?;
            return Err(Fault::Again);
        }
        if let Some(to) = self.hand_over {
            self.leave_to(to, register, version, &line[0]).await?;
            return Err(Fault::Again);
        }
        let outdone = self.worker.teller.outdone() || self.claimed.is_some_and(|claimed| claimed < register.epoch);
        if self.claimed.is_none() || outdone {
            self.come_forward(register, version, &line[0]).await?;
        }
        // A process that has seen a larger epoch writes it into the register, so the leader watches it.
        if self.watch.as_ref().is_none_or(|watch| watch.path != self.path) {
            self.watch(self.path.clone()).await?;
            return Err(Fault::Again);
        }
        Ok(self.refresh())
    }

    /// Claims the next epoch, in the register and in this candidate's node in one transaction.
    async fn come_forward(&mut self, register: Register, version: i32, own: &Place) -> Result<(), Fault> {
        let known = register.epoch.max(self.worker.teller.known()).max(self.worker.config.floor);
        let epoch = known.saturating_add(1);
        if epoch >= Claim::EPOCH_LIMIT {
            return Err(self.exhausted());
        }
        let data = Register { epoch, preferred: None }.to_string();
        let path = format!("{}/{}", self.path, own.name);
        let mut writes = self.client.new_multi_writer();
        writes.add_set_data(&self.path, data.as_bytes(), Some(version)).map_err(|error| Self::refused(&error))?;
        writes.add_set_data(&path, data.as_bytes(), None).map_err(|error| Self::refused(&error))?;
        self.commit(&format!("cannot claim leadership at {}", self.path), writes).await?;
        self.claimed = Some(epoch);
        self.worker.teller.leader(epoch, self.worker.config.me);
        Ok(())
    }

    /// Leaves the line and stores the preferred successor in one transaction.
    async fn leave_to(&mut self, to: ProcessId, register: Register, version: i32, own: &Place) -> Result<(), Fault> {
        let data = Register { preferred: Some(to), ..register }.to_string();
        let path = format!("{}/{}", self.path, own.name);
        let mut writes = self.client.new_multi_writer();
        writes.add_set_data(&self.path, data.as_bytes(), Some(version)).map_err(|error| Self::refused(&error))?;
        writes.add_delete(&path, None).map_err(|error| Self::refused(&error))?;
        self.commit(&format!("cannot hand over at {}", self.path), writes).await?;
        (self.mine, self.watch) = (None, None);
        self.step_down();
        Ok(())
    }

    /// Raises the epoch in the register, because the first candidate leads under a smaller epoch than one that was
    /// reported here. The change makes the leader claim a larger one.
    pub(super) async fn raise(&self, led: u64) -> Result<(), Fault> {
        let (register, version) = self.register().await?;
        if register.epoch > led {
            return Ok(());
        }
        let data = Register { epoch: self.worker.teller.told().max(led + 1), ..register }.to_string();
        let write = self.client.set_data(&self.path, data.as_bytes(), Some(version));
        self.ask(&format!("cannot raise the epoch at {}", self.path), write).await.map(|_| ())
    }
}
