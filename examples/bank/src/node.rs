//! A process that is a node.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use stentor::Cluster;
use stentor_bank::Bank;

/// How often the process looks whether it is to end, and who leads.
const LOOK: Duration = Duration::from_millis(20);

/// The line that a node prints when it begins to lead, and the one when it does not lead any more.
pub(crate) const LEADS: &str = "leads";
pub(crate) const FOLLOWS: &str = "follows";

/// Runs a node until SIGTERM or SIGINT, `stentor stop`, or the end of the input if `with_parent`. A node that leads hands over first.
pub(crate) fn run(cluster: &Cluster, id: &str, with_parent: bool) -> Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    let node = cluster.node(id, Bank::default()).spawn()?;
    if with_parent {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            // An input that cannot be read has ended, too.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            is_over.store(true, Ordering::Relaxed);
        });
    }
    let mut leads = false;
    while !is_over.load(Ordering::Relaxed) && !node.has_ended() {
        // One that has just ended has no status; `stop` says why.
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
