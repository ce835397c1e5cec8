//! The fabrics that are built in, and the choice among them.
//!
//! A fabric is built in if the feature of its name is enabled. A configuration that names another fabric can still be
//! read and checked: one file serves all processes, and its fingerprint does not depend on the features of a program.

#[cfg(feature = "ofi")]
mod ofi;
#[cfg(feature = "roce")]
mod roce;
#[cfg(feature = "shm")]
mod shm;
#[cfg(feature = "verbs")]
mod verbs;

// The `cfg` in a macro's body is evaluated in the crate that calls the macro. Each arm of `with_fabric!` is therefore a
// macro of its own, which this crate's features select.

/// The arm of [`with_fabric!`] for `shm`.
#[cfg(feature = "shm")]
#[cfg_attr(feature = "unstable-core", macro_export)]
#[doc(hidden)]
macro_rules! on_shm {
    ($kind:ident, $fabric:ident => $body:expr) => {{
        type $fabric = $crate::runtime::ShmFabric;
        $body
    }};
}

#[cfg(not(feature = "shm"))]
#[cfg_attr(feature = "unstable-core", macro_export)]
#[doc(hidden)]
macro_rules! on_shm {
    ($kind:ident, $fabric:ident => $body:expr) => {
        Err($crate::runtime::StartError::NotBuiltIn($kind).into())
    };
}

/// The arm of [`with_fabric!`] for `roce`.
#[cfg(feature = "roce")]
#[cfg_attr(feature = "unstable-core", macro_export)]
#[doc(hidden)]
macro_rules! on_roce {
    ($kind:ident, $fabric:ident => $body:expr) => {{
        type $fabric = $crate::runtime::RoceFabric;
        $body
    }};
}

#[cfg(not(feature = "roce"))]
#[cfg_attr(feature = "unstable-core", macro_export)]
#[doc(hidden)]
macro_rules! on_roce {
    ($kind:ident, $fabric:ident => $body:expr) => {
        Err($crate::runtime::StartError::NotBuiltIn($kind).into())
    };
}

/// The arm of [`with_fabric!`] for `verbs`.
#[cfg(feature = "verbs")]
#[cfg_attr(feature = "unstable-core", macro_export)]
#[doc(hidden)]
macro_rules! on_verbs {
    ($kind:ident, $fabric:ident => $body:expr) => {{
        type $fabric = $crate::runtime::VerbsFabric;
        $body
    }};
}

#[cfg(not(feature = "verbs"))]
#[cfg_attr(feature = "unstable-core", macro_export)]
#[doc(hidden)]
macro_rules! on_verbs {
    ($kind:ident, $fabric:ident => $body:expr) => {
        Err($crate::runtime::StartError::NotBuiltIn($kind).into())
    };
}

/// The arm of [`with_fabric!`] for `ofi`.
#[cfg(feature = "ofi")]
#[cfg_attr(feature = "unstable-core", macro_export)]
#[doc(hidden)]
macro_rules! on_ofi {
    ($kind:ident, $fabric:ident => $body:expr) => {{
        type $fabric = $crate::runtime::OfiFabric;
        $body
    }};
}

#[cfg(not(feature = "ofi"))]
#[cfg_attr(feature = "unstable-core", macro_export)]
#[doc(hidden)]
macro_rules! on_ofi {
    ($kind:ident, $fabric:ident => $body:expr) => {
        Err($crate::runtime::StartError::NotBuiltIn($kind).into())
    };
}

/// Evaluates an expression in which a name represents the fabric type of this
/// [`FabricKind`](crate::config::FabricKind). Nothing is dispatched dynamically: the expression is compiled once for
/// each fabric that is built in. For the simulated fabric, which has no real processes, the expression for shared
/// memory is used.
///
/// For a fabric that is not built in, the value is [`StartError::NotBuiltIn`](crate::runtime::StartError::NotBuiltIn).
/// The expression is therefore a `Result` whose error can be made from a [`StartError`](crate::runtime::StartError),
/// unless the calling crate has all fabrics.
#[cfg_attr(feature = "unstable-core", macro_export)]
macro_rules! with_fabric {
    ($kind:expr, $fabric:ident => $body:expr) => {{
        let kind: $crate::config::FabricKind = $kind;
        match kind {
            $crate::config::FabricKind::Shm | $crate::config::FabricKind::Sim => {
                $crate::runtime::on_shm!(kind, $fabric => $body)
            }
            $crate::config::FabricKind::Roce => $crate::runtime::on_roce!(kind, $fabric => $body),
            $crate::config::FabricKind::Verbs => $crate::runtime::on_verbs!(kind, $fabric => $body),
            $crate::config::FabricKind::Ofi => $crate::runtime::on_ofi!(kind, $fabric => $body),
        }
    }};
}

pub(crate) use with_fabric;
#[cfg(not(feature = "unstable-core"))]
pub(crate) use {on_ofi, on_roce, on_shm, on_verbs};
#[cfg(feature = "unstable-core")]
#[doc(hidden)]
pub use {on_ofi, on_roce, on_shm, on_verbs};
