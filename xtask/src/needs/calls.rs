//! Compares the programs that scripts and tests call with the lists of the packages that the steps install.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use proc_macro2::{Delimiter, TokenTree};

use super::{Found, Needs, THINGS, thing};
use crate::source::{Source, each_level, group, is_ident, is_punct};

/// Returns every list of needs.
fn lists() -> Vec<&'static Needs> {
    let one = [
        &crate::zookeeper::NEEDS,
        &crate::bindings::NEEDS,
        &crate::book::NEEDS,
        &crate::ofi::NEEDS,
        &crate::instructions::NEEDS,
        &crate::regression::NEEDS,
        &crate::lossy::NEEDS,
        &crate::services::compare::NEEDS,
        &crate::services::redis_py::NEEDS,
        &crate::services::HOSTS,
        &crate::prose::same::NEEDS,
    ];
    let compared = crate::compare::SYSTEMS.iter().map(|system| system.needs);
    one.into_iter()
        .chain(compared)
        .chain(crate::roce::NEEDS)
        .chain(crate::verbs::NEEDS)
        .chain(crate::guest::NEEDS)
        .collect()
}

/// Programs of packages that every Debian has, because they are essential or required.
const EVERYWHERE: &[&str] = &[
    "apt-get",
    "awk",
    "base64",
    "bash",
    "cat",
    "chmod",
    "chown",
    "chrt",
    "cmp",
    "cp",
    "cut",
    "date",
    "dd",
    "dirname",
    "env",
    "getent",
    "grep",
    "head",
    "install",
    "ls",
    "mkdir",
    "mkfifo",
    "mktemp",
    "mount",
    "mv",
    "nproc",
    "od",
    "perl",
    "realpath",
    "rm",
    "sed",
    "seq",
    "setpriv",
    "setsid",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "sync",
    "tail",
    "tar",
    "taskset",
    "timeout",
    "touch",
    "tr",
    "umount",
    "uname",
    "unshare",
    "wc",
];
/// Programs that are installed together with the C compiler `gcc`, because `gcc` depends on their package.
const BINUTILS: &[&str] = &["strip"];
/// Programs of the toolchain that builds `xtask`.
const TOOLCHAIN: &[&str] = &["rustdoc"];
/// Commands that are built into the shells.
const BUILT_IN: &[&str] = &[
    "break", "case", "cd", "continue", "declare", "done", "echo", "esac", "exit", "export", "false", "fi", "for", "in",
    "kill", "local", "printf", "pwd", "read", "return", "set", "shift", "shopt", "test", "trap", "true", "ulimit",
    "umask", "unset", "wait",
];
/// Words after which a command may begin.
const BEFORE: &[&str] = &["do", "then", "else", "elif", "if", "while", "until", "exec", "time"];

/// Returns the commands of a shell script. Options and quoted text are not commands, but `$(…)` in quotes has commands.
fn commands(script: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut here: Option<String> = None;
    let mut open = None;
    for line in script.replace("\\\n", " ").lines() {
        if let Some(end) = &here {
            if line.trim() == end {
                here = None;
            }
            continue;
        }
        here = line.split_once("<<").map(|(_, end)| end.trim_matches(['-', '\'', '"', ' ']).to_owned());
        let line = if open.is_none() { behind_pattern(line) } else { line };
        open = scan(line, open, &mut found);
    }
    found
}

/// Returns the text after the pattern of a `case`, as in `one | other) command`.
fn behind_pattern(line: &str) -> &str {
    match line.split_once(')') {
        Some((pattern, rest)) if !pattern.contains(['(', '$', ';', '&', '`']) => {
            let is_word = |part: &str| !part.is_empty() && !part.contains(char::is_whitespace);
            if pattern.split('|').all(|part| is_word(part.trim())) { rest } else { line }
        }
        _ => line,
    }
}

/// Scans a line for commands. `open` is the quote that is still open from the line before. Returns the quote that is
/// open at the end of this line.
fn scan(line: &str, open: Option<char>, found: &mut BTreeSet<String>) -> Option<char> {
    let (mut begins, mut word, mut quotes) = (open.is_none(), String::new(), Vec::from_iter(open));
    let mut characters = line.chars().chain(['\n']).peekable();
    let mut last = ' ';
    while let Some(character) = characters.next() {
        let quote = quotes.last().copied();
        let plain = !matches!(quote, Some('\'' | '"'));
        match character {
            '\\' => drop(characters.next()),
            '\'' if quote == Some('\'') => drop(quotes.pop()),
            _ if quote == Some('\'') => {}
            '\'' if plain => quotes.push('\''),
            '"' if quote == Some('"') => drop(quotes.pop()),
            '"' => quotes.push('"'),
            '$' if characters.peek() == Some(&'(') => {
                characters.next();
                // An arithmetic expression is not a command.
                let arithmetic = characters.peek() == Some(&'(');
                quotes.push(if arithmetic { '+' } else { '(' });
                (begins, word) = (!arithmetic, String::new());
                last = '(';
                continue;
            }
            _ if !plain => {}
            '#' if last.is_whitespace() => return None,
            '(' if quote == Some('+') => quotes.push('+'),
            ')' if quote.is_some() => {
                if quotes.pop() == Some('(') {
                    command(&mut begins, &mut word, found);
                }
                (begins, word) = (false, String::new());
            }
            _ if quote == Some('+') => {}
            '|' | '&' | ';' | '(' | ')' | '\n' => {
                command(&mut begins, &mut word, found);
                // No command begins after the `&` of `>&2` or `2>&1`.
                begins = last != '>';
            }
            '{' | '!' if word.is_empty() && begins => {}
            _ if character.is_whitespace() => command(&mut begins, &mut word, found),
            _ => {
                word.push(character);
                last = character;
                continue;
            }
        }
        if matches!(character, '"' | '\'' | '$') {
            // A word with quotes in it is not the name of a program.
            word.push('$');
        }
        last = character;
    }
    match quotes[..] {
        [quote @ ('\'' | '"')] => Some(quote),
        _ => None,
    }
}

/// Ends a word, and records it if a command began with it.
fn command(begins: &mut bool, word: &mut String, found: &mut BTreeSet<String>) {
    let word = std::mem::take(word);
    if !*begins || word.is_empty() || word.contains('=') || BEFORE.contains(&word.as_str()) {
        return;
    }
    *begins = false;
    let name =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || "_-".contains(character);
    if word.starts_with(|first: char| first.is_ascii_lowercase()) && word.chars().all(name) {
        found.insert(word);
    }
}

/// Returns the functions that a script defines.
fn functions(script: &str) -> impl Iterator<Item = &str> {
    script.lines().filter_map(|line| Some(line.trim().split_once("() {")?.0)).filter(|name| !name.contains(' '))
}

/// Returns the programs that a Rust file starts by `Command::new("…")`, and the commands of strings that are scripts.
/// In files below `tests`, a string that is the name of a program in the table counts, too.
fn started(source: &Source) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let text = |token: Option<&TokenTree>| match token {
        Some(TokenTree::Literal(literal)) => {
            let literal = literal.to_string();
            Some(literal.strip_prefix('"')?.strip_suffix('"')?.replace("\\n", "\n").replace("\\\"", "\""))
        }
        _ => None,
    };
    let in_tests = source.path.components().any(|part| part.as_os_str() == "tests");
    each_level(&source.tokens().unwrap(), &mut |tokens| {
        for (n, token) in tokens.iter().enumerate() {
            if let Some(text) = text(Some(token)) {
                let is_program =
                    |text: &str| THINGS.iter().any(|t| t.name == text && matches!(t.found, Found::Program));
                if text.starts_with("set -e") {
                    found.extend(commands(&text).into_iter().filter(|name| !BUILT_IN.contains(&name.as_str())));
                } else if in_tests && is_program(&text) {
                    found.insert(text);
                }
            }
            let new = is_ident(Some(token), "Command")
                && is_punct(tokens.get(n + 1), ':')
                && is_ident(tokens.get(n + 3), "new");
            let argument = group(tokens.get(n + 4), Delimiter::Parenthesis).filter(|_| new);
            if let Some(program) = argument.and_then(|group| text(group.stream().into_iter().next().as_ref())) {
                found.insert(program.rsplit('/').next().unwrap_or_default().to_owned());
            }
        }
    });
    Ok(found)
}

/// Returns the problems of a file that calls these programs.
fn judge(path: &Path, called: &BTreeSet<String>, functions: &BTreeSet<String>, lists: &[&Needs]) -> Vec<String> {
    let mut wrong = Vec::new();
    let under: Vec<_> = lists.iter().filter(|needs| needs.sources.iter().any(|part| path.starts_with(part))).collect();
    for name in called {
        let given = EVERYWHERE.contains(&name.as_str())
            || BUILT_IN.contains(&name.as_str())
            || [BINUTILS, TOOLCHAIN].concat().contains(&name.as_str());
        // These programs are always available. But Rust code cannot start a command that is built into shells, such as
        // `kill`.
        let rust = path.extension().is_some_and(|extension| extension == "rs");
        if given && !(rust && BUILT_IN.contains(&name.as_str())) || functions.contains(name) {
            continue;
        }
        if !THINGS.iter().any(|thing| thing.name == name && matches!(thing.found, Found::Program)) {
            wrong.push(format!("{} calls {name}, which is in no table of programs", path.display()));
        } else if under.is_empty() {
            wrong.push(format!("{} calls {name}, but no step says that it runs this file", path.display()));
        } else if under.iter().any(|needs| !needs.things.contains(&name.as_str())) {
            wrong.push(format!("{} calls {name}, which a step that runs it does not install", path.display()));
        }
    }
    wrong
}

fn scripts(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            scripts(root, &path, found);
        } else if let Some(text) = fs::read_to_string(&path)
            .ok()
            .filter(|text| path.extension().is_some_and(|extension| extension == "sh") || text.starts_with("#!/bin/"))
        {
            found.push(Source { path: path.strip_prefix(root).unwrap().to_owned(), text });
        }
    }
}

#[test]
fn every_program_that_is_called_is_installed_by_the_steps_that_call_it() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).unwrap().to_owned();
    let (mut shell, lists) = (Vec::new(), lists());
    let folders = ["crates", "xtask", "examples"].map(|folder| root.join(folder));
    folders.iter().for_each(|folder| scripts(&root, folder, &mut shell));
    assert!(shell.len() > 15, "the scripts of the guests are found");
    let functions: BTreeSet<String> =
        shell.iter().flat_map(|script| functions(&script.text)).map(str::to_owned).collect();
    let mut wrong: Vec<String> = Vec::new();
    for script in &shell {
        wrong.extend(judge(&script.path, &commands(&script.text), &functions, &lists));
    }
    for source in folders.iter().flat_map(|folder| crate::source::rust_files(&root, folder).unwrap()) {
        if !source.path.ends_with("needs/calls.rs") && !source.path.ends_with("needs/mod.rs") {
            wrong.extend(judge(&source.path, &started(&source).unwrap(), &BTreeSet::new(), &lists));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lists_name_things_of_the_table_and_files_that_exist() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).unwrap().to_owned();
    for needs in lists() {
        for name in needs.things {
            assert_eq!(thing(name).name, *name);
        }
        for source in needs.sources {
            assert!(root.join(source).exists(), "{source}");
        }
    }
}

#[test]
fn commands_of_scripts_are_distinguished_from_arguments() {
    let found = |script: &str| commands(script).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(found("ip link set lo up # and tc\nX=1 xxd -p | python3 -c 'kill; ps'"), "ip python3 xxd");
    assert_eq!(found("a=$(pgrep x) && echo \"b; c $(pidof y) z\" >&2; $at ip || { ps; }"), "echo pgrep pidof ps");
    assert_eq!(found("for x in a b; do if ! jq .; then exec nc; fi; done"), "done fi for jq nc");
    assert_eq!(found("cat >x <<END\nnetcat y\nEND\nwhile curl; do echo $((1 + 2)); done"), "cat curl done echo");
    assert_eq!(found("{ wget \\\n  x; }"), "wget");
    let case = "case $1 in\none | two) curl ;;\n*) wget x ;;\nesac\n(exec nc)";
    assert_eq!(found(case), "case curl esac nc wget");
    assert_eq!(found("perl -e '\n  print ps; my $x\n' jq && curl\nx=\"a\n b\"\nnc"), "curl nc perl");
}

#[test]
fn programs_that_no_step_installs_are_found() {
    const NEEDS: Needs = Needs { things: &["ip"], sources: &["crates/a/tests"] };
    let rust = |path: &str, text: &str| {
        let source = crate::source::fixture::source(path, text);
        judge(&source.path, &started(&source).unwrap(), &BTreeSet::new(), &[&NEEDS]).len()
    };
    let (inside, outside) = ("crates/a/tests/x.rs", "crates/b/tests/x.rs");
    assert_eq!(rust(inside, "fn f() { Command::new(\"ip\"); std::process::Command::new(\"/bin/sh\"); }"), 0);
    assert_eq!(rust(outside, "fn f() { Command::new(\"ip\"); }"), 1, "no step says so");
    assert_eq!(rust(inside, "fn f() { Command::new(\"kill\"); }"), 1, "a shell's own");
    assert_eq!(rust(inside, "fn f() { Command::new(\"xxd\"); }"), 1, "of an unknown package");
    assert_eq!(rust(inside, "fn f() { run(\"tc\", &[]); }"), 1, "by way of a function");
    assert_eq!(rust(inside, "const A: &str = \"set -e; tc x\";"), 1, "by way of a shell");
    let script =
        |text: &str| judge(Path::new("crates/a/tests/x.sh"), &commands(text), &BTreeSet::new(), &[&NEEDS]).len();
    assert_eq!((script("ip x; kill 1"), script("tc x"), script("xxd")), (0, 1, 1));
}
