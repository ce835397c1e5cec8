//! Running cargo and its relatives from the repository root.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Where and with what the steps run.
#[derive(Debug)]
pub(crate) struct Context {
    /// The repository root.
    pub root: PathBuf,
    /// The cargo profile of the command that is run.
    pub profile: Profile,
    cargo: OsString,
}

/// How the command is optimised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// As users have it, optimised as a whole.
    Release,
    /// Without link-time optimisation: of what it stands on, everything is compiled once, for tests, mutants and the command.
    ReleaseTests,
}

impl Profile {
    /// Returns its name in `Cargo.toml`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::ReleaseTests => "release-tests",
        }
    }
}

impl Context {
    /// From the environment that `cargo xtask` gives.
    pub(crate) fn new() -> Self {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&package).ancestors().nth(1).map_or_else(|| PathBuf::from("."), Path::to_owned);
        Context {
            root,
            profile: Profile::ReleaseTests,
            cargo: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        }
    }

    /// The same, with the command as users have it.
    pub(crate) fn shipped() -> Self {
        Context { profile: Profile::Release, ..Context::new() }
    }

    /// A cargo command in the repository root.
    pub(crate) fn cargo<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// `cargo test` of these test targets, whichever crates have them, as parts of the whole workspace: see `programs`.
    pub(crate) fn test(&self, targets: &[&str]) -> Command {
        let mut command = self.cargo(["test", "--workspace"]);
        command.args(targets.iter().flat_map(|target| ["--test", target]));
        command
    }

    /// Whether a command, run silently, ends with success.
    pub(crate) fn succeeds(&self, command: &mut Command) -> bool {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

/// Runs a command with our own output; what it prints stays visible.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    announce(command)?;
    let status = command.status().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// Runs a command and returns its standard output, whatever its exit code; standard error stays visible.
pub(crate) fn capture(command: &mut Command) -> Result<(bool, String)> {
    announce(command)?;
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let text = String::from_utf8(output.stdout).with_context(|| format!("{} does not print text", line(command)))?;
    Ok((output.status.success(), text))
}

fn announce(command: &Command) -> io::Result<()> {
    println!("$ {}", line(command));
    io::stdout().flush()
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let environment = command.get_envs().filter_map(|(key, value)| {
        let value = value?.to_string_lossy();
        let quote = if value.contains(' ') { "\"" } else { "" };
        Some(format!("{}={quote}{value}{quote}", key.to_string_lossy()))
    });
    let program = Path::new(command.get_program()).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    environment.chain([program]).chain(arguments).collect::<Vec<_>>().join(" ")
}
