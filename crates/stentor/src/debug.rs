//! Errors whose `Debug` is their `Display`.

/// Has `Debug` print what `Display` prints. A `main` that returns an error prints its `Debug`, and its user needs the remedy, which
/// is in the text.
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
