//! Numbers in a configuration file that must lie in a range.

use std::ops::RangeInclusive;

use toml::Spanned;

use super::error::{Misplaced, Problem};

/// Returns a number of the file, or `default` if the file does not have the key.
///
/// # Errors
/// Returns [`Problem::OutOfRange`] at the place of the number if the number is outside its range.
pub(super) fn number<N>(
    key: &'static str,
    v: Option<&Spanned<i64>>,
    range: &RangeInclusive<N>,
    default: N,
) -> Result<N, Misplaced>
where
    N: Copy + PartialOrd + TryFrom<i64> + Into<i64>,
{
    let Some(value) = v else { return Ok(default) };
    let inside = N::try_from(*value.as_ref()).ok().filter(|n| range.contains(n));
    inside.ok_or_else(|| {
        let (min, max) = ((*range.start()).into(), (*range.end()).into());
        (value.span(), Problem::OutOfRange { key, value: *value.as_ref(), min, max })
    })
}
