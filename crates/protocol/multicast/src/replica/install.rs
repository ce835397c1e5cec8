//! A leader's state comes to a member: complete, with every body, or not at all.

use crate::Ballot;
use crate::state::State;

/// A leader's state that waits for bodies, or for the application's state.
///
/// # Invariants
/// - *Of one ballot a member never has less than before.* A leader sends its state more than once, and the stream goes on
///   meanwhile; a state is a message in pieces, and comes later than entries that were appended after it was taken. So a
///   state of the installed ballot whose counter is not larger than the own one changes no assignment and no counter. It
///   may be ahead all the same, in what is *delivered*: decisions come in acknowledgements, which this member may have
///   missed. Of such a state it takes what the leader had delivered, with the application's state (`jump`), and nothing else.
///
///   If it took the assignments as well, the entries between the two counters would be forgotten. (1) This member has
///   acknowledged them, and their message may be delivered because of that. With the leader gone, the others' promises
///   need not contain it: the order breaks. (2) The stream does not bring them again, because a reader of a ring never goes
///   back (`node/inbound.rs`); the next entry waits behind a gap for ever.
///
///   What is left out is not needed. In one ballot the leader's stream is the same for everybody, so what is processed here
///   contains the state's assignments. And what the leader had delivered is the beginning of what this member delivers
///   (M5), so counting it as delivered changes no order; entries behind it stay as they are, and are delivered or asked
///   for like any other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Install {
    /// The ballot that is promised here.
    pub(super) ballot: Ballot,
    /// Entries of that ballot's stream that the state contains.
    pub(super) counter: u64,
    pub(super) state: State,
}
