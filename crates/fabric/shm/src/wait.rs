//! Sleeping until a peer rings. The process sleeps on the wait word. While connections are being made, or if the user
//! waits on the descriptor, it sleeps on its epoll instance, which observes its eventfd and the control sockets.

use std::time::{Duration, Instant};

use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;
use stentor_fabric::memory::Ordering;
use stentor_fabric::{WaitError, Wake};

use crate::control::DIAL_PAUSE;
use crate::doorbell::{self, AWAKE, EPOLL, FUTEX};
use crate::fabric::ShmFabric;

/// Maximum duration of one sleep. The death of a peer wakes a sleeper only where the kernel can wait for its mark, and
/// nonsense in the wait word costs at most this time.
const LONGEST: Duration = Duration::from_millis(100);
/// Minimum interval between two control plane rounds that are caused by sleeping on the wait word.
const PUMP_PAUSE: Duration = Duration::from_millis(1);
/// Maximum duration of one sleep while work requests wait for receives, because the peer does not ring when it posts a
/// receive, or while control messages wait to be sent.
const DEFERRED: Duration = Duration::from_millis(1);

impl ShmFabric {
    pub(crate) fn prepare_sleep(&mut self) {
        let word = &self.wait_page.words()[0];
        // A ring that the epoll instance has not reported yet would end the next sleep at once.
        let is_rung = self.armed == EPOLL && word.load(Ordering::Acquire) != EPOLL && !self.control.has_taken_ring;
        self.armed = if self.fd_used.get() || self.is_connecting() { EPOLL } else { FUTEX };
        if self.armed == EPOLL && (is_rung || self.control.last_pump.elapsed() >= PUMP_PAUSE) {
            self.pump();
        }
        self.control.has_taken_ring = false;
        doorbell::arm(&self.wait_page.words()[0], self.armed);
    }

    pub(crate) fn sleep(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.data.flush();
        let woken = self.sleep_armed(timeout);
        doorbell::disarm(&self.wait_page.words()[0]);
        woken
    }

    fn sleep_armed(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        let until = Instant::now().checked_add(timeout);
        // With a timeout of 0 the caller has slept on the descriptor, and the reason must be taken from it.
        let mut is_readable = timeout.is_zero() && self.armed == EPOLL;
        loop {
            // A control message also rings the wait word, so a round may skip the pump. A message that arrived just
            // before arming is then handled when the sleep ends.
            if is_readable || self.control.last_pump.elapsed() >= PUMP_PAUSE {
                self.pump();
            }
            if self.has_news() {
                return Ok(Wake::Notified);
            }
            let left = until.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Wake::TimedOut);
            }
            is_readable = self.sleep_once(left.min(self.slice()))?;
        }
    }

    fn has_news(&self) -> bool {
        let rung = self.wait_page.words()[0].load(Ordering::Acquire) != self.armed;
        rung || !self.control.events.is_empty() || self.data.has_finished() || self.armed == AWAKE
    }

    fn slice(&self) -> Duration {
        let behind = self.control.peers.iter().flat_map(|peer| &peer.link).any(|link| link.is_behind());
        if self.data.deferring > 0 || behind {
            DEFERRED
        } else if self.is_connecting() {
            DIAL_PAUSE.1
        } else {
            LONGEST
        }
    }

    /// Sleeps until this process is rung or has a control message, at most for `slice`. Returns whether the control
    /// sockets must be read now.
    fn sleep_once(&mut self, slice: Duration) -> Result<bool, WaitError> {
        let slept = if self.armed == FUTEX {
            let slice = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: slice.subsec_nanos().into() };
            futex::wait(self.wait_page.futex(), futex::Flags::empty(), FUTEX as u32, Some(&slice)).map(|()| false)
        } else {
            self.control.readable(slice)
        };
        match slept {
            Ok(is_readable) => Ok(is_readable),
            Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(false),
            Err(error) => Err(WaitError::System(error.to_string())),
        }
    }
}
