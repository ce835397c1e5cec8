//! Files and functions stay short enough to be read.

use std::path::Path;

use anyhow::Result;
use proc_macro2::{Delimiter, TokenTree};

use crate::cargo::Context;
use crate::runner::Outcome;
use crate::source::{Source, Violation, each_level, group, is_ident, is_punct, judge, line};
use crate::workspace::Workspace;

/// Lines of a file, at most.
pub(crate) const FILE_LINES: usize = 800;
/// Lines of the median file, at most.
pub(crate) const MEDIAN_FILE_LINES: usize = 200;
/// Lines of a function from `fn` to its closing brace, at most.
pub(crate) const FUNCTION_LINES: usize = 70;

/// Files that a program wrote, which nobody reviews line by line; the step `bindings` proves that they are what it writes.
const GENERATED: &[&str] = &["crates/fabric/ofi/src/sys/libfabric.rs", "crates/fabric/verbs/src/sys/verbs.rs"];

/// Measures every Rust file of the workspace, tests included, but those that are generated.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let mut sources = Vec::new();
    for package in Workspace::load(context)?.members() {
        let written = |source: &Source| GENERATED.iter().all(|path| source.path != Path::new(path));
        sources.extend(package.sources(context)?.into_iter().filter(written));
    }
    let (violations, functions) = check(&sources)?;
    let files: Vec<usize> = sources.iter().map(Source::lines).collect();
    println!("files     {}", spread(files, FILE_LINES));
    println!("functions {}", spread(functions, FUNCTION_LINES));
    judge(&violations)?;
    Ok(Outcome::Passed)
}

/// A function with a body.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

fn check(sources: &[Source]) -> Result<(Vec<Violation>, Vec<usize>)> {
    let (mut violations, mut lengths) = (Vec::new(), Vec::new());
    for source in sources {
        if source.lines() > FILE_LINES {
            let what = format!("{} lines; at most {FILE_LINES}: split it", source.lines());
            violations.push(Violation::of(source.path.display(), what));
        }
        for function in functions(&source.tokens()?) {
            lengths.push(function.lines);
            if function.lines > FUNCTION_LINES {
                let what = format!("`{}` has {} lines; at most {FUNCTION_LINES}", function.name, function.lines);
                violations.push(Violation::at(source, function.line, what));
            }
        }
    }
    let median = percentile(sources.iter().map(Source::lines).collect(), 50);
    if median > MEDIAN_FILE_LINES {
        violations.push(Violation::of(
            "workspace",
            format!("the median file has {median} lines; at most {MEDIAN_FILE_LINES}"),
        ));
    }
    Ok((violations, lengths))
}

fn functions(tokens: &[TokenTree]) -> Vec<Function> {
    let mut found = Vec::new();
    each_level(tokens, &mut |tokens| {
        for n in 0..tokens.len() {
            let Some(TokenTree::Ident(name)) = tokens.get(n + 1).filter(|_| is_ident(tokens.get(n), "fn")) else {
                continue;
            };
            if let Some(end) = body_end(&tokens[n + 1..]) {
                let start = line(&tokens[n]);
                found.push(Function { name: name.to_string(), line: start, lines: end - start + 1 });
            }
        }
    });
    found
}

/// The line of the brace that closes the body; nothing for a declaration without one.
fn body_end(tokens: &[TokenTree]) -> Option<usize> {
    for (n, token) in tokens.iter().enumerate() {
        if is_punct(Some(token), ';') {
            return None;
        }
        // Braces can also be a generic argument, as in `Array<{ N }>`.
        let argument = is_punct(tokens.get(n + 1), '>') || is_punct(tokens.get(n + 1), ',');
        if let Some(body) = group(Some(token), Delimiter::Brace).filter(|_| !argument) {
            return Some(body.span_close().end().line);
        }
    }
    None
}

fn percentile(mut values: Vec<usize>, percent: usize) -> usize {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0)
}

fn spread(values: Vec<usize>, limit: usize) -> String {
    let (count, median, most) =
        (values.len(), percentile(values.clone(), 50), values.iter().max().copied().unwrap_or(0));
    format!("{count}: median {median} lines, 90th percentile {}, longest {most}, limit {limit}", percentile(values, 90))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::source;

    fn lengths(text: &str) -> Vec<(String, usize)> {
        let found = functions(&source("a.rs", text).tokens().unwrap());
        found.into_iter().map(|function| (function.name, function.lines)).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    f();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_is_measured_from_fn_to_its_closing_brace() {
        assert_eq!(lengths("/// Docs.\n#[inline]\npub fn a() {\n    b();\n}\n"), [("a".into(), 3)]);
        assert_eq!(lengths("fn a<T>(x: [u8; { 1 }]) -> A<{ 2 }>\nwhere\n    T: B,\n{\n}\n"), [("a".into(), 5)]);
        assert_eq!(lengths("trait T { fn a(); fn b() { }\n type F = fn(u8) -> u8; }"), [("b".into(), 1)]);
    }

    #[test]
    fn functions_in_macros_in_impls_and_in_functions_are_measured() {
        let text = "proptest! {\n#[test]\nfn a(x in 0..1) {\n}\n}\nimpl A { fn b() {\nfn c() {}\n} }";
        assert_eq!(lengths(text), [("a".into(), 2), ("b".into(), 3), ("c".into(), 1)]);
    }

    #[test]
    fn only_what_says_that_it_is_generated_is_left_out() {
        for path in GENERATED {
            let text = std::fs::read_to_string(Context::new().root.join(path)).unwrap();
            assert!(text.contains("//! Generated by `cargo xtask"), "{path}");
        }
    }

    #[test]
    fn one_line_too_many_is_seen() {
        let check = |text: &str| check(&[source("a.rs", text)]).unwrap().0;
        assert_eq!(check(&function(FUNCTION_LINES)), []);
        assert_eq!(check(&function(FUNCTION_LINES + 1)).len(), 1);
        assert!(check(&"\n".repeat(FILE_LINES + 1))[0].what.contains("split it"));
        assert_eq!(check(&"\n".repeat(FILE_LINES)).len(), 1, "the median");
        assert_eq!(check(&"\n".repeat(MEDIAN_FILE_LINES)), []);
    }
}
