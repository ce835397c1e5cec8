//! Mutants: known bugs that prove that the tests find bugs. They are compiled in only with the feature `plants`.

/// Declares a crate's mutants as `enum Mutant`. The comment of each variant describes the bug. The variant exists only
/// with the feature `plants` *of that crate*. Entries may also have a command-line name and the property that the
/// mutant breaks; the enum then has functions that return them.
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
        /// A bug that a test build can switch on. Without the feature `plants` there is only [`Mutant::None`], and
        /// every check for a mutant is a constant.
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
            /// Returns the mutant's name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    Mutant::None => "none",
                    $(Mutant::$name => $text,)*
                }
            }

            /// Returns the property that the mutant is known to break, or `latency` if the mutant only costs time.
            #[must_use]
            pub fn breaks(self) -> &'static str {
                match self {
                    Mutant::None => "nothing",
                    $(Mutant::$name => $breaks,)*
                }
            }

            /// Returns the mutant with the name `name`, if there is one.
            #[must_use]
            pub fn named(name: &str) -> Option<Mutant> {
                Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name)
            }
        }
    };
}

/// Returns whether the mutant `name` of the calling crate is switched on: `mutant!(self.plant, NoCredits)`. Without the
/// feature `plants` of that crate the result is the constant `false`.
///
/// The calling crate declares its [`mutants!`] at its root, as `crate::Mutant`.
#[macro_export]
#[expect(clippy::crate_in_macro_def, reason = "each crate declares its own mutants")]
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
    /// A record is accepted if its lap matches, even if its checksum does not: torn writes are read.
    Unvalidated;
    /// The lap is neither compared nor part of the checksum: the last lap's record validates again.
    SealWithoutLap;
    /// A credit is the number of cells freed since the last one, and the writer of the ring adds the credits up: a lost
    /// or repeated credit makes the sum wrong.
    DeltaCredits;
}

impl Mutant {
    /// Returns whether the mutant accepts torn records.
    #[inline]
    pub(crate) fn unvalidated(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::Unvalidated;
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Returns whether the mutant leaves the lap out of seals.
    #[inline]
    pub(crate) fn seal_without_lap(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::SealWithoutLap;
        #[cfg(not(feature = "plants"))]
        false
    }

    /// Returns whether the mutant makes credits deltas.
    #[inline]
    pub fn delta_credits(self) -> bool {
        #[cfg(feature = "plants")]
        return self == Mutant::DeltaCredits;
        #[cfg(not(feature = "plants"))]
        false
    }
}
