//! The apply thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use stentor_fabric::{Backoff, WaitMode};

use super::Applier;
use super::batch::Batch;
use super::handover::{Giver, Taker};
use super::work::Work;
use crate::node::sleeper::Sleeper;
use crate::state_machine::StateMachine;

/// The apply thread's ends of the queue.
pub(super) struct Ends {
    pub(super) work: Taker,
    /// Wakes the apply thread.
    pub(super) wake: Giver,
    /// The channel on which batches return.
    pub(super) done: SyncSender<Batch>,
    /// `true` if the thread must end after the present command or query, without processing the waiting work.
    pub(super) ends: Arc<AtomicBool>,
    /// Wakes the protocol's thread, which may sleep until there are replies or room.
    pub(super) sleeper: Sleeper,
}

/// Starts the thread. It returns the applier when it ends.
pub(super) fn spawn<S: StateMachine>(
    applier: Applier<S>,
    ends: Ends,
    wait: WaitMode,
) -> io::Result<JoinHandle<Applier<S>>> {
    let name = format!("stentor {} apply", applier.name());
    thread::Builder::new().name(name).spawn(move || run(applier, &ends, wait))
}

fn run<S: StateMachine>(mut applier: Applier<S>, ends: &Ends, wait: WaitMode) -> Applier<S> {
    applier.looks().open(ends.wake.clone());
    // Looks that were added before this thread was registered have woken no thread.
    applier.answer();
    let is_over = || ends.ends.load(Ordering::Relaxed);
    let mut backoff = Backoff::new(sleeping(wait));
    while let Some(work) = ends.work.take(&mut backoff) {
        if is_over() {
            break;
        }
        match work {
            Work::Commands(mut batch) => {
                let since = Instant::now();
                applier.apply_all(&mut batch, is_over);
                batch.took = since.elapsed();
                // The send fails if the node has ended. The batch is then not needed.
                let _ = ends.done.send(batch);
            }
            Work::Freeze(to) => {
                if let Some(writer) = applier.freeze() {
                    let _ = to.send(writer);
                }
            }
            Work::Restore { number, chunks } => applier.restore(number, chunks),
            Work::Look => {}
            Work::Stop => break,
        }
        ends.sleeper.wake();
        applier.answer();
        applier.serve_observers();
    }
    applier.looks().close();
    applier
}

/// Returns the mode in which the apply thread waits. Even if the node's mode never sleeps, this thread sleeps after it
/// has yielded for long: only the protocol's thread must respond to other processes without delay.
fn sleeping(wait: WaitMode) -> WaitMode {
    const MOST: u32 = 2000;
    let yields = if wait.sleep { wait.yields.min(MOST) } else { MOST };
    WaitMode { spins: wait.spins.min(MOST), yields, sleep: true }
}
