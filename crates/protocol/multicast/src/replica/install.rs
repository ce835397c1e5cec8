//! The installation of a leader's state at a member: complete, with every body, or not at all.

use crate::Ballot;
use crate::state::State;

/// A leader's state that waits for bodies, or for the application's state.
///
/// # Invariants
/// - *Within one ballot a member's state never shrinks.* A leader sends its state more than once, and the stream
///   continues meanwhile. A state is a message in pieces, and may arrive after entries that were appended later. So a
///   state of the installed ballot whose counter is not larger than this member's changes no assignment and no counter.
///   It may nevertheless be ahead in what is *delivered*: decisions come in acknowledgements, which this member may
///   have missed. From such a state the member adopts only the leader's deliveries, with the application's state
///   (`jump`).
///
///   If it adopted the assignments as well, it would forget the entries between the two counters. (1) This member has
///   acknowledged them, and their messages may be delivered because of that. If the leader stops, the promises of the
///   others need not contain these messages: the order breaks. (2) The stream does not repeat these entries, because a
///   reader of a ring never moves back (`node/inbound.rs`); the next entry waits after a gap for ever.
///
///   The omitted part is not needed. Within one ballot the leader's stream is the same for all followers, so the
///   processed part contains the state's assignments. The leader's deliveries are a prefix of the deliveries of this
///   member (M5), so counting them as delivered changes no order. Entries after them are unchanged, and are delivered
///   or requested like any other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Install {
    /// The ballot that is promised here.
    pub(super) ballot: Ballot,
    /// Number of entries of that ballot's stream that the state contains.
    pub(super) counter: u64,
    pub(super) state: State,
}
