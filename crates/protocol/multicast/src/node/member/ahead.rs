//! The deliveries that the application has made beyond those of the state machine, and the history that they are of.
//!
//! A state comes before the state machine takes it over (`transfer.rs`), so the application may be ahead. The deliveries that it
//! has ahead are of one history of the group: that of the incarnation in the transfer's name.
//!
//! # Invariant
//! *No delivery of a history that is over stays in an application.* A state of another incarnation is handed to the state machine
//! only if the deliveries ahead are part of that history, too: as far as the two have their beginnings in common. If they are
//! not, and the member has delivered nothing, the application begins anew, with nothing, and gets the state again. A member
//! that has delivered something cannot take back the rest. It ends, like a member whose own deliveries are not part of the
//! history (`replica/reset.rs`). A member whose application is ahead resets nothing: the reset would lose what is ahead. While it
//! resets, its application takes no state, and none of a history before its own: a transfer that began earlier may still come.

use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use crate::mutant::mutant;
use crate::node::app::Application;
use crate::origin::common;
use crate::{Incarnation, PeerMessage};

impl<F: Fabric> Member<F> {
    /// Whether the application is ahead of the state machine.
    pub(super) fn is_ahead(&self) -> bool {
        self.outputs.applied > self.replica.delivered()
    }

    /// The incarnation whose history the application's deliveries are of; none, if it has made none.
    pub(super) fn applied_in(&self) -> Incarnation {
        if self.is_ahead() { self.transfers.applied_in } else { self.replica.incarnation() }
    }

    /// Whether the application may take a state of this incarnation, as far as the history of this member goes.
    pub(super) fn takes_part_in(&self, incarnation: Incarnation) -> bool {
        let begun = self.replica.origins().last().map_or(Incarnation::NONE, |last| last.incarnation);
        !self.replica.is_resetting() && begun.number <= incarnation.number
    }

    /// A transfer begins that is of this incarnation. Returns whether the application can take it.
    pub(super) fn may_take_of<A: Application>(&mut self, incarnation: Incarnation, app: &mut A) -> bool {
        let fits = !self.is_ahead() || incarnation == self.transfers.applied_in;
        if fits || mutant!(self.mutant, AheadOfAnotherHistory) {
            return true;
        }
        let has_delivered = self.replica.delivered() > 0;
        if !has_delivered {
            self.begin_application(app);
        }
        !has_delivered
    }

    /// A letter brings a state. Returns whether that may be handed to the state machine, as far as what the application has
    /// ahead goes.
    pub(super) fn fits_application<A: Application>(
        &mut self,
        from: ProcessId,
        letter: &PeerMessage,
        app: &mut A,
    ) -> bool {
        let (ballot, state) = match letter {
            PeerMessage::Install { ballot, state, .. } | PeerMessage::Transfer { ballot, state } => (*ballot, state),
            _ => return true,
        };
        let applied_in = self.transfers.applied_in;
        let fits = !self.is_ahead() || state.incarnation == applied_in || ballot < self.replica.promised();
        if fits || mutant!(self.mutant, AheadOfAnotherHistory) {
            return true;
        }
        let own = applied_in == self.replica.incarnation();
        if own && self.outputs.applied <= common(self.replica.origins(), &state.origins) {
            self.transfers.applied_in = state.incarnation;
            self.transfers.incoming = None;
            return true;
        }
        if self.replica.delivered() == 0 {
            self.begin_application(app);
            self.say_standing(from);
            return true;
        }
        if let PeerMessage::Install { .. } = letter
            && !state.incarnation.contradicts(applied_in)
        {
            self.replica.end(state.incarnation);
        }
        false
    }

    /// The application begins anew, with nothing.
    fn begin_application<A: Application>(&mut self, app: &mut A) {
        self.transfers.incoming = None;
        self.outputs.begin_application(app);
        self.tell_aside();
    }
}
