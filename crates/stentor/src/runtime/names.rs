//! Lists of names in messages.

/// Joins names to a list with commas and "and".
#[must_use]
pub fn and(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
