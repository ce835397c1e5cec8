//! Threads, which the system may refuse.

use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, scope};

use crate::Failure;

/// Starts a thread that does `work`. `what` completes the error message "cannot start a thread …".
pub fn thread<R: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<JoinHandle<R>, Failure> {
    Builder::new().spawn(work).map_err(|error| no_thread(what, &error))
}

/// Returns the failure of a thread that could not be started. `what` is as in [`thread`].
pub fn no_thread(what: &str, error: &std::io::Error) -> Failure {
    let remedy = "`stentor doctor` says what this machine can do";
    Failure::system(format_args!("cannot start a thread {what}"), error, "this process", remedy)
}

/// Locks a mutex and ignores poisoning. The panic of another thread is reported elsewhere.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `work` for all items at the same time and returns the results in the order of the items. An item for which no
/// thread can be started is handled by this thread.
pub fn at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    scope(|scope| {
        let begin = |item| (item, Builder::new().spawn_scoped(scope, move || work(item)).ok());
        let begun: Vec<_> = items.iter().map(begin).collect();
        let end = |(item, thread): (_, Option<std::thread::ScopedJoinHandle<'_, R>>)| match thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => work(item),
        };
        begun.into_iter().map(end).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        assert_eq!(at_once(&[3_u64, 1, 2], |item| item * 2), [6, 2, 4]);
    }
}
