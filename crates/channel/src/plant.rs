//! Planted bugs of the channel: its hazards, one by one. Compiled in only with the feature `plants`.

macro_rules! plants {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $breaks:literal;)*) => {
        /// A bug that can be switched on in a test build. Without the feature `plants` there is only
        /// [`Plant::None`], and every question about it is answered at compile time.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum Plant {
            /// No bug.
            #[default]
            None,
            $($(#[$doc])* #[cfg(feature = "plants")] $name,)*
        }

        #[cfg(feature = "plants")]
        impl Plant {
            /// Every planted bug.
            pub const ALL: &'static [Plant] = &[$(Plant::$name,)*];

            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    Plant::None => "none",
                    $(Plant::$name => $text,)*
                }
            }

            /// The property that it is known to break; `latency` where it only takes longer.
            #[must_use]
            pub fn breaks(self) -> &'static str {
                match self {
                    Plant::None => "nothing",
                    $(Plant::$name => $breaks,)*
                }
            }

            /// The plant of that name.
            #[must_use]
            pub fn named(name: &str) -> Option<Plant> {
                Plant::ALL.iter().copied().find(|plant| plant.name() == name)
            }
        }
    };
}

plants! {
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
    /// The receive for the next length is posted when the message before is read.
    OneAhead, "one-ahead", "latency";
    /// Every message is two, however short.
    NeverInline, "never-inline", "latency";
}

impl Plant {
    /// Whether this is `other`; false at compile time without the feature.
    #[inline]
    #[cfg(feature = "plants")]
    pub(crate) fn is(self, other: Plant) -> bool {
        self == other
    }

    /// Whether what the fabric says about errors is not passed on.
    pub(crate) fn hides_errors(self) -> bool {
        #[cfg(feature = "plants")]
        return matches!(self, Plant::ErrorDropped | Plant::ErrorIsSuccess);
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Whether campaigns are expected to find it. What only takes longer is for the tests that count.
    #[cfg(feature = "plants")]
    #[must_use]
    pub fn is_for_campaigns(self) -> bool {
        self.breaks() != "latency"
    }
}

/// `planted!(self.plant, NoCredits)`: whether that bug is on. `false` without the feature.
macro_rules! planted {
    ($plant:expr, $name:ident) => {{
        #[cfg(feature = "plants")]
        let on = $plant.is($crate::Plant::$name);
        #[cfg(not(feature = "plants"))]
        let on = {
            let _: $crate::Plant = $plant;
            false
        };
        on
    }};
}
pub(crate) use planted;
