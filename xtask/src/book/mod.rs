//! Checks the book: its links, its spelling, and the commands that it shows. The crate `book` compiles its Rust code.

mod commands;
mod links;
mod preprocess;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cargo::{Context, run};
use crate::needs::Needs;
use crate::source::judge;
use crate::step::Outcome;
use crate::tools::installed;

pub(crate) use preprocess::run as preprocess;

pub(crate) const NEEDS: Needs = Needs { things: &["codespell"], sources: &["xtask/src/book"] };

/// Folders with pages, relative to the root of the repository.
const FOLDERS: [&str; 5] = ["", "docs", "examples/bank", "examples/kv", "examples/lock"];
/// Correct words that the spelling checker takes for misspelt ones.
const WORDS: &str = "crate,exat,fro";
const MDBOOK: &str = "0.5.4";

/// A page of the book.
#[derive(Clone, Debug)]
struct Page {
    /// The path relative to the root of the repository.
    path: PathBuf,
    text: String,
}

fn pages(root: &Path) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {folder}"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                pages.push(Page { path: path.strip_prefix(root)?.to_owned(), text });
            }
        }
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}

/// Checks links and spelling, and runs the marked commands.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    let pages = pages(&context.root)?;
    judge(&links::check(&context.root, &pages)?)?;
    let files = pages.iter().map(|page| context.root.join(&page.path));
    run(Command::new("codespell").args(["-L", WORDS]).args(files))?;
    let count = commands::run_all(context, &pages)?;
    println!("{} pages, {count} blocks of commands", pages.len());
    Ok(Outcome::Passed)
}

/// Builds the book in `target/book`, and checks that no page of it links to a file outside the book.
pub(crate) fn build(context: &Context) -> Result<Outcome> {
    let program = installed(context, "mdbook", MDBOOK)?;
    run(Command::new(program).arg("build").arg(context.root.join("docs")))?;
    let book = context.root.join("target/book");
    ensure!(book.join("index.html").exists(), "mdbook did not write {}", book.join("index.html").display());
    for entry in fs::read_dir(&book)? {
        let path = entry?.path();
        let is_page = path.extension().is_some_and(|extension| extension == "html");
        let leads_out = is_page && fs::read_to_string(&path)?.contains("href=\"../");
        ensure!(!leads_out, "{} links to a file outside the book", path.display());
    }
    Ok(Outcome::Passed)
}
