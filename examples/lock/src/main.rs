//! `lock`: nodes, clients and a demonstration of the lock service.
#![forbid(unsafe_code)]

mod args;
mod demo;
mod hold;
mod node;
mod processes;
mod resource;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use stentor_lock::{End, Holder};

use args::{Action, Arguments, Where};

/// Time that a watcher waits for a notification before it checks whether to end.
const LOOK: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lock: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let place = &arguments.place;
    match arguments.action {
        Action::Demo { rounds } => return demo::run(usize::from(rounds)),
        Action::Node { id, with_parent } => node::run(&place.cluster()?.0, &id, with_parent)?,
        Action::Hold(hold) => hold::run(&connect(place)?, &hold)?,
        Action::Watch { name } => watch(&connect(place)?, &name)?,
        Action::Show => {
            let holder = connect(place)?;
            for (name, held) in holder.held()? {
                println!("{name}: token {}, until {} ns, held by {}", held.token, held.ends, held.holder());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn connect(place: &Where) -> Result<Holder> {
    let (cluster, group) = place.cluster()?;
    let client = cluster
        .client()
        .groups(group)
        .connect()
        .context("cannot connect to the lock service: start its nodes with `lock node ID`")?;
    Ok(Holder::new(client, group, cluster.clock_bound()))
}

fn watch(holder: &Holder, name: &str) -> Result<()> {
    let is_over = node::until_told(true)?;
    let mut notifications = holder.client().notifications();
    let say = |held: Option<stentor_lock::Held>| match held {
        Some(held) => println!("{name} is held with token {}", held.token),
        None => println!("{name} is free"),
    };
    say(holder.watch(name)?);
    while !is_over.load(Ordering::Relaxed) {
        match notifications.recv_timeout(LOOK).map(|notification| Holder::end_of(&notification)).transpose()? {
            Some(Some(End { token, cause, .. })) => println!("{name} is free: the lease of token {token} {cause}"),
            // Notifications were missed, so the last printed line may be out of date. Another `Watch` returns the
            // present holder.
            Some(None) => say(holder.watch(name)?),
            None => {}
        }
        holder.client().failure().map_or(Ok(()), Err)?;
    }
    Ok(())
}
