//! Errors whose `Debug` is their `Display`.

/// Implements `Debug` for each error by its `Display`. A `main` that returns an error prints the `Debug` text, and only
/// the `Display` text contains the remedy.
macro_rules! debug_as_display {
    ($($error:ty),+ $(,)?) => {
        $(impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        })+
    };
}

pub(crate) use debug_as_display;
