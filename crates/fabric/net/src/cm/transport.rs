//! What a device does for the ends of connections.

use stentor_fabric::{QpId, Status};

use crate::message::End;

/// What a fabric's ends of connections do. Each belongs to a queue pair, whose number is its place among those that were
/// [made](super::ConnectionManager::connect).
pub trait Transport {
    /// A life of an end begins: from here on receives can be posted. What the peer must know to reach it.
    ///
    /// # Errors
    /// Why it cannot, with the remedy.
    fn begin(&mut self, qp: QpId) -> Result<End, String>;

    /// The peer's end is known: from here on what it sends is taken. `ours` is what [`begin`](Transport::begin) said.
    ///
    /// # Errors
    /// Why the two cannot be connected, with the remedy. It is tried again and again, and with another offer.
    fn meet(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String>;

    /// The peer takes requests: from here on they can be posted.
    ///
    /// # Errors
    /// Why not, with the remedy.
    fn ready(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String>;

    /// Takes in all that came.
    fn drive(&mut self);

    /// Breaks an end that is not broken: what is outstanding fails with this status, and can be polled.
    fn fail(&mut self, qp: QpId, status: Status);

    /// The next end that broke by itself, of which all that was outstanding can be polled; each is told once in its life.
    fn next_broken(&mut self) -> Option<QpId>;
}
