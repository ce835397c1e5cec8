//! Mutants of the sessions, each a rule that is dropped. Compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// A command is judged by the table's own end, not by the end that the command names.
    TableEnd;
    /// A request that has its reply already is applied again.
    AppliesDuplicates;
    /// The replies of all generations before are dropped when a session is taken up.
    ForgetsOnTakeUp;
    /// A full table evicts the session that ends first.
    EvictsWhenFull;
    /// Requests are told apart by their number alone, whatever the generation.
    NumberAlone;
    /// A request that was resolved is not closed.
    ClosesNothing;
    /// The pairs that a command names are not compared with the session's.
    PairsUnchecked;
    /// A session that was ended is forgotten at once.
    NoTombstone;
    /// A request below the largest `responded` is taken for a new one.
    ForgottenIsNew;
    /// A session that lives may be opened again by a late copy after its end.
    OpensLate;
    /// A session that is widened into this group again remembers requests that it has never seen.
    IgnoresSince;
    /// The caller goes on in a group that has opened its session anew.
    OpensAnew;
    /// A renewal of a session that ran out prolongs the entry that came after it.
    RenewsAnother;
    /// Answers to different copies of a session's command count together.
    CopiesTogether;
    /// A repeated taking up counts as another one.
    TakesUpTwice;
    /// The caller sends before all groups have said yes.
    SendsEarly;
    /// The caller names its newest end in a retry.
    RenewsRetries;
    /// The caller counts a request that it gave up as answered.
    PassesOverLost;
    /// A query is applied as a command.
    AppliesQueries;
    /// A notification keeps its number for the next one.
    NumbersTwice;
    /// The number of notifications is not told with the replies that are said again.
    TellsNoNumber;
    /// The number of notifications goes on when a session is taken up.
    NumbersGoOn;
    /// The caller takes a refusal of one copy for the fate of all copies.
    OneCopySpeaksForAll;
}
