//! The process of a node.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use stentor::Cluster;
use stentor_lock::Locks;

/// Runs a node until SIGTERM or SIGINT, `stentor stop`, or the end of the standard input if `with_parent` is set. A
/// leader hands over its leadership first.
pub(crate) fn run(cluster: &Cluster, id: &str, with_parent: bool) -> Result<()> {
    let is_over = until_told(with_parent)?;
    Ok(cluster.node(id, Locks::default()).start()?.run_until(&is_over)?)
}

/// Returns a flag that is set when the process has to end: after SIGTERM or SIGINT, or at the end of the standard input
/// if `with_input` is set.
pub(crate) fn until_told(with_input: bool) -> Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    if with_input {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            // A read error counts as the end of the input.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            is_over.store(true, Ordering::Relaxed);
        });
    }
    Ok(is_over)
}
