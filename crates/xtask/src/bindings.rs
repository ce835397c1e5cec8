//! `fabric-verbs`' bindings to rdma-core: generated from its headers, committed, and compared here.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cargo::{Context, capture, run};
use crate::runner::Outcome;

/// What is committed.
const FILE: &str = "crates/fabric-verbs/src/sys/verbs.rs";
const HEADER: &str = "/usr/include/infiniband/verbs.h";
const PACKAGE_CONFIG: &str = "pkgconfig/libibverbs.pc";
const INSTALL: [&str; 5] = ["install", "--yes", "--no-install-recommends", "libibverbs-dev", "libclang-dev"];
/// A program of its own: what generates takes longer to build than all else here.
const GENERATOR: [&str; 6] = ["-p", "xtask", "--features", "bindings", "--bin", "bindings"];

/// Generates the bindings and compares them with the committed ones.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    run(context.cargo(["clippy"]).args(GENERATOR).args(["--", "-D", "warnings"]))?;
    let fresh = std::env::temp_dir().join(format!("stentor-bindings-{}.rs", std::process::id()));
    let generated = generate(context, &fresh);
    let text = generated.and_then(|()| Ok(fs::read_to_string(&fresh)?));
    let _ = fs::remove_file(&fresh);
    let committed = fs::read_to_string(context.root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    compare(&committed, &text?)?;
    println!("{FILE} is what rdma-core {} says", version());
    Ok(Outcome::Passed)
}

/// Writes the committed file anew.
pub(crate) fn write(context: &Context) -> Result<()> {
    generate(context, &context.root.join(FILE))?;
    println!("{FILE} was written from rdma-core {}", version());
    Ok(())
}

fn generate(context: &Context, file: &Path) -> Result<()> {
    if !Path::new(HEADER).is_file() || !has_libclang()? {
        install(capture(Command::new("id").arg("-u"))?.1.trim() == "0")?;
    }
    run(context.cargo(["run", "--quiet"]).args(GENERATOR).arg("--").arg(file))
}

/// Where distributions put it, or where its own variable says.
fn has_libclang() -> Result<bool> {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return Ok(true);
    }
    let holds = |folder: &Path| {
        let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with("libclang.so"))
    };
    let versions = fs::read_dir("/usr/lib")?.flatten().map(|entry| entry.path());
    let mut llvm =
        versions.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("llvm")));
    Ok(holds(Path::new("/usr/lib")) || holds(Path::new("/usr/lib64")) || llvm.any(|path| holds(&path.join("lib"))))
}

fn install(root: bool) -> Result<()> {
    if !root {
        bail!("{HEADER} or libclang is missing: apt-get {}", INSTALL.join(" "));
    }
    run(Command::new("apt-get").arg("update"))?;
    run(Command::new("apt-get").args(INSTALL).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// The release whose headers are installed, as its package says.
fn version() -> String {
    let triplet = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let texts =
        [&triplet, "/usr/lib64", "/usr/lib"].map(|folder| fs::read_to_string(Path::new(folder).join(PACKAGE_CONFIG)));
    let line = texts.into_iter().flatten().find_map(|text| {
        text.lines().find_map(|line| line.strip_prefix("Version:").map(|version| version.trim().to_owned()))
    });
    line.unwrap_or_else(|| "of unknown version".to_owned())
}

fn compare(committed: &str, generated: &str) -> Result<()> {
    let (mut ours, mut theirs) = (committed.lines(), generated.lines());
    let mut line = 0;
    loop {
        line += 1;
        match (ours.next(), theirs.next()) {
            (None, None) => return Ok(()),
            (a, b) if a == b => {}
            (a, b) => bail!(
                "{FILE}:{line}: `{}`, where rdma-core {} says `{}`: run `cargo xtask bindings` and look at the difference",
                a.unwrap_or_default(),
                version(),
                b.unwrap_or_default()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_differs_is_named() {
        assert!(compare("a\nb\n", "a\nb\n").is_ok());
        for other in ["a\nc\n", "a\n", "a\nb\nc\n"] {
            let error = compare("a\nb\n", other).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{FILE}:")) && error.contains("cargo xtask bindings"), "{error}");
        }
    }

    #[test]
    fn who_may_not_install_is_told_what_to_run() {
        let error = install(false).unwrap_err().to_string();
        assert!(
            error.ends_with("apt-get install --yes --no-install-recommends libibverbs-dev libclang-dev"),
            "{error}"
        );
    }
}
