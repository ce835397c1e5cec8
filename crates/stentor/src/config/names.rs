//! Checks of names.

use super::error::Problem;
use super::limits::MAX_NAME;

/// Refuses a name that is unsafe in a path, a comma-separated list or a log line.
pub(super) fn check(what: &'static str, name: &str) -> Result<(), Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if let Some(c) = name.chars().find(|c| !allowed(*c)) {
        format!("the character `{}` is not allowed", c.escape_debug())
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        "it does not begin with a letter or digit".to_owned()
    } else if name.len() > MAX_NAME {
        format!("it has {} characters", name.len())
    } else {
        return Ok(());
    };
    Err(Problem::BadName { what, name: name.to_owned(), reason })
}

/// Returns whether a name is that of a client id: `c` and a number.
pub(super) fn is_client(name: &str) -> bool {
    name.strip_prefix('c').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
