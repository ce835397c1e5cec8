//! Runs the blocks of commands below a line `<!-- run -->`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use stentor_testutil::TempDir;

use super::Page;
use crate::cargo::{Context, run};
use crate::programs;

const MARK: &str = "<!-- run -->";
/// Maximum time of the blocks of one page, in seconds.
const LONGEST: &str = "180";
/// The lines that precede a page's blocks. They stop the processes that the page leaves running.
const AROUND: &str = "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\nset -euo pipefail\n";

/// Runs the blocks of each page, one after the other, in an empty directory. Returns the number of blocks.
pub(super) fn run_all(context: &Context, pages: &[Page]) -> Result<usize> {
    let mut count = 0;
    // Pages also start the library's examples. `cargo test` builds the examples only if it builds all tests.
    run(context.debug("build").arg("--examples"))?;
    let programs = programs::debug_stentor(context)?.parent().context("a folder of programs")?.to_owned();
    for page in pages {
        let blocks = blocks(&page.text).with_context(|| page.path.display().to_string())?;
        if blocks.is_empty() {
            continue;
        }
        count += blocks.len();
        let directory = TempDir::new();
        let script = directory.join("page.sh");
        fs::write(&script, AROUND.to_owned() + &blocks.join("\n"))?;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", LONGEST, "bash"]).arg(&script).current_dir(&directory);
        command.env("PATH", path(&programs)?).env("XDG_RUNTIME_DIR", &*directory);
        run(&mut command).with_context(|| format!("the commands of {}", page.path.display()))?;
    }
    ensure!(count > 0, "no page has a block below `{MARK}`");
    Ok(count)
}

/// Returns the search path, with the built programs and examples before all others.
fn path(programs: &Path) -> Result<OsString> {
    let others = std::env::var_os("PATH").unwrap_or_default();
    let ours = [programs.to_owned(), programs.join("examples")];
    Ok(std::env::join_paths(ours.into_iter().chain(std::env::split_paths(&others)))?)
}

/// Returns the blocks of a page that are run.
fn blocks(text: &str) -> Result<Vec<String>> {
    let (mut blocks, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        if line.trim() == MARK {
            ensure!(
                lines.next().is_some_and(|line| line == "```sh"),
                "`{MARK}` is not directly above a block \"```sh\""
            );
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(block.join("\n"));
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_run() {
        let text = "```sh\nno\n```\n<!-- run -->\n```sh\nyes # 1\nyes 2\n```\nno\n";
        assert_eq!(blocks(text).unwrap(), ["yes # 1\nyes 2"]);
        assert!(blocks("<!-- run -->\n\n```sh\n").is_err());
    }
}
