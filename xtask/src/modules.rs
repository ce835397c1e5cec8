//! Finds modules of a crate that import each other. A reader of one of them must read the other as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use proc_macro2::{Delimiter, TokenTree};

use crate::cargo::Context;
use crate::source::{Source, Violation, group, is_ident, is_punct, judge};
use crate::step::Outcome;
use crate::workspace::Workspace;

/// The permitted pairs. A module and a module that contains it do not form a pair.
const MUTUAL: &[(&str, &str, &str)] = &[
    ("stentor", "runtime::cluster", "runtime::room"),
    ("stentor-election-zookeeper", "session", "worker"),
    ("stentor-multicast", "node::fanout", "node::outbound"),
];

/// A module's path inside its crate.
type Module = Vec<String>;

/// Checks the imports of every file below `src` of every crate. Modules inside files and modules called `tests` are
/// left out.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let mut pairs = BTreeSet::new();
    for package in Workspace::load(context)?.members() {
        let sources = package.sources(context)?;
        pairs.extend(mutual(&sources)?.into_iter().map(|(a, b)| (package.name.clone(), a, b)));
    }
    println!("{} pairs of modules import each other", pairs.len());
    judge(&check(MUTUAL, &pairs))?;
    Ok(Outcome::Passed)
}

fn check(known: &[(&str, &str, &str)], pairs: &BTreeSet<(String, String, String)>) -> Vec<Violation> {
    let known: BTreeSet<_> = known.iter().map(|(name, a, b)| ((*name).into(), (*a).into(), (*b).into())).collect();
    let new = pairs.difference(&known).map(|(name, a, b)| {
        Violation::of(name, format!("{a} and {b} import each other: move what both need into one of them or a third"))
    });
    let gone = known.difference(pairs).map(|(name, a, b)| {
        Violation::of(name, format!("{a} and {b} do not import each other any more: remove their row from MUTUAL"))
    });
    new.chain(gone).collect()
}

/// Returns the pairs among the files of one crate.
fn mutual(sources: &[Source]) -> Result<BTreeSet<(String, String)>> {
    let files = sources.iter().filter_map(|source| Some((module(&source.path)?, source)));
    let files: BTreeMap<Module, &Source> = files.collect();
    let mut imports = BTreeMap::<&Module, BTreeSet<Module>>::new();
    for (module, source) in &files {
        let mut paths = Vec::new();
        for import in uses(&source.tokens()?) {
            flatten(&import, &[], &mut paths);
        }
        let targets = paths.iter().filter_map(|path| target(&files, module, path));
        imports.entry(module).or_default().extend(targets);
    }
    let both = |a: &Module, b: &Module| a < b && !b.starts_with(a) && imports.get(b).is_some_and(|of| of.contains(a));
    let pairs =
        imports.iter().flat_map(|(a, of)| of.iter().filter(|b| both(a, b)).map(|b| (a.join("::"), b.join("::"))));
    Ok(pairs.collect())
}

/// Returns the module of a file below `src`, or `None` for a test.
fn module(path: &Path) -> Option<Module> {
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    let below = &parts[parts.iter().position(|part| *part == "src")? + 1..];
    let mut module: Module = below.iter().map(|part| part.trim_end_matches(".rs").to_owned()).collect();
    if ["mod", "lib", "main"].contains(&module.last()?.as_str()) {
        module.pop();
    }
    (!module.iter().any(|part| part == "tests")).then_some(module)
}

/// Returns the tokens between each `use` and its semicolon, including those inside functions and excluding those inside
/// modules.
fn uses(tokens: &[TokenTree]) -> Vec<Vec<TokenTree>> {
    let mut found = Vec::new();
    for (n, token) in tokens.iter().enumerate() {
        if is_ident(Some(token), "use") {
            found.push(tokens[n + 1..].iter().take_while(|token| !is_punct(Some(token), ';')).cloned().collect());
        }
        let inline = n >= 2 && is_ident(tokens.get(n - 2), "mod");
        if let Some(block) = group(Some(token), Delimiter::Brace).filter(|_| !inline) {
            found.extend(uses(&block.stream().into_iter().collect::<Vec<_>>()));
        }
    }
    found
}

/// Adds the paths that an import names.
fn flatten(import: &[TokenTree], before: &[String], paths: &mut Vec<Vec<String>>) {
    for tree in import.split(|token| is_punct(Some(token), ',')).filter(|tree| !tree.is_empty()) {
        let mut path = before.to_vec();
        for token in tree.iter().take_while(|token| !is_ident(Some(token), "as")) {
            match token {
                TokenTree::Ident(name) => path.push(name.to_string()),
                TokenTree::Group(inner) => {
                    let inner: Vec<_> = inner.stream().into_iter().collect();
                    flatten(&inner, &std::mem::take(&mut path), paths);
                }
                _ => {}
            }
        }
        paths.extend(Some(path).filter(|path| !path.is_empty()));
    }
}

/// Returns the innermost module of the crate on a path, if it is not the importing module.
fn target(files: &BTreeMap<Module, &Source>, from: &Module, path: &[String]) -> Option<Module> {
    let supers = path.iter().take_while(|part| *part == "super").count();
    let mut absolute: Module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(supers)?].to_vec(),
        _ => return None,
    };
    absolute.extend(path[supers.max(1)..].iter().cloned());
    while !files.contains_key(&absolute) {
        absolute.pop()?;
    }
    (absolute != *from).then_some(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::source;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(path, text)| source(&format!("crates/c/src/{path}"), text)).collect();
        mutual(&sources).unwrap().into_iter().map(|(a, b)| format!("{a} {b}")).collect()
    }

    #[test]
    fn imports_are_followed_by_any_path() {
        let a = "use crate::{x, b::{self, c::{Thing as Other, D}}};";
        for b in ["use crate::a::A;", "pub(crate) use super::super::a::{A};", "fn f() { use crate::a; }"] {
            assert_eq!(found(&[("lib.rs", ""), ("a.rs", a), ("b/mod.rs", ""), ("b/c.rs", b)]), ["a b::c"], "{b}");
        }
        assert_eq!(found(&[("lib.rs", ""), ("a.rs", a), ("b.rs", "use std::a; use crate::A;")]), [""; 0]);
    }

    #[test]
    fn parents_tests_and_modules_in_files_are_left_out() {
        assert_eq!(found(&[("a.rs", "use self::b::B;"), ("a/b.rs", "use super::A;")]), [""; 0]);
        let tests = "mod tests { use crate::b::B; }";
        assert_eq!(found(&[("a.rs", tests), ("b.rs", "use crate::a;"), ("b/tests.rs", "use crate::a;")]), [""; 0]);
    }

    #[test]
    fn new_pairs_and_rows_without_a_pair_are_seen() {
        let pair = ("c".to_owned(), "a".to_owned(), "b".to_owned());
        let check = |known: &[(&str, &str, &str)], pairs: &[_]| check(known, &pairs.iter().cloned().collect()).len();
        assert_eq!(check(&[("c", "a", "b")], std::slice::from_ref(&pair)), 0);
        assert_eq!((check(&[], &[pair]), check(&[("c", "a", "b")], &[])), (1, 1));
    }
}
