//! The interface between the connection manager and a device's ends of connections.

use stentor_fabric::{ProcessId, QpId, Status};

use crate::message::End;

/// The operations on a fabric's ends of connections. Each end belongs to a queue pair, whose id is its index in the
/// order of [creation](super::ConnectionManager::connect).
pub trait Transport {
    /// Begins a life of an end, after which receives can be posted. Returns the address that the peer needs to reach
    /// it.
    ///
    /// # Errors
    /// Returns the reason for the failure, with the remedy.
    fn begin(&mut self, qp: QpId) -> Result<End, String>;

    /// Connects an end to the peer's end, after which it receives packets. `ours` is the result of
    /// [`begin`](Transport::begin).
    ///
    /// # Errors
    /// Returns the reason why the two cannot be connected, with the remedy. The connection manager retries at
    /// intervals, and with each new offer.
    fn meet(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String>;

    /// Makes an end ready, because the peer accepts requests. Requests can be posted after that.
    ///
    /// # Errors
    /// Returns the reason for the failure, with the remedy.
    fn ready(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String>;

    /// Processes everything that has arrived.
    fn drive(&mut self);

    /// Breaks an end that is not broken. Outstanding requests fail with `status`, and their completions can be polled.
    fn fail(&mut self, qp: QpId, status: Status);

    /// Returns the next end that broke by itself, once per life. All its outstanding completions can be polled.
    fn next_broken(&mut self) -> Option<QpId>;

    /// Records that the peer has closed its end of a connection. Packets that the peer sent before may still arrive. The
    /// peer's revocations from before the close have been processed. Its later grants have not.
    fn withdrawn(&mut self, qp: QpId) {
        let _ = qp;
    }

    /// Records that a peer has granted a region under a key, possibly one that it had revoked before. The grant is
    /// usable after this call.
    fn granted(&mut self, peer: ProcessId, key: u64) {
        let _ = (peer, key);
    }
}
