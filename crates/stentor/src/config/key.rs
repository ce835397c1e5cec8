//! Reads the cluster key.

use std::io::Read;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::KeySource;

/// Shortest key, in bytes.
const SHORTEST: usize = 16;
/// Longest key, in bytes. A longer file is not a key.
const LONGEST: usize = 4096;

/// The reason why the key cannot be read. No error contains any part of the key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The configuration names no key.
    #[error("this fabric needs a key, and the configuration names none")]
    Unnamed,
    /// The environment variable is not set, or is not text.
    #[error("the environment variable {0} is not set, or is not text")]
    Variable(String),
    /// The file cannot be read.
    #[error("cannot read the key {path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The key is too short or too long; its length in bytes.
    #[error("the key has {0} bytes; a key has {SHORTEST} to {LONGEST}, white space at its end not counted")]
    Length(usize),
}

impl KeySource {
    /// Parses `env:NAME` or `file:PATH`. No error may contain the value: a user who wrote the key itself there must not
    /// find it in a log.
    pub(crate) fn parse(value: &str) -> Option<KeySource> {
        match value.split_once(':')? {
            ("env", name) if !name.is_empty() && !name.contains(['=', '\0']) => Some(KeySource::Env(name.to_owned())),
            ("file", path) if !path.is_empty() && !path.contains('\0') => Some(KeySource::File(PathBuf::from(path))),
            _ => None,
        }
    }

    /// Reads the key. White space at its end is removed; a relative path is relative to `directory`.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn read(&self, directory: &Path) -> Result<Vec<u8>, KeyError> {
        let mut key = match self {
            KeySource::Env(name) => std::env::var(name).map_err(|_| KeyError::Variable(name.clone()))?.into_bytes(),
            KeySource::File(path) => {
                let path = directory.join(path);
                read(&path).map_err(|source| KeyError::File { path, source })?
            }
        };
        let end = key.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
        key.truncate(end);
        if (SHORTEST..=LONGEST).contains(&key.len()) { Ok(key) } else { Err(KeyError::Length(key.len())) }
    }
}

/// Reads at most twice the longest key, which suffices to recognise a file that is not a key. Rejects anything but a
/// regular file, because reading a pipe could block.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut key = Vec::new();
    std::fs::File::open(path)?.take(2 * LONGEST as u64).read_to_end(&mut key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_path_is_relative_and_its_length_is_checked() {
        let directory = std::env::temp_dir().join(format!("stentor-key-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let source = KeySource::File("a.key".into());
        assert!(matches!(source.read(&directory), Err(KeyError::File { .. })));
        std::fs::write(directory.join("a.key"), "0123456789abcdef \n\n").unwrap();
        assert_eq!(source.read(&directory).unwrap(), b"0123456789abcdef");
        std::fs::write(directory.join("a.key"), "0123456789abcde\n\n").unwrap();
        assert!(matches!(source.read(&directory), Err(KeyError::Length(15))));
        std::fs::write(directory.join("a.key"), vec![b'x'; 1 << 20]).unwrap();
        assert!(matches!(source.read(&directory), Err(KeyError::Length(8192))));
        assert!(matches!(KeySource::File("/dev/zero".into()).read(&directory), Err(KeyError::File { .. })));
        std::fs::remove_dir_all(&directory).unwrap();
        let unset = KeySource::Env("STENTOR_NO_SUCH_VARIABLE".to_owned());
        assert!(matches!(unset.read(&directory), Err(KeyError::Variable(_))));
    }
}
