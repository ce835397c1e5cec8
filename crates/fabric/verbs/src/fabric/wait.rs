//! Sleeping until something completes, a bootstrap message comes, or it is time to look.
//!
//! A device tells of completions, and of WRITEs that a peer makes it tells nothing. So who sleeps naps: after a time that
//! [`arm`](stentor_fabric::Fabric::arm) sets, it is woken to look at its memory. Naps grow while nothing completes.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno as SystemErrno;
use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
use stentor_fabric::{WaitError, Wake};

use super::VerbsFabric;

/// No sleep is longer: peers that could not be reached are dialled again.
const LONGEST: Duration = Duration::from_millis(100);
/// The same while peers are missing.
const CONNECTING: Duration = Duration::from_millis(10);
/// The control plane is not looked at more often because of sleeping.
const PUMP_PAUSE: Duration = Duration::from_millis(1);
/// The first nap, and the longest.
pub(super) const NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(4));

/// What a descriptor is, as the epoll instance says.
const SOCKET: u64 = 0;
const CHANNEL: u64 = 1;
const DEVICE: u64 = 2;
const NAP: u64 = 3;

fn span(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

impl VerbsFabric {
    /// Adds all descriptors to the epoll instance; those that are closed have left by themselves.
    pub(super) fn watch(&mut self) -> Result<(), SystemErrno> {
        let add = |fd: BorrowedFd<'_>, what| match epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(what),
            epoll::EventFlags::IN,
        ) {
            Ok(()) | Err(SystemErrno::EXIST) => Ok(()),
            Err(error) => Err(error),
        };
        let of_device = [(self.net.channel.as_fd(), CHANNEL), (self.net.context.event_descriptor(), DEVICE)];
        for (fd, what) in of_device {
            if self.net.lost.is_none() {
                add(fd, what)?;
            } else {
                // Those of a device that is gone are ready for ever. It fails where this was done before.
                let _ = epoll::delete(&self.epoll, fd);
            }
        }
        add(self.nap_timer.as_fd(), NAP)?;
        self.bootstrap.sockets().try_for_each(|socket| add(socket, SOCKET))
    }

    /// From here on completions are told of, and a nap begins.
    pub(super) fn begin_nap(&mut self) {
        self.rung = false;
        for queue in self.net.queues.iter().filter(|_| self.net.lost.is_none()) {
            if let Err(errno) = queue.queue.request_notification() {
                self.failure.get_or_insert(format!("completions cannot be told of: {errno}"));
            }
        }
        // Where nobody may write nothing lands unseen.
        let nap = if self.watched { self.nap } else { Duration::ZERO };
        let times = Itimerspec { it_interval: span(Duration::ZERO), it_value: span(nap) };
        if let Err(error) = timerfd_settime(&self.nap_timer, TimerfdTimerFlags::empty(), &times) {
            self.failure.get_or_insert(error.to_string());
        }
    }

    pub(super) fn sleep(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            if self.last_pump.elapsed() >= PUMP_PAUSE {
                self.pump_control();
            }
            if let Some(failure) = self.failure.take() {
                return Err(WaitError::System(failure));
            }
            if self.rung || !self.net.taken.is_empty() || self.bootstrap.has_events() {
                return Ok(Wake::Notified);
            }
            let left = until.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Wake::TimedOut);
            }
            let longest = if self.bootstrap.is_dialling() { CONNECTING } else { LONGEST };
            self.doze(left.min(longest))?;
        }
    }

    fn doze(&mut self, slice: Duration) -> Result<(), WaitError> {
        let mut events = Vec::with_capacity(8);
        let slept = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&span(slice)));
        match slept {
            Ok(_) | Err(SystemErrno::INTR) => {}
            Err(error) => return Err(WaitError::System(error.to_string())),
        }
        for event in events {
            match event.data.u64() {
                CHANNEL => {
                    self.rung |= self.net.channel.take() > 0;
                    self.nap = NAPS.0;
                }
                NAP => {
                    let mut count = [0; 8];
                    self.rung |= rustix::io::read(&self.nap_timer, &mut count) == Ok(count.len());
                    self.nap = (2 * self.nap).min(NAPS.1);
                }
                DEVICE => self.net.hear_device(),
                _ => self.last_pump = Instant::now().checked_sub(PUMP_PAUSE).unwrap_or(self.last_pump),
            }
        }
        Ok(())
    }
}
