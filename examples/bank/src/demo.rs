//! The demonstration. It starts a cluster of real processes, and clients that transfer money. It kills nodes and
//! clients. Meanwhile an auditor reads cuts and checks the sum at each of them.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use stentor::{Client, Cluster, Group};
use stentor_bank::{Account, Command, Counts, Cut, TellerError, Verdict, call, finish_old};

use crate::args::{Demo, Fabric};
use crate::processes::{Running, Starter};

/// Number of members of each group.
const MEMBERS: u8 = 3;
/// Number of accounts of each group.
const ACCOUNTS: u64 = 4;
/// Initial balance of each account.
const AMOUNT: u64 = 1000;
/// Time after which a wait without progress counts as a hang.
const LONG: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(2);
/// Pause between two cuts. An auditor that reads without a pause takes processor time from the transfers.
const BETWEEN_CUTS: Duration = Duration::from_millis(1);
/// Time between the kill of a node and its restart.
const AWAY: Duration = Duration::from_millis(200);

/// Runs the demonstration. The exit code is 1 if a cut was wrong.
pub(crate) fn run(demo: &Demo) -> Result<ExitCode> {
    let begin = Instant::now();
    let directory = Directory::new()?;
    fs::write(directory.0.join("key"), "a key of this demonstration: 0123456789abcdef")?;
    fs::write(directory.0.join("cluster.toml"), configuration(demo))?;
    let cluster = Cluster::load(directory.0.join("cluster.toml"))?.in_directory(&directory.0);
    let groups: Vec<Group> = cluster.groups().collect();
    let starter = Starter::new(&directory.0)?;
    let mut nodes = Nodes::start(&cluster, &starter)?;
    let client = cluster.client().patience(LONG).connect().context("cannot connect to the demonstration's nodes")?;
    let accounts = ACCOUNTS * groups.len() as u64;
    open_accounts(&client, &groups, accounts)?;
    let sum = u128::from(accounts * AMOUNT);
    println!(
        "{} groups of {MEMBERS} processes, {accounts} accounts with {AMOUNT} each: {sum} in all ({:.1} s)",
        groups.len(),
        begin.elapsed().as_secs_f64()
    );
    let auditor = Auditor::start(client.clone(), groups.clone(), sum);
    let begin = Instant::now();
    let mut tellers = Tellers::start(demo, accounts, &directory.0, &starter)?;
    let kills = u64::from(demo.kills);
    for (n, group) in (0..kills).zip(groups.iter().cycle()) {
        let part = |n| demo.transfers * n / (2 * kills + 1);
        tellers.wait_until(part(2 * n + 1))?;
        nodes.kill_leader((&client, *group), &cluster, &starter)?;
        tellers.wait_until(part(2 * n + 2))?;
        tellers.kill_one(&starter)?;
    }
    let counts = tellers.end()?;
    let took = begin.elapsed();
    let finished = finish_old(&client, &groups, Duration::ZERO, false)?;
    let seen = auditor.end()?;
    let last = Cut::read(&client, &groups)?;
    client.close()?;
    nodes.end()?;
    let verdict = Report { counts, took, seen, last, sum, settled: finished.settled, cancelled: finished.cancelled };
    Ok(verdict.print())
}

/// Returns the text of `cluster.toml`.
fn configuration(demo: &Demo) -> String {
    let fabric = match demo.fabric {
        Fabric::Shm => "fabric = \"shm\"\n",
        Fabric::Roce => "fabric = \"roce\"\nkey = \"file:key\"\n",
    };
    // The address depends on the process id, so that demonstrations that run at the same time rarely use the same
    // addresses.
    let network = 64 + std::process::id() % 128;
    let member =
        |group: u8, n: u8| format!("{{ id = \"g{group}.{n}\", address = \"127.{network}.{group}.{n}:7101\" }}");
    let group = |group: u8| {
        let members: Vec<String> = (1..=MEMBERS).map(|n| member(group, n)).collect();
        format!("[[group]]\nid = \"g{group}\"\nprocess = [ {} ]\n", members.join(", "))
    };
    let groups: String = (1..=demo.groups).map(group).collect();
    format!(
        "cluster = \"bank\"\n{fabric}[election]\nkind = \"heartbeat\"\ntimeout_min_ms = 300\ntimeout_max_ms = 600\n\
         [limits]\nclients = 12\nmessage_bytes = 4096\nwindow = 64\nbody_ring_kib = 64\n{groups}"
    )
}

fn open_accounts(client: &Client, groups: &[Group], accounts: u64) -> Result<()> {
    for account in (0..accounts).map(Account) {
        let home = account.home(groups).context("a cluster without groups")?;
        call(client, home, Command::Open(account))?;
        match call(client, home, Command::Deposit(account, AMOUNT))? {
            Verdict::Balance(AMOUNT) => {}
            other => bail!("the reply to a deposit into account {account} is {other:?}"),
        }
    }
    Ok(())
}

/// A directory that is removed when the demonstration ends.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Directory> {
        let mut number = 0;
        loop {
            let path = std::env::temp_dir().join(format!("stentor-bank-{}-{number}", std::process::id()));
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

/// The node processes, by node name.
struct Nodes(Vec<(String, Running)>);

impl Nodes {
    fn start(cluster: &Cluster, starter: &Starter) -> Result<Nodes> {
        let names = cluster.groups().flat_map(|group| cluster.members(group));
        let start = |name: &str| Ok((name.to_owned(), start_node(starter, name)?));
        Ok(Nodes(names.map(start).collect::<Result<_>>()?))
    }

    /// Kills the node that leads this group, waits for [`AWAY`], and restarts the node.
    fn kill_leader(&mut self, (client, group): (&Client, Group), cluster: &Cluster, starter: &Starter) -> Result<()> {
        // A client learns from answers who leads, so a read brings its knowledge up to date.
        Cut::read(client, &[group])?;
        let leader = client.leader(group);
        let found = self.0.iter_mut().find(|(name, _)| leader == Some(name));
        let (name, node) = found.with_context(|| format!("{} has no leader", cluster.group_name(group)))?;
        node.kill()?;
        println!("{name}, which led {}, is killed", cluster.group_name(group));
        thread::sleep(AWAY);
        *node = start_node(starter, name)?;
        println!("{name} is started again");
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.0.into_iter().try_for_each(|(_, node)| node.end().map(drop))
    }
}

fn start_node(starter: &Starter, name: &str) -> Result<Running> {
    starter.start(&["node", name, "--with-parent"])
}

/// The client processes that transfer money.
struct Tellers(Vec<(Vec<String>, Running)>);

impl Tellers {
    fn start(demo: &Demo, accounts: u64, directory: &Path, starter: &Starter) -> Result<Tellers> {
        let clients = u64::from(demo.clients);
        let start = |n: u64| {
            // If the division has a remainder, the first clients do one more transfer each.
            let transfers = demo.transfers / clients + u64::from(n < demo.transfers % clients);
            let journal = directory.join(format!("teller-{n}")).display().to_string();
            let (accounts, transfers, n) = (accounts.to_string(), transfers.to_string(), n.to_string());
            let words =
                ["teller", "--journal", &journal, "--transfers", &transfers, "--accounts", &accounts, "--seed", &n];
            let running = starter.start(&words)?;
            Ok((words.map(str::to_owned).to_vec(), running))
        };
        Ok(Tellers((0..clients).map(start).collect::<Result<_>>()?))
    }

    /// Waits until `transfers` transfers have ended, or until all clients have ended.
    fn wait_until(&mut self, transfers: u64) -> Result<()> {
        let mut progress = Progress::new(Instant::now());
        loop {
            let ended: u64 = self.0.iter().map(|(_, teller)| counts(&teller.last_line()).ended()).sum();
            let mut all_have_ended = true;
            for (_, teller) in &mut self.0 {
                all_have_ended &= teller.has_ended()?;
            }
            if ended >= transfers || all_have_ended {
                return Ok(());
            }
            if progress.has_stalled(ended, Instant::now()) {
                bail!(
                    "no transfer has ended for {LONG:?}, after {ended} that have: the groups do not answer, or this host is too busy"
                );
            }
            thread::sleep(LOOK);
        }
    }

    /// Kills a client that has not ended, if there is one, and restarts it.
    fn kill_one(&mut self, starter: &Starter) -> Result<()> {
        for (words, teller) in &mut self.0 {
            if !teller.has_ended()? {
                teller.kill()?;
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                *teller = starter.start(&words)?;
                println!("a client is killed, and started again with its journal");
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for all clients and returns the sum of their counts.
    fn end(mut self) -> Result<Counts> {
        self.wait_until(u64::MAX)?;
        let mut all = Counts::default();
        for (_, teller) in self.0 {
            let of = counts(&teller.end()?);
            all.done += of.done;
            all.refused += of.refused;
            all.resolved += of.resolved;
            all.given_up += of.given_up;
        }
        Ok(all)
    }
}

/// The last progress of a wait for transfers.
struct Progress {
    ended: u64,
    since: Instant,
}

impl Progress {
    fn new(now: Instant) -> Progress {
        Progress { ended: 0, since: now }
    }

    /// Records the number of transfers that have ended. Returns whether this number has not changed for [`LONG`].
    fn has_stalled(&mut self, ended: u64, now: Instant) -> bool {
        if ended != self.ended {
            *self = Progress { ended, since: now };
        }
        now - self.since > LONG
    }
}

/// Parses a line that a client printed. If the client has printed nothing, the line is empty and the counts are 0.
fn counts(line: &str) -> Counts {
    serde_json::from_str(line).unwrap_or_default()
}

/// The auditor's counts.
#[derive(Debug, Default)]
struct Seen {
    cuts: u64,
    /// The largest amount that was in flight at a cut.
    most_held: u128,
    /// The longest time between two cuts.
    longest: Duration,
    wrong: Vec<String>,
}

/// A thread that reads and checks cuts until [`end`](Auditor::end) is called or a read fails.
struct Auditor {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Seen, TellerError>>,
}

impl Auditor {
    fn start(client: Client, groups: Vec<Group>, sum: u128) -> Auditor {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let (mut seen, mut last) = (Seen::default(), Instant::now());
            while !stop.load(Ordering::Relaxed) {
                let cut = Cut::read(&client, &groups)?;
                seen.cuts += 1;
                seen.most_held = seen.most_held.max(cut.held());
                seen.longest = seen.longest.max(last.elapsed());
                last = Instant::now();
                match cut.check() {
                    Ok(found) if found == sum => {}
                    Ok(found) => seen.wrong.push(format!("{found} instead of {sum}")),
                    Err(wrong) => seen.wrong.push(wrong.to_string()),
                }
                thread::sleep(BETWEEN_CUTS);
            }
            Ok(seen)
        });
        Auditor { is_over, thread }
    }

    fn end(self) -> Result<Seen> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(seen) => Ok(seen.context("reading cuts")?),
            Err(_) => bail!("the thread that reads cuts has panicked; its message is above"),
        }
    }
}

/// The results of the demonstration.
struct Report {
    counts: Counts,
    took: Duration,
    seen: Seen,
    last: Cut,
    sum: u128,
    settled: u64,
    cancelled: u64,
}

impl Report {
    fn print(&self) -> ExitCode {
        let Counts { done, refused, resolved, given_up } = self.counts;
        let (ended, took) = (self.counts.ended(), self.took.as_secs_f64());
        println!("transfers  {ended} in {took:.1} s: {done} done, {refused} refused, {given_up} given up");
        println!("unknown    {resolved} commands had an unknown outcome at first, which the client found out later");
        println!(
            "left       {} transfers were in flight at the end: {} settled, {} taken back",
            self.settled + self.cancelled,
            self.settled,
            self.cancelled
        );
        let Seen { cuts, most_held, longest, wrong } = &self.seen;
        println!("cuts       {cuts}, at most {longest:.0?} apart; at most {most_held} in flight at one");
        for what in wrong.iter().take(10) {
            println!("WRONG CUT  {what}");
        }
        let last = self.last.check().is_ok_and(|sum| sum == self.sum) && self.last.held() == 0;
        println!(
            "sum        {} of {}; {} cuts were wrong",
            self.last.sum(),
            self.sum,
            wrong.len() + usize::from(!last)
        );
        if wrong.is_empty() && last { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_with_progress_lasts_longer_than_the_limit_for_a_hang() {
        let begin = Instant::now();
        let mut progress = Progress::new(begin);
        for n in 1..=4 {
            assert!(!progress.has_stalled(u64::from(n) * 10, begin + n * LONG / 2));
        }
        assert!(!progress.has_stalled(40, begin + 3 * LONG));
        assert!(progress.has_stalled(40, begin + 3 * LONG + LOOK));
    }
}
