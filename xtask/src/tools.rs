//! Programs of other projects, installed below `target/tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cargo::{Context, run};

/// Installs this version of a program from the registry unless it is installed. Returns its path.
pub(crate) fn installed(context: &Context, name: &str, version: &str) -> Result<PathBuf> {
    let folder = context.root.join("target/tools");
    let program = folder.join("bin").join(name);
    if version_of(&program).as_deref() != Some(&format!("{name} {version}")) {
        let mut command = context.cargo(["install", name, "--locked", "--version"]);
        command.arg(format!("={version}")).arg("--root").arg(&folder).arg("--target-dir").arg(folder.join("build"));
        run(&mut command)?;
        let _ = fs::remove_dir_all(folder.join("build"));
    }
    Ok(program)
}

/// Returns the output of a program's `--version`, or `None` if it does not run.
pub(crate) fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
