//! Sleeping until a packet or a bootstrap message comes, or a timer is due.

use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use stentor_fabric::{WaitError, Wake};

use super::RoceFabric;

/// The longest sleep: peers that could not be reached are dialled again.
const LONGEST: Duration = Duration::from_millis(100);
/// The longest sleep while this process dials a peer.
const DIALLING: Duration = Duration::from_millis(10);
/// A sleeping process looks at the control plane this often, and whenever one of its sockets has something.
const PUMP_PAUSE: Duration = Duration::from_millis(20);
/// The pause between two such looks while this process dials a peer.
const DIALLING_PAUSE: Duration = Duration::from_millis(1);
/// The epoll instance's data for the socket of the packets.
const PACKETS: u64 = 0;
/// The epoll instance's data for the sockets of the control plane.
const CONTROL: u64 = 1;

impl RoceFabric {
    /// Adds all sockets to the epoll instance; those that are closed have left by themselves.
    pub(super) fn watch(&mut self) -> Result<(), Errno> {
        let add = |fd: std::os::fd::BorrowedFd<'_>, data: u64| {
            let data = epoll::EventData::new_u64(data);
            match epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error),
            }
        };
        let made = self.bootstrap.sockets_made();
        if made.is_some() && made == self.watched {
            return Ok(());
        }
        add(self.net.pump.port().descriptor(), PACKETS)?;
        self.bootstrap.sockets().try_for_each(|socket| add(socket, CONTROL))?;
        self.watched = made;
        Ok(())
    }

    pub(super) fn sleep(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            self.drive();
            let pause = if self.bootstrap.is_dialling() { DIALLING_PAUSE } else { PUMP_PAUSE };
            if std::mem::take(&mut self.is_called) || self.last_pump.elapsed() >= pause {
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
            let longest = if self.bootstrap.is_dialling() { DIALLING } else { LONGEST };
            let slice = self.net.pump.idle(&self.net.endpoint, left.min(longest));
            self.doze(slice)?;
        }
    }

    fn doze(&mut self, slice: Duration) -> Result<(), WaitError> {
        let slice = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: slice.subsec_nanos().into() };
        let mut events = Vec::with_capacity(8);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&slice)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(WaitError::System(error.to_string())),
        }
        // Where there was no room for all events, none is taken for the whole.
        let all = events.len() < events.capacity();
        let has = |which: u64| !all || events.iter().any(|event| event.data.u64() == which);
        self.is_called |= has(CONTROL);
        self.net.wake(has(PACKETS));
        Ok(())
    }
}
