//! `stentor neb remove`: removes processes from a broadcast in mode `all`.

mod listening;
mod words;

pub(super) use listening::Listening;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::config::NebConfig;
use stentor::operator::ask;
use stentor::runtime::ClusterRuntime;
use stentor_fabric::ProcessId;
use stentor_neb::ProcessSet;
use stentor_neb::removal::{Removal, RemovalError};
use stentor_support::live::{self, Interrupt, unstarted};
use stentor_support::{Failure, Human, Output, Style, Verdict, unique};

use self::words::{Answer, Question};
use crate::args::NebRemove;

/// Interval at which a fence is checked.
const LOOK: Duration = Duration::from_millis(2);

/// End of the stream of a removed process.
#[derive(Serialize)]
struct Ended {
    sender: String,
    /// First index that no process delivers.
    upto: u64,
}

#[derive(Serialize)]
struct Removed {
    removed: Vec<String>,
    remain: Vec<String>,
    /// `true` if all remaining processes had removed these processes before, so that nothing was done.
    already: bool,
    streams: Vec<Ended>,
    seconds: f64,
}

impl Human for Removed {
    fn human(&self, _: Style) -> String {
        let (gone, remain) = (self.removed.join(", "), self.remain.join(", "));
        if self.already {
            return format!("{gone} was removed before; {remain} remain\n");
        }
        let ends = self
            .streams
            .iter()
            .map(|ended| format!("the stream of {} ends before index {}\n", ended.sender, ended.upto));
        format!("{gone} removed; {remain} remain\n{}", ends.collect::<String>())
    }
}

/// A broadcast whose processes may be running.
struct Cluster<'a> {
    plan: &'a ClusterRuntime,
    args: &'a NebRemove,
    names: Vec<&'a str>,
    directory: PathBuf,
    meeting: String,
    /// `true` if processes may be on other hosts, where this command cannot send them questions.
    spread: bool,
}

pub(super) fn run(args: &NebRemove, output: Output) -> Result<Verdict, Failure> {
    let plan = live::plan(&args.place.config)?;
    let config = plan.config();
    let Some(neb) = config.neb() else {
        let remedy = "add one with `group`, `mode` and `fault_model`; `stentor config init` shows it";
        return Err(Failure::usage("there is no [neb]", args.place.config.display(), remedy));
    };
    let cluster = Cluster {
        names: config.groups()[neb.group()].members().iter().map(|member| member.id()).collect(),
        directory: live::directory(args.place.directory.as_ref()),
        meeting: live::neb_meeting_name(&plan),
        spread: config.fabric().is_between_hosts(),
        plan: &plan,
        args,
    };
    let removed = cluster.remove(neb, output)?;
    output.conclude(&removed, Verdict::Good)
}

impl Cluster<'_> {
    fn name(&self, process: ProcessId) -> &str {
        self.names[process.index()]
    }

    fn named(&self, processes: ProcessSet) -> Vec<String> {
        processes.iter().map(|process| self.name(process).to_owned()).collect()
    }

    fn targets(&self) -> Result<ProcessSet, Failure> {
        let place = |name: &String| {
            let known = self.names.iter().position(|known| known == name).map(|place| ProcessId(place as u16));
            known.ok_or_else(|| {
                let what = format_args!("`{name}` is no process of the broadcast");
                let remedy = format_args!("name some of {}", self.names.join(", "));
                Failure::usage(what, self.args.place.config.display(), remedy)
            })
        };
        self.args.id.iter().map(place).collect()
    }

    fn remove(&self, neb: &NebConfig, output: Output) -> Result<Removed, Failure> {
        let targets = self.targets()?;
        let interrupt = Interrupt::catch()?;
        let mut removal = Removal::new(neb.config(), targets, unique::number()).map_err(|error| self.failed(&error))?;
        let since = Instant::now();
        while !removal.is_done() {
            interrupt.check()?;
            let mut late = false;
            for process in neb.config().everybody().iter() {
                late |= self.ask(&mut removal, process, targets, output)?;
            }
            if late {
                std::thread::sleep(LOOK);
            }
            if since.elapsed() > Duration::from_secs(self.args.timeout) {
                let what = format_args!("not all remaining processes have agreed after {} s", self.args.timeout);
                let remedy = "run the command again: it continues from what was agreed on so far";
                return Err(Failure::run(what, self.args.place.config.display(), remedy));
            }
        }
        let ended =
            |cut: &stentor_neb::removal::Cut| Ended { sender: self.name(cut.sender).to_owned(), upto: cut.upto };
        Ok(Removed {
            removed: self.named(targets),
            remain: self.named(removal.remain()),
            already: removal.cuts().is_empty(),
            streams: removal.cuts().iter().map(ended).collect(),
            seconds: since.elapsed().as_secs_f64(),
        })
    }

    /// Sends a process its next question, if there is one. Returns `true` if the process still sets up its fence, so
    /// that the question must be sent again.
    fn ask(
        &self,
        removal: &mut Removal,
        process: ProcessId,
        targets: ProcessSet,
        output: Output,
    ) -> Result<bool, Failure> {
        let Some(wanted) = removal.question(process) else { return Ok(false) };
        let question = Question { fingerprint: self.plan.config().fingerprint(), ask: words::Ask::of(&wanted) };
        let paths = stentor_host::all_beside(&self.directory, &self.meeting, process)
            .map_err(|error| unstarted(error.into(), &self.args.place.config))?;
        let taken = match ask(&paths, &question) {
            Ok(Some(Answer::Refused(why))) if targets.contains(process) => {
                output.note(&format!("{} was asked to end, and refuses: {why}", self.name(process)));
                removal.absent(process)
            }
            Ok(Some(Answer::Refused(why))) => return Err(self.refused(process, &why)),
            Ok(Some(answer)) => {
                let answer = answer.meant().map_err(|why| self.refused(process, &why))?;
                let late = answer == stentor_neb::removal::Answer::Fencing;
                removal.answered(process, answer).map_err(|error| self.failed(&error))?;
                return Ok(late);
            }
            Ok(None) => removal.absent(process),
            Err(error) if targets.contains(process) => {
                output.note(&format!("{} does not answer: {error}", self.name(process)));
                removal.absent(process)
            }
            Err(error) => {
                let what = format_args!("`{}`, which would remain, does not answer: {error}", self.name(process));
                let remedy = "look at its log; continue it if it is stopped, or remove it as well";
                return Err(Failure::run(what, self.directory.display(), remedy));
            }
        };
        taken.map_err(|error| self.failed(&error)).map(|()| false)
    }

    fn refused(&self, process: ProcessId, why: &str) -> Failure {
        let what = format_args!("`{}` refuses: {why}", self.name(process));
        Failure::run(what, self.args.place.config.display(), "remove that cause, then run the command again")
    }

    fn failed(&self, error: &RemovalError) -> Failure {
        let config = self.args.place.config.display();
        let name = |process: &ProcessId| self.name(*process);
        match error {
            RemovalError::Mode | RemovalError::Nobody => Failure::usage(error, config, "there is nothing to do"),
            RemovalError::Minority { .. } => {
                let remedy = "remove fewer processes, or stop the cluster and start it anew without them";
                Failure::usage(error, "--id", remedy)
            }
            RemovalError::Unreachable(process) => {
                let here = if self.spread { " on this host" } else { "" };
                let what = format!("`{}`, which would remain, cannot be reached{here}", name(process));
                let place = format!("sockets in {}", self.directory.display());
                let remedy = "all remaining processes must agree: name the --directory that they use, or remove that process as well";
                Failure::run(what, place, remedy)
            }
            RemovalError::HalfWay(others) => {
                let names = self.named(*others).join(",");
                let what = format!("the removal of {names} was begun and is not complete");
                Failure::run(what, config, format!("run the command again with --id {names}, alone or with others"))
            }
            RemovalError::Refused(process, refusal) => self.refused(*process, &refusal.to_string()),
            RemovalError::Split { sender, index, by: (one, other) } => {
                let (sender, one, other) = (name(sender), name(one), name(other));
                let what =
                    format!("{one} and {other} say that they delivered different values of {sender} at index {index}");
                Failure::run(what, config, "one of them lies: remove that one as well")
            }
        }
    }
}
