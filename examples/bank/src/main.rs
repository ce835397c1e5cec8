//! `bank`: nodes, clients and a demonstration of the bank.
#![forbid(unsafe_code)]

mod args;
mod demo;
mod node;
mod processes;
mod teller_process;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use stentor::{Client, Cluster, Group};
use stentor_bank::{Account, Command, Cut, Journal, Order, Outcome, Teller, Verdict, call, finish_old};

use args::{Action, Arguments, Where};

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bank: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let place = &arguments.place;
    match arguments.action {
        Action::Demo(demo) => return demo::run(&demo),
        Action::Node { id, with_parent } => node::run(&place.cluster()?, &id, with_parent)?,
        Action::Teller(teller) => teller_process::run(&place.cluster()?, &teller)?,
        Action::Open { account, amount } => {
            change(place, account, Command::Open(Account(account)))?;
            if amount > 0 {
                change(place, account, Command::Deposit(Account(account), amount))?;
            }
        }
        Action::Deposit { account, amount } => change(place, account, Command::Deposit(Account(account), amount))?,
        Action::Withdraw { account, amount } => change(place, account, Command::Withdraw(Account(account), amount))?,
        Action::Transfer { from, to, amount } => {
            transfer(place, Order { from: Account(from), to: Account(to), amount })?;
        }
        Action::Sum => return sum(place),
        Action::Finish { older_than, cancel } => {
            let (client, groups, _) = connect(place)?;
            let finished = finish_old(&client, &groups, older_than.into(), cancel)?;
            println!("{} transfers were settled, {} taken back", finished.settled, finished.cancelled);
            client.close()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn connect(place: &Where) -> Result<(Client, Vec<Group>, Cluster)> {
    let cluster = place.cluster()?;
    let client =
        cluster.client().connect().context("cannot connect to the bank: start its nodes with `bank node ID`")?;
    let groups = cluster.groups().collect();
    Ok((client, groups, cluster))
}

/// Sends one command to the group of an account, and prints the account's new balance.
fn change(place: &Where, account: u64, command: Command) -> Result<()> {
    let (client, groups, cluster) = connect(place)?;
    let home = Account(account).home(&groups).context("the cluster has no groups: add a [[group]]")?;
    match call(&client, home, command)? {
        Verdict::Balance(balance) => println!("account {account} of {}: {balance}", cluster.group_name(home)),
        Verdict::Refused(why) => bail!("{} refuses: {why}", cluster.group_name(home)),
        other => bail!("{} replied {other:?}: do nodes and clients run the same version?", cluster.group_name(home)),
    }
    client.close()?;
    Ok(())
}

fn transfer(place: &Where, order: Order) -> Result<()> {
    let mut teller = Teller::open(&place.cluster()?, Journal::none())?;
    let outcome = teller.transfer(order)?;
    teller.close()?;
    match outcome {
        Some(Outcome::Done) => println!("{} went from account {} to account {}", order.amount, order.from, order.to),
        Some(Outcome::Refused(why)) => bail!("the transfer is refused: {why}"),
        Some(Outcome::ClosedByAnother) => bail!("another process closed the transfer: `bank sum` shows the totals"),
        None => bail!("it is unknown whether the transfer began: `bank finish` ends it if it did"),
    }
    Ok(())
}

/// Prints the sums at one cut. The exit code is 1 if they are wrong.
fn sum(place: &Where) -> Result<ExitCode> {
    let (client, groups, cluster) = connect(place)?;
    let cut = Cut::read(&client, &groups)?;
    for (group, of) in &cut.totals {
        println!(
            "{}: {} on {} accounts, {} in flight; {} deposited, {} withdrawn",
            cluster.group_name(*group),
            of.balances,
            of.accounts,
            of.held,
            of.deposited,
            of.withdrawn
        );
    }
    client.close()?;
    match cut.check() {
        Ok(sum) => println!("sum: {sum}, which equals the deposits less the withdrawals"),
        Err(wrong) => {
            println!("WRONG: {wrong}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
