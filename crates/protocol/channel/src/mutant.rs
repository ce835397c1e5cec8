//! Mutants of the channel, each with the property that it breaks (C1 to C5 in `docs/channel.md`), or `latency`. They
//! are compiled in only with the feature `plants`.

pub(crate) use stentor_fabric::mutant;
use stentor_fabric::mutants;

mutants! {
    /// Tags do not contain the connection.
    NoConnectionInTag, "no-connection-in-tag", "C1";
    /// A sequence is used again while its earlier use is still in flight.
    SequenceWraps, "sequence-wraps", "C1";
    /// The order in which receives were posted decides which message a length belongs to.
    PostingOrder, "posting-order", "C1";
    /// Messages are delivered in the order in which their lengths arrive.
    ArrivalOrder, "arrival-order", "C1";
    /// Writes are reported in the order in which they complete.
    CallbacksAsTheyCome, "callbacks-as-they-come", "C2";
    /// The sender does not wait for credits.
    NoCredits, "no-credits", "C3";
    /// Credits are granted before their receives are posted.
    CreditBeforeReceive, "credit-before-receive", "C3";
    /// A connection is over as soon as its receives have been cancelled, before they complete.
    CloseFreesEarly, "close-frees-early", "C4";
    /// A send slot is used again before its send has completed.
    SendPlaceReused, "send-place-reused", "C1";
    /// Failed completions are handled like successful ones.
    ErrorIsSuccess, "error-is-success", "C5";
    /// Failed completions are dropped.
    ErrorDropped, "error-dropped", "C5";
    /// The depth of the completion queue does not limit posts.
    QueueOverrun, "queue-overrun", "C1";
    /// Control messages are not signalled, and do not count as outstanding.
    SilentUncounted, "silent-uncounted", "C1";
    /// Short data is posted inline, even if the fabric does not support inline data.
    InlineAnyway, "inline-anyway", "C1";
    /// The receive for the next length is posted only after the message before it has been read.
    OneAhead, "one-ahead", "latency";
    /// Every message is sent as a length and a payload, however short it is.
    NeverInline, "never-inline", "latency";
}

impl Mutant {
    /// Returns whether the mutant hides errors that the fabric reports.
    pub(crate) fn hides_errors(self) -> bool {
        #[cfg(feature = "plants")]
        return matches!(self, Mutant::ErrorDropped | Mutant::ErrorIsSuccess);
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Returns whether simulation runs are expected to find the mutant. Other mutants only add latency, which tests
    /// find by counting messages, or need EFA's restrictions to have an effect.
    #[cfg(feature = "plants")]
    #[must_use]
    pub fn is_for_campaigns(self) -> bool {
        self.breaks() != "latency" && !matches!(self, Mutant::SilentUncounted | Mutant::InlineAnyway)
    }
}
