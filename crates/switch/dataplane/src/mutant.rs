//! Mutants of the switch: its hazards, one by one. Compiled in only with the feature `plants`.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $breaks:literal;)*) => {
        /// A bug that can be switched on in a test build. Without the feature `plants` there is only
        /// [`Mutant::None`], and every question about it is answered at compile time.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum Mutant {
            /// No bug.
            #[default]
            None,
            $($(#[$doc])* #[cfg(feature = "plants")] $name,)*
        }

        #[cfg(feature = "plants")]
        impl Mutant {
            /// Every mutant.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];

            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    Mutant::None => "none",
                    $(Mutant::$name => $text,)*
                }
            }

            /// The property that it is known to break.
            #[must_use]
            pub fn breaks(self) -> &'static str {
                match self {
                    Mutant::None => "nothing",
                    $(Mutant::$name => $breaks,)*
                }
            }

            /// The mutant of that name.
            #[must_use]
            pub fn named(name: &str) -> Option<Mutant> {
                Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name)
            }

            /// Whether simulation runs are expected to find it; the others are for searches.
            #[must_use]
            pub fn is_for_simulation(self) -> bool {
                self != Mutant::LinkingNotGuarded
            }

            /// Whether this is `other`.
            #[inline]
            pub(crate) fn is(self, other: Mutant) -> bool {
                self == other
            }
        }
    };
}

mutants! {
    /// A NAK carries the PSN that the switch expects, and so acknowledges what no receiver has.
    NakExpected, "nak-expected", "S1";
    /// A refusal for want of a lock carries the asker's own PSN.
    NakOwnPsn, "nak-own-psn", "S1";
    /// A control packet that comes again is carried out again.
    ControlOverwrites, "control-overwrites", "S2";
    /// What comes again and is done is not acknowledged again.
    NoReAck, "no-re-ack", "SL1";
    /// A control packet is carried out as soon as it comes, whatever before it is missing.
    NoBarrier, "no-barrier", "S1";
    /// What is done of a rank is forgotten when the set goes to another: its lost acknowledgement is not repeated.
    DoneForgotten, "done-forgotten", "SL1";
    /// A lease that is over is taken whatever is on its way.
    UncleanSteal, "unclean-steal", "SL1";
    /// The message number of the member that spoke last goes to the sender.
    MsnOfTrigger, "msn-of-trigger", "S9";
    /// One acknowledgement counts for everybody.
    FirstAck, "first-ack", "S1";
    /// A second control packet begins while the first is being carried out.
    LinkingNotGuarded, "linking-not-guarded", "S2";
    /// A member that is linked again keeps the address and the key that it had.
    OldAddress, "old-address", "S7";
}

/// `mutant!(mutant, NoBarrier)`: whether that bug is on. `false` without the feature.
macro_rules! mutant {
    ($mutant:expr, $name:ident) => {{
        #[cfg(feature = "plants")]
        let on = $mutant.is($crate::Mutant::$name);
        #[cfg(not(feature = "plants"))]
        let on = {
            let _: $crate::Mutant = $mutant;
            false
        };
        on
    }};
}
pub(crate) use mutant;
