//! The order of steps among the processes that are not measured.

use stentor_fabric::memory::{Ordering, Word};

use super::super::super::clock::now;
use super::super::super::shared_area::SharedArea;
use super::super::super::worker_spec::{Cluster, Task};

/// Word of the first line: the process whose turn it is.
const HOLDER: usize = 0;
/// Word of the first line: the number of times that each process of the order has had its turn.
const SWEEPS: usize = 1;
/// Word of the first line: 1 if a leader has written to other processes in this pass of the leaders.
const LED: usize = 2;
/// Time for the measured process to react to a write, in nanoseconds.
const GAP_NS: u64 = if cfg!(debug_assertions) { 100_000 } else { 10_000 };
/// Additional time for each byte of the payload, in nanoseconds.
const GAP_PER_BYTE_NS: u64 = 1;

/// Returns the pause of all other processes after a write, in nanoseconds. A reaction that takes longer was
/// interrupted.
pub(super) fn gap_ns(cluster: &Cluster) -> u64 {
    GAP_NS + GAP_PER_BYTE_NS * u64::from(cluster.setting.bytes)
}

/// Returns the order of turns, without the measured process: the client, the leaders until none of them writes, the
/// followers by rank. Writes therefore arrive at the measured process in the same order as if each process had its own
/// core: no member acknowledges before the leaders have agreed, and members of the same rank follow each other.
pub(super) fn order(cluster: &Cluster, measured: usize) -> Vec<usize> {
    let (replicas, groups) = (usize::from(cluster.replicas), usize::from(cluster.groups));
    let members = (0..replicas).flat_map(|rank| (0..groups).map(move |group| group * replicas + rank));
    std::iter::once(cluster.members()).chain(members).filter(|process| *process != measured).collect()
}

/// Assigns the first turn, before the phase begins.
pub(super) fn begin(area: &SharedArea, cluster: &Cluster, measured: usize) {
    let line = area.line(0);
    line[HOLDER].store(order(cluster, measured)[0] as u64, Ordering::Relaxed);
    line[LED].store(0, Ordering::Relaxed);
}

/// The view that one process has of the turns, which order the steps of the processes that are not measured. The
/// measured process waits for no turn and polls all the time.
pub(super) struct Turns<'a> {
    task: &'a Task<'a>,
    order: Vec<usize>,
    replicas: usize,
    members: usize,
    gap_ns: u64,
    is_measured: bool,
}

impl<'a> Turns<'a> {
    pub(super) fn new(task: &'a Task<'a>, cluster: &Cluster, measured: usize) -> Self {
        Turns {
            task,
            order: order(cluster, measured),
            replicas: cluster.replicas.into(),
            members: cluster.members(),
            gap_ns: gap_ns(cluster),
            is_measured: task.me == measured,
        }
    }

    fn word(&self, word: usize) -> &Word {
        &self.task.area.line(0)[word]
    }

    /// Waits for this process's turn, or for the end of the phase.
    #[inline]
    pub(super) fn wait(&self) {
        let Task { area, me, phase, .. } = *self.task;
        while !self.is_measured && self.word(HOLDER).load(Ordering::Acquire) != me as u64 && !area.is_over(phase) {
            std::thread::yield_now();
        }
    }

    /// Ends this process's turn. After a write, it first waits until the measured process has had time to react.
    #[inline]
    pub(super) fn pass(&self, wrote: bool) {
        if self.is_measured {
            return;
        }
        if wrote {
            let since = now();
            while now() - since < self.gap_ns {
                std::hint::spin_loop();
            }
        }
        let led = wrote || self.word(LED).load(Ordering::Relaxed) != 0;
        let Passed { next, led, swept } = next(&self.order, self.task.me, led, |process| self.is_leader(process));
        self.word(LED).store(u64::from(led), Ordering::Relaxed);
        self.word(SWEEPS).fetch_add(u64::from(swept), Ordering::Relaxed);
        self.word(HOLDER).store(next as u64, Ordering::Release);
    }

    /// Returns the number of times that each process of the order has had its turn.
    pub(super) fn sweeps(&self) -> u64 {
        self.word(SWEEPS).load(Ordering::Relaxed)
    }

    fn is_leader(&self, process: usize) -> bool {
        process < self.members && process.is_multiple_of(self.replicas)
    }
}

/// A turn that has passed.
#[derive(PartialEq, Eq, Debug)]
struct Passed {
    /// The process whose turn is next.
    next: usize,
    /// `true` if a leader has written in the current pass of the leaders.
    led: bool,
    /// `true` if the last process of the order has had its turn. Without the client, the order begins with a leader, so
    /// the leaders' passes alone also return to its first process.
    swept: bool,
}

/// Passes the turn of `me`. `led` is `true` if a leader has written in the current pass of the leaders.
fn next(order: &[usize], me: usize, led: bool, is_leader: impl Fn(usize) -> bool) -> Passed {
    let at = order.iter().position(|process| *process == me).expect("the order contains this process");
    let (next, swept) = (order[(at + 1) % order.len()], at + 1 == order.len());
    if !is_leader(me) {
        return Passed { next, led: false, swept };
    }
    if !led || !swept && is_leader(next) {
        return Passed { next, led, swept };
    }
    let first = order.iter().copied().find(|process| is_leader(*process)).expect("this one leads");
    Passed { next: first, led: false, swept: false }
}

#[cfg(test)]
mod tests {
    use super::super::super::LONE;
    use super::*;

    #[test]
    fn leaders_go_on_until_none_of_them_writes() {
        let cluster = Cluster { groups: 2, replicas: 3, dest: 2, ..LONE };
        assert_eq!(order(&cluster, 1), [6, 0, 3, 4, 2, 5]);
        assert_eq!(order(&cluster, 6), [0, 3, 1, 4, 2, 5]);
        let order = order(&cluster, 1);
        let next = |me, led| next(&order, me, led, |process| process < 6 && process % 3 == 0);
        let after = |next, led| Passed { next, led, swept: false };
        assert_eq!(next(6, true), after(0, false), "writes of the client do not count as those of a leader");
        assert_eq!(next(0, true), after(3, true));
        assert_eq!(next(3, true), after(0, false));
        assert_eq!(next(3, false), after(4, false));
        assert_eq!(next(5, true), Passed { swept: true, ..after(6, false) });
    }

    /// Credits return only in turns of all processes.
    #[test]
    fn repeated_pass_of_the_leaders_is_no_sweep() {
        let cluster = Cluster { groups: 2, replicas: 3, dest: 2, ..LONE };
        // Without the client, the order begins with a leader.
        let order = order(&cluster, 6);
        let next = |me, led| next(&order, me, led, |process| process < 6 && process % 3 == 0);
        assert_eq!(next(3, true), Passed { next: 0, led: false, swept: false });
        assert_eq!(next(3, false), Passed { next: 1, led: false, swept: false });
        assert_eq!(next(5, false), Passed { next: 0, led: false, swept: true });
    }

    #[test]
    fn a_group_of_one_takes_turns_with_itself() {
        let is_leader = |process| process == 0;
        assert_eq!(next(&[0], 0, true, is_leader), Passed { next: 0, led: false, swept: false });
        assert_eq!(next(&[0], 0, false, is_leader), Passed { next: 0, led: false, swept: true });
        assert_eq!(next(&[1], 1, true, is_leader), Passed { next: 1, led: false, swept: true });
    }
}
