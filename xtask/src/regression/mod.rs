//! `cargo xtask regression`: compares the benches of this tree with those of another tree.
//!
//! Runs of the two binaries take turns, in the order old, new, new, old, so that a drift of the machine's speed affects
//! both alike. The two runs of a pair yield one ratio for each row: the new cost divided by the old cost. A cost is a
//! time or an inverse rate. Pairs are run until the 95 % interval of every row's median ratio is narrow, or the maximum
//! number is reached.

mod binary;
mod median;
mod options;
mod rows;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cargo::Context;
use crate::needs::Needs;
use median::{Median, median};
pub(crate) use options::Options;
use rows::{Key, Run};

/// The program that a comparison with a revision needs.
pub(crate) const NEEDS: Needs = Needs { things: &["git"], sources: &["xtask/src/regression"] };
/// Maximum half width of a narrow interval, as a fraction of the median.
const NARROW: f64 = 0.015;
/// A row is slower if its whole interval is above this ratio.
const BAR: f64 = 1.03;
/// Minimum number of pairs before narrow intervals may end a bench. With fewer pairs an interval depends on the first
/// ones.
const FIRST_PAIRS: usize = 10;

/// A bench that can be compared.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bench {
    Multicast,
    Neb,
    Channel,
}

impl Bench {
    fn name(self) -> &'static str {
        match self {
            Bench::Multicast => "multicast",
            Bench::Neb => "neb",
            Bench::Channel => "channel",
        }
    }

    /// Returns the bench's arguments. Runs take about a second on an idle machine. Many short runs are more informative
    /// than a few long ones, because placement and timing differ between runs more than within a run.
    fn arguments(self, wait: &str) -> Vec<&str> {
        match self {
            Bench::Multicast => vec!["-n", "12000", "--rounds", "5", "--wait", wait],
            Bench::Neb => vec!["-n", "40000", "--rounds", "5", "--wait", wait],
            // The two processes of this bench always poll.
            Bench::Channel => vec!["-n", "6000", "--rounds", "5"],
        }
    }
}

/// The outcome of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Ended {
    /// No row is slower.
    NotSlower,
    /// No row is known to be slower, but some rows are undecided.
    CannotBeTold,
    /// A row is slower.
    Slower,
}

/// Finds or builds both binaries, compares them, and prints a table.
pub(crate) fn run(context: &Context, options: &Options) -> Result<Ended> {
    let old = binary::base(context, &options.base)?;
    let new = binary::new(context, options.new.as_deref())?;
    println!("old {}\nnew {}", old.display(), new.display());
    compare([&old, &new], options)
}

fn compare(binaries: [&Path; 2], options: &Options) -> Result<Ended> {
    let mut ended = Ended::NotSlower;
    for bench in &options.benches {
        let pairs = pairs(binaries, *bench, options)?;
        print!("{}", table(*bench, &pairs));
        ended = ended.max(pairs.rows.values().map(|ratios| verdict(ratios)).max().unwrap_or(Ended::CannotBeTold));
    }
    println!("\n{}", sentence(ended));
    Ok(ended)
}

fn sentence(ended: Ended) -> String {
    match ended {
        Ended::NotSlower => "regression: not slower".into(),
        Ended::CannotBeTold => format!(
            "regression: cannot be told: an interval is still wider than ±{:.1} %; repeat on a quieter machine, or with more \
             --pairs",
            NARROW * 100.0
        ),
        Ended::Slower => format!("regression: SLOWER: the lower end of an interval is above {BAR}"),
    }
}

/// The ratios of every row of a bench, one for each pair.
#[derive(Debug)]
struct Pairs {
    wait: String,
    rows: BTreeMap<Key, Vec<f64>>,
}

fn pairs(binaries: [&Path; 2], bench: Bench, options: &Options) -> Result<Pairs> {
    let mut pairs = Pairs { wait: String::new(), rows: BTreeMap::new() };
    for n in 0..options.pairs as usize {
        let order = if n % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut runs = [None, None];
        for which in order {
            runs[which] = Some(once(binaries[which], bench, &options.wait)?);
        }
        let [Some(old), Some(new)] = runs else { unreachable!("the order names both") };
        pairs.add(&old, &new)?;
        if n + 1 >= FIRST_PAIRS && pairs.rows.values().all(|ratios| is_narrow(ratios)) {
            break;
        }
    }
    Ok(pairs)
}

impl Pairs {
    fn add(&mut self, old: &Run, new: &Run) -> Result<()> {
        ensure!(old.wait == new.wait, "the old binary waits by `{}`, the new one by `{}`", old.wait, new.wait);
        let only = |a: &Run, b: &Run| -> Vec<String> {
            a.costs.keys().filter(|key| !b.costs.contains_key(*key)).map(named).collect()
        };
        let (gone, come) = (only(old, new), only(new, old));
        ensure!(
            gone.is_empty() && come.is_empty(),
            "the two binaries have different rows: only the old one has {gone:?}, only the new one has {come:?}"
        );
        self.wait.clone_from(&new.wait);
        for (key, cost) in &old.costs {
            self.rows.entry(key.clone()).or_default().push(new.costs[key] / cost);
        }
        Ok(())
    }
}

fn named((name, bytes): &Key) -> String {
    format!("{name}, {bytes} B")
}

fn once(binary: &Path, bench: Bench, wait: &str) -> Result<Run> {
    let mut command = Command::new(binary);
    command.args(["bench", bench.name(), "--json"]).args(bench.arguments(wait));
    let output = command.output().with_context(|| format!("cannot start {}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let run = rows::read(&text).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{} bench {} ({}): {}", binary.display(), bench.name(), output.status, errors.trim())
    })?;
    ensure!(output.status.success(), "{} bench {} ended with {}", binary.display(), bench.name(), output.status);
    Ok(run)
}

fn is_narrow(ratios: &[f64]) -> bool {
    median(ratios).is_some_and(|median| median.half_width() <= NARROW)
}

fn verdict(ratios: &[f64]) -> Ended {
    match median(ratios) {
        Some(Median { low, .. }) if low > BAR => Ended::Slower,
        // A wide interval is also decisive if all of it is below the bar.
        Some(Median { high, .. }) if high <= BAR => Ended::NotSlower,
        Some(_) if is_narrow(ratios) => Ended::NotSlower,
        _ => Ended::CannotBeTold,
    }
}

fn table(bench: Bench, pairs: &Pairs) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "\nbench {}, wait mode {}; cost, new to old:", bench.name(), pairs.wait);
    let width = pairs.rows.keys().map(|key| named(key).chars().count()).max().unwrap_or(0);
    for (key, ratios) in &pairs.rows {
        let verdict = match verdict(ratios) {
            Ended::NotSlower => "not slower",
            Ended::CannotBeTold => "cannot be told",
            Ended::Slower => "SLOWER",
        };
        let figures = median(ratios).map_or("no interval".to_owned(), |median| {
            let Median { value, low, high } = median;
            format!("{value:.3}  [{low:.3}, {high:.3}]  ±{:.1} %", median.half_width() * 100.0)
        });
        let _ = writeln!(text, "  {:<width$}  {figures}  {} pairs  {verdict}", named(key), ratios.len());
    }
    text
}

/// Returns the path `word`, if it is a file.
fn as_file(word: &str) -> Option<PathBuf> {
    let path = PathBuf::from(word);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests;
