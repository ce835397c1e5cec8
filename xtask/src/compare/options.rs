//! Arguments of `cargo xtask compare`.

use crate::compare::Bench;

/// The trees and the benches that are compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// The tree before: a `stentor` binary, or a revision.
    pub base: String,
    /// A `stentor` binary in place of this tree's.
    pub new: Option<String>,
    /// The benches to run.
    pub benches: Vec<Bench>,
    /// The most pairs of runs for each bench.
    pub pairs: usize,
    /// The wait mode of idle processes, where a bench leaves the choice.
    pub wait: String,
}

/// The most pairs of each bench, unless `--pairs` sets fewer or more.
const MOST_PAIRS: usize = 60;
/// The fewest pairs that have a 95 % interval.
const LEAST_PAIRS: usize = 6;
const WAITS: [&str; 4] = ["poll", "yield", "block", "adaptive"];

impl Options {
    /// Reads the arguments behind `compare`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let (mut base, mut new, mut benches, mut pairs, mut wait) =
            (None, None, Bench::ALL.to_vec(), MOST_PAIRS, "adaptive".to_owned());
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("`{flag}` wants a value"));
            match flag.as_str() {
                "--base" => base = Some(value?.clone()),
                "--new" => new = Some(value?.clone()),
                "--bench" => benches = value?.split(',').map(Bench::named).collect::<Result<_, _>>()?,
                "--pairs" => pairs = number(value?)?,
                "--wait" => wait = among(value?)?,
                _ => return Err(format!("there is no argument `{flag}`")),
            }
        }
        let base = base.ok_or("`compare` wants `--base` with a stentor binary or a revision, such as `--base main`")?;
        Ok(Options { base, new, benches, pairs, wait })
    }
}

fn number(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(pairs) if pairs >= LEAST_PAIRS => Ok(pairs),
        _ => {
            Err(format!("`--pairs {value}`: a number of at least {LEAST_PAIRS}, because fewer pairs tell no interval"))
        }
    }
}

fn among(value: &str) -> Result<String, String> {
    if WAITS.contains(&value) {
        Ok(value.to_owned())
    } else {
        Err(format!("`--wait {value}`: one of {}", WAITS.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn everything_but_the_base_has_a_default() {
        let options = parsed("--base main").unwrap();
        assert_eq!((options.base.as_str(), options.pairs, options.wait.as_str()), ("main", 60, "adaptive"));
        assert_eq!((options.new, options.benches.len()), (None, 3));
        let options = parsed("--bench neb,channel --base x --pairs 12 --wait yield --new y").unwrap();
        assert_eq!(options.benches, [Bench::Neb, Bench::Channel]);
        assert_eq!((options.pairs, options.wait.as_str(), options.new.as_deref()), (12, "yield", Some("y")));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_remedy() {
        for (line, why) in [
            ("", "--base main"),
            ("--base", "wants a value"),
            ("--base x --bench fabric", "multicast, neb, channel"),
            ("--base x --pairs 5", "at least 6"),
            ("--base x --pairs many", "at least 6"),
            ("--base x --wait sleep", "adaptive"),
            ("--base x --verbose y", "--verbose"),
        ] {
            let problem = parsed(line).unwrap_err();
            assert!(problem.contains(why), "{line}: {problem}");
        }
    }
}
