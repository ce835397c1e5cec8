//! `stentor config check`: what follows from a configuration.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use stentor::ClusterConfig;
use stentor::config::{FabricKind, MemoryRow, Role};

use crate::failure::{Failure, Verdict};
use crate::output::{Human, Output};
use crate::style::{Style, bytes, columns};

#[derive(Serialize)]
struct Checked {
    ok: bool,
    cluster: String,
    fabric: &'static str,
    /// 16 hex digits.
    fingerprint: String,
    groups: Vec<Group>,
    processes: Vec<Process>,
    memory: Memory,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Group {
    id: String,
    processes: usize,
    majority: usize,
}

#[derive(Serialize)]
struct Process {
    /// Index in the table.
    process: u16,
    name: String,
    /// None for a client.
    group: Option<String>,
    /// None for a client.
    address: Option<String>,
}

#[derive(Serialize)]
struct Memory {
    member: Vec<Row>,
    member_bytes: u64,
    client: Vec<Row>,
    client_bytes: u64,
    total_bytes: u64,
}

#[derive(Serialize)]
struct Row {
    what: &'static str,
    formula: String,
    count: u64,
    bytes_each: u64,
    bytes: u64,
}

pub(super) fn run(file: &Path, output: Output) -> Result<Verdict, Failure> {
    let config = ClusterConfig::load(file)?;
    output.report(&Checked::new(&config))?;
    Ok(Verdict::Good)
}

impl Checked {
    fn new(config: &ClusterConfig) -> Self {
        let group = |group: &stentor::config::GroupConfig| Group {
            id: group.id().to_owned(),
            processes: group.members().len(),
            majority: group.majority(),
        };
        Checked {
            ok: true,
            cluster: config.cluster().to_owned(),
            fabric: config.fabric().name(),
            fingerprint: format!("{:016x}", config.fingerprint()),
            groups: config.groups().iter().map(group).collect(),
            processes: processes(config),
            memory: Memory::new(config),
            notes: notes(config),
        }
    }
}

fn processes(config: &ClusterConfig) -> Vec<Process> {
    let table = config.process_table();
    let process = |entry: &stentor::config::ProcessEntry| {
        let (group, address) = match entry.role {
            Role::Member { group, index } => {
                let group = &config.groups()[group];
                (Some(group.id().to_owned()), Some(group.members()[index].address().to_owned()))
            }
            Role::Client { .. } => (None, None),
        };
        Process { process: entry.id.0, name: entry.name.clone(), group, address }
    };
    table.entries().iter().map(process).collect()
}

fn notes(config: &ClusterConfig) -> Vec<String> {
    let mut notes = Vec::new();
    if config.key().is_some() && matches!(config.fabric(), FabricKind::Shm | FabricKind::Sim) {
        notes.push(format!("`key` is not used on {}", config.fabric()));
    }
    for group in config.groups() {
        let n = group.members().len();
        if n.is_multiple_of(2) {
            let (id, less) = (group.id(), n - 1);
            notes.push(format!("group `{id}`: {n} processes survive no more failures than {less} would"));
        }
    }
    notes
}

impl Memory {
    fn new(config: &ClusterConfig) -> Self {
        let plan = config.memory();
        let row = |row: &MemoryRow| Row {
            what: row.what,
            formula: row.formula.clone(),
            count: row.count,
            bytes_each: row.bytes_each,
            bytes: row.bytes(),
        };
        Memory {
            member: plan.member.iter().map(row).collect(),
            member_bytes: plan.member_bytes(),
            client: plan.client.iter().map(row).collect(),
            client_bytes: plan.client_bytes(),
            total_bytes: plan.total_bytes,
        }
    }
}

impl Human for Checked {
    fn human(&self, style: Style) -> String {
        let mut text = format!(
            "{} cluster {} on {}, fingerprint {}\n\n",
            style.good("good:"),
            style.strong(&self.cluster),
            self.fabric,
            self.fingerprint
        );
        text += &columns(&self.group_rows());
        text.push('\n');
        text += &columns(&self.process_rows());
        text.push('\n');
        text += &columns(&self.memory_rows());
        let _ = writeln!(text, "all processes: {}", bytes(self.memory.total_bytes));
        for note in &self.notes {
            let _ = writeln!(text, "{} {note}", style.fair("note:"));
        }
        text
    }
}

fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

impl Checked {
    fn group_rows(&self) -> Vec<Vec<String>> {
        let row = |group: &Group| vec![group.id.clone(), group.processes.to_string(), group.majority.to_string()];
        std::iter::once(cells(["group", "processes", "majority"])).chain(self.groups.iter().map(row)).collect()
    }

    fn process_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![cells(["process", "name", "group", "address"])];
        for process in &self.processes {
            let (Some(group), Some(address)) = (&process.group, &process.address) else { continue };
            rows.push(vec![format!("p{}", process.process), process.name.clone(), group.clone(), address.clone()]);
        }
        let mut clients = self.processes.iter().filter(|process| process.group.is_none());
        if let (Some(first), last) = (clients.next(), clients.next_back()) {
            let last = last.unwrap_or(first);
            let range = |a: String, b: String| if a == b { a } else { format!("{a}–{b}") };
            let numbers = range(format!("p{}", first.process), format!("p{}", last.process));
            rows.push(vec![numbers, range(first.name.clone(), last.name.clone()), "(clients)".to_owned()]);
        }
        rows
    }

    fn memory_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![cells(["memory", "regions", "each", "all", "formula"])];
        let row = |row: &Row| {
            let what = format!("  {}", row.what);
            vec![what, row.count.to_string(), bytes(row.bytes_each), bytes(row.bytes), row.formula.clone()]
        };
        let head = |who: &str, all| vec![who.to_owned(), String::new(), String::new(), bytes(all)];
        rows.push(head("each member", self.memory.member_bytes));
        rows.extend(self.memory.member.iter().map(row));
        rows.push(head("each client", self.memory.client_bytes));
        rows.extend(self.memory.client.iter().map(row));
        rows
    }
}
