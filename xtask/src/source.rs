//! Rust source files, and violations of rules in them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::{Context as _, Result, anyhow, bail};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A Rust file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The path from the repository root.
    pub path: PathBuf,
    /// The contents of the file.
    pub text: String,
}

impl Source {
    /// Returns the tokens of the file. They have no comments, and doc comments are attributes.
    pub(crate) fn tokens(&self) -> Result<Vec<TokenTree>> {
        let tokens = TokenStream::from_str(&self.text);
        let tokens = tokens.map_err(|error| anyhow!("{}: not Rust: {error}", self.path.display()))?;
        Ok(tokens.into_iter().collect())
    }

    /// Returns the number of lines.
    pub(crate) fn lines(&self) -> usize {
        self.text.lines().count()
    }
}

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation {
    /// The place: a file, a file and a line, or a crate.
    pub place: String,
    /// The problem and its remedy.
    pub what: String,
}

impl Violation {
    /// Returns a violation in a line of a file.
    pub(crate) fn at(source: &Source, line: usize, what: impl Into<String>) -> Self {
        Violation { place: format!("{}:{line}", source.path.display()), what: what.into() }
    }

    /// Returns a violation in a crate or a file as a whole.
    pub(crate) fn of(place: impl fmt::Display, what: impl Into<String>) -> Self {
        Violation { place: place.to_string(), what: what.into() }
    }
}

/// Prints all violations. Fails if there are any.
pub(crate) fn judge(violations: &[Violation]) -> Result<()> {
    for violation in violations {
        println!("{}: {}", violation.place, violation.what);
    }
    match violations {
        [] => Ok(()),
        [one] => bail!("{}: {}", one.place, one.what),
        [first, rest @ ..] => bail!("{}: {} (and {} more)", first.place, first.what, rest.len()),
    }
}

/// Returns all Rust files below `directory` except build output, ordered by path.
pub(crate) fn rust_files(root: &Path, directory: &Path) -> Result<Vec<Source>> {
    let mut files = Vec::new();
    let mut to_do = vec![directory.to_owned()];
    while let Some(directory) = to_do.pop() {
        let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                to_do.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                files.push(Source { path: path.strip_prefix(root).unwrap_or(&path).to_owned(), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns the line in which a token begins.
pub(crate) fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

/// Returns whether a token is this identifier or keyword.
pub(crate) fn is_ident(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == name)
}

/// Returns whether a token is this character of punctuation.
pub(crate) fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

/// Returns the token as a group with these delimiters.
pub(crate) fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// Calls `see` with the tokens of every nesting level.
pub(crate) fn each_level(tokens: &[TokenTree], see: &mut dyn FnMut(&[TokenTree])) {
    see(tokens);
    for token in tokens {
        if let TokenTree::Group(group) = token {
            each_level(&group.stream().into_iter().collect::<Vec<_>>(), see);
        }
    }
}

/// Returns whether the file has the attribute `#![name(argument)]`, or `#![name]` if `argument` is empty.
pub(crate) fn has_root_attribute(tokens: &[TokenTree], name: &str, argument: &str) -> bool {
    tokens.windows(3).any(|window| {
        let inner = is_punct(window.first(), '#') && is_punct(window.get(1), '!');
        let Some(attribute) = group(window.get(2), Delimiter::Bracket).filter(|_| inner) else { return false };
        let attribute: Vec<_> = attribute.stream().into_iter().collect();
        let arguments = group(attribute.get(1), Delimiter::Parenthesis).map(|group| group.stream().into_iter());
        let right = match arguments {
            Some(mut arguments) => arguments.any(|token| is_ident(Some(&token), argument)),
            None => argument.is_empty(),
        };
        is_ident(attribute.first(), name) && right
    })
}

#[cfg(test)]
pub(crate) mod fixture {
    //! Sources for tests.

    use super::*;

    /// Returns a file with this text.
    pub(crate) fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use stentor_testutil::TempDir;

    use super::*;
    use fixture::source;

    #[test]
    fn files_are_found_at_any_depth_but_not_in_the_build_output() {
        let files = ["a.rs", "x/y/b.rs", "target/c.rs", "x/d.txt"].map(|file| (file, "fn f() {}"));
        let root = TempDir::with_lines(&files);
        let found: Vec<_> = rust_files(&root, &root).unwrap().into_iter().map(|source| source.path).collect();
        assert_eq!(found, [Path::new("a.rs"), Path::new("x/y/b.rs")]);
        assert!(rust_files(&root, &root.join("z")).is_err(), "a directory that is not there is an error");
    }

    #[test]
    fn root_attributes_differ_from_comments_strings_and_items() {
        let has = |text| has_root_attribute(&source("a.rs", text).tokens().unwrap(), "forbid", "unsafe_code");
        assert!(has("//! Docs.\n#![no_std]\n#![forbid(missing_docs, unsafe_code)]\nfn f() {}"));
        assert!(!has("// #![forbid(unsafe_code)]"));
        assert!(!has("const A: &str = \"#![forbid(unsafe_code)]\";"));
        assert!(!has("#[forbid(unsafe_code)] fn f() {}"));
        assert!(!has("#![deny(unsafe_code)]"));
        assert!(has_root_attribute(&source("a.rs", "#![no_std]").tokens().unwrap(), "no_std", ""));
    }

    #[test]
    fn text_that_is_not_rust_is_an_error() {
        assert!(source("a.rs", "fn f() {").tokens().is_err());
    }

    #[test]
    fn one_violation_is_enough() {
        assert!(judge(&[]).is_ok());
        assert!(judge(&[Violation::of("crate", "wrong")]).is_err());
    }
}
