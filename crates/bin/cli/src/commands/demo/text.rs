//! The lines that are multicast, and their destinations.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use stentor::runtime::GroupId;
use stentor_support::Failure;
use stentor_support::live::{Input, Line, Lines, TooLong};
use xxhash_rust::xxh3::xxh3_64;

use crate::args;

/// The documents whose lines are the text if the user names no input.
const DOCUMENTS: [&str; 7] = [
    include_str!("../../../../../../README.md"),
    include_str!("../../../../../../ARCHITECTURE.md"),
    include_str!("../../../../../../CONTRIBUTING.md"),
    include_str!("../../../../../../docs/history.md"),
    include_str!("../../../../../../docs/hazards.md"),
    include_str!("../../../../../../LICENSE-APACHE"),
    include_str!("../../../../../../LICENSE-MIT"),
];
/// Largest number of lines of an input, unless the user limits it. Each line is recorded once per process.
const MOST_LINES: usize = 10_000_000;
/// Largest size of an input, in bytes, because all of it is held in memory.
const MOST_BYTES: usize = 1 << 30;
/// Smallest number of lines to which the documents are repeated.
const LINES: usize = 6000;

/// A text, and where it came from.
pub(super) struct Text {
    pub(super) lines: Vec<Vec<u8>>,
    pub(super) source: String,
}

impl Text {
    /// Reads the whole text, so that a line that is too long is refused before any process is started.
    pub(super) fn read(args: &args::Demo, limit: usize) -> Result<Self, Failure> {
        let most = args.messages_limit.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let text = match &args.input {
            Some(path) => Text { lines: file(path, limit, most)?, source: path.display().to_string() },
            None => documents(most),
        };
        if text.lines.is_empty() {
            return Err(Failure::usage("there is no line in the input", &text.source, "name a text that has lines"));
        }
        Ok(text)
    }
}

fn documents(most: usize) -> Text {
    let once: Vec<&str> = DOCUMENTS.iter().flat_map(|document| document.lines()).collect();
    let times = LINES.div_ceil(once.len());
    let lines = once.iter().cycle().take((once.len() * times).min(most)).map(|line| line.as_bytes().to_vec()).collect();
    Text { lines, source: format!("the project's own documents, {} lines, {times} times", once.len()) }
}

fn file(path: &Path, limit: usize, most: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let place = path.display().to_string();
    let refuse = |error: &std::io::Error, line: &str| {
        let place = format!("{place}{line}");
        let remedy = "name a text file that this user may read";
        Failure::usage(format_args!("cannot read the input: {error}"), place, remedy)
    };
    let input = File::open(path).map_err(|error| refuse(&error, ""))?;
    let input = Lines::read(move || Box::new(BufReader::new(input.take(u64::MAX))), limit, TooLong::Ends)?;
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while lines.len() < most {
        if (lines.len() >= MOST_LINES && most == usize::MAX) || bytes > MOST_BYTES {
            let what = format_args!("the input has more than {MOST_LINES} lines or {} MiB", MOST_BYTES >> 20);
            return Err(Failure::usage(what, place, "limit the number of lines with --messages-limit"));
        }
        match input.wait(std::time::Duration::MAX) {
            Input::Line(Line::Text(line)) => {
                bytes += line.len();
                lines.push(line);
            }
            Input::Line(Line::TooLong { number }) => {
                let what = format_args!("line {number} is longer than {limit} bytes");
                return Err(Failure::usage(what, format_args!("{place}:{number}"), "split the line"));
            }
            Input::Line(Line::Unreadable { number, error }) => return Err(refuse(&error, &format!(":{number}"))),
            Input::Later => {}
            Input::End => break,
        }
    }
    Ok(lines)
}

/// Derives the destination groups of a line from its bytes. If there are several groups, about half of all lines go to
/// one group, and the others to several.
pub(super) fn destinations(line: &[u8], groups: usize) -> Vec<GroupId> {
    let mut hash = xxh3_64(line);
    let mut draw = |bound: usize| {
        let drawn = (hash % bound as u64) as usize;
        hash /= bound as u64;
        drawn
    };
    let wanted = if groups == 1 || draw(2) == 0 { 1 } else { 2 + draw(groups - 1) };
    let mut to: Vec<GroupId> = (0..groups as u16).map(GroupId).collect();
    while to.len() > wanted {
        to.remove(draw(to.len()));
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_lines_go_to_one_group_and_every_group_receives_some() {
        for groups in 1..=5 {
            let lines = (0..1000).map(|n| format!("line {n}"));
            let sets: Vec<_> = lines.map(|line| destinations(line.as_bytes(), groups)).collect();
            assert!(sets.iter().all(|to| !to.is_empty() && to.is_sorted_by(|a, b| a < b)));
            let single = sets.iter().filter(|to| to.len() == 1).count();
            assert!(groups == 1 || (400..600).contains(&single), "{groups} groups: {single}");
            let per_group = |group| sets.iter().filter(|to| to.contains(&GroupId(group))).count();
            assert!((0..groups as u16).all(|group| per_group(group) > 1000 / groups / 2));
        }
    }

    #[test]
    fn default_text_has_thousands_of_lines() {
        let text = documents(usize::MAX);
        assert!(text.lines.len() >= 5000);
        assert!(text.lines.iter().any(|line| line.starts_with(b"# Stentor")));
        assert_eq!(documents(7).lines.len(), 7);
    }
}
