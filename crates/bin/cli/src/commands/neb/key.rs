//! `stentor neb key`: creates secret keys, and prints their public keys.

use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use stentor_neb::Authority;
use stentor_support::live::random_bytes;
use stentor_support::streams::{Existing, SECRET, write_whole};
use stentor_support::{Failure, Human, Output, Style, Verdict, hex};

#[derive(Serialize)]
struct Key {
    /// The public key, 64 hexadecimal digits.
    public: String,
}

impl Human for Key {
    fn human(&self, _: Style) -> String {
        format!("{}\n", self.public)
    }
}

pub(super) fn run(file: &Path, output: Output) -> Result<Verdict, Failure> {
    let secret = match make(file) {
        Ok(secret) => secret,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(file)?,
        Err(error) => return Err(Failure::cannot_write(file, &error)),
    };
    output.payload(&Key { public: hex(&Authority::public_of(&secret)) })?;
    Ok(Verdict::Good)
}

fn make(file: &Path) -> std::io::Result<[u8; 32]> {
    let secret = random_bytes()?;
    write_whole(file, format!("{}\n", hex(&secret)).as_bytes(), Existing::Stays, SECRET)?;
    Ok(secret)
}

/// Reads the secret key in a file. Errors never show its contents.
pub(super) fn read(file: &Path) -> Result<[u8; 32], Failure> {
    let refuse = |what: &dyn std::fmt::Display| {
        Failure::usage(what, file.display(), "name a file with 64 hexadecimal digits; `stentor neb key` makes one")
    };
    let text = std::fs::read_to_string(file).map_err(|error| refuse(&error))?;
    stentor::config::digits(text.trim()).ok_or_else(|| refuse(&"the file has no secret key"))
}
