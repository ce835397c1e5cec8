//! Colours and columns of text output.

use std::fmt::Display;
use std::io::IsTerminal;

/// Colour setting of an output stream.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// No colours.
    pub const PLAIN: Style = Style { colour: false };

    /// Enables colours if `stream` is a terminal that supports them and `NO_COLOR` is unset or empty (no-color.org).
    pub fn of(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Style { colour: stream.is_terminal() && !refused && !dumb }
    }

    /// Returns whether colours are printed.
    pub fn has_colour(self) -> bool {
        self.colour
    }

    fn paint(self, code: u8, text: impl Display) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Returns the text in the colour for good results.
    pub fn good(self, text: impl Display) -> String {
        self.paint(32, text)
    }

    /// Returns the text in the colour for errors.
    pub fn bad(self, text: impl Display) -> String {
        self.paint(31, text)
    }

    /// Returns the text in the colour for results that need attention.
    pub fn fair(self, text: impl Display) -> String {
        self.paint(33, text)
    }

    /// Returns the text in bold.
    pub fn strong(self, text: impl Display) -> String {
        self.paint(1, text)
    }
}

/// Aligns the columns of rows, with two spaces between them and none at the end of a line. Cells must not contain
/// colour codes.
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

/// Returns rows below the names of their columns, aligned as by [`columns`]. Returns an empty text without rows.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let table: Vec<_> = std::iter::once(head).chain(rows).collect();
    if table.len() == 1 { String::new() } else { columns(&table) }
}

/// Returns a count with its noun: "1 change", "2 changes".
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Returns a number of bytes with a unit, to about three digits.
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
