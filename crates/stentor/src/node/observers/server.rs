//! The thread of a member that serves its observers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::convoy::{Convoy, Ticket};
use super::kept::Kept;
use super::served::{Ready, Served, Stock, Turn};
use super::tap::{MANY, News, Tap};
use super::{Stands, Terms, Wake, ring};
use crate::node::mailbox::Mailbox;
use crate::observer::frame::Refusal;
use crate::observer::line::Line;

/// Maximum number of observers of a member.
const MOST: usize = 256;
/// Time for which the journal is kept after the last observer has left.
const LINGER: Duration = Duration::from_secs(120);
/// Longest sleep while there are observers.
const LOOK: Duration = Duration::from_millis(100);
/// Time for which the thread collects applied records under load, instead of being woken for each batch.
const NAP: Duration = Duration::from_millis(1);
/// Delay of a wake-up above which processors are considered scarce.
const LATE: Duration = Duration::from_millis(2);
/// Time for which processors are considered scarce after such a delay.
const PRESSED: Duration = Duration::from_millis(500);
/// Rate of records to a single observer while processors are scarce, in bytes per second. With n observers, all of them
/// together get 1/n of this rate, because each of them must also process the records. On a busy host they do so at the
/// expense of the group, no matter their priority: if a thread of the group yields, an observer may run for
/// milliseconds.
const PRESSED_RATE: i64 = 32 << 20;
/// The nice value of the thread. If processors are scarce, the group has precedence over its observers.
const NICE: i32 = 19;

/// A message from the protocol's thread.
pub(super) enum Arrival {
    /// A connected observer, and the member's condition.
    Line(Line, Stands),
    /// The member ends.
    End,
}

/// The state of the thread.
pub(super) struct Server {
    tap: Arc<Tap>,
    wake: Wake,
    arrivals: Mailbox<Arrival>,
    bell: Arc<OwnedFd>,
    stock: Stock,
    all: Vec<Served>,
    convoys: u64,
    /// `true` if the apply thread was asked to hand over records.
    is_open: bool,
    /// Time since which there is no observer.
    left: Option<Instant>,
    /// Time until which processors are considered scarce.
    pressed: Option<Instant>,
    /// Time of the last round.
    last: Instant,
    ends: bool,
}

impl Server {
    pub(super) fn new(
        terms: &Terms,
        tap: Arc<Tap>,
        wake: Wake,
        arrivals: Mailbox<Arrival>,
        bell: Arc<OwnedFd>,
    ) -> Self {
        let Terms { fingerprint, group, most, .. } = *terms;
        let (kept, is_on) = (Kept::new(most), most > 0);
        let (poisoned, wants_state) = (false, false);
        let stock = Stock { fingerprint, group, is_on, poisoned, kept, convoy: None, wants_state, budget: 0 };
        let (all, left, pressed, last) = (Vec::new(), None, None, Instant::now());
        Server { tap, wake, arrivals, bell, stock, all, convoys: 0, is_open: false, left, pressed, last, ends: false }
    }

    /// Serves observers until the member ends.
    pub(super) fn run(mut self) {
        // On Linux, the nice value applies to the calling thread only. If this fails, observers are served with normal
        // priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        while !self.ends {
            let now = Instant::now();
            let worked = self.round(now);
            self.pause(worked);
        }
        self.tap.end();
        let now = Instant::now();
        self.all.iter_mut().for_each(|served| served.refuse(Refusal::Ends, now));
    }

    /// Runs one round. Returns whether there was any work.
    fn round(&mut self, now: Instant) -> bool {
        let mut worked = self.admit(now);
        let mut count = 0;
        while let Some(news) = self.tap.next() {
            self.hear(news, now);
            count += 1;
        }
        worked |= count > 0;
        if count >= MANY {
            // The apply thread may hold back more records while the queue is crowded.
            (self.wake)();
        }
        let least = self.all.iter().filter_map(|served| served.ticket().map(Ticket::piece)).min();
        if let Some(convoy) = &mut self.stock.convoy {
            convoy.pump(least, now);
        }
        self.set_budget(now);
        let stock = &mut self.stock;
        // The observers that were beyond the budget are the first ones in the next round.
        let mut fed = 0;
        self.all.retain_mut(|served| {
            let turn = served.turn(stock, now);
            worked |= turn == Turn::Worked;
            fed += usize::from(stock.budget > 0);
            turn != Turn::Ended
        });
        let fed = fed.min(self.all.len());
        self.all.rotate_left(fed);
        self.look_at_convoy(now);
        self.look_at_journal(now);
        worked
    }

    /// Sets the number of bytes that may be sent in this round.
    fn set_budget(&mut self, now: Instant) {
        self.pressed.take_if(|until| *until <= now);
        let passed = now.saturating_duration_since(self.last).min(LOOK);
        self.last = now;
        let rate = PRESSED_RATE / self.all.len().max(1) as i64;
        let allowed = |time: Duration| rate * time.as_micros() as i64 / 1_000_000;
        let pressed = self.stock.budget.saturating_add(allowed(passed)).min(allowed(LOOK));
        self.stock.budget = if self.pressed.is_some() { pressed } else { i64::MAX };
    }

    fn admit(&mut self, now: Instant) -> bool {
        let arrivals = self.arrivals.take();
        let any = !arrivals.is_empty();
        for arrival in arrivals {
            let Arrival::Line(line, stands) = arrival else {
                self.ends = true;
                continue;
            };
            let mut served = Served::new(line, stands, now);
            if self.all.len() >= MOST {
                // A connection that has not sent a request is dropped in favor of the new one, so that silent
                // connections cannot block other observers.
                let Some(silent) = self.all.iter().position(Served::is_silent) else {
                    served.refuse(Refusal::Full, now);
                    continue;
                };
                self.all.remove(silent);
            }
            self.all.push(served);
        }
        any
    }

    fn hear(&mut self, news: News, now: Instant) {
        match news {
            News::Block(block) => {
                self.stock.kept.push(&block);
                self.tap.give_back(block.bytes);
            }
            News::Mark(place) => {
                self.stock.poisoned = false;
                if self.stock.kept.head().is_some_and(|head| head != place) {
                    // The machine has restored a state. The observers reconnect and name their positions, which shows
                    // what they need.
                    self.stock.convoy = None;
                    self.all.iter_mut().filter(|served| served.is_served()).for_each(|served| {
                        served.refuse(Refusal::NotReady, now);
                    });
                }
                self.stock.kept.mark(place);
            }
            News::State(place, writer) => {
                if let Some(convoy) = &mut self.stock.convoy {
                    convoy.begin(place, *writer);
                }
            }
            News::Poisoned => {
                self.stock.poisoned = true;
                self.stock.convoy = None;
                self.stock.kept.clear(None);
                self.all.iter_mut().for_each(|served| served.refuse(Refusal::Poisoned, now));
            }
        }
    }

    /// Drops a convoy without participants, and requests a new one if an observer waits for a state.
    fn look_at_convoy(&mut self, now: Instant) {
        let tickets = self.all.iter().filter(|served| served.ticket().is_some()).count();
        if self.stock.convoy.as_ref().is_some_and(|convoy| convoy.is_over(tickets, now)) {
            self.stock.convoy = None;
        }
        if std::mem::take(&mut self.stock.wants_state) && self.stock.convoy.is_none() {
            self.convoys += 1;
            self.stock.convoy = Some(Convoy::new(self.convoys, now));
            self.tap.freeze();
            (self.wake)();
        }
    }

    /// Begins the journal when the first observer arrives, and ends it some time after the last one has left.
    fn look_at_journal(&mut self, now: Instant) {
        if !self.all.is_empty() {
            self.left = None;
            if !self.is_open && self.stock.is_on {
                self.is_open = true;
                self.tap.begin();
                (self.wake)();
            }
            return;
        }
        let left = *self.left.get_or_insert(now);
        if self.is_open && now.saturating_duration_since(left) >= LINGER {
            self.is_open = false;
            self.tap.end();
            self.stock.kept.clear(None);
            self.stock.convoy = None;
        }
    }

    /// Sleeps until there is work, for a limited time.
    fn pause(&mut self, worked: bool) {
        if self.ends {
            return;
        }
        let writes = self.stock.convoy.as_ref().is_some_and(Convoy::is_being_written);
        if worked || writes {
            let since = Instant::now();
            std::thread::sleep(NAP);
            if since.elapsed() > NAP + LATE {
                self.pressed = Some(Instant::now() + PRESSED);
            }
            self.sleep(Duration::ZERO, false);
            return;
        }
        let longest = match (self.all.is_empty(), self.is_open) {
            (false, _) => LOOK,
            // The journal still runs, and the thread must notice when it has run long enough.
            (true, true) => Duration::from_secs(1),
            (true, false) => Duration::from_secs(3600),
        };
        if self.tap.arm() {
            self.sleep(longest, true);
        }
        self.tap.disarm();
    }

    /// Sleeps until a connection has input, or room for output if it waits for room. With `bell`, other threads can end
    /// the sleep, too.
    fn sleep(&mut self, longest: Duration, bell: bool) {
        let mut all: Vec<_> = Vec::with_capacity(self.all.len() + 1);
        for served in &self.all {
            let flags = if served.line().is_behind() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            all.push(PollFd::from_borrowed_fd(served.line().as_fd(), flags));
        }
        if bell {
            all.push(PollFd::new(&*self.bell, PollFlags::IN));
        }
        let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        let polled = poll(&mut all, Some(&longest));
        let ready: Vec<_> = all.iter().map(PollFd::revents).collect();
        drop(all);
        for (served, flags) in self.all.iter_mut().zip(ready) {
            let ends = flags.intersects(PollFlags::HUP | PollFlags::ERR);
            let (reads, writes) = (flags.contains(PollFlags::IN) || ends, flags.contains(PollFlags::OUT) || ends);
            // If `poll` fails, all connections are checked.
            served.note_ready(Ready { reads: reads || polled.is_err(), writes: writes || polled.is_err() });
        }
        if polled.is_err() {
            // The failure may be temporary, for example a lack of memory.
            std::thread::sleep(NAP);
        }
        if bell {
            ring::hear(&self.bell);
        }
    }
}
