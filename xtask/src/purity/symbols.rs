//! The functions that a compiled library calls, found by its undefined symbols. This check finds calls through aliases,
//! re-exports and macros. It does not find calls in generic code that the library itself never instantiates, so the
//! sources are checked, too.
//!
//! The library must be compiled with [`COMPLETE`]. Otherwise functions that are inlined elsewhere are missing from it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSymbol as _};

use crate::source::Violation;

/// Compiler flags that emit every function that is not generic, including those marked `#[inline]`.
pub(crate) const COMPLETE: [&str; 4] = ["-C", "link-dead-code", "-C", "opt-level=0"];

/// Modules of `std` that leave the process or the thread. All modules below them are forbidden, too.
const MODULES: &[&str] =
    &["env", "fs", "io", "net", "os", "process", "random", "hash::random", "sys", "thread", "time"];
/// Functions of the C library that leave the process or the thread.
const FUNCTIONS: &[&str] = &[
    "accept",
    "bind",
    "clock_gettime",
    "close",
    "connect",
    "getentropy",
    "getenv",
    "getrandom",
    "gettimeofday",
    "listen",
    "mmap",
    "nanosleep",
    "open",
    "open64",
    "poll",
    "pthread_create",
    "pthread_self",
    "read",
    "recv",
    "recvfrom",
    "recvmsg",
    "sched_yield",
    "send",
    "sendmsg",
    "sendto",
    "socket",
    "syscall",
    "time",
    "usleep",
    "write",
];

/// Checks an `.rlib`. Returns the number of its undefined names, and the forbidden ones among them.
pub(crate) fn check(name: &str, library: &[u8]) -> Result<(usize, Vec<Violation>)> {
    let mut undefined = BTreeSet::new();
    let mut objects = 0;
    for member in ArchiveFile::parse(library).context("not a library")?.members() {
        let member = member?;
        // The archive also holds the metadata.
        if member.name().ends_with(b".o") {
            objects += 1;
            let file = object::File::parse(member.data(library)?).context("an object file in the library")?;
            let symbols = file.symbols().filter(|symbol| symbol.is_undefined());
            undefined.extend(symbols.filter_map(|symbol| symbol.name().ok().map(demangled)));
        }
    }
    ensure!(objects > 0, "the library of {name} holds no object file");
    let bad = undefined.iter().filter(|symbol| is_forbidden(symbol));
    let violations = bad.map(|symbol| Violation::of(name, format!("the compiled crate calls `{symbol}`"))).collect();
    Ok((undefined.len(), violations))
}

fn demangled(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

fn is_forbidden(symbol: &str) -> bool {
    let inside = |module: &&str| {
        let prefix = format!("std::{module}");
        symbol.match_indices(&prefix).any(|(at, _)| {
            let name = |c: char| c.is_alphanumeric() || c == '_';
            let starts = !symbol[..at].ends_with(|c| name(c) || c == ':');
            starts && !symbol[at + prefix.len()..].starts_with(name)
        })
    };
    FUNCTIONS.contains(&symbol) || MODULES.iter().any(inside)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use stentor_testutil::TempDir;

    use super::*;

    fn compiled(text: &str) -> Vec<u8> {
        let directory = TempDir::with_lines(&[("a.rs", text)]);
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let arguments = ["--crate-type", "rlib", "--edition", "2024", "-o", "a.rlib", "a.rs"];
        let mut rustc = Command::new(rustc);
        rustc.current_dir(&directory).args(arguments).args(COMPLETE);
        assert!(rustc.status().unwrap().success());
        std::fs::read(directory.join("a.rlib")).unwrap()
    }

    #[test]
    fn calls_of_all_forms_are_found_in_a_compiled_crate() {
        for (name, call) in [
            ("clock", "let _ = std::time::Instant::now();"),
            ("thread", "std::thread::yield_now();"),
            ("file", "let _ = std::fs::File::open(\"a\");"),
            ("socket", "let _ = std::net::UdpSocket::bind((\"::1\", 1));"),
            ("print", "println!();"),
            ("random", "let _ = std::collections::HashMap::<u8, u8>::default();"),
            (
                "c",
                "unsafe extern \"C\" { fn getrandom(a: *mut u8, b: usize, c: u32) -> isize; } unsafe { getrandom(std::ptr::null_mut(), 0, 0); }",
            ),
        ] {
            let (_, found) = check(name, &compiled(&format!("#[inline] pub fn f() {{ {call} }}"))).unwrap();
            assert!(!found.is_empty(), "{name}");
        }
    }

    #[test]
    fn pure_code_passes_and_its_symbols_are_read() {
        let text = "pub fn f(x: &mut Vec<u64>) -> String { x.push(1); x.sort(); format!(\"{x:?}\") }";
        let (names, found) = check("pure", &compiled(text)).unwrap();
        assert_eq!(found, []);
        assert!(names > 0);
    }

    #[test]
    fn names_are_compared_whole() {
        for bad in [
            "std::net::udp::UdpSocket::bind",
            "<std::io::Error as core::fmt::Debug>::fmt",
            "core::ptr::drop_in_place<std::io::Error>",
        ] {
            assert!(is_forbidden(bad), "{bad}");
        }
        for good in [
            "std::network",
            "mystd::io::x",
            "core::time::Duration::from_secs",
            "stentor_fabric::std::io::x",
            "send_all",
            "std::panicking::begin_panic",
        ] {
            assert!(!is_forbidden(good), "{good}");
        }
    }

    #[test]
    fn bytes_that_are_not_a_library_are_an_error() {
        assert!(check("a", b"!<arch>\n").is_err());
        assert!(check("a", b"garbage").is_err());
    }
}
