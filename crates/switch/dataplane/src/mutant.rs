//! Mutants: deliberate bugs in the data plane, each of which a test can enable. They are compiled in only with the
//! feature `plants`.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $breaks:literal;)*) => {
        /// A bug that a test build can switch on. Without the feature `plants` there is only [`Mutant::None`], and
        /// every query is answered at compile time.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum Mutant {
            /// No bug.
            #[default]
            None,
            $($(#[$doc])* #[cfg(feature = "plants")] $name,)*
        }

        #[cfg(feature = "plants")]
        impl Mutant {
            /// Every mutant except [`Mutant::None`].
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];

            /// Returns the mutant's name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    Mutant::None => "none",
                    $(Mutant::$name => $text,)*
                }
            }

            /// Returns the property that the mutant is known to break.
            #[must_use]
            pub fn breaks(self) -> &'static str {
                match self {
                    Mutant::None => "nothing",
                    $(Mutant::$name => $breaks,)*
                }
            }

            /// Returns the mutant with this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Mutant> {
                Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name)
            }

            /// Returns whether simulation runs are expected to find this mutant. All other mutants need an exhaustive
            /// search.
            #[must_use]
            pub fn is_for_simulation(self) -> bool {
                self != Mutant::LinkingNotGuarded
            }

            /// Returns whether the two mutants are the same.
            #[inline]
            pub(crate) fn is(self, other: Mutant) -> bool {
                self == other
            }
        }
    };
}

mutants! {
    /// A NAK carries the PSN that the switch or one receiver expects, and so acknowledges packets that others lack.
    NakExpected, "nak-expected", "S1";
    /// The RNR NAK for a control packet that has to wait carries that packet's own PSN.
    NakOwnPsn, "nak-own-psn", "S1";
    /// A repeated LINK of the holder is executed again.
    ControlOverwrites, "control-overwrites", "S2";
    /// A repeated packet that is done is not acknowledged again.
    NoReAck, "no-re-ack", "SL1";
    /// A control packet is executed on arrival, even if packets before it are missing.
    NoBarrier, "no-barrier", "S1";
    /// The done PSN of a rank is not kept when the rank releases the set or another rank takes it over, so a lost
    /// acknowledgement is not repeated.
    DoneForgotten, "done-forgotten", "SL1";
    /// A rank takes over an expired lease even if packets of the former holder are in flight.
    UncleanSteal, "unclean-steal", "SL1";
    /// The sender receives the message number of the member that answered last.
    MsnOfTrigger, "msn-of-trigger", "S9";
    /// The acknowledgement of one member counts for all.
    FirstAck, "first-ack", "S1";
    /// A second control packet begins while the first one is being executed.
    LinkingNotGuarded, "linking-not-guarded", "S2";
    /// A member that is linked again keeps its old address and key.
    OldAddress, "old-address", "S7";
}

/// Returns whether a mutant is on, as in `mutant!(mutant, NoBarrier)`. Always `false` without the feature `plants`.
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
