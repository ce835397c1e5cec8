//! Sleeping until a packet or a bootstrap message comes, or a timer is due.

use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use stentor_fabric::{WaitError, Wake};

use super::RoceFabric;

/// No sleep is longer: peers that could not be reached are dialled again.
const LONGEST: Duration = Duration::from_millis(100);
/// The same while peers are missing.
const CONNECTING: Duration = Duration::from_millis(10);
/// The control plane is not looked at more often because of sleeping.
const PUMP_PAUSE: Duration = Duration::from_millis(1);

impl RoceFabric {
    /// Adds all sockets to the epoll instance; those that are closed have left by themselves.
    pub(super) fn watch(&mut self) -> Result<(), Errno> {
        let add = |fd: std::os::fd::BorrowedFd<'_>| {
            let data = epoll::EventData::new_u64(0);
            match epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error),
            }
        };
        let made = self.bootstrap.sockets_made();
        if made.is_some() && made == self.watched {
            return Ok(());
        }
        add(self.net.pump.port().descriptor())?;
        self.bootstrap.sockets().try_for_each(add)?;
        self.watched = made;
        Ok(())
    }

    pub(super) fn sleep(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            self.drive();
            if self.last_pump.elapsed() >= PUMP_PAUSE {
                self.pump_control();
                self.has_pumped = true;
            }
            if let Some(failure) = self.net.failure.take() {
                return Err(WaitError::System(failure));
            }
            if self.net.rung || self.net.endpoint.has_completions() || self.bootstrap.has_events() {
                return Ok(Wake::Notified);
            }
            let left = until.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Wake::TimedOut);
            }
            let longest = if self.bootstrap.is_connecting() { CONNECTING } else { LONGEST };
            let slice = self.net.pump.idle(&self.net.endpoint, left.min(longest));
            self.doze(slice)?;
        }
    }

    fn doze(&self, slice: Duration) -> Result<(), WaitError> {
        let slice = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: slice.subsec_nanos().into() };
        let mut events = Vec::with_capacity(8);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&slice)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(WaitError::System(error.to_string())),
        }
    }
}
