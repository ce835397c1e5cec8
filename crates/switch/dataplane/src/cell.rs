//! Cells of register arrays: their fields, and the number of bits of each.

/// Declares a cell of a register array. Each field states its width in bits. `BITS` is the sum of the widths, from
/// which [`crate::resources`] computes the memory of the data plane.
macro_rules! cell {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $bits:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// Sum of the widths of all fields, in bits.
            pub const BITS: u32 = 0 $(+ $bits)*;
            /// Names of the fields, with their widths in bits.
            pub const FIELDS: &'static [(&'static str, u32)] = &[$((stringify!($field), $bits)),*];

            /// Returns the name of each field with its value as text.
            #[must_use]
            pub fn told(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), format!("{:?}", self.$field))),*]
            }
        }
    };
}
pub(crate) use cell;
