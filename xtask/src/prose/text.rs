//! Extracts the text of comments.

/// A comment of consecutive lines.
#[derive(Clone, Debug)]
pub(super) struct Block<'a> {
    /// The number of the first line in the file, from 1.
    pub(super) first_line: usize,
    /// The lines without the slashes.
    pub(super) lines: Vec<&'a str>,
}

/// Returns the comments of a file, except those that follow code on a line.
pub(super) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            goes_on = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']);
        match blocks.last_mut().filter(|_| goes_on) {
            Some(block) => block.lines.push(comment),
            None => blocks.push(Block { first_line: at + 1, lines: vec![comment] }),
        }
        goes_on = true;
    }
    blocks
}

impl Block<'_> {
    /// Returns the sentences of the comment, without code. A heading, an item of a list or a row of a table begins a
    /// sentence.
    pub(super) fn sentences(&self) -> Vec<String> {
        let (mut paragraphs, mut in_code) = (vec![String::new()], false);
        for line in &self.lines {
            let line = line.trim();
            if line.starts_with("```") {
                in_code = !in_code;
                paragraphs.push(String::new());
            } else if !in_code {
                let words = without_mark(line);
                if words.len() < line.len() || line.is_empty() {
                    paragraphs.push(String::new());
                }
                if let Some(paragraph) = paragraphs.last_mut().filter(|_| !words.is_empty()) {
                    *paragraph += words;
                    paragraph.push(' ');
                }
            }
        }
        paragraphs.iter().flat_map(|paragraph| split(paragraph)).collect()
    }

    /// Returns the lines of Rust code in the comment, without comments and blank lines of this code.
    pub(super) fn rust_lines(&self) -> Vec<String> {
        const RUST: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];
        let (mut code, mut fence) = (Vec::new(), None);
        for line in &self.lines {
            let line = line.trim();
            match line.strip_prefix("```") {
                Some(info) => fence = if fence.is_none() { Some(RUST.contains(&info)) } else { None },
                None if fence == Some(true) => code.push(line.split("//").next().unwrap_or_default().trim().to_owned()),
                None => {}
            }
        }
        code.retain(|line| !line.is_empty());
        code
    }
}

/// Removes the mark of a heading, an item or a row from a line.
fn without_mark(line: &str) -> &str {
    let rest = line.trim_start_matches(['#', '|', '-', '*']);
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = digits.len() < line.len() && digits.starts_with(". ");
    match () {
        () if is_numbered => &digits[2..],
        () if rest.len() < line.len() && rest.starts_with(' ') => rest.trim_start(),
        () => line,
    }
}

/// Splits a paragraph at the ends of sentences: a stop, a blank, and then a capital letter, code or a link.
fn split(paragraph: &str) -> Vec<String> {
    let (mut sentences, mut begin) = (Vec::new(), 0);
    for (at, _) in paragraph.match_indices(['.', '!', '?']) {
        let rest = &paragraph[at + 1..];
        let next = rest.strip_prefix(' ').and_then(|rest| rest.chars().next());
        if next.is_some_and(|next| next.is_uppercase() || ['`', '[', '*', '('].contains(&next)) {
            sentences.push(paragraph[begin..=at].trim().to_owned());
            begin = at + 1;
        }
    }
    sentences.push(paragraph[begin..].trim().to_owned());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_comments_one_below_the_other() {
        let blocks = blocks("//! One\n//! two.\n\n  // Three.\nfn f() {} // Four.\n/// Five.\n");
        let found: Vec<_> = blocks.iter().map(|block| (block.first_line, block.sentences())).collect();
        assert_eq!(
            found,
            [(1, vec!["One two.".to_owned()]), (4, vec!["Three.".to_owned()]), (6, vec!["Five.".to_owned()])]
        );
    }

    #[test]
    fn headings_items_and_rows_begin_sentences_and_code_has_none() {
        let text = "//! # Errors\n//! If it fails. `A` is not\n//! read.\n//! - one\n//! 2. two\n//! ```\n//! what();\n//! ```\n";
        assert_eq!(
            blocks(text)[0].sentences(),
            ["Errors If it fails.", "`A` is not read.", "one", "two"].map(str::to_owned)
        );
    }

    #[test]
    fn a_stop_inside_a_name_ends_no_sentence() {
        assert_eq!(split("Reads a.rs, e.g. in 1.5 s. Done."), ["Reads a.rs, e.g. in 1.5 s.", "Done."]);
    }
}
