//! Mutants of the broadcast, each with the property that it breaks. They are compiled in only with the feature
//! `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// Answers are counted, and a conflict is an answer that is not counted. The threshold decreases with every
    /// suspicion. One correct process that crashes is enough to break the property (mode `all`).
    Counter, "counter", "B1";
    /// The threshold is the number of members minus 2, even after the sender itself was removed. The answer of a live
    /// replayer is then not awaited (mode `all`).
    RemovedSender, "removed-sender", "B1";
    /// The stream of a process that is being removed is not frozen, so a member continues to deliver it after its
    /// report.
    RemovalNotFrozen, "removal-not-frozen", "B1";
    /// Each member ends the stream of a removed process at its own position.
    RemovalOwnCut, "removal-own-cut", "B1";
    /// A member accepts a decision of any ballot, not only of the one that it promised.
    RemovalAnyBallot, "removal-any-ballot", "B1";
    /// A transport error removes a member, so two live processes drop each other (mode `all`).
    SuspectRemoves, "suspect-removes", "B1";
    /// A conflict is forgotten when its witness is suspected (mode `all`).
    ConflictNotSticky, "conflict-not-sticky", "B1";
    /// A register that holds a newer index counts as empty.
    NewerIsEmpty, "newer-is-empty", "B1";
    /// A round that ends late clears a later index: the one that reused the slot of an index that was given up.
    StaleRound, "stale-round", "B1";
    /// The buffer is never reused, so nothing is sent after one lap.
    FixedBuffer, "fixed-buffer", "B2";
    /// The delivered value is read again from the buffer that the sender can write.
    DeliverFromBuffer, "deliver-from-buffer", "B1";
    /// Every completion that finds a broadcast cleared delivers it, even if it was delivered before.
    DeliverAgain, "deliver-again", "B3";
    /// Every cleared index is delivered, even before its turn.
    OutOfOrder, "out-of-order", "B4";
    /// The application's key is used as the index.
    KeyIsIndex, "key-is-index", "B2";
    /// A process reads registers before its own register is complete.
    ReadBeforePublish, "read-before-publish", "B1";
    /// The local replica is read with the processor's loads.
    OwnReplicaByLoad, "own-replica-by-load", "B1";
    /// The fast path accepts a quorum of replays.
    FastQuorum, "fast-quorum", "B1";
    /// Quorums are plain majorities, although hosts may lie.
    PlainMajority, "plain-majority", "B1";
    /// The host of a lying sender keeps registers of its own stream.
    SenderHostCounts, "sender-host-counts", "B1";
    /// A conflict counts without the sender's signature, although values are signed.
    UnsignedConflict, "unsigned-conflict", "B2";
    /// A torn register counts as empty, even if it is being reused.
    TornIsEmpty, "torn-is-empty", "B1";
    /// A floor counts without the sender's signature, although values are signed.
    UnprovenFloor, "unproven-floor", "B2";
    /// A register counts as newer if its lap is newer, whatever index its value has.
    LapIsBelieved, "lap-is-believed", "B2";
    /// A slot is written again although a fan-out write of the slot's previous index may still land there.
    PlaceReusedUnderSet, "place-reused-under-set", "B2";
    /// Records that a broken fan-out set may not have copied are not written again.
    BrokenSetForgotten, "broken-set-forgotten", "B2";
    /// Torn records are accepted.
    UnvalidatedRecords, "unvalidated-records", "B1";
}

impl Mutant {
    /// Returns whether simulation runs are expected to find the mutant. The others need a coincidence that no run is
    /// known to have; a model check, a script or a test of their own finds them (`docs/hazards.md`).
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

    /// Returns whether suspicions remove members.
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

    /// Returns whether the streams of processes that are being removed are frozen until their end is decided.
    pub(crate) fn freezes(self) -> bool {
        #[cfg(feature = "plants")]
        return !matches!(self, Mutant::RemovedSender | Mutant::RemovalNotFrozen);
        #[cfg(not(feature = "plants"))]
        true
    }

    /// Returns the mutant of the fabric crate that belongs to this one.
    #[must_use]
    pub fn fabric(self) -> stentor_fabric::Mutant {
        #[cfg(feature = "plants")]
        if self == Mutant::UnvalidatedRecords {
            return stentor_fabric::Mutant::Unvalidated;
        }
        stentor_fabric::Mutant::None
    }
}
