//! The process that holds a lock.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use stentor_lock::{Held, Holder, HolderError, Lease};

use crate::args::Hold;
use crate::node::until_told;
use crate::resource::{ADMITTED, REFUSED};

/// Time between the check of the lease and the write to the resource. It simulates the preparation of the write.
const WORK: Duration = Duration::from_millis(60);
/// Line that the process prints before it prepares a write.
pub(crate) const WORKS: &str = "checks its lease and prepares a write";
/// Beginning of the line that a holder prints with the token that it has acquired.
pub(crate) const HOLDS: &str = "holds ";

/// Acquires the lock and holds it until the standard input ends. If the lock is lost, acquires it again.
pub(crate) fn run(holder: &Holder, hold: &Hold) -> Result<()> {
    let is_over = until_told(true)?;
    let mut resource = hold.resource.as_deref().map(Resource::connect).transpose()?;
    let (name, length) = (&hold.name, hold.lease.into());
    // The process tries to acquire the lock at least once, even if its standard input has ended already.
    loop {
        let mut waits_for = 0;
        let waits = |held: &Held| {
            if std::mem::replace(&mut waits_for, held.token) != held.token {
                println!("waits for {name}, which is held with token {}", held.token);
            }
            !is_over.load(Ordering::Relaxed)
        };
        let Some(lease) = holder.acquire(name, length, waits)? else { break };
        println!("{HOLDS}{name} with token {}", lease.token());
        match keep(holder, lease, resource.as_mut(), &is_over) {
            Ok(lease) => {
                holder.release(&lease)?;
                println!("releases {name}");
            }
            Err(Lost::Lease(error)) => println!("{error}"),
            Err(Lost::All(error)) => return Err(error),
        }
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    holder.client().clone().close()?;
    Ok(())
}

/// The reason for which the process does not hold the lock any more.
enum Lost {
    Lease(HolderError),
    All(anyhow::Error),
}

impl From<anyhow::Error> for Lost {
    fn from(error: anyhow::Error) -> Lost {
        Lost::All(error)
    }
}

impl From<HolderError> for Lost {
    fn from(error: HolderError) -> Lost {
        if matches!(error, HolderError::Lost(_)) { Lost::Lease(error) } else { Lost::All(error.into()) }
    }
}

/// Renews the lease and writes to the resource until the standard input ends. Returns the last lease.
fn keep(
    holder: &Holder,
    mut lease: Lease,
    mut resource: Option<&mut Resource>,
    is_over: &AtomicBool,
) -> Result<Lease, Lost> {
    let (third, mut renewed) = (lease.length() / 3, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        if renewed.elapsed() >= third || !lease.is_sure() {
            renewed = Instant::now();
            lease = holder.renew(&lease)?;
        }
        // After this check the process may be stopped, and may continue when another process holds the lock. So the
        // write carries the token.
        if resource.is_some() && lease.is_sure() {
            println!("{WORKS}");
        }
        thread::sleep(WORK);
        if let Some(resource) = &mut resource {
            match resource.write(lease.token())? {
                Some(why) => {
                    println!("is refused by the resource: {why}");
                    // The renewal fails with the reason for which the lock was lost.
                    lease = holder.renew(&lease)?;
                }
                None => println!("writes with token {}", lease.token()),
            }
        }
    }
    Ok(lease)
}

/// A connection to a resource that checks tokens.
struct Resource {
    from: BufReader<UnixStream>,
    to: UnixStream,
}

impl Resource {
    fn connect(path: &Path) -> Result<Resource> {
        let to = UnixStream::connect(path)
            .with_context(|| format!("cannot connect to the resource at {}", path.display()))?;
        Ok(Resource { from: BufReader::new(to.try_clone()?), to })
    }

    /// Writes with a token. Returns the resource's reason if it refuses the write.
    fn write(&mut self, token: u64) -> Result<Option<String>> {
        let mut line = String::new();
        writeln!(self.to, "{token}")
            .and_then(|()| self.from.read_line(&mut line))
            .context("the resource does not answer any more; does its process run?")?;
        match line.trim_end().split_once(' ') {
            Some((ADMITTED, _)) => Ok(None),
            Some((REFUSED, why)) => Ok(Some(why.to_owned())),
            _ => bail!("the resource replied `{line}`, which is neither an admission nor a refusal"),
        }
    }
}
