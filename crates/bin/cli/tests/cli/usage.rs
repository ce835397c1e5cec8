//! Tests of the behaviour that all commands share.

use std::ffi::CStr;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::{Scratch, ran, run, stentor};

#[test]
fn help_and_version_are_printed() {
    let help = run(["--help"]);
    assert_eq!(help.code, 0);
    for command in ["demo", "node", "cast", "sim", "config", "check", "doctor", "completions", "man"] {
        assert!(help.stdout.contains(&format!("\n  {command} ")), "{}", help.stdout);
    }
    let version = run(["--version"]);
    assert_eq!((version.code, version.stdout), (0, format!("stentor {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn bad_usage_exits_with_code_2_and_the_reason() {
    let cases: [(&[&str], &str); 6] = [
        (&[], "Usage: stentor"),
        (&["config"], "Usage: stentor config"),
        (&["conjure"], "unrecognized subcommand 'conjure'"),
        (&["doctor", "--colour"], "unexpected argument '--colour'"),
        (&["config", "check", "one", "two"], "unexpected argument 'two'"),
        (&["config", "init", "--groups", "two"], "invalid value 'two' for '--groups <N>'"),
    ];
    for (args, part) in cases {
        let ran = run(args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn failure_with_json_is_a_document() {
    let scratch = Scratch::new();
    let absent = scratch.path("absent.toml");
    for args in [vec!["conjure", "--json"], vec!["--json"], vec!["config", "check", absent.to_str().unwrap(), "--json"]]
    {
        let ran = run(&args);
        assert_eq!(ran.code, 2, "{args:?}");
        let document = ran.document("error");
        assert_eq!(document["error"]["exit_code"], 2);
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
}

#[test]
fn quiet_prints_nothing_but_errors_and_documents() {
    let quiet = run(["doctor", "-q"]);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    run(["doctor", "-q", "--json"]).document("doctor");
    let refused = run(["config", "check", "/no/such/file", "-q"]);
    refused.refused(&["cannot read"]);
}

#[test]
fn output_without_a_terminal_has_no_colours() {
    for args in [vec!["doctor"], vec!["--help"], vec!["config", "check", "/no/such/file"]] {
        let ran = run(&args);
        assert!(!ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'), "{args:?}");
    }
}

/// Opens the command's side of a pseudo terminal, with `NOCTTY`. Without that flag, and if the tests lead a session, it
/// would become their controlling terminal, and they would get SIGHUP when it closes.
fn open_side(name: &CStr) -> std::fs::File {
    let flags = OFlags::NOCTTY.bits().cast_signed();
    let name = name.to_str().expect("a path");
    std::fs::File::options().read(true).write(true).custom_flags(flags).open(name).expect("a pseudo terminal")
}

/// Returns the output of the command on a terminal.
fn in_terminal(no_colour: &str) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
    unlockpt(&master).expect("a pseudo terminal");
    let name = ptsname(&master, Vec::new()).expect("a pseudo terminal");
    let terminal = open_side(&name);
    let status = stentor().arg("doctor").env("NO_COLOR", no_colour).stdout(terminal).status().unwrap();
    assert_eq!(status.code(), Some(0));
    // The other end is closed. A read returns the buffered bytes first, and then an error.
    let mut printed = Vec::new();
    let _ = std::fs::File::from(master).read_to_end(&mut printed);
    String::from_utf8(printed).unwrap()
}

#[test]
fn a_terminal_has_colours_unless_no_color_is_set() {
    let coloured = in_terminal("");
    assert!(coloured.contains("\x1b[32mok"), "{coloured}");
    let plain = in_terminal("1");
    assert!(plain.contains("ok") && !plain.contains('\x1b'), "{plain}");
}

#[test]
fn closed_reader_causes_no_panic() {
    for args in [vec!["completions", "zsh"], vec!["man"], vec!["doctor", "--json"], vec!["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = ran(&stentor().args(&args).stdout(writer).output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = ran(&stentor().arg("doctor").stdout(full).output().unwrap());
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("cannot write") && ran.stderr.contains("standard output"), "{}", ran.stderr);
}

#[test]
fn help_is_as_wide_as_the_terminal() {
    for columns in [60, 100] {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let side = open_side(&ptsname(&terminal, Vec::new()).unwrap());
        let mut command = stentor();
        command.args(["node", "--help"]).env("NO_COLOR", "1").stdout(side.try_clone().unwrap()).stderr(side);
        let mut child = command.spawn().unwrap();
        drop(command);
        let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
        let mut terminal = std::fs::File::from(terminal);
        // A read fails once the last descriptor of the terminal's other side is closed.
        while let Ok(count @ 1..) = terminal.read(&mut bytes) {
            text.extend_from_slice(&bytes[..count]);
        }
        assert!(child.wait().unwrap().success());
        let text = String::from_utf8(text).unwrap();
        let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
        // Help texts wrap at words.
        assert!(widest <= usize::from(columns) && widest > usize::from(columns) - 15, "{widest} of {columns}:\n{text}");
    }
}
