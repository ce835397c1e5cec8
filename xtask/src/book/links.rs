//! Checks links of pages to other pages, to files, and to headings.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd};

use super::Page;
use crate::source::Violation;

/// Returns the broken links, and the pages of `docs` that are missing in the table of contents.
pub(super) fn check(root: &Path, pages: &[Page]) -> Result<Vec<Violation>> {
    let mut wrong = Vec::new();
    let summary = Path::new("docs/SUMMARY.md");
    let mut listed = BTreeSet::from([summary.to_owned()]);
    for page in pages {
        for (line, link) in links(&page.text) {
            let Some((target, heading)) = resolved(&page.path, &link) else { continue };
            let place = format!("{}:{line}", page.path.display());
            if !root.join(&target).exists() {
                wrong.push(Violation { place, what: format!("`{link}` leads to no file") });
            } else if let Some(heading) = heading.filter(|_| target.extension().is_some_and(|end| end == "md")) {
                let is_there = pages.iter().any(|page| page.path == target && headings(&page.text).contains(&heading));
                if !is_there {
                    wrong.push(Violation { place, what: format!("`{link}` leads to no heading") });
                }
            }
            if page.path == summary {
                listed.insert(target);
            }
        }
    }
    let in_docs = pages.iter().map(|page| &page.path).filter(|path| path.starts_with("docs"));
    let missing = in_docs.filter(|path| !listed.contains(*path));
    wrong.extend(missing.map(|path| Violation::of(path.display(), "docs/SUMMARY.md does not list this page")));
    Ok(wrong)
}

/// Returns the targets of links and pictures, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    events
        .filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some((text[..range.start].matches('\n').count() + 1, dest_url.into_string()))
            }
            _ => None,
        })
        .collect()
}

/// Returns the file and the heading to which a link of a page leads, or `None` if it leads out of the repository.
fn resolved(page: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading.to_owned())));
    if path.is_empty() {
        return Some((page.to_owned(), heading));
    }
    let mut target = PathBuf::new();
    for part in page.parent().unwrap_or(Path::new("")).join(path).components() {
        match part {
            Component::ParentDir => {
                target.pop();
            }
            part => target.push(part),
        }
    }
    Some((target, heading))
}

/// Returns the anchors of a page's headings, as GitHub and mdBook form them.
fn headings(text: &str) -> Vec<String> {
    let (mut all, mut current): (Vec<String>, Option<String>) = (Vec::new(), None);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => current = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => all.extend(current.take().map(|heading| anchor(&heading))),
            Event::Text(words) | Event::Code(words) => add(&mut current, &words),
            _ => {}
        }
    }
    all
}

fn add(heading: &mut Option<String>, words: &CowStr<'_>) {
    if let Some(heading) = heading {
        *heading += words;
    }
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> Page {
        Page { path: path.into(), text: text.into() }
    }

    #[test]
    fn dead_links_and_unlisted_pages_are_found() {
        let root = stentor_testutil::TempDir::with_lines(&[("docs/a.md", ""), ("docs/SUMMARY.md", ""), ("x/y.rs", "")]);
        let summary = page("docs/SUMMARY.md", "# Summary\n- [A](a.md)\n");
        let a = |text: &str| check(&root, &[summary.clone(), page("docs/a.md", text)]).unwrap();
        assert!(
            a("# The `A`, once\n[1](#the-a-once) [2](../x/y.rs) [3](https://x.org/no) [4](a.md#the-a-once)").is_empty()
        );
        for (link, what) in
            [("b.md", "no file"), ("#b", "no heading"), ("../y.rs", "no file"), ("SUMMARY.md#b", "no heading")]
        {
            let wrong = a(&format!("text\n\n[1]({link})"));
            assert!(wrong.len() == 1 && wrong[0].what.contains(what) && wrong[0].place == "docs/a.md:3", "{wrong:?}");
        }
        let lost = check(&root, &[page("docs/SUMMARY.md", ""), page("docs/a.md", "")]).unwrap();
        assert_eq!(lost[0].place, "docs/a.md");
    }

    #[test]
    fn links_in_code_are_ignored() {
        assert!(links("```\n[a](b.md)\n```\n`[a](b.md)`\n").is_empty());
    }
}
