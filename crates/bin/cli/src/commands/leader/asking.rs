//! Asks all members at once: through their sockets on this host, and at their addresses on other hosts.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use stentor::operator::{Answer, Question, REMOTE_SHOW, Standing, ask_within, listener};
use stentor::runtime::find;
use stentor_fabric::ProcessId;
use stentor_fabric_roce::{AskConfig, AskError, ask};
use stentor_support::Failure;
use stentor_support::live::{MEND_NAME, unstarted};

use super::{Cluster, Heard};

/// A member to ask, and the places where it may listen.
struct Target {
    paths: Vec<PathBuf>,
    remote: Option<Remote>,
}

/// A member that may be on another host.
struct Remote {
    address: String,
    cluster: String,
    /// The key, or the reason why there is none.
    key: Result<Vec<u8>, String>,
    process: ProcessId,
}

/// Asks these members for their state at the same time, and collects the answers that arrive `within` that time. If a
/// member is silent, the function takes all of that time.
pub(super) fn all(
    cluster: &Cluster<'_>,
    members: &[ProcessId],
    within: Duration,
) -> Result<Vec<Heard<Standing>>, Failure> {
    let until = Instant::now() + within;
    let key = cluster.spread.then(|| key(cluster));
    let targets = members.iter().map(|process| target(cluster, *process, key.as_ref()));
    let targets = targets.collect::<Result<Vec<_>, Failure>>()?;
    let (sender, answers) = channel();
    for (n, target) in targets.into_iter().enumerate() {
        let answered = sender.clone();
        // A thread that does not finish in time is abandoned, and ends with this command.
        let target = Arc::new(target);
        let asked = Arc::clone(&target);
        let ask = move || drop(answered.send((n, look(&asked, until))));
        if std::thread::Builder::new().spawn(ask).is_err() {
            // If no thread can be started, this thread asks the member, which leaves less time for the others.
            let _ = sender.send((n, look(&target, until)));
        }
    }
    drop(sender);
    let mut heard: Vec<_> = members.iter().map(|_| Heard::Silence(None)).collect();
    // Threads that are still asking at the end get a moment to report the timeout themselves.
    let until = until + within / 8;
    while let Ok((n, answer)) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        heard[n] = answer;
    }
    Ok(heard)
}

/// Time for the answer of a member that was found in an unexpected place.
const BRIEF: Duration = Duration::from_millis(200);

/// Looks on this host for a member that was not found where the configuration and the directory say. Returns its
/// answer. If a process with the name of the member was found, returns also a note about that process, which may belong
/// to another cluster.
pub(super) fn elsewhere(
    cluster: &Cluster<'_>,
    process: ProcessId,
    heard: Heard<Standing>,
) -> (Heard<Standing>, Option<String>) {
    if matches!(heard, Heard::Answer(_) | Heard::Silence(Some(_))) {
        return (heard, None);
    }
    let mut all = find(&cluster.plan, process);
    all.sort_by_key(|found| !found.is_same);
    let Some(found) = all.first() else { return (heard, None) };
    let place = found.where_it_is();
    if !found.is_same {
        let note = format!(
            "a process of this name runs on this host, {place}: it belongs to another cluster, unless that file is meant"
        );
        return (heard, Some(note));
    }
    let why = found.missed_by(&cluster.directory, &cluster.meeting);
    let note = why.map(|why| format!("it runs on this host, {place}: {why}"));
    // The reason why the member could not be asked is known already. That reason is reported.
    if matches!(heard, Heard::Unknown(_)) {
        return (heard, note);
    }
    let pid = Some(found.pid()).filter(|pid| *pid > 0);
    let paths = found.paths();
    let there = match ask_within(&paths, &Question::Show, BRIEF) {
        Ok(Some(answer)) => understood(answer),
        // The process holds the lock, so it is running.
        Ok(None) => Heard::Silence(pid),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => Heard::Silence(pid),
        Err(error) => Heard::Unknown(format!("its answer is invalid: {error}")),
    };
    (there, note)
}

fn key(cluster: &Cluster<'_>) -> Result<Vec<u8>, String> {
    let directory = cluster.config.parent().unwrap_or(std::path::Path::new(""));
    let source = cluster.plan.config().key().ok_or("the configuration names no key")?;
    source.read(directory).map_err(|error| error.to_string())
}

fn target(cluster: &Cluster<'_>, process: ProcessId, key: Option<&Result<Vec<u8>, String>>) -> Result<Target, Failure> {
    let paths = stentor_host::all_beside(&cluster.directory, &cluster.meeting, process)
        .map_err(|error| unstarted(error.into(), cluster.config))?;
    let (config, name) = (cluster.plan.config(), cluster.plan.name(process));
    let mut all = config.groups().iter().flat_map(|group| group.members());
    let address = all.find(|member| member.id() == name).map(|member| member.address().to_owned());
    let remote = key.cloned().zip(address);
    let cluster = config.cluster().to_owned();
    Ok(Target { paths, remote: remote.map(|(key, address)| Remote { address, cluster, key, process }) })
}

fn look(target: &Target, until: Instant) -> Heard<Standing> {
    let left = || until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    match ask_within(&target.paths, &Question::Show, left()) {
        Ok(Some(answer)) => understood(answer),
        Ok(None) => target.remote.as_ref().map_or(Heard::Nobody, |remote| look_there(remote, left())),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            Heard::Silence(listener(&target.paths))
        }
        Err(error) => Heard::Unknown(format!("its answer is invalid: {error}")),
    }
}

fn look_there(remote: &Remote, within: Duration) -> Heard<Standing> {
    let begin = Instant::now();
    let key = match &remote.key {
        Ok(key) => key.clone(),
        Err(why) => return Heard::Unknown(format!("it is not on this host; to ask elsewhere needs the key: {why}")),
    };
    let all: Vec<_> = match remote.address.to_socket_addrs() {
        Ok(all) => all.collect(),
        Err(error) => {
            let what = format!("the host name of {} cannot be resolved here: {error}", remote.address);
            return Heard::Unknown(format!("{what}; {MEND_NAME}"));
        }
    };
    let mut heard = Heard::Unknown(format!("{} has no address", remote.address));
    // A host with several network interfaces has several addresses, and the member listens at one of them.
    for (n, at) in all.iter().enumerate() {
        let left = within.saturating_sub(begin.elapsed()) / (all.len() - n) as u32;
        heard = look_at(remote, &key, *at, left);
        if matches!(heard, Heard::Answer(_)) {
            break;
        }
    }
    heard
}

fn look_at(remote: &Remote, key: &[u8], at: SocketAddr, within: Duration) -> Heard<Standing> {
    let config = AskConfig { cluster: remote.cluster.clone(), key: key.to_owned(), process: remote.process, at };
    match ask(&config, REMOTE_SHOW, within) {
        Ok(answer) => match serde_json::from_slice(&answer) {
            Ok(answer) => understood(answer),
            Err(error) => Heard::Unknown(format!("its answer cannot be decoded: {error}")),
        },
        Err(AskError::Nobody) => Heard::Nobody,
        Err(AskError::Silent) => Heard::Silence(None),
        Err(error) => Heard::Unknown(format!("{at}: {error}")),
    }
}

fn understood(answer: Answer) -> Heard<Standing> {
    match answer {
        Answer::Standing(standing) => Heard::Answer(*standing),
        Answer::Refused(why) | Answer::NotYet(why) => Heard::Unknown(format!("it refuses: {why}")),
        Answer::Moving | Answer::Done => Heard::Unknown("it answered another question".to_owned()),
    }
}
