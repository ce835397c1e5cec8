//! The mutants of the protocol, each with the property that it breaks (`docs/guarantees.md` lists M1 to M12). They are
//! compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// A member delivers on acknowledgements alone, without having processed the stream through the vector entry.
    NoDensity, "no-density", "M5";
    /// The leader appends the vector entry first and raises its clock at a later event.
    ClockAfterEntry, "clock-after-entry", "M4";
    /// The leader never raises its clock to the vector's maximum.
    NoClockRaise, "no-clock-raise", "M4";
    /// A member counts acknowledgements without comparing the vector and the slot's lap that they name.
    AckWithoutIdentity, "ack-without-identity", "M2";
    /// A leader assigns a client's messages without waiting for earlier ones to other groups.
    NoFifo, "no-fifo", "M6";
    /// The leader of a one-process group does not acknowledge; its timestamp counts as its vote.
    SoloLeaderSilent, "solo-leader-silent", "R1";
    /// A leader ignores the time that a message must follow and assigns its next time.
    NotBeforeIgnored, "not-before-ignored", "order of a session";
    /// A leader answers a read before it has confirmed that it still leads.
    ReadUnconfirmed, "read-unconfirmed", "reads";
    /// A leader answers a read before it has delivered the messages that other members may have delivered.
    ReadIgnoresVectors, "read-ignores-vectors", "reads";
    /// A leader answers a read without regard to the time that the read must follow.
    ReadIgnoresTime, "read-ignores-time", "reads";
    /// A leader holds back messages beyond a client's share even if a held message to several groups follows them.
    ShareOfAll, "share-of-all", "M9";
    /// Messages are ordered by time alone, and ties by local arrival.
    TiesByArrival, "ties-by-arrival", "M5";
    /// Messages are found by a hash of their id.
    IdByHash, "id-by-hash", "M3";
    /// A client counts a slot as free when one member of the group has freed it.
    SlotsFreedByOne, "slots-freed-by-one", "M3";
    /// Leaders send their timestamps to every other leader of the cluster.
    NotGenuine, "not-genuine", "M7";
    /// A process ignores the tentative timestamps of undecided messages, so a decided message is delivered although an
    /// undecided one may precede it.
    TentativeIgnored, "tentative-ignored", "M4";
    /// Torn records are accepted, so stale bytes are read as acknowledgements.
    UnvalidatedRecords, "unvalidated-records", "M2";
    /// A record's checksum does not cover the lap of its ring.
    SealWithoutLap, "seal-without-lap", "M3";
    /// Credits are deltas that are read and then zeroed.
    DeltaCredits, "delta-credits", "M9";
    /// A message counts as processed with the first vector in the stream, whichever vector it is decided at.
    AnyVectorIsDense, "any-vector-is-dense", "M5";
    /// A new leader adopts its own state instead of the best promised one.
    FirstPromiseOnly, "first-promise-only", "M2";
    /// A new leader adopts the state with the most entries, whatever its ballot.
    CounterBeforeBallot, "counter-before-ballot", "M5";
    /// States are installed without the bodies that they name.
    StateWithoutBodies, "state-without-bodies", "M2";
    /// A new leader leads before a majority has installed its state.
    ReadyAlone, "ready-alone", "M5";
    /// A new leader does not propose undecided messages again.
    NotProposedAgain, "not-proposed-again", "M9";
    /// No leader sends its timestamps again when another group's leader changes.
    TimestampsNotRepeated, "timestamps-not-repeated", "M9";
    /// A leader keeps the first timestamp of another group, even when that group's leader changes.
    FirstTimestampKept, "first-timestamp-kept", "M9";
    /// Vectors and acknowledgements are never sent again.
    VectorNotRepeated, "vector-not-repeated", "M9";
    /// A process without memory is admitted by the current ballot.
    JoinWithoutBallot, "join-without-ballot", "M5";
    /// A new leader adopts every message in the highest ballot in which any member accepted it.
    HighestBallotPerMessage, "highest-ballot-per-message", "M5";
    /// A member that has promised a larger ballot keeps processing the old leader's stream, so its snapshot precedes
    /// the fence.
    NotFenced, "not-fenced", "M5";
    /// The quorum of promises is the set of connected members, if necessary the candidate alone.
    QuorumOfConnected, "quorum-of-connected", "M5";
    /// A new leader waits for promises of all members.
    WaitsForAll, "waits-for-all", "M9";
    /// A follower acknowledges an entry that still waits for its body.
    AckWithoutBody, "ack-without-body", "M2";
    /// A message whose vector is complete counts with its final timestamp before it is decided.
    VectorUnblocks, "vector-unblocks", "M5";
    /// Acknowledgements in a newer ballot of this group count before that ballot's state is installed.
    NewerBallotCounts, "newer-ballot-counts", "M5";
    /// A leader regards a no-op as settled before any other member has processed it.
    VoidAtOnce, "void-at-once", "M2";
    /// A leader fills a gap with a no-op although the client process still runs.
    VoidOfTheLiving, "void-of-the-living", "superseded";
    /// A leader assigns messages that a dead client multicast after a no-op.
    EraNotClosed, "era-not-closed", "M6";
    /// A member delivers past a message that another group refused before a majority of its own group has processed the
    /// refusal.
    RefusedPassed, "refused-passed", "M2";
    /// Messages of a client id's earlier processes are void before a majority has processed the succession.
    SuccessionAtOnce, "succession-at-once", "M2";
    /// A leader counts a member's `Closed` that was sent in another ballot.
    ClosedOfOldBallot, "closed-of-old-ballot", "M3";
    /// A member that has answered `Closed` still accepts messages of the client's earlier processes.
    ClosingForgotten, "closing-forgotten", "M3";
    /// A leader places a new process's first slot after its own prefix, without regard to the messages that other
    /// members hold.
    OwnPrefixOnly, "own-prefix-only", "M3";
    /// A member replaces its newer state by an older one of the same ballot, and sends no request when stream entries
    /// are missing.
    StateSetBack, "state-set-back", "M9";
    /// A member skips its follow-up actions when the last missing body completes the installation of a state.
    StateUnnoted, "state-unnoted", "M9";
    /// A waiting record of a leader's earlier life is processed instead of the first record of its new life, if both
    /// have the same ring position.
    HeldOfAnotherLife, "held-of-another-life", "M9";
    /// A ring position is reused before the fan-out write that carried its last record has completed.
    PlaceReusedUnderSet, "place-reused-under-set", "M9";
    /// A stream to a member is restarted although late copies of a broken fan-out set may still land there.
    UnsettledStart, "unsettled-start", "M9";
    /// A ring restarts on its connection although earlier writes may land later, on fabrics that do not order writes.
    StartedUnderWrites, "started-under-writes", "M9";
    /// Records that a broken fan-out set may not have copied are not written again.
    BrokenSetForgotten, "broken-set-forgotten", "M9";
    /// A member passes a delivery to its application although the application has already adopted that delivery with
    /// another member's state.
    AppliedAgain, "applied-again", "M1";
    /// A receiver accepts pieces of any transfer.
    PiecesMixed, "pieces-mixed", "state";
    /// A member adopts a state that counts more deliveries than its application has made.
    StateAheadOfApplication, "state-ahead-of-application", "M2";
    /// An application adopts a state although the application has made deliveries of another history of the group.
    AheadOfAnotherHistory, "ahead-of-another-history", "M2";
    /// A member that learns that another group's history began anew decides messages without that group at once.
    WordAtOnce, "word-at-once", "M2";
    /// A group whose history begins anew assigns messages that were multicast to its previous history.
    EndedAssigned, "ended-assigned", "M2";
    /// A donor freezes its state again at every request of the receiver.
    FrozenAgain, "frozen-again", "M9";
    /// A member credits no ring space for a body that it already held when the client's own write landed.
    HeldBodiesUncredited, "held-bodies-uncredited", "M9";
    /// A member credits a message that it refused because its slot is beyond the client's window, as if it held the
    /// message.
    BeyondWindowFreed, "beyond-window-freed", "M9";
    /// Items of any incarnation of a group count.
    IncarnationIgnored, "incarnation-ignored", "M2";
    /// A group is founded when a majority of its members has no memory.
    FoundedByMajority, "founded-by-majority", "M5";
    /// A process founds its group although it knows that another process remembers the group.
    MemoryIgnored, "memory-ignored", "M2";
    /// A member continues its ring of replies at the position from the client's first connection, whichever process
    /// connects later.
    ReplyRingKept, "reply-ring-kept", "replies";
    /// No process is expelled: peers wait for a stalled process as long as it is connected.
    NobodyExpelled, "nobody-expelled", "held-up";
    /// A client does not wait for a stalled member, but keeps writing to it on the same connection.
    ExpelledInPlace, "expelled-in-place", "M9";
    /// A new leader replaces the clock that it recovered by its physical time, as soon as it knows the physical time.
    ClockSetBack, "clock-set-back", "M5";
    /// A leader assigns its physical time, whatever time it assigned last.
    PhysicalAlone, "physical-alone", "M5";
    /// A leader accepts any time of another group, however far ahead.
    FarTimesTaken, "far-times-taken", "time";
    /// A member that adopts a state waits for the body of a time entry, as for that of a client's message.
    TimeEntryAwaited, "time-entry-awaited", "M9";
    /// A member regards a group's own entry as decided when it is assigned, because no process waits for its body.
    EntryAtOnce, "entry-at-once", "M5";
    /// A new leader assigns the messages that it holds before it orders the version entries of its goal.
    VersionAfterMessages, "version-after-messages", "version";
    /// A member that does not lead forgets the version goal that it learns.
    GoalForgotten, "goal-forgotten", "M9";
}

impl Mutant {
    /// Returns whether the mutant shows in simulation runs without failures.
    ///
    /// All other mutants are found by tests, or by simulation runs with failures. `docs/hazards.md` lists the test that
    /// finds each mutant.
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
                | Mutant::EntryAtOnce
                | Mutant::VersionAfterMessages
                | Mutant::GoalForgotten
        )
    }

    /// Returns whether the mutant accepts an item that names another message than its slot holds.
    #[inline]
    pub(crate) fn confuses_messages(self) -> bool {
        #[cfg(feature = "plants")]
        return matches!(self, Mutant::AckWithoutIdentity | Mutant::IdByHash);
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Returns the fabric's mutant that this mutant enables, or the fabric's `None`.
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
