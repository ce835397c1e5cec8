//! The demonstration. It stops a holder until its lease runs out and another holder gets the lock. When the first
//! holder continues, the resource refuses its write.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use crate::hold::{HOLDS, WORKS};
use crate::processes::{Running, Starter};
use crate::resource::{ResourceServer, WriteAttempt};

const MEMBERS: u8 = 3;
const LOCK: &str = "door";
/// Length of the leases.
const LEASE: &str = "1500ms";
/// Bound of the clock error, in milliseconds. All processes run on one host and share its clock.
const CLOCK_BOUND_MS: &str = "200";
/// Time after which a wait counts as a hang. Every step of the demonstration takes less.
const LONG: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);

/// Runs the demonstration. The exit code is 1 if the resource refused or admitted other writes than expected.
pub(crate) fn run(rounds: usize) -> Result<ExitCode> {
    let stage = Stage::set()?;
    stage.say("three nodes start; a resource waits for writes and remembers the largest token that it has seen");
    let mut nodes: Vec<Running> = (1..=MEMBERS).map(|n| stage.node(n)).collect::<Result<_>>()?;
    let a = stage.holder("A")?;
    stage.until("A to write", || a.count("writes") >= 3)?;
    let b = stage.holder("B")?;
    let watcher = stage.client("W", &["watch", LOCK])?;
    stage.until("B to wait, and W to watch", || b.count("waits") > 0 && watcher.count(LOCK) > 0)?;
    let mut holders = [("A", a), ("B", b)];
    let mut stopped = Vec::new();
    for round in 0..rounds {
        if round > 0 {
            let member = round % nodes.len();
            drop(nodes.remove(member));
            nodes.insert(member, stage.node(member as u8 + 1)?);
            stage.say(&format!("g1.{} is killed, and started again", member + 1));
        }
        stopped.push(stage.stop_holder(&holders)?);
        holders.swap(0, 1);
    }
    let [(name, holds), (other, waits)] = holders;
    stage.say(&format!("{name} is asked to end"));
    let last = holds.numbers(HOLDS);
    holds.end()?;
    let before = waits.count("writes");
    stage.until(&format!("{other} to write again"), || waits.count("writes") > before)?;
    let acquired = [last, waits.numbers(HOLDS)];
    waits.end()?;
    watcher.end()?;
    nodes.into_iter().try_for_each(Running::end)?;
    Ok(judge(&stage.resource.writes(), &stopped, &acquired))
}

/// Prints the writes that the resource received, and judges them.
fn judge(writes: &[WriteAttempt], stopped: &[u64], acquired: &[Vec<u64>; 2]) -> ExitCode {
    let tokens = |admitted: bool| -> Vec<u64> {
        writes.iter().filter(|write| write.is_admitted == admitted).map(|write| write.token).collect()
    };
    let (mut admitted, refused) = (tokens(true), tokens(false));
    admitted.dedup();
    println!("tokens of admitted writes, in their order: {admitted:?}");
    println!("tokens of refused writes: {refused:?}");
    if has_one_holder(&admitted, &refused, stopped, acquired) {
        println!("the resource had one holder at a time");
        ExitCode::SUCCESS
    } else {
        println!("WRONG: admitted tokens should rise, and each of {} stopped holders be refused once", stopped.len());
        ExitCode::FAILURE
    }
}

/// Returns whether the admitted tokens rise, each of them was acquired by one of the two holders, and the refused writes
/// are those of the stopped holders. Each stop hands the lock to the other holder, and so does the end of the
/// demonstration. A busy machine may end further leases.
fn has_one_holder(admitted: &[u64], refused: &[u64], stopped: &[u64], acquired: &[Vec<u64>; 2]) -> bool {
    let [a, b] = acquired;
    let rise = admitted.is_sorted_by(|one, next| one < next);
    let by_one = admitted.iter().all(|token| a.contains(token) != b.contains(token));
    rise && by_one && refused == stopped && admitted.len() >= stopped.len() + 2
}

/// The surroundings of the demonstration's processes: their common directory, their starter and the resource server.
/// Printed times count from `begin`.
struct Stage {
    directory: Directory,
    starter: Starter,
    resource: ResourceServer,
    begin: Instant,
}

impl Stage {
    fn set() -> Result<Stage> {
        let directory = Directory::new()?;
        let member = |n: u8| format!("{{ id = \"g1.{n}\", address = \"127.0.0.{n}:7101\" }}");
        let members: Vec<String> = (1..=MEMBERS).map(member).collect();
        let text = format!(
            "cluster = \"lock\"\nfabric = \"shm\"\n[election]\nkind = \"heartbeat\"\ntimeout_min_ms = 300\ntimeout_max_ms = 600\n\
             [limits]\nclients = 8\nmessage_bytes = 4096\nwindow = 64\nbody_ring_kib = 64\nclock_bound_ms = {CLOCK_BOUND_MS}\n\
             [[group]]\nid = \"g1\"\nprocess = [ {} ]\n",
            members.join(", ")
        );
        fs::write(directory.0.join("cluster.toml"), text)?;
        let resource = ResourceServer::start(&directory.0.join("resource"))?;
        Ok(Stage { starter: Starter::new(&directory.0)?, directory, resource, begin: Instant::now() })
    }

    fn node(&self, n: u8) -> Result<Running> {
        self.starter.start(&["node", &format!("g1.{n}"), "--with-parent"], |_| ())
    }

    fn holder(&self, name: &'static str) -> Result<Running> {
        let resource = self.directory.0.join("resource").display().to_string();
        self.client(name, &["hold", LOCK, "--lease", LEASE, "--resource", &resource])
    }

    /// Starts a client and prints its lines, except for [`WORKS`] and for repetitions of the last printed line.
    fn client(&self, name: &'static str, words: &[&str]) -> Result<Running> {
        let begin = self.begin;
        let last = std::sync::Mutex::new(String::new());
        self.starter.start(words, move |line| {
            if line != WORKS && last.lock().is_ok_and(|mut last| std::mem::replace(&mut *last, line.to_owned()) != line)
            {
                print(begin, &format!("  {name} {line}"));
            }
        })
    }

    /// Stops the first process, which holds the lock, until the second process has the lock. Then continues the first
    /// process. Returns the token of the stopped process.
    fn stop_holder(&self, [(name, holds), (other, waits)]: &[(&str, Running); 2]) -> Result<u64> {
        // The process is stopped after it has checked its lease. It cannot notice the pause before its write.
        let works = holds.count(WORKS);
        self.until(&format!("{name} to prepare a write"), || holds.count(WORKS) > works)?;
        let written = waits.count("writes");
        holds.signal(Signal::STOP)?;
        let token = holds.numbers(HOLDS).last().copied().context("the holder has printed no token")?;
        self.say(&format!("{name} is stopped (SIGSTOP) between the check of its lease and its write"));
        self.until(&format!("{other} to write"), || waits.count("writes") >= written + 3)?;
        let before = ["is refused", "waits"].map(|what| (what, holds.count(what)));
        self.say(&format!("{name} continues (SIGCONT)"));
        holds.signal(Signal::CONT)?;
        let again = || before.iter().all(|(what, count)| holds.count(what) > *count);
        self.until(&format!("{name} to be refused, and to wait"), again)?;
        Ok(token)
    }

    fn say(&self, what: &str) {
        print(self.begin, what);
    }

    fn until(&self, what: &str, is: impl Fn() -> bool) -> Result<()> {
        let since = Instant::now();
        while !is() {
            if since.elapsed() > LONG {
                bail!("waited {LONG:?} for {what}");
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

fn print(begin: Instant, what: &str) {
    println!("{:6.2} s  {what}", begin.elapsed().as_secs_f64());
}

/// A directory that is removed when the demonstration ends.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Directory> {
        let mut number = 0;
        loop {
            let path = std::env::temp_dir().join(format!("stentor-lock-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Directory(path)),
                // A killed process with the same process id has left this directory.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error).with_context(|| format!("cannot make {}", path.display())),
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // If the removal fails, the directory stays among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::has_one_holder;

    #[test]
    fn rising_tokens_and_refused_stopped_holders_are_right() {
        let acquired = [vec![1, 3, 5], vec![2, 4]];
        assert!(has_one_holder(&[1, 2, 3], &[1], &[1], &acquired));
        assert!(has_one_holder(&[1, 2, 3, 4, 5], &[2], &[2], &acquired), "a busy machine has ended leases");
        assert!(!has_one_holder(&[1, 3, 2], &[1], &[1], &acquired), "an older token is admitted");
        assert!(!has_one_holder(&[1, 2, 1, 3], &[1], &[1], &acquired), "the stopped holder's late write is admitted");
        assert!(!has_one_holder(&[1, 2, 3], &[], &[1], &acquired), "the stopped holder is not refused");
        assert!(!has_one_holder(&[1, 2, 3], &[1, 1], &[1], &acquired), "it is refused twice");
        assert!(!has_one_holder(&[1, 2, 3], &[2], &[1], &acquired), "another holder is refused");
        assert!(!has_one_holder(&[1, 2, 6], &[1], &[1], &acquired), "nobody acquired a token");
        assert!(!has_one_holder(&[1, 2, 3], &[1], &[1], &[vec![1, 2, 3], vec![2]]), "both holders had a token");
        assert!(!has_one_holder(&[1, 2], &[1], &[1], &acquired), "the last holder did not write");
    }
}
