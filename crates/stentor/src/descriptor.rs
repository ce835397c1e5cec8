//! A descriptor that becomes readable whenever the owner of a channel or broadcast must run its next round.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// An epoll descriptor that is readable when the fabric has an event or the next round is due. An event loop therefore
/// needs no timer of its own.
///
/// # Invariants
/// The timer does not expire before `until`. If the timer already expires early enough,
/// [`sleep_for`](Descriptor::sleep_for) leaves it unchanged, so an owner that sleeps often makes the system call only
/// once in many sleeps.
#[derive(Debug)]
pub(crate) struct Descriptor {
    epoll: OwnedFd,
    timer: OwnedFd,
    until: Option<Instant>,
}

impl Descriptor {
    /// Creates the descriptor. It is also readable whenever `fabric`, the descriptor of the fabric, is readable.
    pub(crate) fn new(fabric: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        for (source, data) in fabric.into_iter().chain([timer.as_fd()]).zip(0..) {
            epoll::add(&epoll, source, epoll::EventData::new_u64(data), epoll::EventFlags::IN)?;
        }
        Ok(Descriptor { epoll, timer, until: None })
    }

    /// Makes the descriptor readable whenever `source` is readable, until `source` is closed. With `writes`, the
    /// descriptor is also readable whenever `source` is writable.
    pub(crate) fn watch(&self, source: impl AsFd, writes: bool) -> io::Result<()> {
        let flags = if writes { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        match epoll::modify(&self.epoll, &source, epoll::EventData::new_u64(2), flags) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, source, epoll::EventData::new_u64(2), flags)?,
            watched => watched?,
        }
        Ok(())
    }

    /// Makes the descriptor readable after `time` at the latest.
    pub(crate) fn sleep_for(&mut self, time: Duration) -> io::Result<()> {
        // A time of zero would stop the timer.
        let (now, time) = (Instant::now(), time.max(Duration::from_nanos(1)));
        if self.until.is_some_and(|until| until > now && until <= now + time) {
            return Ok(());
        }
        let it_value = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.until = Some(now + time);
        Ok(())
    }

    /// Clears the expiration of the timer, so that the descriptor is no longer readable because of it.
    pub(crate) fn woken(&mut self) {
        if self.until.take_if(|until| Instant::now() >= *until).is_some() {
            let mut count = [0; 8];
            // The read may find nothing if the timer expires at this very moment. The expiration is then cleared when
            // the timer is set next.
            let _ = rustix::io::read(&self.timer, &mut count);
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

    use super::*;

    fn is_readable(descriptor: &Descriptor, longest: Duration) -> bool {
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&time)).expect("the descriptor can be polled") == 1
    }

    #[test]
    fn descriptor_is_readable_when_the_fabric_is_or_the_timer_expires() {
        let fabric = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut descriptor = Descriptor::new(Some(fabric.as_fd())).unwrap();
        assert!(!is_readable(&descriptor, Duration::ZERO));
        descriptor.sleep_for(Duration::from_millis(1)).unwrap();
        assert!(is_readable(&descriptor, Duration::from_millis(900)));
        descriptor.woken();
        assert!(!is_readable(&descriptor, Duration::from_millis(5)));
        // The shorter of two times counts.
        descriptor.sleep_for(Duration::from_millis(2)).unwrap();
        descriptor.sleep_for(Duration::from_secs(600)).unwrap();
        assert!(is_readable(&descriptor, Duration::from_millis(900)));
        descriptor.woken();
        descriptor.sleep_for(Duration::from_secs(600)).unwrap();
        assert!(!is_readable(&descriptor, Duration::from_millis(5)));
        descriptor.sleep_for(Duration::from_millis(2)).unwrap();
        assert!(is_readable(&descriptor, Duration::from_millis(900)));
        descriptor.woken();
        rustix::io::write(&fabric, &1_u64.to_ne_bytes()).unwrap();
        assert!(is_readable(&descriptor, Duration::ZERO));
        assert!(is_readable(&Descriptor::new(Some(fabric.as_fd())).unwrap(), Duration::ZERO));
    }

    #[test]
    fn a_sleep_of_zero_expires_at_once() {
        let mut descriptor = Descriptor::new(None).unwrap();
        descriptor.sleep_for(Duration::ZERO).unwrap();
        assert!(is_readable(&descriptor, Duration::from_millis(900)));
    }
}
