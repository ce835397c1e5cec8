//! Mutants of the protocol, each with the property that it breaks. Compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// Deliver on acknowledgements alone, without having processed the stream through the vector entry.
    NoDensity, "no-density", "M5";
    /// The leader appends the vector entry first and raises its clock at a later event.
    ClockAfterEntry, "clock-after-entry", "M4";
    /// The leader never raises its clock to the vector's maximum.
    NoClockRaise, "no-clock-raise", "M4";
    /// Acknowledgements are counted whatever vector and lap they name.
    AckWithoutIdentity, "ack-without-identity", "M2";
    /// A leader assigns a client's messages without waiting for earlier ones to other groups.
    NoFifo, "no-fifo", "M6";
    /// The leader of a one-process group does not acknowledge; its timestamp counts as its vote.
    SoloLeaderSilent, "solo-leader-silent", "R1";
    /// A leader gives a message its next time, whatever time its client wants it to come after.
    NotBeforeIgnored, "not-before-ignored", "order of a session";
    /// A leader answers a read before it has seen that it still leads.
    ReadUnconfirmed, "read-unconfirmed", "reads";
    /// A leader answers a read before it has delivered what others may have delivered.
    ReadIgnoresVectors, "read-ignores-vectors", "reads";
    /// A leader answers a read whatever time it comes after.
    ReadIgnoresTime, "read-ignores-time", "reads";
    /// A leader holds back what exceeds a client's share, also before a message to several groups.
    ShareOfAll, "share-of-all", "M9";
    /// Messages are ordered by time alone; ties go to whoever came first here.
    TiesByArrival, "ties-by-arrival", "M5";
    /// Messages are found by a hash of their id.
    IdByHash, "id-by-hash", "M3";
    /// A client counts a slot as free when it is free at one member of the group.
    SlotsFreedByOne, "slots-freed-by-one", "M3";
    /// Leaders tell every other leader of the cluster their timestamps.
    NotGenuine, "not-genuine", "M7";
    /// A process counts a decided vector as final order before the message itself is decided: no tentative blocks.
    TentativeIgnored, "tentative-ignored", "M4";
    /// Torn records are accepted: stale bytes are read as acknowledgements.
    UnvalidatedRecords, "unvalidated-records", "M2";
    /// The checksum does not cover the lap.
    SealWithoutLap, "seal-without-lap", "M3";
    /// Credits are deltas, read and then zeroed.
    DeltaCredits, "delta-credits", "M9";
    /// A message counts as processed with whatever vector the stream gave first.
    AnyVectorIsDense, "any-vector-is-dense", "M5";
    /// A new leader takes its own state, whatever was promised to it.
    FirstPromiseOnly, "first-promise-only", "M2";
    /// A new leader takes the state with most entries, of whatever ballot.
    CounterBeforeBallot, "counter-before-ballot", "M5";
    /// States are installed without the bodies that they name.
    StateWithoutBodies, "state-without-bodies", "M2";
    /// A new leader leads before a majority has its state.
    ReadyAlone, "ready-alone", "M5";
    /// A new leader does not propose again what is not decided.
    NotProposedAgain, "not-proposed-again", "M9";
    /// Nobody sends its timestamps again when another group's leader changes.
    TimestampsNotRepeated, "timestamps-not-repeated", "M9";
    /// A leader keeps the first timestamp of another group, also when that group's leader changes.
    FirstTimestampKept, "first-timestamp-kept", "M9";
    /// Nobody acknowledges again.
    VectorNotRepeated, "vector-not-repeated", "M9";
    /// A process without memory is taken in by the ballot that is.
    JoinWithoutBallot, "join-without-ballot", "M5";
    /// A new leader adopts every message in the highest ballot that anybody accepted it in.
    HighestBallotPerMessage, "highest-ballot-per-message", "M5";
    /// Who has promised a larger ballot goes on with the old leader's stream: its snapshot was taken before the fence.
    NotFenced, "not-fenced", "M5";
    /// The quorum that promises is whoever is connected, if need be the candidate alone.
    QuorumOfConnected, "quorum-of-connected", "M5";
    /// A new leader waits for promises of all members.
    WaitsForAll, "waits-for-all", "M9";
    /// A follower acknowledges an entry that still waits for its body.
    AckWithoutBody, "ack-without-body", "M2";
    /// A message whose vector is full counts with its final timestamp before it is decided.
    VectorUnblocks, "vector-unblocks", "M5";
    /// Acknowledgements in a newer ballot of the own group count before that ballot's state is installed.
    NewerBallotCounts, "newer-ballot-counts", "M5";
    /// A leader regards a void as settled before anybody else has processed it.
    VoidAtOnce, "void-at-once", "M2";
    /// A gap is given up although the client lives.
    VoidOfTheLiving, "void-of-the-living", "superseded";
    /// What a client that died multicast after what is given up is assigned.
    EraNotClosed, "era-not-closed", "M6";
    /// A member delivers past a message that another group refused, before a majority of its own has processed that.
    RefusedPassed, "refused-passed", "M2";
    /// What processes of a client's place left is void before a majority has processed that another one took it.
    SuccessionAtOnce, "succession-at-once", "M2";
    /// A leader counts a member's word that it takes no more of a client's earlier processes in another ballot than it was given.
    ClosedOfOldBallot, "closed-of-old-ballot", "M3";
    /// A member that says that it takes no more of a client's earlier processes does.
    ClosingForgotten, "closing-forgotten", "M3";
    /// A leader lets a process begin behind what it holds itself, whatever others hold.
    OwnPrefixOnly, "own-prefix-only", "M3";
    /// A member takes a state that its leader's stream has overtaken in place of what it has processed since, and asks for
    /// nothing when entries of the stream are missing.
    StateSetBack, "state-set-back", "M9";
    /// A member does not look at what came with a state that the last body completed.
    StateUnnoted, "state-unnoted", "M9";
    /// A record of a leader's earlier life that waits is taken in place of the first one of its new life, if both lie at the
    /// same position.
    HeldOfAnotherLife, "held-of-another-life", "M9";
    /// A place in a ring is written again although the set's write that carried its last record is not done.
    PlaceReusedUnderSet, "place-reused-under-set", "M9";
    /// A member is started again although late copies of a broken set may land there.
    UnsettledStart, "unsettled-start", "M9";
    /// A ring starts anew on its connection although what was posted before may land later, on fabrics without order.
    StartedUnderWrites, "started-under-writes", "M9";
    /// What a broken set may not have copied is not written again.
    BrokenSetForgotten, "broken-set-forgotten", "M9";
    /// A member hands a delivery to its application that the application has made already, with another member's state.
    AppliedAgain, "applied-again", "M1";
    /// A receiver takes pieces of whatever transfer.
    PiecesMixed, "pieces-mixed", "state";
    /// A state is handed to the state machine although its application is not as far.
    StateAheadOfApplication, "state-ahead-of-application", "M2";
    /// A state is taken over by an application that has made deliveries of another history of the group.
    AheadOfAnotherHistory, "ahead-of-another-history", "M2";
    /// A member that hears that a group began anew does without that group at once.
    WordAtOnce, "word-at-once", "M2";
    /// A group that begins anew assigns what was multicast to its history before.
    EndedAssigned, "ended-assigned", "M2";
    /// A donor freezes again whenever the receiver asks again.
    FrozenAgain, "frozen-again", "M9";
    /// A member credits no ring space for a body that it held already when the client's own write of it came.
    HeldBodiesUncredited, "held-bodies-uncredited", "M9";
    /// A member credits what it refused because it is beyond the client's window there, as if it held it.
    BeyondWindowFreed, "beyond-window-freed", "M9";
    /// Items count whatever incarnation of a group they are of.
    IncarnationIgnored, "incarnation-ignored", "M2";
    /// A group is founded when a majority of its members is without memory.
    FoundedByMajority, "founded-by-majority", "M5";
    /// A process that hears that somebody remembers the group founds it all the same.
    MemoryIgnored, "memory-ignored", "M2";
    /// A member goes on with its ring of replies where it was when the client first connected, whoever connects since.
    ReplyRingKept, "reply-ring-kept", "replies";
    /// Nobody is expelled: whoever stands still is waited for as long as it is connected.
    NobodyExpelled, "nobody-expelled", "held-up";
    /// A client does not wait for a member that stands still, and goes on to write to it on the same connection.
    ExpelledInPlace, "expelled-in-place", "M9";
    /// A new leader sets its clock to its physical time once it knows it, in place of the clock that it recovered.
    ClockSetBack, "clock-set-back", "M5";
    /// A leader gives its physical time, whatever time it gave last.
    PhysicalAlone, "physical-alone", "M5";
    /// A leader takes any time of another group, however far ahead.
    FarTimesTaken, "far-times-taken", "time";
    /// A member that takes over a state waits for the body of a time entry, as it does for that of a client's message.
    TimeEntryAwaited, "time-entry-awaited", "M9";
}

impl Mutant {
    /// Whether it shows in simulated runs in which nothing fails; the others, and the one that needs clients which name a time, are found by `tests/failure`, `tests/model` and
    /// `tests/links`, or by campaigns under all failures (`docs/hazards.md` says which).
    #[cfg(feature = "plants")]
    #[must_use]
    pub fn shows_in_calm(self) -> bool {
        !matches!(
            self,
            Mutant::AnyVectorIsDense
                | Mutant::FirstPromiseOnly
                | Mutant::CounterBeforeBallot
                | Mutant::StateWithoutBodies
                | Mutant::ReadyAlone
                | Mutant::NotProposedAgain
                | Mutant::TimestampsNotRepeated
                | Mutant::FirstTimestampKept
                | Mutant::VectorNotRepeated
                | Mutant::JoinWithoutBallot
                | Mutant::HighestBallotPerMessage
                | Mutant::NotFenced
                | Mutant::QuorumOfConnected
                | Mutant::WaitsForAll
                | Mutant::AckWithoutBody
                | Mutant::VectorUnblocks
                | Mutant::NewerBallotCounts
                | Mutant::VoidAtOnce
                | Mutant::EraNotClosed
                | Mutant::VoidOfTheLiving
                | Mutant::HeldBodiesUncredited
                | Mutant::BeyondWindowFreed
                | Mutant::StateSetBack
                | Mutant::StateUnnoted
                | Mutant::HeldOfAnotherLife
                | Mutant::UnsettledStart
                | Mutant::StartedUnderWrites
                | Mutant::IncarnationIgnored
                | Mutant::FoundedByMajority
                | Mutant::MemoryIgnored
                | Mutant::AppliedAgain
                | Mutant::PiecesMixed
                | Mutant::StateAheadOfApplication
                | Mutant::FrozenAgain
                | Mutant::WordAtOnce
                | Mutant::EndedAssigned
                | Mutant::AheadOfAnotherHistory
                | Mutant::RefusedPassed
                | Mutant::SuccessionAtOnce
                | Mutant::ClosedOfOldBallot
                | Mutant::ClosingForgotten
                | Mutant::OwnPrefixOnly
                | Mutant::ReplyRingKept
                | Mutant::NobodyExpelled
                | Mutant::ExpelledInPlace
                | Mutant::ClockSetBack
                | Mutant::PhysicalAlone
                | Mutant::FarTimesTaken
                | Mutant::NotBeforeIgnored
                | Mutant::ShareOfAll
                | Mutant::ReadUnconfirmed
                | Mutant::ReadIgnoresVectors
                | Mutant::ReadIgnoresTime
                | Mutant::TimeEntryAwaited
        )
    }

    /// Whether items about other messages are let in.
    #[inline]
    pub(crate) fn confuses_messages(self) -> bool {
        #[cfg(feature = "plants")]
        return matches!(self, Mutant::AckWithoutIdentity | Mutant::IdByHash);
        #[cfg(not(feature = "plants"))]
        false
    }

    /// The fabric crate's part of the mutant.
    #[must_use]
    pub fn fabric(self) -> stentor_fabric::Mutant {
        #[cfg(feature = "plants")]
        match self {
            Mutant::UnvalidatedRecords => return stentor_fabric::Mutant::Unvalidated,
            Mutant::SealWithoutLap => return stentor_fabric::Mutant::SealWithoutLap,
            Mutant::DeltaCredits => return stentor_fabric::Mutant::DeltaCredits,
            _ => {}
        }
        stentor_fabric::Mutant::None
    }
}
