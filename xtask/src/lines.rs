//! `cargo xtask lines`: counts lines of code, so that a change can report by how much it made a crate shorter or
//! longer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, ensure};
use proc_macro2::{Delimiter, TokenTree};

use crate::lengths::GENERATED_MARK;
use crate::source::{Source, group, is_ident, is_punct, rust_files};

/// Counts the lines of code below the `src` folders of a checkout, and prints the counts for each crate.
///
/// A line counts if it has a token. Blank lines, comments and documentation do not count, and generated files are left
/// out. Tests inside `src` count, and tests beside it do not.
pub(crate) fn print(root: &Path) -> Result<()> {
    let counts = count(&rust_files(root, root)?)?;
    ensure!(!counts.is_empty(), "there is no Rust file below a folder `src` in {}", root.display());
    for (name, lines) in &counts {
        println!("{lines:>7} {name}");
    }
    println!("{:>7} in all", counts.values().sum::<usize>());
    Ok(())
}

/// Returns the number of lines of code of each crate, by its folder.
fn count(sources: &[Source]) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for source in sources {
        let parts: Vec<_> = source.path.iter().map(|part| part.to_string_lossy()).collect();
        let Some(src) = parts.iter().position(|part| part == "src") else { continue };
        if source.text.lines().any(|line| line.starts_with(GENERATED_MARK)) {
            continue;
        }
        *counts.entry(parts[..src].join("/")).or_default() += code_lines(source)?;
    }
    Ok(counts)
}

/// Returns the number of lines of a file that have a token.
fn code_lines(source: &Source) -> Result<usize> {
    let mut lines = BTreeSet::new();
    add(&source.tokens()?, &mut lines);
    Ok(lines.len())
}

fn add(tokens: &[TokenTree], lines: &mut BTreeSet<usize>) {
    let mut n = 0;
    while n < tokens.len() {
        let skipped = documentation(&tokens[n..]);
        if skipped > 0 {
            n += skipped;
            continue;
        }
        match &tokens[n] {
            TokenTree::Group(inner) => {
                lines.insert(inner.span_open().start().line);
                lines.insert(inner.span_close().end().line);
                add(&inner.stream().into_iter().collect::<Vec<_>>(), lines);
            }
            token => lines.extend(token.span().start().line..=token.span().end().line),
        }
        n += 1;
    }
}

/// Returns the number of tokens at the start of `tokens` that form one doc comment, which the tokenizer returns as
/// `#[doc = "…"]`.
pub(crate) fn documentation(tokens: &[TokenTree]) -> usize {
    let mark = usize::from(is_punct(tokens.get(1), '!'));
    let Some(attribute) = group(tokens.get(1 + mark), Delimiter::Bracket).filter(|_| is_punct(tokens.first(), '#'))
    else {
        return 0;
    };
    let attribute: Vec<_> = attribute.stream().into_iter().collect();
    let comment = is_ident(attribute.first(), "doc") && is_punct(attribute.get(1), '=');
    if comment { 2 + mark } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::source;

    fn lines(text: &str) -> usize {
        code_lines(&source("a.rs", text)).unwrap()
    }

    #[test]
    fn lines_with_a_token_count_and_no_others() {
        assert_eq!(lines(""), 0);
        assert_eq!(lines("//! Docs.\n//! More.\n\n// why\nuse a::b;\n"), 1);
        assert_eq!(lines("/// Docs.\n#[inline]\nfn a() {\n    // why\n\n    b(); // because\n}\n"), 4);
        assert_eq!(lines("/*\n * Long.\n */\nfn a() {}\n"), 1);
        assert_eq!(lines("const A: &str = \"one\n\nthree\";\n"), 3);
        assert_eq!(lines("mod m {\n    #![allow(x)]\n    /// Docs.\n    fn a() {}\n}\n"), 4);
    }

    #[test]
    fn crates_are_distinguished_and_generated_files_are_left_out() {
        let generated = format!("{GENERATED_MARK} bindings`.\nfn a() {{}}\n");
        let sources = [
            source("crates/a/src/lib.rs", "fn a() {}\n"),
            source("crates/a/src/b/mod.rs", "fn b() {}\n"),
            source("crates/a/src/sys.rs", &generated),
            source("crates/a/tests/a.rs", "fn c() {}\n"),
            source("crates/w/b/src/main.rs", "fn main() {\n}\n"),
        ];
        let expected = [("crates/a".to_owned(), 2), ("crates/w/b".to_owned(), 2)];
        assert_eq!(count(&sources).unwrap(), BTreeMap::from(expected));
    }
}
