//! Enums whose variants have names, for command lines and lists of runs.

/// Assigns names to the variants of an enum: `named!(Colour { Red = "red", Blue = "blue" })`.
macro_rules! named {
    ($type:ident { $($variant:ident = $name:literal),+ }) => {
        impl $type {
            /// All variants, in the order in which they are listed.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            /// Returns the name of the variant.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }

            /// Returns the variant with this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                $type::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
