//! Colours and columns.

use std::fmt::Display;
use std::io::IsTerminal;

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// No colours.
    pub const PLAIN: Style = Style { colour: false };

    /// Colours if `stream` is a terminal that has them and nobody set `NO_COLOR` (no-color.org: to anything but "").
    pub fn of(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Style { colour: stream.is_terminal() && !refused && !dumb }
    }

    /// Whether colours are printed.
    pub fn has_colour(self) -> bool {
        self.colour
    }

    fn paint(self, code: u8, text: impl Display) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// The colour of what is as it should be.
    pub fn good(self, text: impl Display) -> String {
        self.paint(32, text)
    }

    /// The colour of what is wrong.
    pub fn bad(self, text: impl Display) -> String {
        self.paint(31, text)
    }

    /// The colour of what needs a look.
    pub fn fair(self, text: impl Display) -> String {
        self.paint(33, text)
    }

    /// Bold.
    pub fn strong(self, text: impl Display) -> String {
        self.paint(1, text)
    }
}

/// Lines with their columns aligned; two spaces between, none at the end. Cells must be free of colour codes.
pub fn columns(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Rows below the names of their columns, as [columns]; nothing where there are no rows.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let table: Vec<_> = std::iter::once(head).chain(rows).collect();
    if table.len() == 1 { String::new() } else { columns(&table) }
}

/// So many of something: "1 change", "2 changes".
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Bytes with a unit, to three digits or so.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut scaled = bytes as f64;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && scaled < 100.0);
    format!("{scaled:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_fits() {
        for (value, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (150 << 20, "150 MiB"), (3 << 29, "1.5 GiB")]
        {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(columns(&[row(["a", "b"]), row(["long", ""])]), "a     b\nlong\n");
    }
}
