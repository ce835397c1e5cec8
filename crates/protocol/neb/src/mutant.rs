//! Mutants of the broadcast: its hazards, one by one. Compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// Answers are counted, conflicts are only not counted, and the threshold shrinks with every suspicion: one honest
    /// crash is enough (mode `all`).
    Counter, "counter", "B1";
    /// The threshold is `size(P) − 2` also after the sender itself was dropped: a live replayer is skipped (mode `all`).
    RemovedSender, "removed-sender", "B1";
    /// A process that is removed is not frozen: who reported what it has of its stream goes on delivering it.
    RemovalNotFrozen, "removal-not-frozen", "B1";
    /// Each member ends the stream of a removed process where it stands itself.
    RemovalOwnCut, "removal-own-cut", "B1";
    /// A member takes over a decision that was made in a ballot before the one that it promised.
    RemovalAnyBallot, "removal-any-ballot", "B1";
    /// A transport error removes a member: two live processes drop each other (mode `all`).
    SuspectRemoves, "suspect-removes", "B1";
    /// A conflict is forgotten when its witness is suspected (mode `all`).
    ConflictNotSticky, "conflict-not-sticky", "B1";
    /// A register that holds a newer index counts as empty.
    NewerIsEmpty, "newer-is-empty", "B1";
    /// A round that ends late clears what took the slot of an index that was given up meanwhile.
    StaleRound, "stale-round", "B1";
    /// The buffer is never used again: after one lap nothing is sent.
    FixedBuffer, "fixed-buffer", "B2";
    /// What is delivered is read again from the buffer that the sender can write.
    DeliverFromBuffer, "deliver-from-buffer", "B1";
    /// Every completion that finds a broadcast cleared delivers it.
    DeliverAgain, "deliver-again", "B3";
    /// Whatever is cleared is delivered, whether its turn has come or not.
    OutOfOrder, "out-of-order", "B4";
    /// The application's key is taken for the index.
    KeyIsIndex, "key-is-index", "B2";
    /// Registers are read while the own one is still on its way.
    ReadBeforePublish, "read-before-publish", "B1";
    /// The own replica is read with the processor's loads.
    OwnReplicaByLoad, "own-replica-by-load", "B1";
    /// The fast path is content with a quorum of replays.
    FastQuorum, "fast-quorum", "B1";
    /// Plain majorities although hosts may lie.
    PlainMajority, "plain-majority", "B1";
    /// The host of a lying sender keeps registers of its own stream.
    SenderHostCounts, "sender-host-counts", "B1";
    /// A conflict counts whether it is the sender's own or not, although values are signed.
    UnsignedConflict, "unsigned-conflict", "B2";
    /// A torn register counts as empty, whether it is being used again or not.
    TornIsEmpty, "torn-is-empty", "B1";
    /// A floor counts whether it is the sender's own value or not, although values are signed.
    UnprovenFloor, "unproven-floor", "B2";
    /// A register is newer if its lap says so, whatever index its value has.
    LapIsBelieved, "lap-is-believed", "B2";
    /// A slot is written again although a write of the set that carried its last index may still land there.
    PlaceReusedUnderSet, "place-reused-under-set", "B2";
    /// What a broken set may not have copied is not written again.
    BrokenSetForgotten, "broken-set-forgotten", "B2";
    /// Torn records are accepted.
    UnvalidatedRecords, "unvalidated-records", "B1";
}

impl Mutant {
    /// Whether campaigns are expected to find it. The others need a coincidence that no drawn run is known to have; the
    /// model check or a script sees them (`docs/hazards.md`).
    #[cfg(feature = "plants")]
    #[must_use]
    pub fn is_for_campaigns(self) -> bool {
        !matches!(
            self,
            Mutant::ReadBeforePublish
                | Mutant::OwnReplicaByLoad
                | Mutant::FastQuorum
                | Mutant::PlainMajority
                | Mutant::TornIsEmpty
                | Mutant::RemovalAnyBallot
        )
    }

    /// Whether suspicions drop members.
    #[inline]
    pub(crate) fn shrinks(self) -> bool {
        #[cfg(feature = "plants")]
        return matches!(
            self,
            Mutant::Counter | Mutant::RemovedSender | Mutant::SuspectRemoves | Mutant::ConflictNotSticky
        );
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Whether the streams of those that are removed stand still until their end is decided.
    pub(crate) fn freezes(self) -> bool {
        #[cfg(feature = "plants")]
        return !matches!(self, Mutant::RemovedSender | Mutant::RemovalNotFrozen);
        #[cfg(not(feature = "plants"))]
        true
    }

    /// The fabric crate's part of the mutant.
    #[must_use]
    pub fn fabric(self) -> stentor_fabric::Mutant {
        #[cfg(feature = "plants")]
        if self == Mutant::UnvalidatedRecords {
            return stentor_fabric::Mutant::Unvalidated;
        }
        stentor_fabric::Mutant::None
    }
}
