//! Sleeping until data lands, a request completes, the control plane has work, or a timer expires.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use stentor_fabric::{WaitError, Wake};

use super::bell::BELL;
use super::{Device, NetFabric};

/// Longest sleep in one call of epoll. The process then pumps the control plane, which dials peers that could not be
/// reached.
const LONGEST: Duration = Duration::from_millis(100);
/// Longest sleep while this process dials a peer or a fence is waiting.
const SOON: Duration = Duration::from_millis(10);
/// Minimum time between two pumps of the control plane by a sleeping process, unless one of its sockets is readable.
const PUMP_PAUSE: Duration = Duration::from_millis(20);
/// Minimum time that replaces `PUMP_PAUSE` while the process dials a peer or a fence is waiting.
const SOON_PAUSE: Duration = Duration::from_millis(1);
/// epoll data that identifies the sockets of the control plane.
const CONTROL: u64 = 0;
/// Maximum number of descriptors that one call of epoll reports.
const MOST_EVENTS: usize = 16;

impl<D: Device> NetFabric<D> {
    /// Adds the sockets of the control plane to the epoll instance; the kernel removes closed ones.
    pub(super) fn watch(&mut self) -> Result<(), Errno> {
        let add = |socket: BorrowedFd<'_>| match epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(CONTROL),
            epoll::EventFlags::IN,
        ) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        };
        let made = self.cm.sockets_made();
        if made.is_some() && made == self.watched {
            return Ok(());
        }
        self.cm.sockets().try_for_each(add)?;
        self.watched = made;
        Ok(())
    }

    /// Returns the next connection of an observer. The caller owns it, and it no longer wakes this fabric.
    pub fn next_observer(&mut self) -> Option<crate::observe::Line> {
        let line = self.cm.next_observer()?;
        // The socket is missing from the epoll instance if it was accepted and handed over within one round.
        let _ = epoll::delete(&self.epoll, &line.socket);
        Some(line)
    }

    /// Runs one round of the control plane.
    pub(super) fn pump(&mut self) {
        self.last_pump = Instant::now();
        self.device.handle_events();
        self.cm.pump(&mut self.device);
        self.settle_fences();
        if let Err(error) = self.watch() {
            self.failure.get_or_insert(error.to_string());
        }
    }

    pub(super) fn sleep(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.device.begin_wait();
        let woken = self.sleep_until_news(timeout);
        self.device.end_wait();
        self.bell.disarm();
        woken
    }

    fn sleep_until_news(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        let until = Instant::now().checked_add(timeout);
        if timeout.is_zero() {
            // A caller that sleeps on the descriptor must consume its readiness here, or it would stay readable for
            // ever.
            self.doze(Duration::ZERO)?;
        }
        loop {
            self.device.work();
            let soon = self.cm.is_dialling() || self.device.has_fences();
            let pause = if soon { SOON_PAUSE } else { PUMP_PAUSE };
            if std::mem::take(&mut self.is_called) || self.last_pump.elapsed() >= pause {
                self.pump();
                self.has_pumped = true;
            }
            if let Some(failure) = self.failure.take().or_else(|| self.device.take_failure()) {
                return Err(WaitError::System(failure));
            }
            if self.bell.has_rung() || self.device.has_news() || self.cm.has_events() {
                return Ok(Wake::Notified);
            }
            let left = until.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Wake::TimedOut);
            }
            let soon = self.cm.is_dialling() || self.device.has_fences();
            let slice = self.device.slice(left.min(if soon { SOON } else { LONGEST }));
            if !slice.is_zero() {
                self.doze(slice)?;
            }
        }
    }

    fn doze(&mut self, slice: Duration) -> Result<(), WaitError> {
        let slice = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: slice.subsec_nanos().into() };
        let mut events = Vec::with_capacity(MOST_EVENTS);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&slice)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(WaitError::System(error.to_string())),
        }
        // A full array means that further events may be pending.
        let complete = events.len() < MOST_EVENTS;
        let mut which = [0; MOST_EVENTS];
        let mut count = 0;
        self.is_called |= !complete;
        for event in &events {
            match event.data.u64() {
                CONTROL => self.is_called = true,
                BELL => {}
                data => {
                    which[count] = data;
                    count += 1;
                }
            }
        }
        self.device.woken(&which[..count], complete);
        Ok(())
    }
}
