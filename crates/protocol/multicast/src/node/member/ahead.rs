//! The deliveries that the application has made beyond those of the state machine, and the history to which they
//! belong.
//!
//! The application restores a transferred state before the state machine adopts it (`transfer.rs`), so the application
//! may be ahead. The deliveries ahead belong to one history of the group: that of the incarnation in the transfer's
//! name.
//!
//! # Invariant
//! *No delivery of a history that has ended stays in an application.* A state of another incarnation is passed to the
//! state machine only if the deliveries ahead are part of its history, too, which means that they lie in the common
//! prefix of both histories. Otherwise there are two cases:
//! - A member that has delivered nothing resets its application to the empty state, and gets the state again.
//! - A member that has delivered messages cannot undo the deliveries outside the common prefix. It ends when a leader
//!   asks it to install such a state, like a member whose own deliveries are not part of the history
//!   (`replica/reset.rs`). It does not end if the two incarnations have the same number and other tags, because then
//!   neither is later.
//!
//! A member whose application is ahead does not start a reset with its own state, because the reset would lose the
//! deliveries ahead. While a member resets, its application accepts no state. An application never accepts a state of
//! an incarnation below the one in which its own history began, because pieces of an earlier transfer may still arrive.

use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use crate::mutant::mutant;
use crate::node::app::Application;
use crate::origin::common;
use crate::{Incarnation, PeerMessage};

impl<F: Fabric> Member<F> {
    /// Returns whether the application is ahead of the state machine.
    pub(super) fn is_ahead(&self) -> bool {
        self.outputs.applied > self.replica.delivered()
    }

    /// Returns the incarnation to whose history the application's deliveries belong. If the application is not ahead,
    /// that is the incarnation of the state machine.
    pub(super) fn applied_in(&self) -> Incarnation {
        if self.is_ahead() { self.transfers.applied_in } else { self.replica.incarnation() }
    }

    /// Returns whether this member's own history allows the application to take a state of this incarnation.
    pub(super) fn takes_part_in(&self, incarnation: Incarnation) -> bool {
        let begun = self.replica.origins().last().map_or(Incarnation::NONE, |last| last.incarnation);
        !self.replica.is_resetting() && begun.number <= incarnation.number
    }

    /// Returns whether the application can take part in a transfer of this incarnation that begins now. Resets an
    /// application that is ahead in another history, if this member has delivered nothing.
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

    /// Returns whether the state in a peer message may be passed to the state machine, given the deliveries that the
    /// application has ahead.
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

    /// Resets the application to the empty state.
    fn begin_application<A: Application>(&mut self, app: &mut A) {
        self.transfers.incoming = None;
        self.outputs.begin_application(app);
        self.tell_aside();
    }
}
