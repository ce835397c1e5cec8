//! Mutants of the election by heartbeats. Compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// Time in which this process did not poll counts as silence of the others.
    StallSuspects;
    /// Only a counter that grew is a sign of life.
    OnlyGrowingCounters;
    /// One beat makes a suspected process trusted again.
    TrustedAtOnce;
    /// The timeout is the configured minimum, whatever the intervals are.
    MinimumTimeout;
    /// A wrong suspicion does not lengthen the timeout.
    NeverPatient;
    /// A doubt of one's own deposes the leader, whatever the others see.
    DoubtAlone;
    /// A process leads under the epoch in which others have named it.
    EpochOfOthers;
    /// A candidate that does not come forward is waited for.
    NobodyPassedOver;
    /// The member of the lowest index takes leadership back as soon as it is there.
    LowestTakesBack;
    /// A candidate comes forward without a majority.
    WithoutMajority;
    /// The lowest member comes forward before it has heard the others.
    ClaimsUnheard;
    /// After one wrong suspicion a broken connection is no hint any more, for many timeouts.
    DeafAfterMistake;
    /// A leader that reaches no majority does not resign.
    NeverResigns;
    /// More than half of the members that a process sees alive depose a leader, however few they are.
    DoubtersInSight;
    /// A member counts as reached although it does not see this process.
    OneWaySight;
    /// When a leader that resigned reaches a majority again, the others do not let it go on.
    NoPrecedence;
    /// A leader that resigned comes forward again without a pause.
    NoPause;
    /// A member that is cut off from the leader does not notice.
    NeverCutOff;
}
