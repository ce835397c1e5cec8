//! Helpers for wrappers of fabrics.

/// Forwards methods of [`Fabric`](stentor_fabric::Fabric) to the field `$inner`. A wrapper implements only the methods
/// that it changes.
#[macro_export]
macro_rules! forward {
    ($inner:ident;
     &self { $($get:ident($($arg:ident: $type:ty),*) -> $got:ty;)* }
     &mut self { $($call:ident($($of:ident: $kind:ty),*) $(-> $out:ty)?;)* }) => {
        $(fn $get(&self, $($arg: $type),*) -> $got {
            self.$inner.$get($($arg),*)
        })*
        $(fn $call(&mut self, $($of: $kind),*) $(-> $out)? {
            self.$inner.$call($($of),*)
        })*
    };
}
