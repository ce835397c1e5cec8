//! Mutants of sessions and of the code around them.

use stentor_session as session;

stentor_fabric::mutants! {
    /// A request that already has its reply is applied again.
    AppliesDuplicates, "applies-duplicates", "X1";
    /// A full table evicts the session with the earliest end.
    EvictsWhenFull, "evicts-when-full", "X2";
    /// Taking up a session drops the replies of the previous generation.
    ForgetsOnTakeUp, "forgets-on-take-up", "X5";
    /// Each group uses its own end of the session.
    TableEnd, "table-end", "X2";
    /// The caller treats the refusal of one copy as the fate of all copies.
    OneCopySpeaksForAll, "one-copy-speaks-for-all", "X4";
    /// A table applies queries.
    AppliesQueries, "applies-queries", "X9";
    /// A leader does not repeat replies.
    SaysOnce, "says-once", "X7";
    /// A member's state is transferred without its table of sessions.
    TableLeftOut, "table-left-out", "X6";
    /// A caller does not send the time of the order that it has observed.
    ForgetsWhatItHeard, "forgets-what-it-heard", "X8";
    /// A read does not name the time that its client has observed.
    ReadsForgetTime, "reads-forget-time", "X10";
    /// A leader answers a read before it has confirmed its leadership.
    ReadUnconfirmed, "read-unconfirmed", "X10";
    /// A leader answers a read before it has delivered the messages that other members may have delivered.
    ReadIgnoresVectors, "read-ignores-vectors", "X10";
    /// A leader ignores the time that a read requests.
    ReadIgnoresTime, "read-ignores-time", "X10";
    /// The answer to a read names the position before that of its state.
    ReadMisplaced, "read-misplaced", "X10";
    /// Repeated replies do not contain the number of notifications.
    TellsNoNumber, "tells-no-number", "X11";
    /// Two consecutive notifications get the same number.
    NumbersTwice, "numbers-twice", "X11";
    /// A member counts and sends a notification twice.
    NotifiesTwice, "notifies-twice", "X11";
    /// No session expires.
    NeverExpires, "never-expires", "X12";
    /// A command is applied before the sessions that have expired by then end.
    EndsAfterApply, "ends-after-apply", "X12";
    /// The earliest timer fires at the next position, even if its time is later.
    FiresEarly, "fires-early", "X12";
    /// The timers of a position fire in the order of their ids.
    FiresById, "fires-by-id", "X12";
    /// A timer that was due fires again at the same position.
    FiresTwice, "fires-twice", "X12";
    /// A state contains timers that have fired.
    FiredKept, "fired-kept", "X12";
    /// A state contains no timers.
    TimersLeftOut, "timers-left-out", "X12";
    /// A version is in force at a member as soon as the member knows that it is ordered.
    VersionAtReceipt, "version-at-receipt", "X13";
    /// A state does not contain the version in force.
    VersionLeftOut, "version-left-out", "X13";
    /// A member reports the version of its own program as the version of all programs.
    VersionTooEarly, "version-too-early", "X13";
}

impl Mutant {
    /// Returns the mutant of tables and callers.
    pub(super) fn of_sessions(self) -> session::Mutant {
        #[cfg(feature = "plants")]
        return match self {
            Mutant::AppliesDuplicates => session::Mutant::AppliesDuplicates,
            Mutant::EvictsWhenFull => session::Mutant::EvictsWhenFull,
            Mutant::ForgetsOnTakeUp => session::Mutant::ForgetsOnTakeUp,
            Mutant::TableEnd => session::Mutant::TableEnd,
            Mutant::OneCopySpeaksForAll => session::Mutant::OneCopySpeaksForAll,
            Mutant::AppliesQueries => session::Mutant::AppliesQueries,
            Mutant::TellsNoNumber => session::Mutant::TellsNoNumber,
            Mutant::NumbersTwice => session::Mutant::NumbersTwice,
            Mutant::NeverExpires => session::Mutant::NeverExpires,
            Mutant::EndsAfterApply => session::Mutant::EndsAfterApply,
            Mutant::FiresEarly => session::Mutant::FiresEarly,
            Mutant::FiresById => session::Mutant::FiresById,
            Mutant::FiresTwice => session::Mutant::FiresTwice,
            Mutant::FiredKept => session::Mutant::FiredKept,
            Mutant::TimersLeftOut => session::Mutant::TimersLeftOut,
            _ => session::Mutant::None,
        };
        #[cfg(not(feature = "plants"))]
        session::Mutant::None
    }

    /// Returns the mutant of members.
    pub(super) fn of_multicast(self) -> stentor_multicast::Mutant {
        #[cfg(feature = "plants")]
        return match self {
            Mutant::ReadUnconfirmed => stentor_multicast::Mutant::ReadUnconfirmed,
            Mutant::ReadIgnoresVectors => stentor_multicast::Mutant::ReadIgnoresVectors,
            Mutant::ReadIgnoresTime => stentor_multicast::Mutant::ReadIgnoresTime,
            _ => stentor_multicast::Mutant::None,
        };
        #[cfg(not(feature = "plants"))]
        stentor_multicast::Mutant::None
    }

    pub(super) fn reads_forget_time(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::ReadsForgetTime;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn misplaces_reads(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::ReadMisplaced;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn notifies_twice(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::NotifiesTwice;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn says_once(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::SaysOnce;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn leaves_table_out(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::TableLeftOut;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn forgets_what_it_heard(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::ForgetsWhatItHeard;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn ends_after_apply(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::EndsAfterApply;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn takes_versions_at_receipt(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::VersionAtReceipt;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn leaves_version_out(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::VersionLeftOut;
        #[cfg(not(feature = "plants"))]
        false
    }

    pub(super) fn knows_only_its_own_version(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::VersionTooEarly;
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Returns whether simulations must find the mutant.
    #[cfg(feature = "plants")]
    #[must_use]
    pub fn is_hunted(self) -> bool {
        self != Mutant::None
    }
}
