//! `stentor man`: the manual, with one page for each command.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde::Serialize;
use stentor_support::streams::{Existing, PLAIN, write_whole};
use stentor_support::{Failure, Human, Output, Style, Verdict};

use crate::args::CommandLine;

#[derive(Serialize)]
struct Manual {
    pages: Vec<Page>,
}

#[derive(Serialize)]
struct Page {
    /// File name of the page, which ends with the section of the manual.
    name: String,
    /// File to which the page was written, or `None` if the page was printed.
    path: Option<PathBuf>,
    /// The page (roff).
    text: String,
}

impl Human for Manual {
    fn human(&self, _: Style) -> String {
        let told = |page: &Page| page.path.as_ref().map_or_else(|| page.text.clone(), |p| format!("{}\n", p.display()));
        self.pages.iter().map(told).collect()
    }
}

pub(super) fn run(directory: Option<&Path>, output: Output) -> Result<Verdict, Failure> {
    let mut command = CommandLine::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    render(&command, &mut pages)?;
    let Some(directory) = directory else {
        output.payload(&Manual { pages })?;
        return Ok(Verdict::Good);
    };
    for page in &mut pages {
        let path = directory.join(&page.name);
        write_whole(&path, page.text.as_bytes(), Existing::Goes, PLAIN)
            .map_err(|error| Failure::cannot_write(&path, &error))?;
        page.path = Some(path);
    }
    output.conclude(&Manual { pages }, Verdict::Good)
}

const SOURCE: &str = concat!("stentor ", env!("CARGO_PKG_VERSION"));

/// Renders the page of a command, then those of its subcommands. Commands nest two levels deep.
fn render(command: &Command, pages: &mut Vec<Page>) -> Result<(), Failure> {
    let man = Man::new(command.clone()).source(SOURCE).manual("Stentor");
    let mut text = Vec::new();
    man.render(&mut text).map_err(|error| Failure::run(error, "manual page", "report this as a bug"))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    pages.push(Page { name: man.get_filename(), path: None, text });
    command.get_subcommands().filter(|sub| !sub.is_hide_set()).try_for_each(|sub| render(sub, pages))
}
