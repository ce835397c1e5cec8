//! Waiting instead of polling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, Stop, called, check, same};
use stentor_fabric::{Access, Fabric, Opcode, Status, Wake};

/// Timeout of a sleep that a wake-up must end earlier.
const LONG: Duration = Duration::from_secs(10);
/// Maximum duration of a sleep that a wake-up ends, on a busy machine.
const ENDED: Duration = Duration::from_secs(2);
/// Maximum duration of the fastest of several wake-ups.
const PROMPT: Duration = Duration::from_millis(20);

/// Lets time pass and polls only A, while `goes_on` returns true.
fn pass_while<T: Testbed>(
    bed: &mut Bed<T>,
    goes_on: impl Fn(&mut Bed<T>) -> bool,
    fault: impl FnOnce() -> String,
) -> Outcome {
    for _ in 0..=bed.patience() {
        if !goes_on(bed) {
            return Ok(());
        }
        bed.collect(A);
        bed.pass();
    }
    Err(Stop::Fail(fault()))
}

pub(super) fn woken_by_a_write<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    for n in 1..10_u64 {
        bed.settle();
        bed.at(B).arm();
        bed.collect(B);
        bed.write(A, link.a, n, (remote, 0), &[n])?;
        pass_while(bed, |bed| bed.word(B, region, 0) != n, || format!("write {n} is not visible"))?;
        let woken = called("wait", bed.at(B).wait(Duration::from_secs(2)))?;
        same("wait after a write landed", &woken, &Wake::Notified)?;
        bed.expect(A, link.a, n, (Opcode::Write, Status::Success))?;
    }
    Ok(())
}

/// A process that reads memory only when the poll hint names the writer misses no write.
pub(super) fn poll_hint_names_each_writer<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    for n in 1..50_u64 {
        bed.write(A, link.a, n, (remote, 0), &[n])?;
        pass_while(
            bed,
            |bed| !bed.at(B).poll_hint().is_from(A) || bed.word(B, region, 0) != n,
            || format!("write {n} landed, and the poll hint does not name its writer"),
        )?;
        bed.expect(A, link.a, n, (Opcode::Write, Status::Success))?;
    }
    Ok(())
}

pub(super) fn times_out<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    bed.link(16, 4)?;
    bed.settle();
    rests(bed, || (), "on an idle fabric")
}

/// Checks that a sleep lasts its whole time although `before` was called first. Spurious wake-ups are allowed
/// occasionally, but not always.
fn rests<T: Testbed>(bed: &mut Bed<T>, mut before: impl FnMut(), what: &str) -> Outcome {
    for _ in 0..20 {
        before();
        bed.at(B).arm();
        bed.collect(B);
        if called("wait", bed.at(B).wait(Duration::from_millis(2)))? == Wake::TimedOut {
            return Ok(());
        }
    }
    Err(Stop::Fail(format!("20 waits {what} were all notified")))
}

/// Sleeps repeatedly while another thread stores a number and calls `wake`: each number is seen within 2 s, and the one
/// seen fastest within 20 ms.
pub(super) fn ended_by_another_thread<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    const WAKES: u64 = 10;
    bed.link(16, 4)?;
    bed.settle();
    let (waker, stored) = (bed.at(B).waker(), Arc::new(AtomicU64::new(0)));
    let (start, over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let (number, is_over) = (Arc::clone(&stored), Arc::clone(&over));
    let storing = thread::spawn(move || {
        let pause = || thread::sleep(Duration::from_millis(10));
        for n in 1..=WAKES {
            pause();
            // The number, and the time when it was stored.
            let micros = start.elapsed().as_micros() as u64;
            number.store(micros << 8 | n, Ordering::Relaxed);
            waker.wake();
            while number.load(Ordering::Relaxed) != 0 && !is_over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        }
    });
    let seen = see_all(bed, &stored, WAKES, start);
    over.store(true, Ordering::Relaxed);
    check(storing.join().is_ok(), || "the other thread panicked".to_string())?;
    let best = seen?;
    check(best < PROMPT, || format!("the best of {WAKES} wake-ups took {best:?}"))
}

/// Returns the duration of the fastest wake-up.
fn see_all<T: Testbed>(bed: &mut Bed<T>, stored: &AtomicU64, wakes: u64, start: Instant) -> Outcome<Duration> {
    let mut best = LONG;
    for n in 1..=wakes {
        let mut number;
        while {
            bed.at(B).arm();
            bed.collect(B);
            number = stored.load(Ordering::Relaxed);
            number == 0
        } {
            called("wait", bed.at(B).wait(LONG))?;
        }
        same("the number that was stored", &(number & 0xff), &n)?;
        let took = start.elapsed().saturating_sub(Duration::from_micros(number >> 8));
        check(took < ENDED, || format!("wake-up {n} took {took:?}"))?;
        best = best.min(took);
        stored.store(0, Ordering::Relaxed);
    }
    Ok(best)
}

pub(super) fn wakes_between_arming_and_sleeping_count<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    bed.link(16, 4)?;
    bed.settle();
    for _ in 0..10 {
        bed.at(B).arm();
        bed.collect(B);
        let waker = bed.at(B).waker();
        check(thread::spawn(move || waker.wake()).join().is_ok(), || "wake panicked".to_string())?;
        let since = Instant::now();
        called("wait", bed.at(B).wait(LONG))?;
        let took = since.elapsed();
        check(took < ENDED, || format!("a sleep lasted {took:?} though it was ended before it began"))?;
    }
    Ok(())
}

/// A wake before arming does not end the next sleep, because the check after arming finds the stored work.
pub(super) fn wakes_before_arming_do_not<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    bed.link(16, 4)?;
    bed.settle();
    let waker = bed.at(B).waker();
    rests(bed, || (0..100).for_each(|_| waker.wake()), "after wakes that came before they were armed")
}

/// A process that sleeps on the descriptor is woken, and can sleep again.
pub(super) fn a_wake_makes_the_descriptor_readable<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    bed.link(16, 4)?;
    bed.settle();
    let waker = bed.at(B).waker();
    let mut slept = false;
    for wakes in 0..20 {
        called("wait", bed.at(B).wait(Duration::ZERO))?;
        if bed.at(B).descriptor().is_none() {
            return Ok(());
        }
        bed.at(B).arm();
        bed.collect(B);
        // Each wake is reported once; afterwards the descriptor is no longer readable.
        slept |= wakes > 0 && !readable(bed)?;
        waker.wake();
        check(readable(bed)?, || "the descriptor is not readable after a wake".to_string())?;
    }
    check(slept, || "the descriptor stayed readable after each wake".to_string())
}

fn readable<T: Testbed>(bed: &mut Bed<T>) -> Outcome<bool> {
    let descriptor = bed.at(B).descriptor();
    let Some(descriptor) = descriptor else { return Ok(false) };
    let mut set = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    called("poll", poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))).map(|ready| ready > 0)
}
