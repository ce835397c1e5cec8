//! Sends messages through corosync's closed process groups (CPG) in agreed order, with three members.
//!
//! The process waits with `poll` on the library's descriptor, as usual for programs with this library.

mod library;

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Parser as _;
use compare_measure::{Options, Others, Progress, Role, Times, now, row};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use library::{Callbacks, Cpg, Handle, Name, OK, TRY_AGAIN};

/// Number of members that must have joined before the first message is sent.
const MEMBERS: usize = 3;
/// Maximum time without a message or a change of the membership, while the group forms or a receiver waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// The events that the library's callbacks have reported.
#[derive(Default)]
struct Seen {
    members: usize,
    delivered: Times,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
}

extern "C" fn deliver(_: Handle, _: *const Name, _: u32, _: u32, _: *const c_void, _: usize) {
    SEEN.with_borrow_mut(|seen| seen.delivered.push(now()));
}

extern "C" fn changed(
    _: Handle,
    _: *const Name,
    _: *const c_void,
    members: usize,
    _: *const c_void,
    _: usize,
    _: *const c_void,
    _: usize,
) {
    SEEN.with_borrow_mut(|seen| seen.members = members);
}

static CALLBACKS: Callbacks = Callbacks { deliver, changed };

/// A member of the group.
struct Member<'a, D: Fn(Handle) -> c_int> {
    handle: Handle,
    descriptor: BorrowedFd<'a>,
    dispatch: D,
    progress: Progress,
}

impl<D: Fn(Handle) -> c_int> Member<'_, D> {
    /// Handles all available events. If `waits` is set, first waits up to 1 s for an event.
    fn take(&self, waits: bool) -> Result<()> {
        if waits {
            let longest = Timespec { tv_sec: 1, tv_nsec: 0 };
            poll(&mut [PollFd::from_borrowed_fd(self.descriptor, PollFlags::IN)], Some(&longest))?;
        }
        match (self.dispatch)(self.handle) {
            OK | TRY_AGAIN => SEEN.with_borrow(|seen| self.progress.tell(&seen.delivered)),
            error => bail!("cpg_dispatch: error {error}"),
        }
    }

    fn until(&self, what: &str, done: impl Fn(&Seen) -> bool) -> Result<()> {
        let mut since = Instant::now();
        let mut before = 0;
        while !SEEN.with_borrow(&done) {
            self.take(true)?;
            let now = SEEN.with_borrow(|seen| seen.delivered.count() + seen.members as u64);
            if now != before {
                (since, before) = (Instant::now(), now);
            }
            ensure!(since.elapsed() < PATIENCE, "waiting for {what}: no event for {} s", PATIENCE.as_secs());
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let cpg = Cpg::open()?;
    let (mut handle, mut fd) = (0, -1);
    let done = cpg.initialize(&mut handle, &CALLBACKS)?;
    ensure!(done == OK, "cpg_initialize: error {done}; is corosync running in this network namespace?");
    let done = cpg.join(handle, &Name::new("compare"))?;
    ensure!(done == OK, "cpg_join: error {done}");
    let done = cpg.descriptor(handle, &mut fd)?;
    ensure!(done == OK, "cpg_fd_get: error {done}");
    // SAFETY: the connection keeps its descriptor open for as long as it lives, which is until this process ends.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    let member = Member { handle, descriptor, dispatch: cpg.dispatch()?, progress: Progress::of(&options)? };
    member.until("the group", |seen| seen.members == MEMBERS)?;
    match options.role {
        Role::Receive => {
            let total = options.total();
            member.until("messages", |seen| seen.delivered.count() == total)?;
            SEEN.with_borrow(|seen| seen.delivered.write(&options))?;
            // The receiver stays until the sender has computed its row, so that the membership does not change before.
            let told = options.folder.join("told");
            while !told.exists() {
                member.take(true)?;
            }
            Ok(())
        }
        Role::Send => send(&options, &member, cpg.multicast()?),
        Role::Ping | Role::Pong => bail!("this program has no round trips: set --role to send or receive"),
    }
}

/// Sends all messages with the given number outstanding, and prints the row.
fn send<D: Fn(Handle) -> c_int>(
    options: &Options,
    member: &Member<'_, D>,
    multicast: impl Fn(Handle, &[u8]) -> c_int,
) -> Result<()> {
    let payload = vec![7; options.bytes as usize];
    let mut sent = Times::with_capacity(options.total());
    let others = Others::of(options)?;
    loop {
        let done = SEEN.with_borrow(|seen| seen.delivered.count());
        others.reach(done)?;
        if done == options.total() {
            break;
        }
        let before = sent.count();
        while sent.count() < options.total() && sent.count() - done < options.outstanding {
            sent.push(now());
            match multicast(member.handle, &payload) {
                OK => {}
                TRY_AGAIN => {
                    sent.pop();
                    break;
                }
                error => bail!("cpg_mcast_joined: error {error}"),
            }
        }
        member.take(sent.count() == before)?;
    }
    SEEN.with_borrow(|seen| seen.delivered.write(options))?;
    let row = row(options, &sent)?;
    std::fs::write(options.folder.join("told"), "")?;
    println!("{}", serde_json::to_string(&row)?);
    Ok(())
}
