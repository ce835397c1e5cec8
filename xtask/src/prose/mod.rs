//! `cargo xtask prose`: counts the sentences in comments that have no concrete subject, here and in other projects.

mod headless;
pub(crate) mod same;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

pub(crate) use self::same::compare as same_code;
use crate::cargo::Context;
use crate::lengths::GENERATED_MARK;
use crate::source::{Source, Violation, judge, rust_files};
use crate::step::Outcome;

/// Maximum number of headless sentences in 1000 comment lines.
const MOST: f64 = 1.0;

#[derive(Args, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Lists each headless sentence with its place.
    #[arg(long)]
    list: bool,
    /// Compares the code with that of a commit instead: only comments, strings and names of tests may differ.
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["list", "roots"])]
    same_code_as: Option<String>,
    /// Folders of Rust sources. Without one, each crate of this checkout is counted.
    roots: Vec<PathBuf>,
}

/// The counts over the comments of some files.
#[derive(Clone, Debug, Default)]
struct Count {
    lines: usize,
    headless: Vec<Violation>,
}

impl Count {
    fn of(sources: &[Source]) -> Count {
        let mut count = Count::default();
        for source in sources {
            count.add(source);
        }
        count
    }

    fn add(&mut self, source: &Source) {
        if !source.text.starts_with(GENERATED_MARK) {
            for block in text::blocks(&source.text) {
                self.lines += block.lines.len();
                let found = block.sentences().into_iter().filter(|sentence| headless::is_headless(sentence));
                self.headless.extend(found.map(|sentence| Violation::at(source, block.first_line, sentence)));
            }
        }
    }

    fn per_thousand(&self) -> f64 {
        1000.0 * self.headless.len() as f64 / self.lines.max(1) as f64
    }

    fn print(&self, name: &str, list: bool) {
        println!("{:>8} {:>8} {:>8.2}  {name}", self.lines, self.headless.len(), self.per_thousand());
        for sentence in self.headless.iter().filter(|_| list) {
            println!("    {}: {}", sentence.place, sentence.what);
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, options: &Options) -> Result<()> {
    if let Some(commit) = &options.same_code_as {
        return same_code(context, commit);
    }
    println!("   lines headless per 1000");
    if options.roots.is_empty() {
        let sources = rust_files(&context.root, &context.root)?;
        by_crate(&sources).iter().for_each(|(name, count)| count.print(name, options.list));
        Count::of(&sources).print("in all", false);
        return Ok(());
    }
    for root in &options.roots {
        let sources = rust_files(root, root)?;
        ensure!(!sources.is_empty(), "no Rust file below {}", root.display());
        Count::of(&sources).print(&root.display().to_string(), options.list);
    }
    Ok(())
}

/// Fails if more sentences than [`MOST`] in 1000 lines are headless.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let all = Count::of(&rust_files(&context.root, &context.root)?);
    all.print("in all", false);
    if all.per_thousand() > MOST {
        judge(&all.headless).context("sentences begin with their subject: see CONTRIBUTING.md")?;
    }
    Ok(Outcome::Passed)
}

/// Returns the counts of crates, by the folder of each.
fn by_crate(sources: &[Source]) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for source in sources {
        counts.entry(folder(&source.path)).or_default().add(source);
    }
    counts
}

/// Returns the folder of the crate of a file: the path before the first folder that cargo defines.
fn folder(path: &Path) -> String {
    const KNOWN: [&str; 5] = ["src", "tests", "examples", "benches", "fuzz"];
    let parts = path.iter().enumerate();
    // The folder `examples` at the top of the repository has crates.
    let parts = parts.map(|(at, part)| (at, part.to_string_lossy()));
    let before = parts.take_while(|(at, part)| *at == 0 || !KNOWN.contains(&part.as_ref()));
    before.map(|(_, part)| part.into_owned()).filter(|part| !part.ends_with(".rs")).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::source;

    #[test]
    fn sentences_are_counted_by_crate() {
        let sources = [
            source("crates/a/b/src/lib.rs", "//! Counts. What waits is woken.\n\nfn f() {} // who knows\n"),
            source("crates/a/b/tests/t.rs", "// Plain.\n"),
            source("examples/kv/src/main.rs", "/// So many.\nfn f() {}\n"),
        ];
        let all = by_crate(&sources);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["crates/a/b", "examples/kv"]);
        let count = &all["crates/a/b"];
        assert_eq!((count.lines, count.headless.len()), (2, 1));
        assert_eq!(count.headless[0].place, "crates/a/b/src/lib.rs:1");
        assert_eq!(all["examples/kv"].per_thousand(), 1000.0);
    }

    #[test]
    fn generated_files_do_not_count() {
        let generated = format!("{GENERATED_MARK} bindings`.\n// What is it.\n");
        assert_eq!(Count::of(&[source("a/src/lib.rs", &generated)]).lines, 0);
    }
}
