//! The paths that a source file names, found by whole tokens, including those inside macros.

use std::path::PathBuf;

use anyhow::Result;
use proc_macro2::{Delimiter, TokenTree};

use crate::source::{Source, Violation, group, is_ident, is_punct, line};

/// Modules of `std` that do I/O, start threads, read clocks or the environment, or draw random numbers.
const MODULES: &[&str] = &["env", "fs", "io", "net", "os", "process", "random", "thread", "*"];
/// Crates that do I/O, use the operating system or draw random numbers.
const CRATES: &[&str] =
    &["fastrand", "getrandom", "libc", "mio", "nix", "rand", "rand_chacha", "rand_core", "rustix", "socket2", "tokio"];
/// Macros that print, or keep state of a thread.
const MACROS: &[&str] = &["dbg", "eprint", "eprintln", "print", "println", "thread_local"];
/// Constructors that seed their hasher from the operating system.
const SEEDED: &[&str] = &["from", "new", "with_capacity"];

/// Keywords that may precede a path that begins with `::`.
const KEYWORDS: &[&str] = &["as", "break", "dyn", "else", "impl", "in", "match", "mut", "return", "use"];

/// A path as it is written, with groups of `use` expanded.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Name {
    segments: Vec<String>,
    line: usize,
}

/// Returns the forbidden names in the code of a pure crate, outside of `#[cfg(test)]`.
pub(crate) fn check(source: &Source) -> Result<Vec<Violation>> {
    let mut names = Vec::new();
    let mut macros = Vec::new();
    each_shipped_level(&source.tokens()?, &mut |tokens| {
        names.extend(paths(tokens));
        macros.extend(tokens.windows(3).filter_map(called_macro));
    });
    let names = names.iter().filter_map(|name| Some((name.line, name.segments.join("::"), reason(&name.segments)?)));
    let macros =
        macros.into_iter().map(|(name, line)| (line, format!("{name}!"), "it leaves the process or the thread"));
    let violation = |(line, name, why)| Violation::at(source, line, format!("`{name}` in a protocol crate: {why}"));
    Ok(names.chain(macros).map(violation).collect())
}

/// Returns the modules of this file that exist only for tests and have their own files, as paths without `.rs`.
pub(crate) fn test_modules(source: &Source) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let stem = source.path.file_stem().unwrap_or_default();
    let owns_directory = stem == "lib" || stem == "main" || stem == "mod";
    let directory = if owns_directory { source.path.with_file_name("") } else { source.path.with_extension("") };
    let tokens = source.tokens()?;
    let mut n = 0;
    while n < tokens.len() {
        let Some(end) = test_item_end(&tokens[n..]) else {
            n += 1;
            continue;
        };
        let item = &tokens[n..n + end];
        if let [.., module, TokenTree::Ident(name), last] = item
            && is_ident(Some(module), "mod")
            && is_punct(Some(last), ';')
        {
            found.push(directory.join(name.to_string()));
        }
        n += end;
    }
    Ok(found)
}

fn reason(segments: &[String]) -> Option<&'static str> {
    let segment = |n: usize| segments.get(n).map_or("", String::as_str);
    let seeded = segments
        .windows(2)
        .any(|two| ["HashMap", "HashSet"].contains(&two[0].as_str()) && SEEDED.contains(&two[1].as_str()));
    if seeded || segments.iter().any(|segment| segment == "RandomState") {
        return Some("its order differs from run to run; use a fixed hasher or a BTreeMap");
    }
    match segment(0) {
        "std" if segment(1).is_empty() => Some("name the used items, not `std` as a whole"),
        "std" if MODULES.contains(&segment(1)) => Some("it leaves the process or the thread"),
        "std" if segment(1) == "time" && segment(2) != "Duration" => Some("time must be passed as an argument"),
        name if segments.len() > 1 && CRATES.contains(&name) => Some("it leaves the process or draws random numbers"),
        _ => None,
    }
}

/// Returns the paths of one nesting level, and those of the groups that belong to a path.
fn paths(tokens: &[TokenTree]) -> Vec<Name> {
    let mut found = Vec::new();
    let mut n = 0;
    while n < tokens.len() {
        n += path(&tokens[n..], &[], &mut found).max(1);
    }
    found
}

/// Parses the path that begins here, if any. Returns the number of tokens to skip: those of the path, 1 for a keyword,
/// or 0.
fn path(tokens: &[TokenTree], before: &[String], found: &mut Vec<Name>) -> usize {
    // A keyword before `::std` is not part of the path.
    if KEYWORDS.iter().any(|keyword| is_ident(tokens.first(), keyword)) {
        return 1;
    }
    let mut segments = before.to_vec();
    let mut n = if is_separator(tokens) { 2 } else { 0 };
    let at = tokens.first().map_or(0, line);
    loop {
        match tokens.get(n) {
            Some(TokenTree::Ident(ident)) if ident == "self" && !segments.is_empty() => n += 1,
            Some(TokenTree::Ident(ident)) => {
                segments.push(ident.to_string().trim_start_matches("r#").to_owned());
                n += 1;
            }
            Some(TokenTree::Punct(punct)) if punct.as_char() == '*' && n > 0 => {
                segments.push("*".into());
                n += 1;
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace && n > 0 => {
                let inside: Vec<_> = group.stream().into_iter().collect();
                for tree in inside.split(|token| is_punct(Some(token), ',')) {
                    path(tree, &segments, found);
                }
                return n + 1;
            }
            _ => break,
        }
        if !is_separator(&tokens[n..]) {
            break;
        }
        n += 2;
    }
    if segments.len() > before.len() || !before.is_empty() && n > 0 {
        found.push(Name { segments, line: at });
    }
    n
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')
}

fn called_macro(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let TokenTree::Ident(name) = &tokens[0] else { return None };
    let called = is_punct(tokens.get(1), '!') && matches!(tokens[2], TokenTree::Group(_));
    (called && MACROS.contains(&name.to_string().as_str())).then(|| (name.to_string(), line(&tokens[0])))
}

/// Calls `see` with every nesting level, without items for tests.
fn each_shipped_level(tokens: &[TokenTree], see: &mut dyn FnMut(&[TokenTree])) {
    let mut shipped = Vec::new();
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        if let Some(end) = test_item_end(rest) {
            rest = &rest[end..];
        } else {
            shipped.push(first.clone());
            rest = after;
        }
    }
    see(&shipped);
    for token in shipped {
        if let TokenTree::Group(group) = token {
            each_shipped_level(&group.stream().into_iter().collect::<Vec<_>>(), see);
        }
    }
}

/// Returns the number of tokens of the item for tests that begins here, including its attributes. Returns `None` if no
/// such item begins here.
fn test_item_end(tokens: &[TokenTree]) -> Option<usize> {
    let attribute = group(tokens.get(1), Delimiter::Bracket).filter(|_| is_punct(tokens.first(), '#'))?;
    let attribute: Vec<_> = attribute.stream().into_iter().collect();
    if !is_ident(attribute.first(), "cfg") {
        return None;
    }
    let condition: Vec<_> = group(attribute.get(1), Delimiter::Parenthesis)?.stream().into_iter().collect();
    if !needs_test(&condition) {
        return None;
    }
    let body =
        tokens.iter().position(|token| is_punct(Some(token), ';') || group(Some(token), Delimiter::Brace).is_some());
    Some(body.map_or(tokens.len(), |body| body + 1))
}

/// Returns whether a condition is `test`, or `all(…)` with `test` among its conditions.
fn needs_test(condition: &[TokenTree]) -> bool {
    match condition {
        [TokenTree::Ident(ident)] => ident == "test",
        [TokenTree::Ident(all), TokenTree::Group(inside)] if all == "all" => {
            let inside: Vec<_> = inside.stream().into_iter().collect();
            inside.split(|token| is_punct(Some(token), ',')).any(needs_test)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source::fixture::source;

    fn lines(text: &str) -> Vec<String> {
        check(&source("a.rs", text)).unwrap().into_iter().map(|violation| violation.place).collect()
    }

    #[test]
    fn forbidden_names_are_found_in_all_forms() {
        for text in [
            "use std::net::UdpSocket;",
            "use std::{fmt, net};",
            "use std::{fmt, fs::{self, File}};",
            "use std::time::{Duration, Instant};",
            "use std::time;",
            "use std::time::{self, Duration};",
            "use std::time::*;",
            "use std::*;",
            "use std as s;",
            "use std::{self as s};",
            "use ::std::io as what;",
            "extern crate std as s;",
            "fn f() -> std::time::SystemTime { g() }",
            "fn f() { if x { std::thread::spawn(g); } }",
            "fn f() { std::thread::yield_now() }",
            "macro_rules! m { () => { std::process::exit(1) } }",
            "fn f() { println!(\"{}\", 1); }",
            "fn f() { std::println!(\"{}\", 1); }",
            "thread_local! { static A: u8 = 1; }",
            "use rand::Rng;",
            "use getrandom::fill;",
            "fn f() { rand::random::<u8>(); }",
            "use std::hash::RandomState;",
            "fn f() { let a = HashMap::new(); }",
            "fn f() { std::collections::HashSet::with_capacity(1); }",
            "fn f(x: Vec<std::net::IpAddr>) {}",
            "use r#std::fs;",
            "#[cfg(not(test))] use std::fs;",
            "#[cfg(any(test, unix))] use std::fs;",
        ] {
            let lines = lines(text);
            assert!(!lines.is_empty() && lines.iter().all(|line| line == "a.rs:1"), "{text}: {lines:?}");
        }
    }

    #[test]
    fn pure_code_passes() {
        for text in [
            "use std::time::Duration;",
            "use std::{collections::{BTreeMap, HashMap}, fmt};",
            "use core::net::Ipv4Addr;",
            "// std::net\nconst A: &str = \"std::fs::File\";",
            "/// See std::net::UdpSocket.\nfn f() {}",
            "fn f(rand: u8) { rand }",
            "fn f() { let net = my::net::thread::io(); }",
            "fn f() { let a = x != (y); let b = print; }",
            "fn f() { HashMap::with_hasher(Fixed); Map::new(); }",
            "#[cfg(test)] mod tests { use std::fs; }\nfn f() {}",
            "#[cfg(all(test, not(loom)))]\n#[path = \"x.rs\"]\nmod tests;",
        ] {
            assert_eq!(lines(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn only_items_for_tests_are_skipped() {
        assert_eq!(lines("#[cfg(test)]\nuse std::fs;\n#[cfg(test)]\nfn f() {}\nuse std::net;"), ["a.rs:5"]);
    }

    #[test]
    fn files_of_test_modules_are_found() {
        let text =
            "#[cfg(all(test, not(loom)))]\nmod tests;\nmod real;\n#[cfg(test)]\npub mod more;\n#[cfg(test)] mod a {}";
        let found = test_modules(&source("src/ring/mod.rs", text)).unwrap();
        assert_eq!(found, [Path::new("src/ring/tests"), Path::new("src/ring/more")]);
        let found = test_modules(&source("src/ring.rs", "#[cfg(test)] mod tests;")).unwrap();
        assert_eq!(found, [Path::new("src/ring/tests")]);
    }
}
