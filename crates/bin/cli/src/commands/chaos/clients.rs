//! The conductor's view of the load: the clients of the multicast, or those of a service.

use stentor_support::Failure;

use super::clock::RunClock;
use super::hang::Waiting;

/// The clients of a run.
pub(super) trait Clients {
    /// Returns the clock of the run.
    fn clock(&self) -> &RunClock;

    /// Checks the clients. The conductor calls this at each look.
    ///
    /// # Errors
    /// Returns an error if a client failed.
    fn check(&self) -> Result<(), Failure>;

    /// Returns whether all clients have joined.
    fn are_in(&self) -> bool;

    /// Returns what each client waits for, with a description.
    fn waiting(&self) -> Vec<(String, Waiting)>;

    /// Returns whether all clients count a member for flow control.
    fn count_on(&self, member: usize) -> bool;

    /// Returns how many messages some counted process has not delivered, or how many calls have not ended. A client of
    /// a service that has no session counts as one more.
    fn outstanding(&self) -> usize;

    /// Returns how many messages or calls were begun.
    fn begun(&self) -> u64;

    /// Returns how many messages majorities delivered, or how many calls ended.
    fn ended(&self) -> u64;

    /// Kills the client that `which` selects, and restarts it after `ms` milliseconds. Returns whether one could be
    /// killed.
    ///
    /// # Errors
    /// Returns an error if the client cannot be killed.
    fn kill(&self, which: u64, ms: u64) -> Result<bool, Failure>;

    /// Stops new messages and calls.
    fn drain(&self);

    /// Ends the clients. Returns once their records are written.
    ///
    /// # Errors
    /// Returns an error if a client failed.
    fn end(&self) -> Result<(), Failure>;
}
