//! The process of a node.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use stentor::Cluster;
use stentor_bank::Bank;

/// Interval at which the process checks whether to end and whether it leads.
const LOOK: Duration = Duration::from_millis(20);

/// Line that a node prints when it becomes leader.
pub(crate) const LEADS: &str = "leads";
/// Line that a node prints when it stops leading.
pub(crate) const FOLLOWS: &str = "follows";

/// Runs a node until SIGTERM or SIGINT, `stentor stop`, or the end of the standard input if `with_parent` is set. A
/// leader hands over its leadership first.
pub(crate) fn run(cluster: &Cluster, id: &str, with_parent: bool) -> Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    let node = cluster.node(id, Bank::default()).spawn()?;
    if with_parent {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            // A read error counts as the end of the input.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            is_over.store(true, Ordering::Relaxed);
        });
    }
    let mut leads = false;
    while !is_over.load(Ordering::Relaxed) && !node.has_ended() {
        // A node that has just ended has no status. `stop` returns the reason.
        let now = node.status().is_ok_and(|status| status.leads);
        if now != leads {
            leads = now;
            println!("{}", if leads { LEADS } else { FOLLOWS });
        }
        thread::sleep(LOOK);
    }
    node.stop()?;
    Ok(())
}
