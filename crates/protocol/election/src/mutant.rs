//! Mutants of the election by heartbeats. They are compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// Time in which this process did not poll counts as silence of the others.
    StallSuspects;
    /// Only a counter that grew is a sign of life.
    OnlyGrowingCounters;
    /// One beat suffices to trust a suspected process again.
    TrustedAtOnce;
    /// The timeout is the configured minimum, whatever the intervals are.
    MinimumTimeout;
    /// A wrong suspicion does not lengthen the timeout.
    NeverPatient;
    /// A single member's doubt deposes the leader.
    DoubtAlone;
    /// A process leads under the epoch in which another member has named it.
    EpochOfOthers;
    /// A candidate that does not claim leadership is never skipped.
    NobodyPassedOver;
    /// The member of the lowest index claims leadership as soon as it has returned.
    LowestTakesBack;
    /// A candidate claims leadership without a majority.
    WithoutMajority;
    /// The lowest member claims leadership before it has read the others' beats.
    ClaimsUnheard;
    /// After one wrong suspicion, broken connections are ignored for many timeouts.
    DeafAfterMistake;
    /// A leader that reaches no majority does not resign.
    NeverResigns;
    /// More than half of the members that a process sees alive depose a leader, however few they are.
    DoubtersInSight;
    /// A member counts as reached although it does not see this process.
    OneWaySight;
    /// A leader that resigned gets no precedence when it reaches a majority again.
    NoPrecedence;
    /// A leader that resigned claims leadership again without a pause.
    NoPause;
    /// A member that is cut off from the leader does not detect it.
    NeverCutOff;
}
