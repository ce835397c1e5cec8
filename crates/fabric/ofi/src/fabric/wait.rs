//! Sleeping until something lands or a bootstrap message comes.

use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use stentor_bootstrap::Ends;
use stentor_fabric::{WaitError, Wake};

use super::OfiFabric;

/// No sleep is longer: peers that could not be reached are dialled again.
const LONGEST: Duration = Duration::from_millis(100);
/// The same while peers are missing, and while a fence waits.
const SOON: Duration = Duration::from_millis(10);
/// The same where completion queues have no descriptor: then somebody must look.
const LOOKING: Duration = Duration::from_micros(50);
/// The control plane is not looked at more often because of sleeping.
const PUMP_PAUSE: Duration = Duration::from_millis(1);

impl OfiFabric {
    /// Adds the sockets of the bootstrap to the epoll instance; those that are closed have left by themselves.
    pub(super) fn watch(&mut self) -> Result<(), Errno> {
        let epoll = &self.net.shared.epoll;
        self.bootstrap.sockets().try_for_each(|socket| {
            match epoll::add(epoll, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    pub(super) fn sleep(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        let until = Instant::now().checked_add(timeout);
        self.net.shared.armed = true;
        self.net.advance();
        let woken = loop {
            self.net.drive();
            if self.last_pump.elapsed() >= PUMP_PAUSE {
                self.pump_control();
            }
            if let Some(failure) = self.failure.take() {
                return Err(WaitError::System(failure));
            }
            if self.net.shared.rung || !self.net.shared.ready.is_empty() || self.bootstrap.has_events() {
                break Wake::Notified;
            }
            let left = until.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break Wake::TimedOut;
            }
            let slice = self.slice(left);
            if !slice.is_zero() {
                let dozed = self.net.shared.doze(slice).map_err(|error| WaitError::System(error.to_string()))?;
                self.net.shared.rung |= dozed;
            }
        };
        self.net.shared.armed = false;
        Ok(woken)
    }

    fn slice(&self, left: Duration) -> Duration {
        let soon = self.bootstrap.is_connecting() || !self.revocations.is_empty();
        let longest = if soon { SOON } else { LONGEST };
        if !self.net.has_descriptors() || self.net.ends.iter().any(|qp| qp.is_busy()) {
            LOOKING.min(left)
        } else if self.net.may_wait() {
            longest.min(left)
        } else {
            // Something is there already.
            Duration::ZERO
        }
    }
}
