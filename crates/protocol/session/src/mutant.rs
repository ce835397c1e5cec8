//! Mutants of the sessions, each of which breaks one rule. They are compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// The table compares a command's time with the table's end of the session, instead of the end that the command
    /// names.
    TableEnd;
    /// A request that already has its reply is applied again.
    AppliesDuplicates;
    /// The replies of all earlier generations are dropped when a session is taken up.
    ForgetsOnTakeUp;
    /// A full table evicts the session that ends first.
    EvictsWhenFull;
    /// Requests are distinguished by their number alone, whatever the generation.
    NumberAlone;
    /// A resolved request is not closed.
    ClosesNothing;
    /// The pairs that a command names are not compared with the session's.
    PairsUnchecked;
    /// An ended session is forgotten at once.
    NoTombstone;
    /// A request below the largest `responded` counts as new.
    ForgottenIsNew;
    /// A late copy opens a session again after its end.
    OpensLate;
    /// A session that is widened into this group again claims to remember requests that it has never seen.
    IgnoresSince;
    /// The caller continues in a group that has opened its session again.
    OpensAnew;
    /// A renewal of a session that has expired extends the entry that was made after the expiry.
    RenewsAnother;
    /// Answers to different copies of a session's command count together.
    CopiesTogether;
    /// A repeated `TakeUp` counts as another one.
    TakesUpTwice;
    /// The caller sends before all groups have agreed.
    SendsEarly;
    /// The caller names its newest end in a retry.
    RenewsRetries;
    /// The caller counts a request that it gave up as answered.
    PassesOverLost;
    /// A query is applied as a command.
    AppliesQueries;
    /// Two notifications get the same number.
    NumbersTwice;
    /// The number of notifications is not sent with the replies that are sent again.
    TellsNoNumber;
    /// The numbering of notifications does not restart when a session is taken up.
    NumbersGoOn;
    /// The caller treats the refusal of one copy as the fate of all copies.
    OneCopySpeaksForAll;
    /// A session ends at a position whose time equals its end.
    EndsAtItsEnd;
    /// No session expires.
    NeverExpires;
    /// A message is applied before the sessions that have expired by then end.
    EndsAfterApply;
    /// The earliest timer fires at the next position, even if its time is later.
    FiresEarly;
    /// The timers of a position fire in the order of their ids.
    FiresById;
    /// A timer that was due fires again at the same position.
    FiresTwice;
    /// A timer that has fired stays in the written timers.
    FiredKept;
    /// No timer is in the written timers.
    TimersLeftOut;
}
