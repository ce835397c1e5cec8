//! `stentor janitor`: what outlives a process, by whatever cause that ends, to remove what it leaves behind. Nobody calls it
//! by hand.

use std::io::{Read, stdin};
use std::path::Path;
use std::time::Duration;

use stentor_support::live::ignore_signals;
use stentor_support::{Failure, Verdict};

use crate::args::Janitor;

/// How often a tree is removed, and the pause after that: the processes in it end as well, and may still make a file.
const TREE_TURNS: u32 = 5;
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

/// A byte means that there is nothing to do. The end of input without one means that whoever held the other end is gone.
fn remove_unless_dismissed(tree: &Path) {
    if stdin().lock().read(&mut [0]).is_ok_and(|bytes| bytes > 0) {
        return;
    }
    for _ in 0..TREE_TURNS {
        // It may be gone, and come back.
        let _ = std::fs::remove_dir_all(tree);
        std::thread::sleep(TREE_PAUSE);
    }
}
