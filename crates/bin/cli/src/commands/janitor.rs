//! `stentor janitor`: a process that waits until another process ends, for whatever reason, and removes the files that
//! the other one leaves behind. Users do not call it.

use std::io::{Read, stdin};
use std::path::Path;
use std::time::Duration;

use stentor_support::live::ignore_signals;
use stentor_support::{Failure, Verdict};

use crate::args::Janitor;

/// Number of times that a tree is removed. The processes that work in it end at the same time, and may still create a
/// file.
const TREE_TURNS: u32 = 5;
/// Pause after each removal of a tree.
const TREE_PAUSE: Duration = Duration::from_millis(200);

pub(super) fn run(args: &Janitor) -> Result<Verdict, Failure> {
    ignore_signals()?;
    match (&args.tree, args.paths.as_slice()) {
        (Some(tree), []) => remove_unless_dismissed(tree),
        (None, [socket, cluster, directory]) => stentor_host::clean_up(socket, cluster, directory),
        _ => return Err(Failure::usage("three paths, or --tree", "stentor janitor", "do not call it by hand")),
    }
    Ok(Verdict::Good)
}

/// Removes a directory unless a byte arrives on standard input. If the input ends without a byte, the other process has
/// died.
fn remove_unless_dismissed(tree: &Path) {
    if stdin().lock().read(&mut [0]).is_ok_and(|bytes| bytes > 0) {
        return;
    }
    for _ in 0..TREE_TURNS {
        // The directory may not exist, and may be created again.
        let _ = std::fs::remove_dir_all(tree);
        std::thread::sleep(TREE_PAUSE);
    }
}
