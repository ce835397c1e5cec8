//! Configuration files in TOML: reading them, and errors that name the file, the line and the remedy.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Reads a file of at most `max_bytes`.
///
/// # Errors
/// What the system says; [`InvalidData`](io::ErrorKind::InvalidData) if the file is no text, or longer.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than the limit tells; the rest of an endless file is never read.
    std::fs::File::open(path)?.take(max_bytes + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max_bytes {
        let what = format!("it is longer than {max_bytes} bytes, which no configuration is");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(text)
}

/// Reads the values of a text.
///
/// # Errors
/// The first flaw, and where in the text it is (bytes).
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, (Range<usize>, Flaw)> {
    toml::from_str(text).map_err(|error| (error.span().unwrap_or(0..0), Flaw::of(error.message())))
}

/// Why a text does not have the form that is asked for.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// Not TOML.
    #[error("not valid TOML: {message}")]
    Syntax {
        /// What the parser said.
        message: String,
    },
    /// A key that means nothing here.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key.
        key: String,
        /// What is known here.
        known: Vec<String>,
    },
    /// A key is missing.
    #[error("the key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A number for a string, and so on.
    #[error("{message}")]
    WrongType {
        /// What the parser said.
        message: String,
    },
}

impl Flaw {
    /// Which flaw the parser speaks of. An unknown wording costs only the closer remedy, never the message.
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

    /// What to do about it, where the command `init` writes an example.
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
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl Position {
    /// The position of a byte of `text`.
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

/// A problem that says what to do about it.
pub trait Remedy: fmt::Debug + fmt::Display {
    /// What to do about it.
    fn remedy(&self) -> String;
}

/// A configuration was refused, for a problem of type `P`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError<P> {
    /// The file.
    pub file: PathBuf,
    /// The position in it; `None` when the file could not be read at all.
    pub position: Option<Position>,
    /// What is wrong.
    pub problem: P,
}

impl<P: Remedy> ConfigError<P> {
    /// A problem at `span` of the file's text, bytes.
    #[must_use]
    pub fn at(file: &Path, text: &str, span: &Range<usize>, problem: P) -> Self {
        ConfigError { file: file.to_owned(), position: Some(Position::of(text, span.start)), problem }
    }

    /// `file:line:column`, as editors take it.
    #[must_use]
    pub fn location(&self) -> String {
        let file = self.file.display();
        self.position.map_or_else(|| file.to_string(), |position| format!("{file}:{position}"))
    }

    /// What to do about it.
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
