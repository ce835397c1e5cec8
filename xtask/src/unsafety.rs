//! Restricts `unsafe` to the crates in [`ALLOWED`]: fabrics and their bindings, the support of the host, and the atomic
//! copies that the fabrics and `channel` share.

use anyhow::Result;

use crate::cargo::Context;
use crate::source::{Source, Violation, each_level, has_root_attribute, is_ident, judge, line};
use crate::step::Outcome;
use crate::workspace::Workspace;

/// Crates that may contain `unsafe`. Clippy requires a reason for every block.
pub(crate) const ALLOWED: &[&str] = &[
    "stentor-fabric-ofi",
    "stentor-fabric-roce",
    "stentor-fabric-shm",
    "stentor-fabric-verbs",
    "stentor-host",
    "stentor-ibverbs-sys",
    "stentor-libfabric-sys",
    "stentor-atomic-copy",
];

/// Checks every token of the crates outside [`ALLOWED`], and the roots of their libraries, binaries and build scripts.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let workspace = Workspace::load(context)?;
    let (mut violations, mut inside, mut files) = (Vec::new(), 0, 0);
    for package in workspace.members() {
        let sources = package.sources(context)?;
        if ALLOWED.contains(&package.name.as_str()) {
            inside += sources.iter().map(|source| Ok(unsafe_lines(source)?.len())).sum::<Result<usize>>()?;
            continue;
        }
        files += sources.len();
        let shipped = |kind: &String| ["lib", "bin", "proc-macro", "custom-build"].contains(&kind.as_str());
        let roots: Vec<_> = package.targets.iter().filter(|target| target.kind.iter().any(shipped)).collect();
        for source in &sources {
            let is_root = roots.iter().any(|target| target.src_path == context.root.join(&source.path));
            violations.extend(check(source, is_root)?);
        }
    }
    println!("{files} files without `unsafe`; {inside} uses in {}", ALLOWED.join(", "));
    judge(&violations)?;
    Ok(Outcome::Passed)
}

fn check(source: &Source, is_root: bool) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    if is_root && !has_root_attribute(&source.tokens()?, "forbid", "unsafe_code") {
        violations.push(Violation::at(source, 1, "this crate root lacks `#![forbid(unsafe_code)]`"));
    }
    for line in unsafe_lines(source)? {
        let what = format!("`unsafe` belongs in a fabric crate ({})", ALLOWED.join(", "));
        violations.push(Violation::at(source, line, what));
    }
    Ok(violations)
}

fn unsafe_lines(source: &Source) -> Result<Vec<usize>> {
    let mut lines = Vec::new();
    each_level(&source.tokens()?, &mut |tokens| {
        lines.extend(tokens.iter().filter(|token| is_ident(Some(token), "unsafe")).map(line));
    });
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::source;

    fn places(text: &str, is_root: bool) -> Vec<String> {
        check(&source("a.rs", text), is_root).unwrap().into_iter().map(|violation| violation.place).collect()
    }

    #[test]
    fn unsafe_is_seen_in_every_form_and_depth() {
        assert_eq!(places("fn f() {\n    if x { unsafe { g() } }\n}", false), ["a.rs:2"]);
        assert_eq!(places("unsafe impl Send for A {}", false), ["a.rs:1"]);
        assert_eq!(places("unsafe fn f() {}", false), ["a.rs:1"]);
        assert_eq!(places("macro_rules! m { () => {\n unsafe { f() } } }", false), ["a.rs:2"]);
        assert_eq!(places("#[unsafe(no_mangle)] fn f() {}", false), ["a.rs:1"]);
    }

    #[test]
    fn words_in_comments_strings_and_names_are_not_uses() {
        assert_eq!(places("// unsafe { }\nconst A: &str = \"unsafe {}\"; fn unsafe_f() {}", false), [""; 0]);
    }

    #[test]
    fn a_root_without_the_attribute_is_seen() {
        assert_eq!(places("fn f() {}", true), ["a.rs:1"]);
        assert_eq!(places("#![deny(unsafe_code)]\nfn f() {}", true), ["a.rs:1"]);
        assert_eq!(places("#![forbid(unsafe_code)]\nfn f() {}", true), [""; 0]);
        assert_eq!(places("fn f() {}", false), [""; 0]);
    }

    #[test]
    fn allowed_crates_exist() {
        let workspace = Workspace::load(&Context::new()).unwrap();
        for name in ALLOWED {
            assert!(workspace.members().any(|package| package.name == *name), "{name}");
        }
    }
}
