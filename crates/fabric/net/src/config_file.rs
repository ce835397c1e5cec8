//! Configuration files in TOML: reading them, and errors with the file, the line and the remedy.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Reads a file of at most `max_bytes`.
///
/// # Errors
/// Returns the error of the operating system, or [`InvalidData`](io::ErrorKind::InvalidData) if the file is no text or
/// is longer.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    // One byte above the limit reveals a longer file, so an endless file is not read to its end.
    std::fs::File::open(path)?.take(max_bytes + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max_bytes {
        let what = format!("it is longer than {max_bytes} bytes, the maximum for a configuration");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(text)
}

/// Parses the values in a text.
///
/// # Errors
/// Returns the first flaw and its byte range in the text.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, (Range<usize>, Flaw)> {
    toml::from_str(text).map_err(|error| (error.span().unwrap_or(0..0), Flaw::of(error.message())))
}

/// A flaw in a configuration text.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The text is not TOML, or a value is invalid in another way.
    #[error("not valid TOML: {message}")]
    Syntax {
        /// Message of the parser.
        message: String,
    },
    /// The key is unknown at this position.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key.
        key: String,
        /// The keys that are known at this position.
        known: Vec<String>,
    },
    /// A key is missing.
    #[error("the key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// The value has another type than expected, such as a number instead of a string.
    #[error("{message}")]
    WrongType {
        /// Message of the parser.
        message: String,
    },
}

impl Flaw {
    /// Classifies the message of the parser. A message with an unknown wording becomes a [`Flaw::Syntax`], which keeps
    /// the message and has a general remedy.
    fn of(message: &str) -> Flaw {
        let quoted = || message.split('`').nth(1).unwrap_or_default().to_owned();
        if message.starts_with("unknown field") {
            let known = message.split('`').skip(3).step_by(2).map(str::to_owned).collect();
            return Flaw::UnknownKey { key: quoted(), known };
        }
        if message.starts_with("missing field") {
            return Flaw::MissingKey { key: quoted() };
        }
        if message.starts_with("invalid type") {
            return Flaw::WrongType { message: message.to_owned() };
        }
        Flaw::Syntax { message: message.replace('\n', "; ") }
    }

    /// Returns the remedy. `init` is the command that writes an example.
    #[must_use]
    pub fn remedy(&self, init: &str) -> String {
        match self {
            Flaw::Syntax { .. } => format!("correct this line; `{init}` writes a file to compare with"),
            Flaw::UnknownKey { known, .. } => {
                format!("remove it or correct its spelling; known here: {}", known.join(", "))
            }
            Flaw::MissingKey { key } => format!("add `{key} = …` here"),
            Flaw::WrongType { .. } => "give a value of the expected type".to_owned(),
        }
    }
}

/// A position in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Number of the line, from 1.
    pub line: usize,
    /// Number of the column in characters, from 1.
    pub column: usize,
}

impl Position {
    /// Returns the position of a byte of `text`.
    #[must_use]
    pub fn of(text: &str, byte: usize) -> Self {
        let byte = (0..=byte.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let before = &text[..byte];
        let line = before.rsplit('\n').next().unwrap_or(before);
        Position { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A problem with a remedy.
pub trait Remedy: fmt::Debug + fmt::Display {
    /// Returns the remedy.
    fn remedy(&self) -> String;
}

/// A refused configuration, with a problem of type `P`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError<P> {
    /// The file.
    pub file: PathBuf,
    /// Position in the file; `None` if the file could not be read.
    pub position: Option<Position>,
    /// The problem.
    pub problem: P,
}

impl<P: Remedy> ConfigError<P> {
    /// Creates the error for a problem at the byte range `span` of the file's text.
    #[must_use]
    pub fn at(file: &Path, text: &str, span: &Range<usize>, problem: P) -> Self {
        ConfigError { file: file.to_owned(), position: Some(Position::of(text, span.start)), problem }
    }

    /// Returns `file:line:column`, the format that editors accept, or only the file if the position is unknown.
    #[must_use]
    pub fn location(&self) -> String {
        let file = self.file.display();
        self.position.map_or_else(|| file.to_string(), |position| format!("{file}:{position}"))
    }

    /// Returns the remedy.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.problem.remedy()
    }
}

impl<P: Remedy> fmt::Display for ConfigError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.location(), self.problem, self.remedy())
    }
}

impl<P: Remedy> Error for ConfigError<P> {}
