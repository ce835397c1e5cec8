//! Errors whose `Debug` is their `Display`.

/// Implements `Debug` by the `Display` of each error. A `main` that returns an error prints its `Debug`, and the remedy
/// that the user needs is in the `Display` text.
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
