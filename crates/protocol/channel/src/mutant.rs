//! Mutants of the channel: its hazards, one by one. Compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// The connection is not part of the tag.
    NoConnectionInTag, "no-connection-in-tag", "C1";
    /// Sequences wrap before what had the same one is over.
    SequenceWraps, "sequence-wraps", "C1";
    /// Which message a length belongs to is taken from the order in which receives were posted.
    PostingOrder, "posting-order", "C1";
    /// Messages are handed over as their lengths come.
    ArrivalOrder, "arrival-order", "C1";
    /// Writes are reported as they complete.
    CallbacksAsTheyCome, "callbacks-as-they-come", "C2";
    /// Credits are not waited for.
    NoCredits, "no-credits", "C3";
    /// Credits are given before the receives are posted that they stand for.
    CreditBeforeReceive, "credit-before-receive", "C3";
    /// A connection is closed as soon as its receives are told to come back.
    CloseFreesEarly, "close-frees-early", "C4";
    /// A place to send from is used again before what is sent from there is done.
    SendPlaceReused, "send-place-reused", "C1";
    /// Completions are handled like successes, whatever they say.
    ErrorIsSuccess, "error-is-success", "C5";
    /// Completions that are no successes are dropped.
    ErrorDropped, "error-dropped", "C5";
    /// Posts are not bounded by the depth of the completion queue.
    QueueOverrun, "queue-overrun", "C1";
    /// Control messages are not signalled, and take no place among those that may be outstanding.
    SilentUncounted, "silent-uncounted", "C1";
    /// What is short is inline, whatever the fabric takes.
    InlineAnyway, "inline-anyway", "C1";
    /// The receive for the next length is posted when the message before is read.
    OneAhead, "one-ahead", "latency";
    /// Every message is two, however short.
    NeverInline, "never-inline", "latency";
}

impl Mutant {
    /// Whether what the fabric says about errors is not passed on.
    pub(crate) fn hides_errors(self) -> bool {
        #[cfg(feature = "plants")]
        return matches!(self, Mutant::ErrorDropped | Mutant::ErrorIsSuccess);
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Whether campaigns are expected to find it. What only takes longer is for the tests that count, and what takes EFA's
    /// restrictions to show is for those that have them.
    #[cfg(feature = "plants")]
    #[must_use]
    pub fn is_for_campaigns(self) -> bool {
        self.breaks() != "latency" && !matches!(self, Mutant::SilentUncounted | Mutant::InlineAnyway)
    }
}
