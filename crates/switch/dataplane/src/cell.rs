//! Register cells: what they hold, and how many bits that takes.

/// Declares a cell of a register array. Each field says how many bits it takes; `BITS` is their sum, from which
/// [`crate::resources`] reckons.
macro_rules! cell {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $bits:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// Bits of all fields.
            pub const BITS: u32 = 0 $(+ $bits)*;
            /// Fields and their bits.
            pub const FIELDS: &'static [(&'static str, u32)] = &[$((stringify!($field), $bits)),*];

            /// Fields and what they hold, in words.
            #[must_use]
            pub fn told(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), format!("{:?}", self.$field))),*]
            }
        }
    };
}
pub(crate) use cell;
