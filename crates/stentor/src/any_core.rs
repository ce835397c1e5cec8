//! A macro that defines one type for a `Core` on any of several fabrics.

/// Defines an enum `AnyCore` and a macro `on!`. `AnyCore` has one variant for each listed fabric that is built in; the
/// variant contains the module's `Core` on that fabric. `on!` evaluates an expression on the core inside. It matches
/// the fabric once, and compiles the expression once for each fabric. The definition of `on!` needs a literal `$`,
/// which the first argument passes.
///
/// ```ignore
/// any_core!($ Shm(ShmFabric) if "shm", Roce(RoceFabric) if "roce");
/// let name = on!(&self.core, core => core.name());
/// ```
macro_rules! any_core {
    ($d:tt $vis:vis $($variant:ident($fabric:ident) if $feature:literal),+) => {
        /// A core on one of the fabrics.
        $vis enum AnyCore {
            $(
                #[cfg(feature = $feature)]
                $variant(Box<Core<crate::runtime::$fabric>>),
            )+
        }

        $(
            #[cfg(feature = $feature)]
            impl From<Core<crate::runtime::$fabric>> for AnyCore {
                fn from(core: Core<crate::runtime::$fabric>) -> Self {
                    AnyCore::$variant(Box::new(core))
                }
            }
        )+

        macro_rules! on {
            ($d core:expr, $d inner:ident => $d body:expr) => {
                match $d core {
                    $(
                        #[cfg(feature = $feature)]
                        AnyCore::$variant($d inner) => $d body,
                    )+
                }
            };
        }
    };
}

pub(crate) use any_core;
