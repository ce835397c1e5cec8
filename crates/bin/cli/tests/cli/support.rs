//! Runs the command and validates its documents.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stentor_testutil::TempDir;

/// A separate directory for a test, which is removed at the end.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch(TempDir::new())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a writable temporary directory");
        path
    }
}

/// Returns the command without the variables of the caller's environment that it reads.
pub(crate) fn stentor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stentor"));
    command.env_remove("NO_COLOR").env_remove("XDG_RUNTIME_DIR").env_remove("STENTOR_CONFIG").env("TERM", "xterm");
    command
}

/// Sends a signal to a process that a test has started.
pub(crate) fn signal(process: u32, signal: Signal) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("a process that can be signalled");
}

/// The exit code and the output of a run.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    ran(&stentor().args(args).output().expect("the command starts"))
}

pub(crate) fn ran(output: &Output) -> Ran {
    Ran {
        code: output.status.code().expect("not killed by a signal"),
        stdout: String::from_utf8(output.stdout.clone()).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr.clone()).expect("UTF-8"),
    }
}

impl Ran {
    /// Returns the only document on standard output, and asserts that it is valid against `schema/NAME.json`.
    pub(crate) fn document(&self, schema: &str) -> Value {
        let document = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout));
        let errors = violations(schema, &document);
        assert!(errors.is_empty(), "{schema}: {errors:?}\n{document:#}");
        document
    }

    /// Asserts that the run refused its arguments or configuration: exit code 2, no standard output, and one error with
    /// all `parts`.
    pub(crate) fn refused(&self, parts: &[&str]) {
        assert_eq!(self.code, 2, "{}", self.stderr);
        assert_eq!(self.stdout, "");
        for part in ["error: ", "\n  where:  ", "\n  remedy: "].iter().chain(parts) {
            assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        }
        assert_eq!(self.stderr.lines().count(), 3, "{}", self.stderr);
    }
}

/// Returns the violations of a schema in a document.
pub(crate) fn violations(schema: &str, document: &Value) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(format!("{schema}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let schema = serde_json::from_str(&text).expect("a schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema is valid");
    validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}
