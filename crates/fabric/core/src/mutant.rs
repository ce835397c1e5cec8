//! Mutants: proof that the tests can see. Compiled in only with the feature `plants`.

/// Declares a crate's mutants: `enum Mutant`, each variant with its hazard as its comment and behind the feature
/// `plants` *of that crate*. With a name and the property that it breaks, those can be asked for, too.
///
/// ```
/// mod one {
///     stentor_fabric::mutants! {
///         /// Credits are not waited for.
///         NoCredits, "no-credits", "C3";
///     }
/// }
/// assert_eq!(one::Mutant::default(), one::Mutant::None);
/// ```
#[macro_export]
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident;)*) => {
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
        }
    };
    ($($(#[$doc:meta])* $name:ident, $text:literal, $breaks:literal;)*) => {
        $crate::mutants! { $($(#[$doc])* $name;)* }

        #[cfg(feature = "plants")]
        impl Mutant {
            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    Mutant::None => "none",
                    $(Mutant::$name => $text,)*
                }
            }

            /// The property that it is known to break; `latency` where it only takes longer.
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
        }
    };
}

/// Answers whether the bug `name` of the crate that asks is switched on: `mutant!(self.plant, NoCredits)`. Without the
/// feature `plants` of that crate the answer is the constant `false`.
///
/// The crate has its [`mutants!`] at its root: `crate::Mutant`.
#[macro_export]
#[expect(clippy::crate_in_macro_def, reason = "the bugs are those of the crate that asks")]
macro_rules! mutant {
    ($mutant:expr, $name:ident) => {{
        #[cfg(feature = "plants")]
        let on = $mutant == crate::Mutant::$name;
        #[cfg(not(feature = "plants"))]
        let on = {
            let _: crate::Mutant = $mutant;
            false
        };
        on
    }};
}

mutants! {
    /// A record is accepted when its lap is right, whatever its checksum says: torn writes are read.
    Unvalidated;
    /// The lap is neither compared nor part of the checksum: last lap's record validates again.
    SealWithoutLap;
    /// Credits are deltas that the writer of the ring reads and then zeroes.
    DeltaCredits;
}

impl Mutant {
    /// Whether torn records are accepted.
    #[inline]
    pub(crate) fn unvalidated(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::Unvalidated;
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Whether seals leave out the lap.
    #[inline]
    pub(crate) fn seal_without_lap(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::SealWithoutLap;
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Whether credits are deltas.
    #[inline]
    pub fn delta_credits(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::DeltaCredits;
        #[cfg(not(feature = "plants"))]
        false
    }
}
