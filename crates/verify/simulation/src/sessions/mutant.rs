//! Planted bugs of sessions and of what is around them.

use stentor_session as session;

stentor_fabric::mutants! {
    /// A request that has its reply already is applied again.
    AppliesDuplicates, "applies-duplicates", "X1";
    /// A full table evicts the session that ends first.
    EvictsWhenFull, "evicts-when-full", "X2";
    /// The replies of the generation before are dropped when a session is taken up.
    ForgetsOnTakeUp, "forgets-on-take-up", "X5";
    /// Each group judges by its own end of the session.
    TableEnd, "table-end", "X2";
    /// The caller takes a refusal of one copy for the fate of all copies.
    OneCopySpeaksForAll, "one-copy-speaks-for-all", "X4";
    /// A table has queries applied.
    AppliesQueries, "applies-queries", "X9";
    /// A leader does not say replies again.
    SaysOnce, "says-once", "X7";
    /// A member's state comes without its table of sessions.
    TableLeftOut, "table-left-out", "X6";
    /// A caller does not tell what it has heard of the order.
    ForgetsWhatItHeard, "forgets-what-it-heard", "X8";
    /// A read does not say what its client has heard.
    ReadsForgetTime, "reads-forget-time", "X10";
    /// A leader answers a read before it has seen that it still leads.
    ReadUnconfirmed, "read-unconfirmed", "X10";
    /// A leader answers a read before it has delivered what others may have delivered.
    ReadIgnoresVectors, "read-ignores-vectors", "X10";
    /// A leader answers a read whatever time it comes after.
    ReadIgnoresTime, "read-ignores-time", "X10";
    /// A read names a place before that whose state it shows.
    ReadMisplaced, "read-misplaced", "X10";
    /// The number of notifications is not told with the replies that are said again.
    TellsNoNumber, "tells-no-number", "X11";
    /// A notification keeps its number for the next one.
    NumbersTwice, "numbers-twice", "X11";
    /// A member counts a notification, and says it, twice.
    NotifiesTwice, "notifies-twice", "X11";
}

impl Mutant {
    /// Returns what is switched on in tables and callers.
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
            _ => session::Mutant::None,
        };
        #[cfg(not(feature = "plants"))]
        session::Mutant::None
    }

    /// Returns what is switched on in members.
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

    /// Whether simulations find it.
    #[cfg(feature = "plants")]
    #[must_use]
    pub fn is_hunted(self) -> bool {
        self != Mutant::None
    }
}
