//! Finds or builds the two binaries of a comparison.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::as_file;
use crate::cargo::{Context, run};
use crate::programs::{executable, stentor};

/// Returns this tree's release build, or a named binary.
pub(super) fn new(context: &Context, named: Option<&str>) -> Result<PathBuf> {
    match named {
        Some(word) => as_file(word).with_context(|| format!("--new {word}: there is no such file")),
        None => stentor(context),
    }
}

/// Returns a named binary, or the release build of a revision.
pub(super) fn base(context: &Context, word: &str) -> Result<PathBuf> {
    if let Some(path) = as_file(word) {
        return Ok(path);
    }
    super::NEEDS.ensure()?;
    let commit = commit(context, word)?;
    let folder = context.root.join("target/regression");
    let kept = folder.join(format!("stentor-{commit}"));
    if !kept.is_file() {
        fs::create_dir_all(&folder)?;
        build(context, &commit, &folder, &kept)?;
    }
    Ok(kept)
}

fn commit(context: &Context, word: &str) -> Result<String> {
    let mut command = git(context);
    command.args(["rev-parse", "--verify", "--quiet", "--end-of-options"]).arg(format!("{word}^{{commit}}"));
    let output = command.output().context("cannot start git")?;
    if !output.status.success() {
        bail!("--base {word}: neither a file nor a revision of this repository");
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Builds a commit in a separate worktree. All commits share one build of the dependencies.
fn build(context: &Context, commit: &str, folder: &Path, kept: &Path) -> Result<()> {
    let tree = folder.join("tree");
    remove(context, &tree)?;
    run(git(context).args(["worktree", "add", "--force", "--detach"]).arg(&tree).arg(commit))?;
    let mut command = context.cargo(["build", "--release", "--locked", "-p", "stentor-cli", "--target-dir"]);
    command.arg(folder.join("build")).current_dir(&tree);
    let built = executable(&mut command, "crates/bin/cli", "stentor");
    let copied = built.and_then(|program| Ok(fs::copy(program, kept)?));
    remove(context, &tree)?;
    let bytes = copied.with_context(|| format!("building {commit}"))?;
    ensure!(bytes > 0, "{} is empty", kept.display());
    Ok(())
}

fn remove(context: &Context, tree: &Path) -> Result<()> {
    if tree.exists() {
        run(git(context).args(["worktree", "remove", "--force"]).arg(tree))?;
    }
    run(git(context).args(["worktree", "prune"]))
}

fn git(context: &Context) -> Command {
    let mut command = Command::new("git");
    command.current_dir(&context.root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_neither_file_nor_revision_are_refused() {
        let context = Context::shipped();
        let error = base(&context, "no-such-revision").unwrap_err().to_string();
        assert!(error.contains("neither a file nor a revision"), "{error}");
        let error = new(&context, Some("no-such-file")).unwrap_err().to_string();
        assert!(error.contains("no such file"), "{error}");
    }

    #[test]
    fn a_file_is_taken_as_it_is() {
        let this = std::env::current_exe().unwrap();
        assert_eq!(base(&Context::shipped(), this.to_str().unwrap()).unwrap(), this);
    }
}
