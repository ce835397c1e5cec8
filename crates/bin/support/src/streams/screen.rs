//! The terminal on which progress bars are drawn. A stopped terminal (Ctrl-S) does not block the command.

use std::fmt::Write as _;
use std::io::{self, stderr};
use std::sync::Mutex;

use indicatif::TermLike;
use rustix::termios::tcgetwinsize;

use super::complain;
use crate::live::lock;

/// Assumed width of a terminal that does not report one.
const COLUMNS: u16 = 80;

/// Standard error as a terminal. Everything drawn between two flushes is written at once.
#[derive(Debug, Default)]
pub struct Screen(Mutex<String>);

impl Screen {
    fn add(&self, write: impl FnOnce(&mut String)) -> io::Result<()> {
        write(&mut lock(&self.0));
        Ok(())
    }

    fn escape(&self, count: usize, letter: char) -> io::Result<()> {
        self.add(|text| {
            if count > 0 {
                write!(text, "\x1b[{count}{letter}").expect("a String takes everything");
            }
        })
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        tcgetwinsize(stderr()).map_or(COLUMNS, |size| if size.ws_col == 0 { COLUMNS } else { size.ws_col })
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.escape(lines, 'A')
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.escape(lines, 'B')
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.escape(columns, 'C')
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.escape(columns, 'D')
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.add(|text| {
            text.push_str(line);
            text.push('\n');
        })
    }

    fn write_str(&self, what: &str) -> io::Result<()> {
        self.add(|text| text.push_str(what))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add(|text| text.push_str("\r\x1b[2K"))
    }

    fn flush(&self) -> io::Result<()> {
        let text = std::mem::take(&mut *lock(&self.0));
        if !text.is_empty() {
            complain(text);
        }
        Ok(())
    }
}
