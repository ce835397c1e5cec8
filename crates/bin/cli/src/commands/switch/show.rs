//! `stentor switch show`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind;

use serde::Serialize;
use stentor::operator::ask;
use stentor_soft_switch::{SetShown, Shown};
use stentor_support::live::{self, unstarted};
use stentor_support::{Failure, Human, Output, Style, Verdict, table};

use super::{Answer, ME, Question, load, meeting_name};
use crate::args::SwitchShow;

pub(super) fn run(args: &SwitchShow, output: Output) -> Result<Verdict, Failure> {
    let settings = load(&args.config)?;
    let directory = live::directory(args.directory.as_ref());
    let paths = stentor_host::all_beside(&directory, &meeting_name(&settings), ME)
        .map_err(|error| unstarted(error.into(), &args.config))?;
    let place = live::looked_in(&directory);
    let silent = "start it with `stentor switch --config FILE`, and name the same --directory here";
    match ask(&paths, &Question { registers_of: args.set }) {
        Ok(Some(Answer::Shown(shown))) => {
            if let (Some(set), None) = (args.set, &shown.registers) {
                let what = format_args!("set {set}: this switch has room for {}, numbered from 0", shown.room);
                return Err(Failure::usage(what, "--set", "name one of the sets that the command shows without --set"));
            }
            output.conclude(&Told(*shown), Verdict::Good)
        }
        Ok(Some(Answer::Refused(why))) => Err(Failure::run(why, place, "ask again")),
        Ok(None) => Err(Failure::run("no such switch runs on this host", place, silent)),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            Err(Failure::run("the switch runs and does not answer", place, "it is stopped or very busy: ask again"))
        }
        Err(error) => {
            let what = format_args!("the answer of the switch is invalid: {error}");
            Err(Failure::run(what, place, "stop it and start it again"))
        }
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct Told(Shown);

/// Returns the names whose numbers are not 0, with these numbers, in one line.
pub(super) fn words(list: &BTreeMap<String, u64>) -> String {
    let some: Vec<_> = list.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

fn ranks(list: &[u8]) -> String {
    list.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

fn line(set: &SetShown) -> Vec<String> {
    let holder = set.holder.map_or_else(|| "-".to_owned(), |holder| holder.to_string());
    let members = if set.members.is_empty() { "-".to_owned() } else { ranks(&set.members) };
    vec![
        set.gid.to_string(),
        set.state.clone(),
        ranks(&set.ranks),
        holder,
        members,
        set.epoch.to_string(),
        set.acknowledged.to_string(),
    ]
}

impl Human for Told {
    fn human(&self, style: Style) -> String {
        let Shown { cluster, pid, forward, backward, mode, age_ms, room, sets, .. } = &self.0;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "switch of {cluster}, pid {pid}, {forward} and {backward}, {mode} sockets, up for {:.1} s",
            *age_ms as f64 / 1000.0
        );
        let _ = writeln!(text, "{}: {} of {room}", style.strong("sets"), sets.len());
        let head = ["gid", "state", "ranks", "holder", "members", "epoch", "acknowledged"];
        text += &table(&head, sets.iter().map(line));
        if let Some(registers) = &self.0.registers {
            let _ = writeln!(text, "{} of set {}, by stage", style.strong("registers"), registers.gid);
            for (array, rank, cells) in &registers.stages {
                let place = rank.map_or_else(|| array.clone(), |rank| format!("{array}[{rank}]"));
                let cells: Vec<_> = cells.iter().map(|(field, value)| format!("{field} {value}")).collect();
                let _ = writeln!(text, "{place}: {}", cells.join(", "));
            }
        }
        let lists = [
            ("packets", &self.0.packets),
            ("passes", &self.0.passes),
            ("connections", &self.0.connections),
            ("injected", &self.0.injected),
        ];
        for (what, list) in lists {
            let _ = writeln!(text, "{}: {}", style.strong(what), words(list));
        }
        let _ = writeln!(text, "{}, if it were a pipeline with 12 MiB for registers", style.strong("resources"));
        text + &self.0.resources
    }
}
