//! `cargo xtask prose --same-code-as`: checks that a change affects only text. Text is comments, strings and names of
//! tests. Byte strings and the Rust code in documentation are code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenTree};

use super::text;
use crate::cargo::{Context, capture};
use crate::lines::documentation;
use crate::needs::Needs;
use crate::source::{Source, Violation, each_level, group, is_ident, is_punct, judge};

pub(crate) const NEEDS: Needs = Needs { things: &["git"], sources: &["xtask/src/prose"] };

/// Compares the Rust files of this checkout with those of a commit. Only comments, strings and names of test functions
/// may differ.
pub(crate) fn compare(context: &Context, commit: &str) -> Result<()> {
    NEEDS.ensure()?;
    let git = |arguments: &[&str]| {
        let (good, text) = capture(Command::new("git").current_dir(&context.root).args(arguments))?;
        Ok::<_, anyhow::Error>(good.then_some(text))
    };
    let changed = git(&["diff", "--name-only", "--no-renames", commit, "--", "*.rs"])?;
    let changed = changed.with_context(|| format!("git knows no commit `{commit}`"))?;
    let (mut violations, mut renamed) = (Vec::new(), 0);
    for path in changed.lines() {
        let now = std::fs::read_to_string(context.root.join(path));
        let (Some(before), Ok(now)) = (git(&["show", &format!("{commit}:{path}")])?, now) else {
            violations.push(Violation::of(path, "it was added or removed"));
            continue;
        };
        let [before, now] = [before, now].map(|text| Code::of(&Source { path: path.into(), text }));
        let (before, now) = (before?, now?);
        renamed += now.tests.difference(&before.tests).count();
        if let Some(token) = before.first_difference(&now) {
            violations.push(Violation::of(path, token));
        }
    }
    println!("{} files differ, {renamed} tests have other names", changed.lines().count());
    judge(&violations)
}

/// The code of a file without its text.
struct Code {
    /// The tokens that are not text, each with its line.
    tokens: Vec<(String, usize)>,
    /// The names of test functions.
    tests: BTreeSet<String>,
    /// The lines of the Rust code in documentation.
    examples: Vec<String>,
}

impl Code {
    fn of(source: &Source) -> Result<Code> {
        let all = source.tokens()?;
        let mut tests = BTreeSet::new();
        each_level(&all, &mut |tokens| tests.extend(names_of_tests(tokens)));
        let examples = text::blocks(&source.text).iter().flat_map(text::Block::rust_lines).collect();
        let mut code = Code { tokens: Vec::new(), tests, examples };
        code.add(&all);
        Ok(code)
    }

    fn add(&mut self, tokens: &[TokenTree]) {
        let mut n = 0;
        while n < tokens.len() {
            let skipped = documentation(&tokens[n..]);
            if skipped > 0 {
                n += skipped;
                continue;
            }
            let line = tokens[n].span().start().line;
            match &tokens[n] {
                TokenTree::Group(inner) => {
                    self.tokens.push((format!("{:?}", inner.delimiter()), line));
                    self.add(&inner.stream().into_iter().collect::<Vec<_>>());
                    self.tokens.push(("end".to_owned(), inner.span_close().start().line));
                }
                TokenTree::Literal(literal) if is_string(&literal.to_string()) => {
                    self.tokens.push(("a string".to_owned(), line));
                }
                TokenTree::Ident(name) if self.tests.contains(&name.to_string()) => {
                    self.tokens.push(("a test".to_owned(), line));
                }
                // A rewrapped call may have a trailing comma more or less.
                token if n + 1 == tokens.len() && is_punct(Some(token), ',') => {}
                token => self.tokens.push((token.to_string(), line)),
            }
            n += 1;
        }
    }

    /// Returns a description of the first difference.
    fn first_difference(&self, now: &Code) -> Option<String> {
        if self.examples != now.examples {
            return Some("the Rust code in its documentation differs".to_owned());
        }
        let at = (0..self.tokens.len().max(now.tokens.len())).find(|at| {
            let [before, now] = [self, now].map(|code| code.tokens.get(*at).map(|(token, _)| token));
            before != now
        })?;
        let mut text = "the code differs: ".to_owned();
        for (code, when) in [(self, "before"), (now, "now")] {
            let found =
                code.tokens.get(at).map_or("nothing".to_owned(), |(token, line)| format!("`{token}` in line {line}"));
            let _ = write!(text, "{when} {found}; ");
        }
        Some(text.trim_end_matches("; ").to_owned())
    }
}

/// Returns whether a literal is a string, raw or not.
fn is_string(literal: &str) -> bool {
    literal.starts_with(['"', 'r'])
}

/// Returns the names of the functions among these tokens that have an attribute `test`.
fn names_of_tests(tokens: &[TokenTree]) -> Vec<String> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for (at, token) in tokens.iter().enumerate() {
        if is_punct(Some(token), '#') {
            let attribute = group(tokens.get(at + 1), Delimiter::Bracket).map(|group| group.stream().into_iter());
            is_test |= attribute.is_some_and(|words| is_ident(words.last().as_ref(), "test"));
        } else if is_ident(Some(token), "fn") {
            names.extend(tokens.get(at + 1).filter(|_| is_test).map(ToString::to_string));
            is_test = false;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::source;

    fn difference(before: &str, now: &str) -> Option<String> {
        let [before, now] = [before, now].map(|text| Code::of(&source("a.rs", text)).unwrap());
        before.first_difference(&now)
    }

    #[test]
    fn text_may_differ_and_nothing_else() {
        let before = "//! One.\n/// Two.\nfn a() { b(\"c\", 1) } // three\n#[test]\n#[ignore = \"d\"]\nfn e() {}\n";
        let now =
            "/// Another.\nfn a() {\n    b(\n        r#\"C\"#, 1)\n}\n#[test]\n#[ignore = \"D\"]\nfn renamed() {}\n";
        assert_eq!(difference(before, now), None);
        for other in [before.replace("1)", "2)"), before.replace("fn a", "fn z"), before.replace(" fn", " pub fn")] {
            assert_eq!(difference(before, &other).is_some(), other != before, "{other}");
        }
        let told = difference("fn a() {}\n", "\nfn z() {}\n").unwrap();
        assert_eq!(told, "the code differs: before `a` in line 1; now `z` in line 2");
    }

    #[test]
    fn byte_strings_and_code_in_documentation_are_code() {
        assert!(difference("fn a() { b(b\"c\") }", "fn a() { b(b\"d\") }").is_some());
        let documented = |code: &str| format!("/// One.\n///\n/// ```\n{code}/// ```\nfn a() {{}}\n");
        let before = documented("/// let a = 1; // why\n");
        assert_eq!(difference(&before, &documented("/// // Because.\n/// let a = 1;\n")), None);
        assert!(difference(&before, &documented("/// let a = 2; // why\n")).is_some());
    }

    #[test]
    fn only_tests_may_have_other_names() {
        assert_eq!(difference("#[tokio::test]\nfn a() {}", "#[tokio::test]\nfn b() {}"), None);
        assert!(difference("#[cfg(test)]\nmod a { fn b() {} }", "#[cfg(test)]\nmod a { fn c() {} }").is_some());
    }
}
