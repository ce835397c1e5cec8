//! Wakes the sleeping fabric from other threads of the process.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io;
use stentor_fabric::{Alarm, Waker};

/// epoll data that identifies the bell.
pub(super) const BELL: u64 = u64::MAX;

/// An alarm, and the eventfd that wakes the sleeper.
///
/// The epoll instance reports each write to the eventfd once (edge-triggered), so no thread reads it. A write that
/// arrives after the sleeper has woken ends its next call of epoll. The sleeper then checks the alarm, finds that it
/// has not rung, and sleeps again.
#[derive(Debug)]
pub(super) struct Bell {
    alarm: Alarm,
    event: OwnedFd,
}

impl Bell {
    pub(super) fn new(epoll: &OwnedFd) -> io::Result<Arc<Bell>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(epoll, &event, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Arc::new(Bell { alarm: Alarm::default(), event }))
    }

    pub(super) fn waker(self: &Arc<Bell>) -> Waker {
        let bell = Arc::clone(self);
        Waker::new(move || bell.ring())
    }

    pub(super) fn arm(&self) {
        self.alarm.arm();
    }

    pub(super) fn disarm(&self) {
        self.alarm.disarm();
    }

    pub(super) fn has_rung(&self) -> bool {
        self.alarm.has_rung()
    }

    fn ring(&self) {
        if self.alarm.ring() {
            // The 64-bit counter cannot overflow during the life of a process, so the write does not fail.
            let _ = io::write(self.event.as_fd(), &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of writes to the eventfd since the last call of this function.
    fn rings(bell: &Bell) -> u64 {
        let mut count = [0; 8];
        io::read(&bell.event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    #[test]
    fn a_wake_costs_a_system_call_once_after_each_arming_and_none_otherwise() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let bell = Bell::new(&epoll).unwrap();
        let waker = bell.waker();
        let wakes = || (0..1000).for_each(|_| waker.wake());
        wakes();
        assert_eq!(rings(&bell), 0, "awake");
        bell.arm();
        wakes();
        assert_eq!(rings(&bell), 1, "armed");
        bell.disarm();
        wakes();
        assert_eq!(rings(&bell), 0, "awake again");
    }
}
