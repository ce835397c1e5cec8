//! The fabrics that are built in, and the choice among them.
//!
//! A fabric is built in if the feature of its name is on. A configuration that names another one is read and checked all the same: one file
//! serves all processes, and its fingerprint does not depend on what a program was built with.

#[cfg(feature = "ofi")]
mod ofi;
#[cfg(feature = "roce")]
mod roce;
#[cfg(feature = "shm")]
mod shm;
#[cfg(feature = "verbs")]
mod verbs;

// The `cfg` of a macro's body is that of the crate that calls it. So each arm of `with_fabric!` is a macro of its own, of which this
// crate's features choose one.

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

/// Evaluates an expression in which a name stands for the type of the fabric of this
/// [`FabricKind`](crate::config::FabricKind). Nothing is dispatched dynamically: the expression is compiled once for each
/// fabric that is built in. Simulated processes are none of a system; the expression for shared memory stands for them.
///
/// For a fabric that is not built in the value is [`StartError::NotBuiltIn`](crate::runtime::StartError::NotBuiltIn). So the expression is
/// a `Result` whose error is made from a [`StartError`](crate::runtime::StartError), unless the crate that calls this has all fabrics.
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
